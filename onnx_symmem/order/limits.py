"""How much the search for an order tries, by the size of the graph: always counted, never timed.

Every step of the search takes time at most linear in the nodes, but for sorting, so what shrinks with large
graphs is how often a step is made.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from onnx_symmem.order.cut_bound import CutLimits
from onnx_symmem.order.window import WindowLimits

__all__ = ["SearchLimits", "limits_for"]

_FULL = 4_000  # nodes up to which everything is tried


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """How much is tried.

    `shapes` steer each heuristic; `improved` best orders are searched around; `spliced` best ones are joined;
    exact plans are made of the `exact` best and proofs tried for the `proofs` best of these. In up to
    `rounds` rounds shapes that refuted an order are added. `window` bounds one round's local searches
    together, `floor` each bound.
    """

    shapes: int = 8
    improved: int = 3
    exact: int = 12
    proofs: int = 6
    spliced: int = 12
    rounds: int = 3
    window: WindowLimits = field(default_factory=WindowLimits)
    floor: CutLimits = field(default_factory=CutLimits)


def limits_for(limits: SearchLimits, nodes: int) -> tuple[SearchLimits, str | None]:
    """The limits for a graph of so many nodes, and what is said about it where they are lower."""
    if nodes <= _FULL:
        return limits, None
    many = nodes // _FULL  # 1..
    lowered = replace(
        limits,
        shapes=min(limits.shapes, max(1, 4 - many // 4)),
        improved=min(limits.improved, 1 if many < 12 else 0),
        exact=min(limits.exact, max(1, 6 // (many + 1))),
        proofs=min(limits.proofs, max(1, 4 // many)),
        rounds=min(limits.rounds, 1 if many < 4 else 0),
        window=replace(
            limits.window,
            windows=min(limits.window.windows, max(12, 200 // many)),
            work=limits.window.work // (many + 1),
            splits=limits.window.splits // (many + 1),
        ),
        floor=replace(limits.floor, nodes=min(limits.floor.nodes, max(8, 160 // many))),
    )
    return lowered, f"searched less than usual for an order: the graph has {nodes:,} nodes, over {_FULL:,}"
