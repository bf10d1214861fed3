import numpy as np
import pytest
from onnx import TensorProto, helper

from onnx_symmem.errors import UsageError
from onnx_symmem.rewrite.reorder import EXECUTION_ORDER, execution_order_of, reorder_nodes
from onnx_symmem.run.session import create_session


def diamond():
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="a"),
        helper.make_node("Neg", ["a"], ["b"], name="b"),
        helper.make_node("Exp", ["a"], ["c"], name="c"),
        helper.make_node("Add", ["b", "c"], ["y"], name="y"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])
    graph = helper.make_graph(nodes, "diamond", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    helper.set_model_props(model, {"owner": "someone"})
    return model


def test_only_the_order_of_nodes_changes():
    model = diamond()
    before = model.SerializeToString()
    result = reorder_nodes(model, (0, 2, 1, 3), "default")
    assert [n.name for n in result.graph.node] == ["a", "c", "b", "y"]
    assert model.SerializeToString() == before
    assert [(p.key, p.value) for p in result.metadata_props] == [
        ("owner", "someone"),
        (EXECUTION_ORDER, "default"),
    ]
    back = reorder_nodes(result, (0, 2, 1, 3))
    assert [p.value for p in back.metadata_props] == ["someone", "priority"]
    del back.metadata_props[-1]
    assert back.SerializeToString() == before


def test_the_traversal_of_a_model_that_does_not_say():
    model = diamond()
    assert execution_order_of(model) == "priority"
    assert execution_order_of(reorder_nodes(model, (0, 1, 2, 3), "default")) == "default"
    model.metadata_props.add(key=EXECUTION_ORDER, value="backwards")
    assert execution_order_of(model) == "priority"


def test_onnxruntime_runs_the_written_order(tmp_path):
    from onnx_symmem.run.profile import read_profile
    from onnx_symmem.run.session import SessionSettings

    settings = SessionSettings(profile_prefix=str(tmp_path / "p"))
    session = create_session(reorder_nodes(diamond(), (0, 2, 1, 3)), settings)
    session.run(None, {"x": np.ones(3, np.float32)})
    (run,) = read_profile(session.end_profiling(), 1)
    assert [event.name for event in run.events] == ["a", "c", "b", "y"]


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 1, 2, 2), (0, 1, 2, 4)])
def test_what_is_no_permutation_is_refused(order):
    with pytest.raises(UsageError, match="permutation of 4 nodes"):
        reorder_nodes(diamond(), order)
