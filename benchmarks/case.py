"""A graph as the schedulers see it: prepared once, planned in many ways, judged by one bound.

Peaks are those of the exact plan, the bound holds for every order at every shape. A case is judged at its
steering shapes: corners and the middle of its domain, 512 standing for no limit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from onnx_symmem.expr.domain import Domain, SymbolRange
from onnx_symmem.expr.expression import ZERO, Expr
from onnx_symmem.expr.grid import evaluate
from onnx_symmem.graph.load import LoadedModel
from onnx_symmem.memory.execution_order import default_order, priority_order
from onnx_symmem.memory.peak import Peak
from onnx_symmem.memory.plan import PlanInput, prepare
from onnx_symmem.memory.profile import MemoryProfile, profile
from onnx_symmem.memory.sizes import ValueSizes, from_written, value_sizes
from onnx_symmem.order.bound import lower_bound
from onnx_symmem.order.buffers import BufferGraph, buffer_graph
from onnx_symmem.order.candidates import peaks_at
from onnx_symmem.order.dispatch import Dispatch, choose_versions
from onnx_symmem.order.limits import SearchLimits
from onnx_symmem.order.planner import PlannedOrder, plan_order
from onnx_symmem.order.steering import steering_shapes
from onnx_symmem.run.baseline import baseline_plan
from onnx_symmem.run.dispatched import dispatched_model
from onnx_symmem.shapes.engine import infer_shapes
from onnx_symmem.shapes.table import ModelShapes

__all__ = ["JUDGED", "NO_BOUND", "Case", "Planned", "Shape", "case_of", "ratios"]

Shape = Mapping[str, int]

_USUAL = SearchLimits()
NO_BOUND = replace(_USUAL, bound=replace(_USUAL.bound, work=0))
"""The usual search without the bounds at single shapes, which take long and steer nothing."""
JUDGED = replace(_USUAL, bound=replace(_USUAL.bound, work=600_000_000))
"""The usual search, with more work for the bounds at single shapes than `optimize` takes."""


@dataclass(frozen=True)
class Planned:
    """Our plan: the one order that was chosen, or several among which the shape decides at run time.

    `dispatch` has their peaks in the model as it is written, with all that deciding takes. `refused` says why
    one order is written although several were wanted.
    """

    found: PlannedOrder
    dispatch: Dispatch | None = None
    refused: str = ""

    @property
    def one_order(self) -> Peak:
        """The peak of the chosen order alone."""
        return self.found.choice.after

    @property
    def orders(self) -> list[tuple[int, ...]]:
        """All orders that were found and planned exactly."""
        return [c.order for c in (*self.found.candidates, *self.found.specialists)]

    @property
    def never_worse(self) -> str:
        """proved, kept, or how many orders are dispatched; with the bytes that it may be above after all."""
        if self.dispatch is None:
            above = self.found.choice.overhead
            return self.found.choice.never_worse + (f", but for {above:,} B" if above else "")
        return f"{len(self.dispatch.versions)} orders"

    def at(self, shape: Shape) -> int:
        """Peak in bytes at a shape."""
        if self.dispatch is None:
            return self.one_order.at(shape)
        return max(self.dispatch.guard, min(version.peak.at(shape) for version in self.dispatch.versions))


@dataclass(frozen=True)
class Case:
    """A graph on a domain. `before` is the plan that would have run, `file` the order of the file."""

    model: LoadedModel
    inferred: ModelShapes
    domain: Domain
    symbols: tuple[str, ...]
    shapes: tuple[Shape, ...]
    prepared: Mapping[str, PlanInput]
    sizes: ValueSizes
    before: MemoryProfile
    file: tuple[int, ...]

    @property
    def nodes(self) -> int:
        """Nodes of the main graph."""
        return len(self.file)

    @property
    def graph(self) -> BufferGraph:
        """What heuristics look at."""
        return buffer_graph(self.prepared["priority"])

    def buffer_sizes(self, graph: BufferGraph) -> list[Expr]:
        """Bytes per buffer; unknown ones count as nothing."""
        return [self.sizes.bytes[v] or ZERO for v in graph.values]

    def planned(self, limits: SearchLimits | None = None, dispatch: bool = True) -> Planned:
        """Our plan as `optimize` makes it; `dispatch` False: one order for all shapes."""
        given = {"onnxruntime": self.before.plan.order, "file": self.file}
        found = plan_order(
            self.prepared, self.sizes, self.domain, self.shapes, self.before, given, limits,
            specialists=dispatch,
        )  # fmt: skip
        choice = found.choice
        if not dispatch or (choice.never_worse != "proved" and choice.chosen.order != self.before.plan.order):
            return Planned(found)
        others = (*found.candidates, *found.specialists)
        several = choose_versions(
            choice.chosen,
            others,
            self.domain,
            self.symbols,
            found.shapes,
            before=choice.before,
            above=choice.overhead,
        )
        if several is None:
            return Planned(found)
        _, written, why = dispatched_model(
            self.model,
            self.inferred,
            several,
            choice.before,
            self.shapes,
            floor=found.floor,
            one=choice.after,
        )
        return Planned(found, written, " ".join(why))

    def profile_of(self, order: Sequence[int]) -> MemoryProfile:
        """The exact profile of an order, Shape and Size first."""
        prepared = self.prepared["priority"]
        return profile(prepared.plan(priority_order(prepared.view, order)), self.sizes)

    def peaks(self, order: Sequence[int]) -> tuple[int, ...]:
        """Its peaks at the steering shapes."""
        return peaks_at(self.profile_of(order), self.shapes)

    def formula_bound(self, planned: Planned) -> np.ndarray:
        """Bytes at each steering shape that no order is below, by a formula that holds at all shapes."""
        found = lower_bound(self.prepared["priority"], self.sizes, self.domain, planned.orders, self.shapes)
        return np.asarray(evaluate(found, self.shapes).max(axis=0))

    def bound(self, planned: Planned, formula: np.ndarray | None = None) -> np.ndarray:
        """The same, by formula for all shapes or for that one."""
        formula = self.formula_bound(planned) if formula is None else formula
        return np.asarray(np.maximum(formula, planned.found.floor))


def case_of(
    model: LoadedModel,
    level: str = "none",
    ranges: Mapping[str, SymbolRange] | None = None,
    width: tuple[int, int | None] = (1, None),
) -> Case:
    """A model as ONNX Runtime would run it at a level.

    `ranges` are what is known of dims. `width` narrows every dim that allows it, in units of its divisor.
    """
    view = model.view()
    spec = dict(ranges or {})
    shapes = infer_shapes(view, Domain(spec))
    if width != (1, None):
        low, high = width
        for symbol in shapes.input_symbols:
            now = shapes.domain.range_of(symbol)
            unit = now.divisor
            top = now.hi if high is None else high * unit
            if symbol not in shapes.domain.equalities and (top is None or now.lo <= top):
                spec[symbol] = SymbolRange(max(now.lo, low * unit), top, unit)
        shapes = infer_shapes(view, Domain(spec))
    sizes, keys = value_sizes(shapes.graph), from_written(shapes.graph)
    prepared = {
        "default": prepare(view.graph, keys, None, default_order),
        "priority": prepare(view.graph, keys, None, priority_order),
    }
    before = profile(baseline_plan(model, shapes.graph, level, "cpu"), sizes)
    samples = steering_shapes(shapes.domain, shapes.input_symbols)
    symbols = tuple(shapes.input_symbols)
    file = tuple(range(len(view.graph.nodes)))
    return Case(model, shapes, shapes.domain, symbols, samples, prepared, sizes, before, file)


def ratios(peaks: Sequence[int], bound: Sequence[int] | np.ndarray) -> list[float]:
    """Peak over bound per shape."""
    return [p / max(int(b), 1) for p, b in zip(peaks, bound, strict=True)]
