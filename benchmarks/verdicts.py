"""How comparisons of symbolic sizes come out: LE, GE, EQ, INCOMPARABLE or UNKNOWN, by tier and domain width.

Compared are the memory impacts of a graph's nodes (bytes made minus bytes freed, in the order that would have
run), every pair; counted besides are the comparisons that the two symbolic schedulers really ask for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from benchmarks.case import Case
from benchmarks.document import Cell, Finding, Page, Table
from benchmarks.environment import Progress
from benchmarks.families import graph_sources
from onnx_symmem.expr.census import census
from onnx_symmem.expr.decide import Kind, Tally
from onnx_symmem.expr.expression import ZERO, Expr
from onnx_symmem.order.baselines import reverse_list, symbolic_greedy

__all__ = ["WIDTHS", "impacts", "run", "spread"]

WIDTHS: dict[str, tuple[int, int | None]] = {"1..": (1, None), "1..64": (1, 64), "8..32": (8, 32)}
_MOST_NODES = 4_000
_COMPARED = 200


def impacts(case: Case) -> list[Expr]:
    """Bytes made minus bytes freed per node, along the order that would have run."""
    graph = case.graph
    sizes = case.buffer_sizes(graph)
    left = [len(readers) for readers in graph.readers]
    found: list[Expr] = []
    for node in case.before.plan.order:
        change = sum((sizes[b] for b in graph.makes[node]), ZERO)
        for buffer in graph.reads[node]:
            left[buffer] -= 1
            if not left[buffer] and not graph.pinned[buffer]:
                change = change - sizes[buffer]
        found.append(change)
    return found


def spread(exprs: Sequence[Expr], count: int) -> list[Expr]:
    """At most `count` of them, evenly spaced."""
    step = max(1.0, len(exprs) / count)
    return [exprs[int(k * step)] for k in range(min(count, len(exprs)))]


def run(only: Sequence[str] = ()) -> Page:
    """The tables over all families."""
    sources = {n: s for n, s in graph_sources().items() if not only or n in only}
    rows: list[tuple[Cell, ...]] = []
    tiers: Counter[tuple[str, str, str, str]] = Counter()
    unknown: list[float] = []
    wrong: list[str] = []
    progress = Progress("verdicts")
    tasks = {f"{n} {width}": (n, s, width) for n, s in sources.items() for width in WIDTHS}
    for task, (name, source, width) in progress.each(tasks):
        with progress.attempt(task, wrong):
            case = source.case(WIDTHS[width])
            if case.nodes > _MOST_NODES:
                continue
            graph = case.graph
            sizes = case.buffer_sizes(graph)
            asked = {
                "all pairs": census(spread(impacts(case), _COMPARED), case.domain),
                "symbolic-greedy": symbolic_greedy(graph, sizes, case.domain)[1],
                "reverse-list": reverse_list(graph, sizes, case.domain)[1],
            }
            for what, tally in asked.items():
                rows.append((name, width, what, tally.total, *_shares(tally)))
                for (kind, tier), count in tally.counts.items():
                    tiers[width, what, kind, tier] += count
            unknown.append(asked["all pairs"].share(Kind.UNKNOWN))
    totals: Counter[tuple[str, str]] = Counter()
    for (width, what, _, _), count in tiers.items():
        totals[width, what] += count
    by_tier = [
        (width, what, kind, tier, count, count / totals[width, what])
        for (width, what, kind, tier), count in sorted(tiers.items())
    ]
    kinds = tuple(str(kind) for kind in Kind)
    return Page(
        "verdicts",
        "How symbolic comparisons come out",
        """Shares of comparisons by verdict. A width is the range of every input dim, in units of its divisor,
        where the model allows it. LE, GE and EQ carry a certificate, INCOMPARABLE two witness shapes; UNKNOWN
        is what no tier settles.""",
        (
            Finding(
                "largest share of UNKNOWN among all pairs of a graph", f"{max(unknown, default=0.0):.2%}"
            ),
            Finding(
                "graphs and widths without any UNKNOWN", f"{sum(not u for u in unknown)} of {len(unknown)}"
            ),
        ),
        (
            Table(
                "verdicts",
                "By graph and domain width",
                ("graph", "width", "comparisons", "count", *kinds, "decided"),
                tuple(rows),
                f"""all pairs: the memory impacts of all nodes, of {_COMPARED} evenly spaced ones where there
                are more, each pair once; symbolic-greedy and
                reverse-list: what these schedulers asked for. Decided: LE, GE or EQ.""",
                digits=4,
            ),
            Table(
                "verdict_tiers",
                "By tier",
                ("width", "comparisons", "verdict", "tier", "count", "share"),
                tuple(by_tier),
                "Summed over all graphs; a tier is the method that settled the question.",
                digits=5,
            ),
        ),
        wrong=tuple(wrong),
    )


def _shares(tally: Tally) -> tuple[float, ...]:
    return (*(tally.share(kind) for kind in Kind), tally.decided)
