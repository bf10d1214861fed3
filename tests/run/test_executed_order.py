import json
import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from models.build import MODELS
from onnx_symmem.errors import RunFailed
from onnx_symmem.graph.load import load_model
from onnx_symmem.memory.execution_order import default_order, file_for_default, priority_order
from onnx_symmem.rewrite.reorder import reorder_nodes
from onnx_symmem.run.baseline import baseline_graph, baseline_plan, file_order, usable_baseline
from onnx_symmem.run.inputs import generate_inputs
from onnx_symmem.run.measure import measure, measure_baseline
from onnx_symmem.run.offline import optimize_offline
from onnx_symmem.run.optimized import OptimizeOptions
from onnx_symmem.run.pipeline import optimize_model
from onnx_symmem.run.session import create_session
from onnx_symmem.shapes.engine import infer_shapes


def executed(path, feeds, level):
    """Names of the nodes of a model in the order in which ONNX Runtime runs them by default."""
    with tempfile.TemporaryDirectory() as folder:
        options = ort.SessionOptions()
        options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(folder, "p"))
        session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        session.run(None, feeds)
        events = json.loads(Path(session.end_profiling()).read_text())
    nodes = [e for e in events if e.get("cat") == "Node" and e["name"].endswith("_kernel_time")]
    return [e["name"].removesuffix("_kernel_time") for e in sorted(nodes, key=lambda e: e["ts"])]


@pytest.mark.parametrize("name", ["whisper_decoder", "randwire_ws_hw"])
def test_the_saved_order_is_the_order_that_would_have_run(name, filled_model, cases, tmp_path):
    path = filled_model(name)
    model = load_model(path)
    feeds = generate_inputs(infer_shapes(model.view()), cases[name].shapes[0])
    ran = executed(path, feeds, "ORT_ENABLE_EXTENDED")
    base = baseline_graph(model, "extended", "cpu", tmp_path)
    view = base.view()
    plan = baseline_plan(base, infer_shapes(view).graph, "extended", "cpu")
    assert [view.graph.nodes[k].name for k in plan.order] == ran
    # And a sorted file is found that DEFAULT executes in just that order.
    file = file_for_default(view.graph, plan.order)
    assert file is not None
    written = tmp_path / "same.onnx"
    written.write_bytes(reorder_nodes(base.proto, file, "default").SerializeToString())
    assert executed(written, feeds, "ORT_DISABLE_ALL") == ran
    assert priority_order(view.graph, file) != plan.order


def test_at_level_none_the_model_itself_is_the_baseline(tmp_path):
    model = load_model(MODELS["mlp_train"].builder())
    assert baseline_graph(model, "none", "cpu", tmp_path) is model
    shapes = infer_shapes(model.view())
    assert baseline_plan(model, shapes.graph, "none", "cpu").order == default_order(shapes.graph.view)
    assert file_order(model, model, shapes.view) == tuple(range(len(shapes.graph.view.nodes)))


def test_the_file_order_is_carried_over_to_the_optimised_graph(filled_model, tmp_path):
    model = load_model(filled_model("whisper_decoder"))
    base = baseline_graph(model, "extended", "cpu", tmp_path)
    view = base.view()
    order = file_order(model, base, view)
    position = {node: k for k, node in enumerate(order)}
    assert sorted(order) == list(range(len(view.graph.nodes)))
    assert all(position[p] < position[n] for n in order for p in view.graph.predecessors[n])
    place = {name: k for k, node in enumerate(model.proto.graph.node) for name in node.output}
    common = [
        place[name]
        for node in order
        for v in view.graph.nodes[node].outputs
        if v >= 0 and (name := view.graph.values[v].name) in place
    ]
    rising = sum(a < b for a, b in pairwise(common))
    assert rising > 0.9 * len(common)


def test_initializers_listed_as_inputs_do_not_become_inputs(tmp_path):
    """IR 3: weights are inputs too, and those that are folded away must not have to be fed."""
    nodes = [
        helper.make_node("ConstantOfShape", ["dims"], ["zeros"]),
        helper.make_node("Add", ["x", "zeros"], ["s"]),
        helper.make_node("Mul", ["s", "w"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])
    dims = helper.make_tensor_value_info("dims", TensorProto.INT64, [1])
    w = helper.make_tensor_value_info("w", TensorProto.FLOAT, [4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])
    weights = [
        numpy_helper.from_array(np.array([4]), "dims"),
        numpy_helper.from_array(np.arange(4, dtype=np.float32), "w"),
    ]
    proto = helper.make_model(
        helper.make_graph(nodes, "old", [x, dims, w], [y], weights),
        opset_imports=[helper.make_opsetid("", 9)],
        ir_version=3,
    )
    model = load_model(proto)
    base = baseline_graph(model, "extended", "cpu", tmp_path)
    assert [i.name for i in base.proto.graph.input] == ["x"]
    found = optimize_model(proto, None)
    assert [i.name for i in found.proto.graph.input] == ["x"]
    assert len(found.verified) == 2
    onnx.checker.check_model(found.proto)


@pytest.mark.parametrize("level", ["none", "extended"])
def test_what_onnxruntime_writes_and_cannot_load_again_is_made_loadable(tmp_path, level):
    """float16 branches: the Casts that ONNX Runtime inserts in and around an If have the same names."""
    half = TensorProto.FLOAT16
    branches = [
        helper.make_graph(
            [helper.make_node(op, ["x"], [op])], op, [], [helper.make_tensor_value_info(op, half, None)]
        )
        for op in ("Exp", "Tanh")
    ]
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["r"], keepdims=0),
        helper.make_node("Greater", ["r", "zero"], ["c"]),
        helper.make_node("If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1]),
    ]
    x = helper.make_tensor_value_info("x", half, ["n", 8])
    y = helper.make_tensor_value_info("y", half, None)
    zero = numpy_helper.from_array(np.float16(0), "zero")
    proto = helper.make_model(
        helper.make_graph(nodes, "half", [x], [y], [zero]),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=10,
    )
    model = load_model(proto)
    base, notices = usable_baseline(model, level, "cpu", tmp_path)
    assert any("even without optimisation" in notice for notice in notices) == (level == "none")
    assert [n.op_type for n in base.proto.graph.node].count("Cast") == 2
    with pytest.raises(RunFailed, match="InsertedPrecisionFreeCast_x"):
        create_session(optimize_offline(model, tmp_path, "cpu", level))
    found = optimize_model(proto, None, options=OptimizeOptions(ort_level=level))
    assert found.ort_level == level
    assert len(found.verified) == 2
    for at in ({"n": 1}, {"n": 300}):
        before = measure_baseline(proto, at, level, runs=1, latency_runs=0)
        after = measure(found.proto, at, runs=1, latency_runs=0)
        assert before.nodes_equal == after.nodes_equal == 1
        assert after.runs[0].requested_peak <= before.runs[0].requested_peak
        assert after.runs[0].requested_peak <= found.after.at(at)
