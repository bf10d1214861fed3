"""The graph that would have run, its order, and the file that runs it once more."""

from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from models.build import build
from onnx_symmem.errors import UnsupportedModel, UsageError
from onnx_symmem.graph.load import load_model
from onnx_symmem.memory.profile import profile
from onnx_symmem.memory.sizes import value_sizes
from onnx_symmem.run import baseline
from onnx_symmem.run.baseline import baseline_graph, baseline_plan, write_baseline
from onnx_symmem.run.measure import measure
from onnx_symmem.run.session import SessionSettings, create_session, kept_for, run_session
from onnx_symmem.shapes.engine import infer_shapes

MODELS = {
    "decoder": (
        {"layers": 2, "width": 32, "heads": 2, "vocab": 100},
        {"batch": 2, "dec_seq": 3, "enc_seq": 9},
    ),
    "randwire": ({}, {"batch": 1, "height": 33, "width": 47}),
    "transformer_train": ({}, {"batch": 3, "seq": 17}),
}


def ran(model, settings, folder, feeds) -> list[tuple[str, ...]]:
    """Outputs of the nodes in the order they ran, read off ONNX Runtime's profile."""
    import json

    session = create_session(model, replace(settings, profile_prefix=str(folder / "profile")))
    run_session(session, feeds)
    events = json.loads(open(session.end_profiling()).read())
    return [e["args"]["op_name"] for e in events if e["name"].endswith("_kernel_time")]


def inputs(model, at) -> dict[str, np.ndarray]:
    from onnx_symmem.run.inputs import generate_inputs

    return generate_inputs(infer_shapes(load_model(model).view()), at)


@pytest.mark.parametrize("name", MODELS)
def test_saved_graph_is_in_the_order_in_which_it_would_have_run(tmp_path, name):
    options, at = MODELS[name]
    model = build(name, **options)
    live = SessionSettings(optimization="extended", execution_order="default")
    base = baseline_graph(load_model(model), "extended", "cpu", tmp_path)
    assert ran(model, live, tmp_path, inputs(model, at)) == [n.op_type for n in base.proto.graph.node]


@pytest.mark.parametrize("level", ["none", "basic", "extended"])
@pytest.mark.parametrize("name", MODELS)
def test_written_baseline_takes_what_its_plan_says(tmp_path, name, level):
    options, at = MODELS[name]
    model = load_model(build(name, **options))
    path = write_baseline(model, level, "cpu", tmp_path)
    assert sorted({p.name for p in tmp_path.iterdir()} - {"baseline.onnx.data"}) == ["baseline.onnx"]
    (other := tmp_path / "other").mkdir()
    base = baseline_graph(model, level, "cpu", other)
    shapes = infer_shapes(base.view())
    planned = profile(baseline_plan(base, shapes.graph, level, "cpu"), value_sizes(shapes.graph))
    predicted = int(planned.in_use.evaluate([shapes.domain.completed(at)]).max())
    found = measure(path, at, runs=1, latency_runs=0)
    assert found.nodes_equal == 1.0
    assert found.runs[0].requested_peak == found.predicted_peak == predicted


def test_order_is_written_for_the_session(tmp_path):
    options, at = MODELS["decoder"]
    model = build("decoder", **options)
    path = write_baseline(load_model(model), "extended", "cpu", tmp_path)
    live = SessionSettings(optimization="extended", execution_order="default")
    feeds = inputs(model, at)
    assert ran(path, kept_for(load_model(path)), tmp_path, feeds) == ran(model, live, tmp_path, feeds)


def test_weights_outside_the_file_come_along(tmp_path):
    (source := tmp_path / "in").mkdir()
    (out := tmp_path / "out").mkdir()
    options, at = MODELS["decoder"]
    file = source / "m.onnx"
    onnx.save(build("decoder", **options), file, save_as_external_data=True, location="w", size_threshold=64)
    feeds = inputs(file, at)
    (before,) = run_session(create_session(file), feeds)
    path = write_baseline(load_model(file), "none", "cpu", out)
    for part in source.iterdir():
        part.unlink()
    (after,) = run_session(create_session(path), feeds)
    assert np.array_equal(before, after)


def test_folder_that_is_not_there(tmp_path):
    with pytest.raises(UsageError, match="create it first"):
        write_baseline(load_model(build("mlp_train")), "none", "cpu", tmp_path / "nowhere")


def test_order_that_no_file_gives_is_an_error(tmp_path, monkeypatch):
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])
    outs = [helper.make_tensor_value_info(n, TensorProto.INT64, [1]) for n in ("s", "t")]
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Shape", ["a"], ["t"]),
    ]
    graph = helper.make_graph(nodes, "two", [x], outs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    monkeypatch.setattr(baseline, "default_order", lambda *_: (0, 1, 2))
    monkeypatch.setattr(baseline, "file_for_default", lambda *_: None)
    monkeypatch.setattr(baseline, "priority_order", lambda *_: (1, 0, 2))
    baseline.write_baseline(load_model(model), "none", "cpu", tmp_path)  # runs as it is
    monkeypatch.setattr(baseline, "default_order", lambda *_: (2, 0, 1))
    view = load_model(model).view().graph
    with pytest.raises(UnsupportedModel, match="no file is known .* the 3 nodes"):
        baseline._file_of(view, (0, 1, 2))
