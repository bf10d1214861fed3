"""Models whose best order depends on the shapes: towers that widen, narrow and are joined."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def towers(count: int = 2, outputs: int = 64) -> onnx.ModelProto:
    """Tower k maps (n_k, 16) over (n_k, 256) to (n_k, outputs); the mean of all rows is the output.

    A tower's result waits for the others, so the longest input should go first.
    """
    rng = np.random.default_rng(0)
    weights, nodes, inputs = [], [], []
    for k in range(count):
        for name, dims in ((f"in{k}", (16, 256)), (f"out{k}", (256, outputs))):
            weights.append(numpy_helper.from_array((rng.standard_normal(dims) / 8).astype(np.float32), name))
        nodes += [
            helper.make_node("MatMul", [f"x{k}", f"in{k}"], [f"wide{k}"], name=f"widen{k}"),
            helper.make_node("Erf", [f"wide{k}"], [f"bent{k}"], name=f"bend{k}"),
            helper.make_node("MatMul", [f"bent{k}", f"out{k}"], [f"y{k}"], name=f"narrow{k}"),
        ]
        inputs.append(helper.make_tensor_value_info(f"x{k}", TensorProto.FLOAT, [f"n{k}", 16]))
    nodes += [
        helper.make_node("Concat", [f"y{k}" for k in range(count)], ["rows"], name="join", axis=0),
        helper.make_node("ReduceMean", ["rows"], ["mean"], name="mean", axes=[0], keepdims=0),
    ]
    result = helper.make_tensor_value_info("mean", TensorProto.FLOAT, [outputs])
    graph = helper.make_graph(nodes, "towers", inputs, [result], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
