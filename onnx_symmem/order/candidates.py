"""Candidate orders of one graph, and what each takes at the steering shapes under the exact plan.

Candidates are the order that would have run, the orders of files it came from, every heuristic steered
at every shape, and the best of these improved by window search. Each is an order that really runs, with the
file order and the traversal that make it run: DEFAULT where some sorted file makes it run exactly as wanted,
else PRIORITY_BASED, which follows the file but hoists Shape and Size (`memory.execution_order`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from onnx_symmem.expr.expression import ZERO, Expr
from onnx_symmem.expr.grid import Grid, evaluate
from onnx_symmem.memory.execution_order import file_for_default, priority_order
from onnx_symmem.memory.plan import PlanInput
from onnx_symmem.memory.profile import MemoryProfile, profile
from onnx_symmem.memory.sizes import ValueSizes
from onnx_symmem.order.buffers import BufferGraph, buffer_graph
from onnx_symmem.order.heuristics import HEURISTICS
from onnx_symmem.order.window import WindowLimits, improve_order

__all__ = ["CandidateOrder", "SearchLimits", "candidate_orders", "peaks_at"]

Tick = Callable[[str, int, int], None]
"""Progress: what is being done, steps done, steps in all."""


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """How much is tried: steering shapes per heuristic, and window searches on so many best orders."""

    shapes: int = 8
    improved: int = 2
    window: WindowLimits = field(default_factory=WindowLimits)


@dataclass(frozen=True)
class CandidateOrder:
    """An order as it will run, its exact profile, and its peaks in bytes at the steering shapes.

    `rule` is the traversal it runs under (default or priority), `file` the order in which the file then has
    to list the nodes.
    """

    name: str
    order: tuple[int, ...]
    rule: str
    file: tuple[int, ...]
    profile: MemoryProfile
    peaks: tuple[int, ...]


def peaks_at(found: MemoryProfile, shapes: Sequence[Mapping[str, int]]) -> tuple[int, ...]:
    """Peak in bytes at each shape: the largest row of the profile."""
    values = found.in_use.on(Grid(shapes))
    return tuple(int(v) for v in values.max(axis=0)) if len(values) else (0,) * len(shapes)


def candidate_orders(
    prepared: Mapping[str, PlanInput],
    sizes: ValueSizes,
    shapes: Sequence[Mapping[str, int]],
    given: Mapping[str, Sequence[int]],
    limits: SearchLimits | None = None,
    tick: Tick | None = None,
) -> tuple[CandidateOrder, ...]:
    """Distinct candidates, `given` orders first, then by heuristic and shape, then improved ones.

    `prepared` has the graph per traversal (subgraphs run under the same one); `given` maps names to
    topological orders of its nodes. A given order is a candidate under both traversals. Deterministic.
    """
    limits = limits or SearchLimits()
    view = prepared["priority"].view
    graph = buffer_graph(prepared["priority"])
    table = _buffer_bytes(graph, sizes, shapes)
    found: dict[tuple[int, ...], CandidateOrder] = {}

    def add(name: str, order: tuple[int, ...], rule: str, file: tuple[int, ...]) -> None:
        if order not in found:
            exact = profile(prepared[rule].plan(order), sizes)
            found[order] = CandidateOrder(name, order, rule, file, exact, peaks_at(exact, shapes))

    def add_hoisted(name: str, order: Sequence[int]) -> None:
        runs = priority_order(view, order)
        add(name, runs, "priority", runs)

    steering = range(min(limits.shapes, len(shapes)))
    steps = [(name, k) for name in HEURISTICS for k in steering]
    for name, order in given.items():
        file = file_for_default(view, order)
        if file is not None:
            add(name, tuple(order), "default", file)
        add_hoisted(name if file is None else f"{name}, Shape first", order)
    for done, (name, k) in enumerate(steps):
        if tick is not None:
            tick("trying orders", done, len(steps))
        column = [int(b) for b in table[:, k]]
        at = ",".join(f"{s}={v}" for s, v in shapes[k].items())
        add_hoisted(f"{name}@{at}" if at else name, HEURISTICS[name](graph, column))
    best = rank(tuple(found.values()))[: limits.improved]
    for number, start in enumerate(best):
        reference = np.array([min(c.peaks[k] for c in found.values()) for k in steering], dtype=np.float64)
        total, count = limits.window.windows * len(best), [limits.window.windows * number]

        def advance(total: int = total, count: list[int] = count) -> None:
            count[0] += 1
            if tick is not None:
                tick("improving orders", count[0], total)

        better = improve_order(
            graph, table[:, list(steering)], start.order, reference, limits.window, advance
        )
        add_hoisted(f"{start.name}+windows", better)
    return tuple(found.values())


def rank(candidates: Sequence[CandidateOrder]) -> list[CandidateOrder]:
    """Best first: least worst-case ratio to the best peak known per shape, then least mean ratio.

    Ties keep the order of `candidates`, so what was given comes before what was searched.
    """
    if not candidates:
        return []
    peaks = np.array([c.peaks for c in candidates], dtype=np.float64)
    ratios = peaks / np.maximum(peaks.min(axis=0), 1.0)
    keys = [(float(r.max(initial=0.0)), float(r.mean()) if r.size else 0.0) for r in ratios]
    return [candidates[k] for k in sorted(range(len(candidates)), key=lambda k: (*keys[k], k))]


def _buffer_bytes(graph: BufferGraph, sizes: ValueSizes, shapes: Sequence[Mapping[str, int]]) -> np.ndarray:
    """Bytes per buffer and shape, (buffers, shapes); unknown and impossible sizes count as nothing."""
    exprs: list[Expr] = [sizes.bytes[v] or ZERO for v in graph.values]
    if not exprs:
        return np.zeros((0, len(shapes)))
    return np.maximum(evaluate(exprs, shapes), 0).astype(np.float64)
