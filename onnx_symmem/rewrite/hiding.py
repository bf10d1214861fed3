"""Which inputs to disguise so that ONNX Runtime does not know the dims of a branch's output beforehand.

An If allocates the outputs of a branch before it starts where their dims are constants, and when they are
made where they are not (facts/ONNXRUNTIME, 4.5). All gradients have constant dims. Behind a Reshape to a
vector of zeros, which keeps every dim, an input's dims are unknown at load, and so are those of what is made
of it. The Reshape is an alias: it takes no memory. A constant vector that says what dims to make, the target
of a Reshape, is disguised by adding zeros to it. Other weights are left alone where kernels prepare them at
load.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx
import onnx.shape_inference
from onnx import NodeProto, TensorProto, ValueInfoProto, helper

from onnx_symmem.graph.view import INITIALIZER, Node
from onnx_symmem.shapes.names import dim_text
from onnx_symmem.shapes.table import GraphShapes

__all__ = ["hiding_inputs", "is_vector_of_sizes"]

# Kernels that lay out no weight anew.
_PLAIN = frozenset(("Identity", "Scatter", "ScatterElements", "ScatterND")) | frozenset(
    ("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Mean", "Sum", "Mod", "Where", "Neg", "Abs", "Sqrt")
)
# Operators that ONNX does not know, by one that finds as many dims from the same inputs.
_STAND_INS = {"FusedMatMul": "MatMul", "TransposeMatMul": "MatMul"}

_LARGE = 4096  # elements; contents of larger constants play no part in shape inference


def hiding_inputs(
    proto: NodeProto, node: Node, value: int, shapes: GraphShapes, opsets: list[onnx.OperatorSetIdProto]
) -> tuple[int, ...]:
    """Positions of inputs of `node` that, unknown, make the dims of its output `value` unknown.

    One where one is enough, none where nothing helps. `proto` is the node in the file. Found by asking the
    shape inference of ONNX; where it does not know the operator, nothing helps.
    """
    position = node.outputs.index(value)
    for hidden in _choices(node, shapes):
        if not _is_static(proto, node, position, hidden, shapes, opsets):
            return hidden
    return ()


def is_vector_of_sizes(shapes: GraphShapes, value: int) -> bool:
    """Whether a value is a constant vector of int64: disguised are its contents, not its dims."""
    dims = shapes.dims[value]
    return (
        dims is not None
        and len(dims) == 1
        and shapes.elem_types[value] == TensorProto.INT64
        and _is_constant(shapes, value)
    )


def _choices(node: Node, shapes: GraphShapes) -> Iterator[tuple[int, ...]]:
    """What may be disguised: each input alone, then all together."""
    able = []
    for at, source in enumerate(node.inputs):
        if source < 0 or not shapes.dims[source]:
            continue
        constant = _is_constant(shapes, source)
        if not constant or is_vector_of_sizes(shapes, source) or node.op in _PLAIN:
            able.append(at)
    yield from ((at,) for at in able)
    if len(able) > 1:
        yield tuple(able)


def _is_constant(shapes: GraphShapes, value: int) -> bool:
    known = shapes.view.values[value]
    made_by = known.producer
    return known.kind == INITIALIZER or (made_by >= 0 and shapes.view.nodes[made_by].op == "Constant")


def _is_static(
    proto: NodeProto,
    node: Node,
    position: int,
    hidden: Sequence[int],
    shapes: GraphShapes,
    opsets: list[onnx.OperatorSetIdProto],
) -> bool:
    """Whether the dims of an output are all known when some inputs are not."""
    if node.domain == "com.microsoft" and node.op in _STAND_INS:
        proto = NodeProto(op_type=_STAND_INS[node.op], input=proto.input, output=proto.output)
    elif not onnx.defs.has(node.op, node.domain):
        return True
    infos, weights = [], []
    unknown = {node.inputs[at] for at in hidden}
    for source in dict.fromkeys(v for v in node.inputs if v >= 0):
        sizes = is_vector_of_sizes(shapes, source)
        tensor = _contents(shapes, source)
        if tensor is not None and not (sizes and source in unknown):
            weights.append(tensor)
        infos.append(_info(shapes, source, source in unknown and not sizes))
    result = ValueInfoProto(name=proto.output[position])
    graph = helper.make_graph([proto], "one", infos, [result], weights)
    model = helper.make_model(graph, opset_imports=opsets)
    try:
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError):
        return True
    found = inferred.graph.output[0].type.tensor_type
    return found.HasField("shape") and all(d.WhichOneof("value") == "dim_value" for d in found.shape.dim)


def _contents(shapes: GraphShapes, value: int) -> TensorProto | None:
    """A constant under its name, where shape inference may want to know its numbers."""
    view = shapes.view
    tensor = view.initializers.get(value)
    if tensor is None and _is_constant(shapes, value):
        made = view.nodes[view.values[value].producer].attributes.get("value")
        if isinstance(made, TensorProto):
            tensor = TensorProto()
            tensor.CopyFrom(made)
            tensor.name = view.values[value].name
    return tensor if tensor is not None and _is_small(tensor) else None


def _is_small(tensor: TensorProto) -> bool:
    count = 1
    for dim in tensor.dims:
        count *= dim
    return count <= _LARGE and tensor.data_location != TensorProto.EXTERNAL


def _info(shapes: GraphShapes, value: int, hidden: bool) -> ValueInfoProto:
    dims = shapes.dims[value]
    known: list[int | str | None] | None = None
    if dims is not None:
        known = [None if hidden else dim_text(d) for d in dims]
    return helper.make_tensor_value_info(shapes.view.values[value].name, shapes.elem_types[value], known)
