"""Models whose file keeps the plan: order and bytes as planned under ONNX Runtime's own order and reuse."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from models.build import MODELS
from onnx_symmem.api import create_session, memory_profile, optimize
from onnx_symmem.errors import UsageError
from onnx_symmem.expr.plan_order import plan_le
from onnx_symmem.graph.load import load_model
from onnx_symmem.order.limits import SearchLimits, within_budget
from onnx_symmem.rewrite.reorder import delivery_of, execution_order_of
from onnx_symmem.run.measure import measure
from onnx_symmem.run.optimized import OptimizedModel
from onnx_symmem.run.session import SessionSettings, kept_for

QUICK = within_budget(0.5, SearchLimits())
# What a user of the C API can set: no optimisation at load, no memory pattern, an arena's growth.
SETTABLE = SessionSettings(execution_order="default", mem_reuse=True)

SMALL = {
    "decoder": {"layers": 1, "width": 32, "heads": 2, "vocab": 64},
    "mlp_train": {"features": 32, "width": 32, "layers": 2},
    "transformer_train": {"layers": 1, "width": 32},
}


@pytest.fixture(scope="module", params=list(SMALL))
def anchored(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> OptimizedModel:
    """A small real model with anchors."""
    folder = tmp_path_factory.mktemp(request.param)
    onnx.save(MODELS[request.param].builder(**SMALL[request.param]), folder / "model.onnx")
    found = optimize(folder / "model.onnx", folder / "out.onnx", delivery="anchors", search=QUICK)
    return found.details


def shapes_of(found: OptimizedModel) -> list[dict[str, int]]:
    name = found.source.proto.graph.name
    return [dict(shape) for shape in MODELS[name].shapes[:2]]


def test_it_is_proved_against_what_would_have_run_with_reuse(anchored: OptimizedModel) -> None:
    choice = anchored.choice
    assert choice.never_worse == "proved"
    assert choice.before.profile is not None
    assert choice.before.profile.plan.source.options.mem_reuse
    assert plan_le(choice.after.members, choice.before.members, anchored.shapes.domain).proved


def test_order_and_bytes_are_as_planned_at_every_node(anchored: OptimizedModel) -> None:
    path = anchored.files[-1]
    assert kept_for(load_model(path)) == SETTABLE
    for shape in shapes_of(anchored):
        measured = measure(path, shape, latency_runs=0)
        assert measured.settings == SETTABLE
        assert measured.prediction.why_not == ""
        assert measured.nodes_equal == 1.0
        assert measured.wrong_dims == ()
        peaks = {run.requested_peak for run in measured.runs}
        assert peaks == {measured.predicted_peak} == {anchored.after.at(measured.shape)}
        original = measure(
            anchored.source, shape, latency_runs=0, settings=replace(SETTABLE, optimization="extended")
        )
        assert measured.runs[0].requested_peak <= original.runs[0].requested_peak


def test_a_session_without_reuse_is_predicted_too(anchored: OptimizedModel) -> None:
    for shape in shapes_of(anchored):
        measured = measure(
            anchored.files[-1], shape, latency_runs=0, settings=replace(SETTABLE, mem_reuse=False)
        )
        assert measured.nodes_equal == 1.0
        assert measured.predicted_peak == measured.runs[0].requested_peak


def test_the_profile_counts_reuse(anchored: OptimizedModel) -> None:
    found = memory_profile(anchored.files[-1])
    assert found.plan.source.options.mem_reuse
    assert sum(n.name.endswith("/anchor") for n in found.plan.view.nodes) == anchored.delivered.anchors


def two_towers(dims: tuple[str, ...] = ("n", "m")) -> onnx.ModelProto:
    """y = f(x) + g(x): each tower widens x fourfold and sums it away; run in turns they hold less."""

    def info(name: str, shape: tuple[str, ...]) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    nodes = []
    for tower in "ab":
        nodes += [
            helper.make_node("Exp", ["x"], [f"{tower}1"], name=f"{tower}1"),
            helper.make_node("Concat", [f"{tower}1"] * 4, [f"{tower}2"], name=f"{tower}2", axis=0),
            helper.make_node("ReduceSum", [f"{tower}2"], [f"{tower}3"], name=f"{tower}3", keepdims=0),
        ]
    nodes.append(helper.make_node("Add", ["a3", "b3"], ["y"], name="y"))
    graph = helper.make_graph(nodes, "towers", [info("x", dims)], [info("y", ())])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def held_apart() -> onnx.ModelProto:
    """A buffer that is free while the largest tensor lives, and would be kept for a later one of its size."""

    def info(name: str, *shape: str | int) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    nodes = [
        helper.make_node("Exp", ["x"], ["a"], name="a"),
        helper.make_node("Relu", ["a"], ["b"], name="b"),
        helper.make_node("ReduceSum", ["b", "axis"], ["c"], name="c"),
        helper.make_node("MatMul", ["c", "z"], ["d"], name="d"),
        helper.make_node("ReduceSum", ["d"], ["e"], name="e", keepdims=0),
        helper.make_node("Mul", ["x", "e"], ["f"], name="f"),
        helper.make_node("ReduceSum", ["f"], ["y"], name="y", keepdims=0),
    ]
    axis = helper.make_tensor("axis", TensorProto.INT64, [1], [1])
    graph = helper.make_graph(nodes, "held", [info("x", "n", "m"), info("z", 1, "w")], [info("y")], [axis])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def test_buffers_are_kept_apart_where_reuse_raises_the_peak(tmp_path: Path) -> None:
    out = tmp_path / "m.onnx"
    found = optimize(held_apart(), out, delivery="anchors", ort_level="none").details
    assert found.delivered.separated
    shape = {"n": 300, "m": 200, "w": 900}
    freed, largest = 300 * 200 * 4, 300 * 900 * 4
    with_reuse = measure(held_apart(), shape, latency_runs=0, settings=SETTABLE)
    measured = measure(out, shape, latency_runs=0)
    assert with_reuse.nodes_equal == measured.nodes_equal == 1.0
    assert with_reuse.runs[0].requested_peak == found.choice.before.at(shape) >= freed + largest
    assert measured.runs[0].requested_peak == found.after.at(shape) == largest + 300 * 4
    dims = {
        info.name: [d.dim_param for d in info.type.tensor_type.shape.dim]
        for info in onnx.load(out).graph.value_info
    }
    assert dims["a"] == dims["b"] == ["n", "m"]  # in place
    assert dims["f"] == ["n + 0*2", "m"]


def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        optimize(held_apart(), folder / "m.onnx", delivery="anchors")
    for file in ("m.onnx", "m.onnx.session.json", "m.onnx.config.pbtxt"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def test_the_file_says_what_keeps_it_and_forgets_it(tmp_path: Path) -> None:
    out = tmp_path / "m.onnx"
    found = optimize(two_towers(), out, delivery="anchors", ort_level="none")
    proto = onnx.load(out)
    assert (delivery_of(proto), execution_order_of(proto)) == ("anchors", "default")
    assert found.figures.delivery.kind == "anchors"
    assert found.to_json()["delivery"]["anchors"] == found.details.delivered.anchors
    again = optimize(out, tmp_path / "again.onnx", ort_level="none")
    assert delivery_of(onnx.load(tmp_path / "again.onnx")) == "order"
    assert again.figures.delivery.kind == "order"


def test_settings_beside_the_model_are_read(tmp_path: Path) -> None:
    out = tmp_path / "m.onnx"
    found = optimize(two_towers(), out, delivery="anchors")
    names = [Path(file).name for file in found.figures.files]
    assert names == ["m.onnx.session.json", "m.onnx.config.pbtxt", "m.onnx"]
    file = tmp_path / "m.onnx.session.json"
    document = json.loads(file.read_text())
    document["session_options"]["intra_op_num_threads"]["value"] = 3
    file.write_text(json.dumps(document))
    assert create_session(out).get_session_options().intra_op_num_threads == 3
    # Left over from another model of that name: not followed.
    optimize(held_apart(), out)
    assert create_session(out).get_session_options().intra_op_num_threads == 0
    file.write_text("{")
    with pytest.raises(UsageError, match=r"m\.onnx\.session\.json: not JSON"):
        create_session(out)


def test_unknown_deliveries_are_refused() -> None:
    with pytest.raises(UsageError, match="delivery 'both' is not known"):
        optimize(two_towers(), delivery="both")


def test_a_model_with_a_cache(
    filled_model: Callable[[str], Path], cases: Mapping[str, Any], tmp_path: Path
) -> None:
    """Its outputs are leaves of the graph, at which the search would start."""
    path, out = filled_model("llama_8l_kv"), tmp_path / "llama.onnx"
    found = optimize(path, out, delivery="anchors", search=QUICK).details
    assert found.choice.never_worse == "proved"
    assert found.delivered.anchors <= 40
    first = cases["llama_8l_kv"].shapes[0]
    shape = {name: first[name] for name in found.shapes.input_symbols}
    measured = measure(out, shape, latency_runs=0)
    assert measured.nodes_equal == 1.0
    assert measured.runs[1].requested_peak == found.after.at(measured.shape)
    assert all(v.equal for v in found.verified)
