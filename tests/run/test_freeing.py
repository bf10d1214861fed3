import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnx_symmem.api import optimize


def narrow_start():
    """A wide Split, of which one part of three is read at once, then something that grows as n * n.

    Run last, the constant result counts at n = 1. At 2 <= n <= 6 the peak is at the Split, where dangling
    readers come on top; they lower it at all other sizes.
    """
    node = helper.make_node
    nodes = [
        node("Relu", ["w"], ["z"], "constant"),
        node("Split", ["x"], ["a", "b", "c"], "split", axis=1, num_outputs=3),
        node("ReduceMean", ["a"], ["r"], "mean", keepdims=0),
        node("Add", ["v", "r"], ["s"], "shift"),
        node("Transpose", ["s"], ["t"], "turn", perm=[1, 0]),
        node("MatMul", ["s", "t"], ["p"], "square"),
        node("Concat", ["p"] * 8, ["q"], "wide", axis=1),
        node("ReduceSum", ["q"], ["y"], "sum", keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "narrow",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3 * 64]),
            helper.make_tensor_value_info("v", TensorProto.FLOAT, ["n", 1]),
        ],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, []),
            helper.make_tensor_value_info("z", TensorProto.FLOAT, [100]),
        ],
        [numpy_helper.from_array(np.ones(100, np.float32), "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def planned(tmp_path, domain=None):
    path = tmp_path / "narrow.onnx"
    onnx.save(narrow_start(), path)
    return optimize(path, domain=domain, ort_level="none", verify=False, dispatch=False)


def sizes_in(found):
    return sum(node.op_type == "Size" for node in found.proto.graph.node)


def test_dangling_readers_that_cost_the_proof_are_left_out(tmp_path):
    found = planned(tmp_path)
    assert found.figures.never_worse == "proved"
    for n in (1, 2, 5, 7, 8, 100):
        assert found.details.after.at({"n": n}) <= found.details.choice.before.at({"n": n})
    assert sizes_in(found) == 0


@pytest.mark.parametrize("domain", [{"n": (8, None)}, {"n": 1}])
def test_where_they_cost_nothing_they_stay(tmp_path, domain):
    found = planned(tmp_path, domain)
    n = 8 if found.details.shapes.domain.range_of("n").hi is None else 1
    assert found.figures.never_worse == "proved"
    assert sizes_in(found) == 2
    assert found.details.after.at({"n": n}) < found.details.choice.before.at({"n": n})
