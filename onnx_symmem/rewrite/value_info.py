"""Inferred shapes -> complete `value_info`, so that ONNX Runtime can prove equal sizes.

ONNX Runtime writes an op's result over its input only where both shapes agree dim by dim, as numbers or
as the same `dim_param` text (`SameSize`, allocation_planner.cc). Every value therefore gets the canonical
text of its dims: equal expressions, equal texts. Texts of graph inputs and outputs are a contract with
the caller and stay as they are; a dim of an input that has no name gets the one that inference gave it, so
that other dims can refer to it; a dim of an output that can never be what the file says is corrected, and an
output without dims gets them.

A node that can never run, as in a branch that is never taken, does not keep ONNX Runtime from loading a file
as long as it cannot see the dims. What such a node is computed from therefore keeps what the file says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx
from onnx import TypeProto

from onnx_symmem.expr.expression import Expr
from onnx_symmem.expr.text import dim_from_text
from onnx_symmem.graph.view import GraphView
from onnx_symmem.shapes.names import dim_text
from onnx_symmem.shapes.solve import never_zero
from onnx_symmem.shapes.table import GraphShapes, ModelShapes

__all__ = ["optional_values", "write_dims"]


def write_dims(model: onnx.ModelProto, shapes: ModelShapes) -> onnx.ModelProto:
    """A copy of `model` with `value_info` for every value of known type and rank, subgraphs included.

    `shapes` must have been inferred from this model. A value of unknown rank keeps what was declared.
    """
    result = onnx.ModelProto()
    result.CopyFrom(model)
    _name_input_dims(result.graph, shapes.graph)
    hidden: dict[int, set[int]] = {}
    never = frozenset(a.node for a in shapes.assumptions if a.kind == "never")
    if never:
        _hide(shapes.graph, never, hidden)
    _write_graph(result.graph, shapes.graph, shapes, hidden)
    _complete_outputs(result.graph, shapes.graph, hidden.get(id(shapes.graph.view), set()))
    return result


def _complete_outputs(graph: onnx.GraphProto, shapes: GraphShapes, unseen: set[int]) -> None:
    """Type and dims of outputs for which the file declares none; ONNX asks for both."""
    wrapped = optional_values(shapes.view, frozenset())
    for info in graph.output:
        index = shapes.view.index[info.name]
        dims, elem_type = shapes.dims[index], shapes.elem_types[index]
        if index in unseen or index in wrapped or dims is None or not elem_type:
            continue
        kind = info.type.WhichOneof("value")
        if kind is None or (kind == "tensor_type" and not info.type.tensor_type.HasField("shape")):
            _set_tensor(info.type, elem_type, dims)


def _hide(
    graph: GraphShapes, never: frozenset[str], hidden: dict[int, set[int]], whole: bool = False
) -> None:
    """Collect, per view, all values that a node which can never run is computed from (`whole`: all)."""
    view = graph.view
    found = hidden.setdefault(id(view), set())
    stack = list(range(len(view.values))) if whole else []
    stack += [index for node in view.nodes if node.label() in never for index in node.reads()]
    for (at, _), inner in graph.subgraphs.items():
        _hide(inner, never, hidden, whole)
        below = hidden[id(inner.view)]
        stack += [outer for index, outer in inner.view.outer.items() if index in below]
        if below & set(inner.view.inputs):
            stack += view.nodes[at].inputs
    while stack:
        index = stack.pop()
        if index < 0 or index in found:
            continue
        found.add(index)
        producer = view.values[index].producer
        if producer < 0:
            continue
        stack += view.nodes[producer].reads()
        for (at, _), inner in graph.subgraphs.items():
            if at == producer:
                _hide(inner, never, hidden, whole=True)


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


def _write_graph(
    graph: onnx.GraphProto, shapes: GraphShapes, model: ModelShapes, hidden: Mapping[int, set[int]]
) -> None:
    contract = {v.name for v in graph.input} | {v.name for v in graph.output}
    wrapped = optional_values(shapes.view, frozenset())
    declared = {info.name: info for info in graph.value_info}
    unseen = hidden.get(id(shapes.view), set())
    fresh: list[onnx.ValueInfoProto] = []
    for value in shapes.view.values:
        if value.producer < 0 or value.name in contract:
            continue
        dims, elem_type = shapes.dims[value.index], shapes.elem_types[value.index]
        if dims is not None and elem_type and value.index not in wrapped and value.index not in unseen:
            info = onnx.ValueInfoProto(name=value.name)
            _set_tensor(info.type, elem_type, dims)
            fresh.append(info)
        elif value.name in declared:
            fresh.append(declared[value.name])
    kept = [onnx.ValueInfoProto.FromString(info.SerializeToString()) for info in fresh]
    del graph.value_info[:]
    graph.value_info.extend(kept)
    for info in graph.output:
        index = shapes.view.index[info.name]
        if index not in unseen:
            _correct(info.type.tensor_type, shapes.dims[index], model)
    for k, node in enumerate(graph.node):
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                inner = shapes.subgraphs.get((k, attribute.name))
                if inner is not None:
                    _write_graph(attribute.g, inner, model, hidden)


def _correct(tensor: TypeProto.Tensor, dims: Sequence[Expr] | None, model: ModelShapes) -> None:
    """Replace declared dims of an output that it has at no shape."""
    if dims is None or not tensor.HasField("shape"):
        return
    if len(tensor.shape.dim) != len(dims):
        tensor.shape.Clear()
        for known in dims:
            _set_dim(tensor.shape.dim.add(), known)
        return
    for dim, known in zip(tensor.shape.dim, dims, strict=True):
        if dim.dim_param:
            claimed = dim_from_text(dim.dim_param, model.input_symbols)
        elif dim.HasField("dim_value"):
            claimed = Expr.const(dim.dim_value)
        else:
            continue
        if claimed.symbols() <= set(model.input_symbols):
            if never_zero(model.domain.simplify(claimed - known), model.domain.nonneg):
                _set_dim(dim, known)


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
        _set_dim(tensor.shape.dim.add(), dim)


def _set_dim(entry: onnx.TensorShapeProto.Dimension, dim: Expr) -> None:
    text = dim_text(dim)
    if isinstance(text, int):
        entry.dim_value = text
    else:
        entry.dim_param = text
