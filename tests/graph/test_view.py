import numpy as np
from onnx import TensorProto, helper, numpy_helper

from onnx_symmem.graph.load import load_model


def model(ir_version=10):
    nodes = [
        helper.make_node("Split", ["x"], ["a", "", "c"], axis=1, num_outputs=3),
        helper.make_node("Clip", ["a", "", "w"], ["b"]),
        helper.make_node("Mul", ["b", "b"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 6])
    w = helper.make_tensor_value_info("w", TensorProto.FLOAT, [])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", None])
    weight = numpy_helper.from_array(np.float32(3), "w")
    graph = helper.make_graph(nodes, "g", [x, w], [y], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=ir_version)


def test_left_out_inputs_and_outputs_are_minus_one():
    graph = load_model(model()).view().graph
    assert graph.nodes[0].outputs[1] == -1
    assert graph.nodes[1].inputs[1] == -1
    assert [graph.values[v].name for v in graph.nodes[1].reads()] == ["a", "w"]
    assert graph.nodes[0].attributes == {"axis": 1, "num_outputs": 3}


def test_a_value_read_twice_has_one_consumer():
    graph = load_model(model()).view().graph
    assert graph.consumers[graph.index["b"]] == (2,)
    assert graph.successors == ((1,), (2,), ())


def test_an_initializer_among_the_inputs_can_be_overridden_since_ir_4():
    new, old = load_model(model(10)).view().graph, load_model(model(3)).view().graph
    assert new.values[new.index["w"]].kind == "input"
    assert old.values[old.index["w"]].kind == "initializer"
    assert new.index["w"] in new.initializers
    assert [old.values[v].name for v in old.inputs] == ["x"]


def test_declared_dims():
    graph = load_model(model()).view().graph
    assert graph.values[graph.index["x"]].dims == ("n", 6)
    assert graph.values[graph.index["y"]].dims == ("n", None)
    assert graph.values[graph.index["b"]].dims is None
