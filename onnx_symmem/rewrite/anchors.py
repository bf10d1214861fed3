"""Results that nobody reads -> a dangling `Size` each, so that ONNX Runtime frees them at once.

ONNX Runtime keeps a value without readers until the run ends (facts/ONNXRUNTIME, 2.2b). A reader whose own
result nobody reads costs eight bytes for the rest of the run instead. It is added only where the value takes
more than that at every legal shape. Under PRIORITY_BASED it runs right after its producer, whatever its place
in the file. On the CPU ONNX Runtime would make a whole float32 copy of a float16 value to take its Size;
there a `Slice` of nothing reads it, which has a kernel for float16 and stands in the order like any node.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import onnx
from onnx import helper

from onnx_symmem.expr.decide import Kind, compare
from onnx_symmem.expr.domain import Domain
from onnx_symmem.expr.expression import Expr
from onnx_symmem.graph.view import NODE, GraphView
from onnx_symmem.memory.plan import PlanInput
from onnx_symmem.memory.sizes import ValueSizes
from onnx_symmem.rewrite.free_names import FreeNames

__all__ = ["Anchor", "add_anchors", "can_slice", "is_copied_for_size", "unread_results", "with_anchors"]

_SLICE = 13  # from this opset on Slice takes every type
_OWN = 256  # bytes of the result of Size, as the arena rounds it, beside which a value has to be worth while


@dataclass(frozen=True, slots=True)
class Anchor:
    """A value that a dangling node reads: its index, its producer's, and its name.

    The node is a `Size`, or a `Slice` of nothing (`empty`) where its eight bytes are too many or it would
    cost a copy.
    """

    value: int
    producer: int
    name: str
    empty: bool = False


def is_copied_for_size(elem_type: int, provider: str) -> bool:
    """Whether ONNX Runtime would cast a value of a type before a `Size` reads it."""
    return provider == "cpu" and elem_type == onnx.TensorProto.FLOAT16


def can_slice(opsets: Iterable[onnx.OperatorSetIdProto]) -> bool:
    """Whether anchors can be empty."""
    return any(o.version >= _SLICE for o in opsets if o.domain in ("", "ai.onnx"))


def unread_results(
    prepared: PlanInput,
    sizes: ValueSizes,
    domain: Domain,
    elem_types: Sequence[int] = (),
    slices: bool = True,
) -> tuple[Anchor, ...]:
    """Values of the main graph that own a buffer nobody reads, and that are worth an anchor at all shapes.

    `elem_types` are those of the values; `slices`: whether anchors can be empty where they have to.
    """
    view: GraphView = prepared.view
    provider = prepared.options.provider
    read = {base for reads in prepared.reads for base in reads}
    found = []
    for value in view.values:
        v = value.index
        if prepared.kinds[v] != NODE or v in prepared.outputs or prepared.base[v] != v or v in read:
            continue
        if view.nodes[value.producer].op in ("Shape", "Size") or not value.name:
            continue
        size = sizes.bytes[v]
        empty = bool(elem_types) and is_copied_for_size(elem_types[v], provider)
        if empty and not slices:
            continue
        if size is not None and compare(Expr.const(_OWN), size, domain).kind in (Kind.LE, Kind.EQ):
            found.append(Anchor(v, value.producer, value.name, empty))
    return tuple(found)


def add_anchors(model: onnx.ModelProto, anchors: Sequence[Anchor], purpose: str = "freed") -> onnx.ModelProto:
    """A copy of `model` with a dangling node per anchor, behind all its nodes, named after its purpose."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    fresh = FreeNames(graph).fresh
    zero = fresh(f"{purpose}/zero") if any(anchor.empty for anchor in anchors) else ""
    if zero:
        graph.initializer.append(helper.make_tensor(zero, onnx.TensorProto.INT64, [1], [0]))
    for anchor in anchors:
        name = fresh(f"{anchor.name}/{purpose}")
        op, more = ("Slice", [zero, zero]) if anchor.empty else ("Size", [])
        graph.node.append(helper.make_node(op, [anchor.name, *more], [name], name))
    return result


def with_anchors(order: Sequence[int], anchors: Sequence[Anchor]) -> tuple[int, ...]:
    """An order of the nodes that were there before, each anchor right after its producer."""
    count = len(order)
    behind: dict[int, list[int]] = {}
    for k, anchor in enumerate(anchors):
        behind.setdefault(anchor.producer, []).append(count + k)
    return tuple(n for node in order for n in (node, *behind.get(node, ())))
