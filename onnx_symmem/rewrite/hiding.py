"""Which input to disguise so that ONNX Runtime does not know the dims of a branch's output beforehand.

An If allocates the outputs of a branch before it starts where their dims are constants, and when they are
made where they are not (facts/ONNXRUNTIME, 4.5). All gradients have constant dims. Behind a Reshape to a
vector of zeros, which keeps every dim, an input's dims are unknown at load, and so are those of what is made
of it. The Reshape is an alias: it takes no memory. Weights are left alone: kernels prepare them at load.
"""

from __future__ import annotations

import onnx
import onnx.shape_inference
from onnx import NodeProto, TensorProto, ValueInfoProto, helper

from onnx_symmem.graph.view import INITIALIZER, Node
from onnx_symmem.shapes.names import dim_text
from onnx_symmem.shapes.table import GraphShapes

__all__ = ["hiding_input"]

# Kernels that lay out no weight anew.
_PLAIN = frozenset(("Identity", "Scatter", "ScatterElements", "ScatterND"))
# Operators that ONNX does not know, by one that finds as many dims from the same inputs.
_STAND_INS = {"FusedMatMul": "MatMul", "TransposeMatMul": "MatMul"}

_LARGE = 4096  # elements; contents of larger constants play no part in shape inference


def hiding_input(
    proto: NodeProto, node: Node, value: int, shapes: GraphShapes, opsets: list[onnx.OperatorSetIdProto]
) -> int | None:
    """The position of the input of `node` that, unknown, makes the dims of its output `value` unknown.

    None where there is none. `proto` is the node in the file. Found by asking the shape inference of ONNX;
    where it does not know the operator, there is none.
    """
    view = shapes.view
    position = node.outputs.index(value)
    for at, source in enumerate(node.inputs):
        if source < 0 or (view.values[source].kind == INITIALIZER and node.op not in _PLAIN):
            continue
        producer = view.values[source].producer
        dims = shapes.dims[source]
        if not dims or (producer >= 0 and view.nodes[producer].op == "Constant"):
            continue
        if not _is_static(proto, node, position, at, shapes, opsets):
            return at
    return None


def _is_static(
    proto: NodeProto,
    node: Node,
    position: int,
    hidden: int,
    shapes: GraphShapes,
    opsets: list[onnx.OperatorSetIdProto],
) -> bool:
    """Whether the dims of an output are all known when those of one input are not."""
    if node.domain == "com.microsoft" and node.op in _STAND_INS:
        proto = NodeProto(op_type=_STAND_INS[node.op], input=proto.input, output=proto.output)
    elif not onnx.defs.has(node.op, node.domain):
        return True
    infos, weights = [], []
    for at, source in enumerate(node.inputs):
        if source < 0 or node.inputs.index(source) < at:
            continue
        tensor = shapes.view.initializers.get(source)
        if tensor is not None and _is_small(tensor):
            weights.append(tensor)
        infos.append(
            _info(shapes, source, node.inputs.index(source) == node.inputs.index(node.inputs[hidden]))
        )
    result = ValueInfoProto(name=proto.output[position])
    graph = helper.make_graph([proto], "one", infos, [result], weights)
    model = helper.make_model(graph, opset_imports=opsets)
    try:
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError):
        return True
    found = inferred.graph.output[0].type.tensor_type
    return found.HasField("shape") and all(d.WhichOneof("value") == "dim_value" for d in found.shape.dim)


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
