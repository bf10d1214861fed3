"""What ONNX Runtime makes of models that it does not optimise, and what is planned then."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnx_symmem.graph.load import external_entry, load_model
from onnx_symmem.run.added_nodes import as_loaded, stays_as_it_is
from onnx_symmem.run.measure import measure, measure_baseline
from onnx_symmem.run.optimized import OptimizeOptions
from onnx_symmem.run.pipeline import optimize_model
from onnx_symmem.run.session import SessionSettings, create_session

HALF = TensorProto.FLOAT16


def _layers(kind: int = HALF, activation: str = "Tanh", layers: int = 3) -> onnx.ModelProto:
    """Layers whose results are all read again, in reverse, as in a backward pass."""
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(rng.standard_normal((32, 32)).astype(dtype), f"w{k}") for k in range(layers)
    ]
    nodes, last = [], "x"
    for k in range(layers):
        nodes.append(helper.make_node("MatMul", [last, f"w{k}"], [f"m{k}"]))
        nodes.append(helper.make_node(activation, [f"m{k}"], [f"t{k}"]))
        last = f"t{k}"
    for k in reversed(range(layers)):
        nodes.append(helper.make_node("Mul", [last, f"m{k}"], [f"g{k}"]))
        last = f"g{k}"
    x = helper.make_tensor_value_info("x", kind, ["n", 32])
    y = helper.make_tensor_value_info(last, kind, ["n", 32])
    graph = helper.make_graph(nodes, "layers", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _nodes(model: onnx.ModelProto) -> list[tuple[str, str]]:
    return sorted((node.op_type, node.output[0]) for node in model.graph.node)


def _saved(model: onnx.ModelProto, path: Path) -> onnx.ModelProto:
    """What ONNX Runtime itself saves of the model, weights and all."""
    options = SessionSettings(optimization="none").to_session_options()
    options.optimized_model_filepath = str(path)
    create_session(model, options=options)
    return onnx.load(path)


@pytest.mark.parametrize(("kind", "activation"), [(HALF, "Tanh"), (TensorProto.FLOAT, "HardSwish")])
def test_the_nodes_are_those_that_onnxruntime_saves(tmp_path, kind, activation):
    proto = _layers(kind, activation)
    found = as_loaded(load_model(proto), "cpu", tmp_path)
    assert _nodes(found.proto) == _nodes(_saved(proto, tmp_path / "saved.onnx")) != _nodes(proto)
    before = {t.name: t.SerializeToString() for t in proto.graph.initializer}
    after = {t.name: t.SerializeToString() for t in found.proto.graph.initializer}
    assert before == after


def test_a_model_whose_nodes_stay_is_itself(tmp_path):
    model = load_model(_layers(TensorProto.FLOAT))
    assert as_loaded(model, "cpu", tmp_path) is model


def test_weights_are_not_read(tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(_layers(), path, save_as_external_data=True, location="weights", size_threshold=0)
    (tmp_path / "weights").unlink()
    model = load_model(path)
    found = as_loaded(model, "cpu", tmp_path)
    assert "Cast" in {node.op_type for node in found.proto.graph.node}
    assert [external_entry(t) for t in found.proto.graph.initializer] == [
        external_entry(t) for t in model.proto.graph.initializer
    ]


def test_a_graph_that_is_not_loaded_as_it_stands_is_planned_as_it_runs():
    """What is written takes at every shape what is said, and never more than the model takes."""
    proto = _layers()
    found = optimize_model(proto, None, options=OptimizeOptions(ort_level="none"))
    assert found.never_worse == "proved"
    assert any("even without optimisation" in notice for notice in found.notices)
    for at in ({"n": 1}, {"n": 7}, {"n": 400}):
        before = measure_baseline(proto, at, "none", runs=1, latency_runs=0)
        after = measure(found.proto, at, runs=1, latency_runs=0)
        assert before.nodes_equal == after.nodes_equal == 1
        assert before.runs[0].requested_peak == found.choice.before.at(at)
        assert after.runs[0].requested_peak == found.after.at(at) <= found.choice.before.at(at)


def test_files_that_change_at_load_are_noticed(tmp_path):
    """Size is no operator of float16 on the CPU; Slice is one."""
    value = helper.make_tensor_value_info("x", HALF, ["n", 4])
    for op, stays in (("Size", False), ("Shape", True)):
        node = helper.make_node(op, ["x"], ["y"])
        y = helper.make_tensor_value_info("y", TensorProto.INT64, None)
        graph = helper.make_graph([node], "g", [value], [y])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        assert stays_as_it_is(model, tmp_path) == stays
    assert stays_as_it_is(_layers(TensorProto.FLOAT), tmp_path)
