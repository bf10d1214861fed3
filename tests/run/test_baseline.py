import json
from dataclasses import replace
from pathlib import Path

import pytest
from onnx import TensorProto, helper

from models.build import build
from onnx_symmem.graph.load import load_model
from onnx_symmem.memory.profile import profile
from onnx_symmem.memory.sizes import value_sizes
from onnx_symmem.run.baseline import baseline_graph, baseline_plan, baseline_settings
from onnx_symmem.run.inputs import generate_inputs
from onnx_symmem.run.measure import measure, measure_baseline
from onnx_symmem.run.session import create_session, run_session
from onnx_symmem.shapes.engine import infer_shapes

MODELS = {
    "decoder": (
        {"layers": 2, "width": 32, "heads": 2, "vocab": 99},
        {"batch": 2, "dec_seq": 3, "enc_seq": 9},
    ),
    "randwire": ({}, {"batch": 1, "height": 33, "width": 47}),
    "transformer_train": ({}, {"batch": 3, "seq": 17}),
}


@pytest.mark.parametrize("name", MODELS)
def test_saved_graph_is_in_the_order_in_which_it_would_have_run(tmp_path, name):
    options, at = MODELS[name]
    model = load_model(build(name, **options))
    base = baseline_graph(model, "extended", "cpu", tmp_path)
    settings = replace(baseline_settings("extended"), profile_prefix=str(tmp_path / "profile"))
    session = create_session(model, settings)
    run_session(session, generate_inputs(infer_shapes(model.view()), at))
    events = json.loads(Path(session.end_profiling()).read_text())
    ran = [e["name"].removesuffix("_kernel_time") for e in events if e["name"].endswith("_kernel_time")]
    assert ran == [n.name for n in base.proto.graph.node]


@pytest.mark.parametrize("level", ["none", "basic", "extended"])
@pytest.mark.parametrize("name", MODELS)
def test_plan_says_what_the_model_takes(tmp_path, name, level):
    options, at = MODELS[name]
    model = load_model(build(name, **options))
    base = baseline_graph(model, level, "cpu", tmp_path)
    shapes = infer_shapes(base.view())
    planned = profile(baseline_plan(base, shapes.graph, level, "cpu"), value_sizes(shapes.graph))
    predicted = int(planned.in_use.evaluate([shapes.domain.completed(at)]).max())
    found = measure(model, at, settings=baseline_settings(level), runs=1, latency_runs=0)
    assert found.runs[0].requested_peak == predicted


@pytest.mark.parametrize("level", ["none", "basic", "extended"])
def test_every_node_of_what_would_have_run_is_predicted(level):
    options, at = MODELS["decoder"]
    found = measure_baseline(build("decoder", **options), at, level, runs=1, latency_runs=0)
    assert found.settings == baseline_settings(level)
    assert found.prediction.why_not == ""
    assert found.nodes_equal == 1.0
    assert found.predicted_peak == found.runs[0].requested_peak


def counted_by_data():
    """An If over as many columns as data says, with two paths in each branch."""

    def branch(name, last):
        nodes = [helper.make_node("Exp", ["hits"], [f"{name}_{path}"]) for path in ("left", "right")]
        nodes.append(helper.make_node("Concat", [f"{name}_left", f"{name}_right"], [f"{name}_both"], axis=0))
        nodes.append(helper.make_node(last, [f"{name}_both"], [f"{name}_out"]))
        out = helper.make_tensor_value_info(f"{name}_out", TensorProto.FLOAT, None)
        return helper.make_graph(nodes, name, [], [out])

    nodes = [
        helper.make_node("NonZero", ["x"], ["places"]),
        helper.make_node("Cast", ["places"], ["hits"], to=TensorProto.FLOAT),
        helper.make_node(
            "If", ["flag"], ["y"], then_branch=branch("a", "Neg"), else_branch=branch("b", "Abs")
        ),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8]),
        helper.make_tensor_value_info("flag", TensorProto.BOOL, []),
    ]
    graph = helper.make_graph(
        nodes, "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


@pytest.mark.parametrize("flag", ["ones", "zeros"])
def test_sizes_that_data_decides_are_read_off_the_run_in_subgraphs_too(flag):
    found = measure_baseline(counted_by_data(), {"n": 50}, overrides={"flag": flag}, runs=1, latency_runs=0)
    assert found.nodes_equal == 1.0
    assert list(found.prediction.taken.values()) == [400]
