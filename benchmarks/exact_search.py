"""Orders by exact search beside CP-SAT: what each proves of ours at single shapes, and what that takes.

At the shape where cuts leave most open, the nodes are taken whose orders gave the bound there
(`order.shape_bound`). The search from valley to valley is asked whether any of their orders is below it,
CP-SAT for the least peak of all of them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from benchmarks.case import NO_BOUND, Case, Planned
from benchmarks.document import Cell, Finding, Page, Table
from benchmarks.environment import Progress
from benchmarks.families import graph_sources
from onnx_symmem.order.buffers import buffer_bytes
from onnx_symmem.order.oracle import least_peak
from onnx_symmem.order.problem import OrderProblem, restriction
from onnx_symmem.order.shape_bound import SMALL, ShapeLimits, shape_bound
from onnx_symmem.order.valleys import ValleySearch

__all__ = ["FAMILIES", "kept_problem", "run"]

FAMILIES = ("wired", "series-parallel")
_WORK = 100_000_000  # of the bound at one shape
_NODES = 250  # kept, with which CP-SAT comes to an end
_EFFORT = 5.0  # deterministic time of CP-SAT, on a quiet core about seconds


def kept_problem(case: Case, planned: Planned, shape: int) -> tuple[OrderProblem, int, int] | None:
    """The nodes whose orders bound the peak at a shape, the best peak, the bound; None where cuts do."""
    graph = case.graph
    table = buffer_bytes(graph, case.sizes, case.shapes)[:, [shape]]
    floor = planned.found.floor[shape]
    found = shape_bound(graph, table, planned.orders, np.array([floor]), ShapeLimits(_WORK))
    if not found.nodes[0]:
        return None
    peak = min(c.peaks[shape] for c in (*planned.found.candidates, *planned.found.specialists))
    sizes = np.where(table > peak * SMALL, table, 0.0)
    return restriction(graph, sizes, found.nodes[0]), peak, int(found.bytes[0])


def run(only: Sequence[str] = ()) -> Page:
    """The table of the graphs whose bound is by exact search, or of some by name."""
    rows: list[tuple[Cell, ...]] = []
    wrong: list[str] = []
    sources = {
        name: s for name, s in graph_sources().items() if (name in only if only else s.family in FAMILIES)
    }
    progress = Progress("exact_search")
    for name, source in progress.each(sources):
        with progress.attempt(name, wrong):
            case = source.case()
            planned = case.planned(NO_BOUND, dispatch=False)
            for k in _widest(planned):
                kept = kept_problem(case, planned, k)
                if kept is not None and len(kept[0].nodes) <= _NODES:
                    shape = case.shapes[k]
                    symbols = ", ".join(f"{s}={shape[s]}" for s in case.symbols if s in shape)
                    rows.append((name, symbols, *_compared(*kept, wrong, name)))
                    break
    closed = sum(row[8] is not None and row[8] == row[9] for row in rows)
    return Page(
        "exact_search",
        "Exact search beside CP-SAT",
        f"""At one shape each, that where cuts leave most open, the nodes of a graph that bound the peak of
        all its orders, up to {_NODES}. Both are given the same nodes and one core; CP-SAT {_EFFORT:.0f} units
        of its deterministic time.""",
        (
            Finding("bounds at single shapes", str(len(rows))),
            Finding("best order known is optimal", f"{sum(row[3] == row[4] for row in rows)} of {len(rows)}"),
            Finding("least peak proved by CP-SAT", f"{closed} of {len(rows)}"),
        ),
        (
            Table(
                "exact_search",
                "By graph and shape",
                (
                    "graph", "shape", "nodes", "best known", "bound", "proved", "looks", "s",
                    "CP-SAT peak", "CP-SAT bound", "s of CP-SAT",
                ),
                tuple(rows),
                """nodes: those that are kept; best known: the least peak of all orders found; bound: what
                none of the graph's orders is below; proved: whether the search from both ends proved again
                that no order of these nodes is below the bound, with what it took; CP-SAT peak and bound: of
                these nodes alone, - where it found no order in time.""",
            ),
        ),
        wrong=tuple(wrong),
    )  # fmt: skip


def _widest(planned: Planned) -> list[int]:
    """Shapes, those first where the best peak known is farthest above what cuts prove."""
    known = np.min([c.peaks for c in (*planned.found.candidates, *planned.found.specialists)], axis=0)
    floor = np.maximum(planned.found.floor, 1)
    return [int(k) for k in np.argsort(-known[: len(floor)] / floor, kind="stable")]


def _compared(problem: OrderProblem, peak: int, bound: int, wrong: list[str], name: str) -> tuple[Cell, ...]:
    start = time.perf_counter()
    found = ValleySearch(problem).below_caps(np.array([float(bound)]), _WORK)
    passed = time.perf_counter() - start
    start = time.perf_counter()
    told = least_peak(problem, _EFFORT)
    by_solver = time.perf_counter() - start
    if found.order is not None or (told is not None and told.peak < bound):
        wrong.append(f"{name}: an order of less than {bound:,} B was found, which is a bound")
    return (
        len(problem.nodes), peak, bound, "yes" if found.exact else "no", found.work, round(passed, 1),
        None if told is None else told.peak, None if told is None else told.bound, round(by_solver, 1),
    )  # fmt: skip
