"""The plan of a graph whose unread results are freed at once, wherever that costs no proof.

A dangling reader costs eight bytes for the rest of the run (rewrite/anchors.py), which at the smallest shapes
may be what no order can make up for. Orders are searched with them. Where none of these is proved never worse
than what would have run, the same orders are tried without them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from onnx_symmem.expr.domain import Domain
from onnx_symmem.graph.load import LoadedModel
from onnx_symmem.memory.execution_order import default_order, priority_order
from onnx_symmem.memory.plan import PlanInput, PlanOptions, prepare
from onnx_symmem.memory.profile import MemoryProfile, profile
from onnx_symmem.memory.sizes import ValueSizes, from_written, value_sizes
from onnx_symmem.order.candidates import SearchLimits, Tick, peaks_at
from onnx_symmem.order.planner import PlannedOrder, plan_order
from onnx_symmem.rewrite.anchors import add_anchors, can_slice, unread_results, with_anchors
from onnx_symmem.shapes.engine import infer_shapes
from onnx_symmem.shapes.table import ModelShapes

__all__ = ["FreedPlan", "plan_freed"]


@dataclass(frozen=True)
class FreedPlan:
    """A model, with dangling readers or as it was, and its planned order.

    `given` are the orders that were known, with the readers in their places.
    """

    base: LoadedModel
    shapes: ModelShapes
    sizes: ValueSizes
    prepared: Mapping[str, PlanInput]
    given: Mapping[str, Sequence[int]]
    planned: PlannedOrder


def plan_freed(
    base: LoadedModel,
    shapes: ModelShapes,
    spec: Domain,
    before: MemoryProfile,
    given: Mapping[str, Sequence[int]],
    samples: Sequence[Mapping[str, int]],
    provider: str,
    limits: SearchLimits,
    tick: Tick,
    specialists: bool,
) -> FreedPlan:
    """Plan `base`, of which `shapes` are inferred on `spec`; `given` starts with the order that would have
    run, `before` its profile."""
    options, domain = PlanOptions(provider), shapes.domain
    sizes = value_sizes(shapes.graph)
    plain = _prepared(shapes, options)
    slices = can_slice(base.proto.opset_import)
    anchors = unread_results(plain["priority"], sizes, domain, shapes.graph.elem_types, slices)
    if anchors:
        freed = replace(base, proto=add_anchors(base.proto, anchors))
        again = infer_shapes(freed.view(), spec)
        new_sizes, prepared = value_sizes(again.graph), _prepared(again, options)
        orders = {name: with_anchors(order, anchors) for name, order in given.items()}
        first = orders[next(iter(orders))]
        ran = given[next(iter(given))]
        without = peaks_at(profile(plain["priority"].plan(ran), sizes), samples)
        freed_at = peaks_at(profile(prepared["priority"].plan(first), new_sizes), samples)
        # Right at the peak their own eight bytes would come on top.
        if all(a <= b for a, b in zip(freed_at, without, strict=True)):
            planned = plan_order(
                prepared, new_sizes, domain, samples, before, orders, limits, tick, specialists
            )
            if planned.choice.never_worse == "proved":
                return FreedPlan(freed, again, new_sizes, prepared, orders, planned)
            count = len(ran)
            found = {
                c.name: tuple(n for n in c.order if n < count)
                for c in (*planned.candidates, *planned.specialists)
            }
            known = {**given, **{f"{name}, freed late": order for name, order in found.items()}}
            fewer = replace(limits, shapes=0, improved=min(limits.improved, 1), rounds=min(limits.rounds, 1))
            planned = plan_order(plain, sizes, domain, samples, before, known, fewer, tick, specialists)
            return FreedPlan(base, shapes, sizes, plain, given, planned)
    planned = plan_order(plain, sizes, domain, samples, before, given, limits, tick, specialists)
    return FreedPlan(base, shapes, sizes, plain, given, planned)


def _prepared(shapes: ModelShapes, options: PlanOptions) -> dict[str, PlanInput]:
    keys, view = from_written(shapes.graph), shapes.graph.view
    return {
        "default": prepare(view, keys, options, default_order),
        "priority": prepare(view, keys, options, priority_order),
    }
