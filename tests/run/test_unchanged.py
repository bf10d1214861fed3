"""Files that ONNX Runtime leaves as they are when it loads them with its own settings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnx_symmem.api import optimize
from onnx_symmem.errors import UnsupportedModel, UsageError
from onnx_symmem.graph.load import load_model
from onnx_symmem.order.limits import SearchLimits, within_budget
from onnx_symmem.rewrite.reticence import Reticence, reticent
from onnx_symmem.rewrite.value_info import write_dims
from onnx_symmem.run.measure import measure
from onnx_symmem.run.processor import PROCESSOR, blocks_here
from onnx_symmem.run.session import create_session, shipped
from onnx_symmem.run.unchanged import changed_nodes, telling_dims
from onnx_symmem.shapes.engine import infer_shapes

QUICK = within_budget(0.5, SearchLimits())


def halves() -> onnx.ModelProto:
    """Both halves of 64 columns, a number that ONNX Runtime does not know: it comes of a division."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 64])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    nodes = [
        helper.make_node("Exp", ["x"], ["e"]),
        helper.make_node("Shape", ["e"], ["whole"]),
        helper.make_node("Mul", ["whole", "two"], ["twice"]),
        helper.make_node("Div", ["twice", "two"], ["dims"]),
        helper.make_node("Reshape", ["e", "dims"], ["r"]),
        helper.make_node("Slice", ["r", "zero", "middle", "one"], ["left"]),
        helper.make_node("Slice", ["r", "middle", "end", "one"], ["right"]),
        helper.make_node("MatMul", ["left", "w"], ["a"]),
        helper.make_node("MatMul", ["right", "w"], ["b"]),
        helper.make_node("Sub", ["a", "b"], ["y"]),
    ]
    constants = [
        *(
            numpy_helper.from_array(np.array([value], np.int64), name)
            for name, value in (("zero", 0), ("one", 1), ("two", 2), ("middle", 32), ("end", 64))
        ),
        numpy_helper.from_array(np.ones((32, 32), np.float32), "w"),
    ]
    graph = helper.make_graph(nodes, "halves", [x], [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def convolutions() -> onnx.ModelProto:
    """Two convolutions of 32 channels with something between them that has no layout of its own."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 32, "h", "w"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    nodes = [
        helper.make_node("Conv", ["x", "f"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Erf", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "f"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Mul", ["a", "c"], ["y"]),
    ]
    weights = np.random.default_rng(0).standard_normal((32, 32, 3, 3)).astype(np.float32)
    graph = helper.make_graph(nodes, "convolutions", [x], [y], [numpy_helper.from_array(weights, "f")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def test_dims_that_are_news_change_the_graph_and_are_not_told() -> None:
    model = load_model(halves())
    told = replace(model, proto=write_dims(model.proto, infer_shapes(model.view())))
    assert changed_nodes(model, "extended") == ()
    assert {model.proto.graph.node[k].op_type for k in changed_nodes(told, "extended")} >= {"Slice"}
    less = telling_dims(told, "extended")
    assert "r" in less.hidden
    assert changed_nodes(replace(told, proto=reticent(told.proto, less)), "extended") == ()


def test_hidden_numbers_are_the_same_dims_to_us() -> None:
    model = load_model(halves())
    shapes = infer_shapes(model.view())
    less = reticent(write_dims(model.proto, shapes), Reticence(frozenset({"r", "a"}), frozenset({"b"})))
    said = {info.name: info.type.tensor_type.shape.dim for info in less.graph.value_info}
    assert [d.dim_param for d in said["r"]] == ["n", "64 + 0*1"]
    assert "b" not in said
    again = infer_shapes(load_model(less).view())
    assert again.graph.dims == shapes.graph.dims


def test_the_file_keeps_its_plan_where_a_session_is_told_nothing(tmp_path: Path) -> None:
    out = tmp_path / "m.onnx"
    found = optimize(halves(), out, delivery="anchors", search=QUICK)
    assert found.figures.delivery.changed_at_load == 0
    measured = measure(out, {"n": 50}, latency_runs=0)
    own = measure(out, {"n": 50}, settings=shipped(), latency_runs=0, plan=measured.settings)
    assert own.prediction.why_not == ""
    assert own.runs[0].requested_peak == measured.predicted_peak


@pytest.mark.skipif(not blocks_here(), reason="convolutions have no layout of their own on this processor")
def test_convolutions_keep_their_layout_at_level_all_only(tmp_path: Path) -> None:
    shape = {"n": 2, "h": 5, "w": 6}
    plain = optimize(convolutions(), tmp_path / "plain.onnx", delivery="anchors", search=QUICK)
    assert plain.figures.delivery.changed_at_load >= 2
    assert any("--ort-level all" in notice for notice in plain.figures.notices)
    out = tmp_path / "laid_out.onnx"
    found = optimize(convolutions(), out, delivery="anchors", search=QUICK, ort_level="all")
    assert found.figures.delivery.changed_at_load == 0
    assert found.figures.verified
    measured = measure(out, shape, latency_runs=0)
    own = measure(out, shape, settings=shipped(), latency_runs=0, plan=measured.settings)
    assert own.prediction.why_not == ""
    assert own.runs[0].requested_peak == measured.predicted_peak == found.details.after.at(measured.shape)


@pytest.mark.skipif(not blocks_here(), reason="convolutions have no layout of their own on this processor")
def test_a_file_for_another_processor_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "laid_out.onnx"
    optimize(convolutions(), out, search=QUICK, ort_level="all", verify=False)
    create_session(out)
    model = onnx.load(out)
    (said,) = (entry for entry in model.metadata_props if entry.key == PROCESSOR)
    assert said.value == f"blocks of {blocks_here()} channels"
    said.value = f"blocks of {24 - blocks_here()} channels"
    onnx.save(model, out)
    with pytest.raises(UnsupportedModel, match="made for processors with blocks of .*optimize the original"):
        create_session(out)


def test_what_depends_on_no_processor_does_not_say_one(tmp_path: Path) -> None:
    found = optimize(halves(), tmp_path / "m.onnx", search=QUICK, ort_level="all", verify=False)
    assert PROCESSOR not in {entry.key for entry in found.proto.metadata_props}
    with pytest.raises(UsageError, match="level 'all'"):
        optimize(halves(), provider="cuda", ort_level="all", verify=False)
