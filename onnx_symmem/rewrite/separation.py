"""Texts of dims under which ONNX Runtime gives no freed buffer to a later tensor.

Reuse of freed buffers cannot be switched off outside Python; it holds a buffer from its first tensor to its
last, gaps included. ONNX Runtime takes an old buffer only where all dims are equal as numbers or as texts,
and at load a text in the file replaces what it inferred (facts/ONNXRUNTIME, 2.1). So tensors that a plan
puts into different buffers get different texts of the same dim, `batch + 0*2` beside `batch`: true as they
stand, and no two buffers are of equal size to ONNX Runtime. Tensors that the plan keeps in one buffer keep
one text, and go on working in place. A tensor whose dims are all numbers has no text and stays as it is, but
where ONNX Runtime does not know the numbers (rewrite/unknown_dims.py): there they are said as texts.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from onnx_symmem.expr.expression import Expr
from onnx_symmem.memory.plan import ALLOC, SHARE, Plan
from onnx_symmem.shapes.names import dim_text
from onnx_symmem.shapes.table import GraphShapes, ModelShapes

__all__ = ["separate_buffers"]


def separate_buffers(
    model: onnx.ModelProto, shapes: ModelShapes, plan: Plan, numbers: bool = False
) -> onnx.ModelProto:
    """A copy of `model`, into which all dims are written, whose texts differ from buffer to buffer of `plan`.

    `plan` is one of the same graph without memory reuse. `numbers` of the main graph become texts, too.
    """
    result = onnx.ModelProto()
    result.CopyFrom(model)
    _separate(result.graph, shapes.graph, plan, numbers)
    return result


def _separate(graph: onnx.GraphProto, shapes: GraphShapes, plan: Plan, fixed: bool = False) -> None:
    numbers = _numbers(shapes, plan)
    index = shapes.view.index
    for info in graph.value_info:
        value = index.get(info.name)
        number = 0 if value is None else numbers.get(value, 0)
        dims = None if value is None else shapes.dims[value]
        if (
            fixed
            and value in numbers
            and all(d.HasField("dim_value") for d in info.type.tensor_type.shape.dim)
        ):
            for written in info.type.tensor_type.shape.dim:
                written.dim_param = f"{written.dim_value} + 0*{number + 1}"
            continue
        if not number or dims is None:
            continue
        for written, dim in zip(info.type.tensor_type.shape.dim, dims, strict=True):
            if written.HasField("dim_param") and written.dim_param == dim_text(dim):
                written.dim_param = f"{dim} + 0*{number + 1}"
                break
    for k, node in enumerate(graph.node):
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                at = (k, attribute.name)
                if at in shapes.subgraphs and at in plan.subplans:
                    _separate(attribute.g, shapes.subgraphs[at], plan.subplans[at])


def _numbers(shapes: GraphShapes, plan: Plan) -> Mapping[int, int]:
    """Per value: the number of its buffer among those with the same dims, in the order they are made."""
    met: dict[tuple[Expr, ...], dict[int, int]] = {}
    found: dict[int, int] = {}
    for node in plan.order:
        for value in plan.view.nodes[node].outputs:
            dims = None if value < 0 else shapes.dims[value]
            if dims is None or plan.kind[value] not in (ALLOC, SHARE):
                continue
            buffers = met.setdefault(dims, {})
            found[value] = buffers.setdefault(plan.root[value], len(buffers))
    return found
