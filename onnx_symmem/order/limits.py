"""How much the search for an order tries, by the size of the graph: always counted, never timed.

Every step of the search takes time at most linear in the nodes, but for sorting, so what shrinks with large
graphs is how often a step is made.

The usual counts are those for graphs of up to 1,000 nodes; larger ones get as much per node, up to 4,000. A
time budget is turned into counts by what they take on a usual core, whatever the size of the graph: half the
budget, half the counts. A clock never stops anything, so the same budget gives the same order on every
machine, if not in the same time.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from onnx_symmem.errors import UsageError
from onnx_symmem.order.cut_bound import CutLimits
from onnx_symmem.order.regret import RegretLimits
from onnx_symmem.order.shape_bound import ShapeLimits
from onnx_symmem.order.window import WindowLimits

__all__ = ["USUAL_SECONDS", "SearchLimits", "limits_for", "within_budget"]

_SMALL = 1_000  # nodes for which the usual limits are counted
_FULL = 4_000  # nodes up to which everything is tried
USUAL_SECONDS = 5.0  # what the usual limits take for 1,000 nodes, on a core of the machine of the counts
_SEARCHED_FROM = 0.25  # seconds below which nothing but heuristics is worth while


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """How much is tried.

    `shapes` steer each heuristic; the segments of `segmented` best orders are improved one by one; in
    `deferred` best orders results are made at other places; `improved` best orders are searched around;
    `spliced` best ones are joined, `crossed` best ones and those for single shapes crossed, with `crossings`
    looks (`order.crossover`); exact plans are made of the `exact` best and proofs tried for the `proofs` best
    of these. In up to `rounds` rounds shapes that refuted an order are added. For dispatch orders are made
    for `unlike` shapes of other proportions, as many drawn ones, and the parts of at most `versions`
    versions, each within `regret`; results are placed for them with `placing` looks
    (`order.result_versions`). `window` bounds one round's local searches together, `floor` each bound by
    cuts, `bound` that by exact search at the end. `seed` draws the places that are searched besides the worst
    ones. `per_node` says that the counts grow with the graph.
    """

    shapes: int = 8
    segmented: int = 1
    improved: int = 3
    deferred: int = 3
    exact: int = 12
    proofs: int = 6
    spliced: int = 12
    crossed: int = 3
    crossings: int = 30_000_000
    placing: int = 75_000_000
    unlike: int = 40
    versions: int = 4
    regret: RegretLimits = field(default_factory=RegretLimits)
    rounds: int = 3
    window: WindowLimits = field(default_factory=WindowLimits)
    floor: CutLimits = field(default_factory=CutLimits)
    bound: ShapeLimits = field(default_factory=ShapeLimits)
    seed: int = 0
    per_node: bool = True


def within_budget(seconds: float, limits: SearchLimits | None = None) -> SearchLimits:
    """The limits scaled to a time budget; 0: heuristics only, no search."""
    if not 0 <= seconds < 1e6:
        raise UsageError(f"time budget {seconds}: expected seconds from 0 on")
    limits = replace(limits or SearchLimits(), per_node=False)
    part = seconds / USUAL_SECONDS
    limits = _more(limits, part)
    if seconds < _SEARCHED_FROM:
        return replace(limits, segmented=0, deferred=0, improved=0, rounds=0)
    window = replace(
        limits.window,
        windows=max(8, int(limits.window.windows * min(part, 4))),
        sets=int(limits.window.sets * max(1, min(part, 50)) ** 0.5),
    )
    floor = replace(limits.floor, work=int(limits.floor.work * min(max(part, 0.1), 4)))
    rounds = limits.rounds if part >= 0.25 else min(limits.rounds, 1)
    return replace(limits, window=window, floor=floor, rounds=rounds)


def limits_for(limits: SearchLimits, nodes: int) -> tuple[SearchLimits, str | None]:
    """The limits for a graph of so many nodes, and what is said about it where they are lower."""
    if limits.per_node and nodes > _SMALL:
        # Programs of windows take as long in a small graph as in a large one, and are rarely used up.
        work = limits.window.work
        limits = _more(limits, min(nodes, _FULL) / _SMALL)
        limits = replace(limits, window=replace(limits.window, work=work))
    if nodes <= _FULL:
        return limits, None
    many = nodes // _FULL  # 1..
    lowered = replace(
        limits,
        shapes=min(limits.shapes, max(1, 4 - many // 4)),
        segmented=min(limits.segmented, 1 if many < 12 else 0),
        improved=min(limits.improved, 1 if many < 12 else 0),
        deferred=min(limits.deferred, 1 if many < 2 else 0),
        exact=min(limits.exact, max(1, 32 // (many + 1) ** 2)),
        proofs=min(limits.proofs, max(1, 6 // many)),
        rounds=min(limits.rounds, 1 if many < 4 else 0),
        window=replace(
            limits.window,
            windows=min(limits.window.windows, max(12, 200 // many)),
            work=limits.window.work // (many + 1),
            splits=limits.window.splits // (many + 1),
            pairs=limits.window.pairs // (many + 1),
        ),
        floor=replace(limits.floor, nodes=min(limits.floor.nodes, max(8, 160 // many))),
        bound=replace(limits.bound, work=limits.bound.work // (many + 1)),
        crossings=limits.crossings // many**3,
        placing=limits.placing // many**3,
    )
    return lowered, f"searched less than usual for an order: the graph has {nodes:,} nodes, over {_FULL:,}"


def _more(limits: SearchLimits, part: float) -> SearchLimits:
    """What is counted of the search, times a factor."""
    window, bound = limits.window, limits.bound
    window = replace(
        window,
        work=int(window.work * part),
        splits=int(window.splits * part),
        pairs=int(window.pairs * part),
    )
    return replace(
        limits,
        window=window,
        bound=replace(bound, work=int(bound.work * part)),
        crossings=int(limits.crossings * part),
        placing=int(limits.placing * part),
        regret=replace(limits.regret, work=int(limits.regret.work * part)),
    )
