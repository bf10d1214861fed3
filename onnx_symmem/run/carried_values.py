"""Numbers that ONNX Runtime carries through shape arithmetic at load, and the dims that it infers from them.

What an operator is told (the dims of a Reshape, the ends of a Slice, how often a Tile repeats) is known
where it comes from a Shape that is all numbers, by single elements, their sums, differences, products and
quotients, and lists of these. Constants among them, pieces of a shape, and names of dims are not carried. So
this is done step by step as ONNX Runtime does it, not by the data propagation of the onnx package, which goes
further (tests/run/test_carried_values.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import prod

import numpy as np
import onnx
import onnx.shape_inference
from onnx import NodeProto, TensorProto, helper, numpy_helper

from onnx_symmem.graph.load import external_entry, graphs_of

__all__ = ["inferred_with_values"]

_ROUNDS = 32  # of inference, each for dims that follow from those before
_ALL = 1 << 31
_CARRIED_INPUTS = {
    "Gather": 1, "Squeeze": 1, "Unsqueeze": 1, "Cast": 1,
    **dict.fromkeys(("Concat", "Add", "Sub", "Mul", "Div"), _ALL),
}  # fmt: skip
"""How many inputs of an operator, from the first on, it carries on."""

_ARITHMETIC: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": lambda a, b: np.sign(a) * np.sign(b) * (abs(a) // abs(b)),  # towards zero
}
_PLAIN = ("", "ai.onnx")
_Dims = tuple[int | None, ...]


def inferred_with_values(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with inferred dims; the numbers that ONNX Runtime computes are constants of its graphs.

    `model` is changed. Raises what the onnx package does where it cannot read it.
    """
    inferred = onnx.shape_inference.infer_shapes(model)
    graphs = list(graphs_of(model.graph))
    constants = {name: t for graph in graphs for name, t in _constants(graph).items()}
    for _ in range(_ROUNDS):
        dims = [_dims(graph) for graph in graphs_of(inferred.graph)]
        around = {name: known for each in dims for name, known in each.items()}
        put = [_put(graph, {**around, **own}, constants) for graph, own in zip(graphs, dims, strict=True)]
        if not any(put):
            break
        inferred = onnx.shape_inference.infer_shapes(model)
    return inferred


def _put(graph: onnx.GraphProto, dims: Mapping[str, _Dims], constants: Mapping[str, TensorProto]) -> bool:
    """Put constants in place of computed numbers where they are used up; whether there were any."""
    values = _values(graph.node, dims, constants)
    held = {t.name for t in graph.initializer}
    found = False
    for node in graph.node:
        # What is carried on is needed to carry more.
        carries = _CARRIED_INPUTS.get(node.op_type, 0) if node.domain in _PLAIN else 0
        for at, name in enumerate(node.input):
            value = values.get(name)
            if at < carries or value is None or value.dtype.kind != "i":
                continue
            constant = f"{name}/carried"
            if constant not in held:
                held.add(constant)
                graph.initializer.append(numpy_helper.from_array(value, constant))
            node.input[at] = constant
            found = True
    return found


def _constants(graph: onnx.GraphProto) -> dict[str, TensorProto]:
    """Constants of one element, among which the indices of a Gather are."""
    found = {t.name: t for t in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.domain in _PLAIN:
            found.update((node.output[0], a.t) for a in node.attribute if a.name == "value")
    return {name: t for name, t in found.items() if prod(t.dims) == 1 and not external_entry(t)}


def _dims(graph: onnx.GraphProto) -> dict[str, _Dims]:
    """The dims of tensors as far as they are numbers."""
    found: dict[str, _Dims] = {}
    for info in (*graph.input, *graph.value_info, *graph.output):
        tensor = info.type.tensor_type
        if tensor.HasField("shape"):
            dims = tensor.shape.dim
            found[info.name] = tuple(d.dim_value if d.HasField("dim_value") else None for d in dims)
    return found


def _values(
    nodes: Iterable[NodeProto], dims: Mapping[str, _Dims], constants: Mapping[str, TensorProto]
) -> dict[str, np.ndarray]:
    """What is carried, by the name of the value; nodes are sorted."""
    values: dict[str, np.ndarray] = {}
    for node in nodes:
        if node.domain in _PLAIN and len(node.output) == 1:
            value = _value(node, values, dims, constants)
            if value is not None:
                values[node.output[0]] = value
    return values


def _value(
    node: NodeProto,
    values: Mapping[str, np.ndarray],
    dims: Mapping[str, _Dims],
    constants: Mapping[str, TensorProto],
) -> np.ndarray | None:
    about = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    if node.op_type == "Shape":
        shape = dims.get(node.input[0], (None,))
        part = shape[about.get("start", 0) : about.get("end", len(shape))]
        return None if None in part else np.array(part, np.int64)
    read = [values.get(name) for name in node.input[: _CARRIED_INPUTS.get(node.op_type, 0)]]
    if not read or any(r is None for r in read):
        return None
    known = [r for r in read if r is not None]
    first = known[0]
    if node.op_type == "Gather" and node.input[1] in constants and first.ndim == 1:
        at = numpy_helper.to_array(constants[node.input[1]])
        return np.take(first, at) if -len(first) <= at.item() < len(first) else None
    if node.op_type == "Concat" and all(k.ndim == 1 for k in known):
        return np.concatenate(known)
    if node.op_type == "Cast" and first.ndim == 1:
        return first.astype(helper.tensor_dtype_to_np_dtype(about["to"]))
    if node.op_type in ("Squeeze", "Unsqueeze") and first.size == 1:
        return first.reshape([1] if node.op_type == "Unsqueeze" else [])
    if node.op_type in _ARITHMETIC and len(known) == 2:
        return _combined(node.op_type, first, known[1])
    return None


def _combined(op: str, left: np.ndarray, right: np.ndarray) -> np.ndarray | None:
    """Element by element, a single one with each of the other side; Div divides single ones only."""
    if 1 not in (left.size, right.size) and left.size != right.size:
        return None
    if op == "Div" and (max(left.size, right.size) > 1 or not right.all()):
        return None
    return np.asarray(_ARITHMETIC[op](left, right), left.dtype)
