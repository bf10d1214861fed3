"""Inferred shapes -> complete `value_info`, so that ONNX Runtime can prove equal sizes.

ONNX Runtime writes an op's result over its input only where both shapes agree dim by dim, as numbers or
as the same `dim_param` text (`SameSize`, allocation_planner.cc). Every value therefore gets the canonical
text of its dims: equal expressions, equal texts. Texts of graph inputs and outputs are a contract with
the caller and stay as they are; a dim of an input that has no name gets the one that inference gave it, so
that other dims can refer to it.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx
from onnx import TypeProto

from onnx_symmem.expr.expression import Expr
from onnx_symmem.graph.view import GraphView
from onnx_symmem.shapes.names import dim_text
from onnx_symmem.shapes.table import GraphShapes, ModelShapes

__all__ = ["optional_values", "write_dims"]


def write_dims(model: onnx.ModelProto, shapes: ModelShapes) -> onnx.ModelProto:
    """A copy of `model` with `value_info` for every value of known type and rank, subgraphs included.

    `shapes` must have been inferred from this model. A value of unknown rank keeps what was declared.
    """
    result = onnx.ModelProto()
    result.CopyFrom(model)
    _name_input_dims(result.graph, shapes.graph)
    _write_graph(result.graph, shapes.graph)
    return result


def _name_input_dims(graph: onnx.GraphProto, shapes: GraphShapes) -> None:
    for info in graph.input:
        at = shapes.view.index.get(info.name)
        dims = None if at is None else shapes.dims[at]
        if dims is None or not info.type.tensor_type.HasField("shape"):
            continue
        for dim, known in zip(info.type.tensor_type.shape.dim, dims, strict=True):
            if dim.WhichOneof("value") is None or (not dim.dim_value and not dim.dim_param):
                text = dim_text(known)
                if isinstance(text, str):
                    dim.dim_param = text


def _write_graph(graph: onnx.GraphProto, shapes: GraphShapes) -> None:
    contract = {v.name for v in graph.input} | {v.name for v in graph.output}
    wrapped = optional_values(shapes.view, frozenset())
    declared = {info.name: info for info in graph.value_info}
    fresh: list[onnx.ValueInfoProto] = []
    for value in shapes.view.values:
        if value.producer < 0 or value.name in contract:
            continue
        dims, elem_type = shapes.dims[value.index], shapes.elem_types[value.index]
        if dims is not None and elem_type and value.index not in wrapped:
            info = onnx.ValueInfoProto(name=value.name)
            _set_tensor(info.type, elem_type, dims)
            fresh.append(info)
        elif value.name in declared:
            fresh.append(declared[value.name])
    kept = [onnx.ValueInfoProto.FromString(info.SerializeToString()) for info in fresh]
    del graph.value_info[:]
    graph.value_info.extend(kept)
    for k, node in enumerate(graph.node):
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                inner = shapes.subgraphs.get((k, attribute.name))
                if inner is not None:
                    _write_graph(attribute.g, inner)


def optional_values(view: GraphView, outer: frozenset[int]) -> set[int]:
    """Values that are optionals, whose dims are those of what they hold; `outer`: in the enclosing graph."""
    found = {v for v, at in view.outer.items() if at in outer}
    for index in view.inputs:
        declared = view.values[index].type
        if declared is not None and declared.WhichOneof("value") == "optional_type":
            found.add(index)
    for node in view.nodes:
        known = frozenset(found)
        inner = (
            [(sub, optional_values(sub, known)) for sub in node.subgraphs.values()] if node.op == "If" else []
        )
        for position, value in enumerate(node.outputs):
            passed_on = node.op == "Identity" and node.inputs[0] in found
            branches = any(sub.outputs[position] in values for sub, values in inner)
            if value >= 0 and (node.op == "Optional" or passed_on or branches):
                found.add(value)
    return found


def _set_tensor(type_proto: TypeProto, elem_type: int, dims: Sequence[Expr]) -> None:
    tensor = type_proto.tensor_type
    tensor.elem_type = elem_type
    tensor.shape.SetInParent()
    for dim in dims:
        text = dim_text(dim)
        entry = tensor.shape.dim.add()
        if isinstance(text, int):
            entry.dim_value = text
        else:
            entry.dim_param = text
