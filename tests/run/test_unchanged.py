"""Files that ONNX Runtime leaves as they are when it loads them with its own settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from models.build import build
from onnx_symmem.api import optimize
from onnx_symmem.errors import UnsupportedModel, UsageError
from onnx_symmem.graph.load import load_model
from onnx_symmem.order.limits import SearchLimits, within_budget
from onnx_symmem.rewrite.reticence import Reticence, reticent
from onnx_symmem.rewrite.steady_layout import SteadyLayout, steady, unused_mark
from onnx_symmem.rewrite.value_info import write_dims
from onnx_symmem.run import baseline
from onnx_symmem.run.baseline import settled_baseline, usable_baseline
from onnx_symmem.run.measure import measure
from onnx_symmem.run.processor import PROCESSOR, blocks_here
from onnx_symmem.run.session import create_session, shipped
from onnx_symmem.run.unchanged import changed_nodes, kept_layout, telling_dims
from onnx_symmem.shapes.engine import infer_shapes
from tests.run.half_precision import halved

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


def pools() -> onnx.ModelProto:
    """Pools of 32 channels, two of them of one tensor, whose shape the model takes, too."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 32, "h", "w"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    s = helper.make_tensor_value_info("s", TensorProto.INT64, [4])
    same = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("Erf", ["x"], ["a"]),
        helper.make_node("Shape", ["a"], ["s"]),
        helper.make_node("MaxPool", ["a"], ["b"], **same),
        helper.make_node("AveragePool", ["a"], ["c"], **same),
        helper.make_node("Mul", ["b", "c"], ["d"]),
        helper.make_node("GlobalAveragePool", ["d"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "pools", [x], [y, s])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def read_twice(opset: int = 17, ir_version: int = 9) -> onnx.ModelProto:
    """The weight of a convolution that its gradient reads, too: a transposed convolution."""
    model = convolutions()
    model.opset_import[0].version, model.ir_version = opset, ir_version
    (product,) = (node for node in model.graph.node if node.op_type == "Mul")
    product.input[1] = "t"
    back = helper.make_node("ConvTranspose", ["c", "f"], ["t"], pads=[1, 1, 1, 1])
    model.graph.node.insert(3, back)
    if ir_version < 4:
        model.graph.input.append(helper.make_tensor_value_info("f", TensorProto.FLOAT, [32, 32, 3, 3]))
    return model


def old_convolutions() -> onnx.ModelProto:
    """Of an IR in which every weight is an input, too."""
    model = convolutions()
    model.ir_version, model.opset_import[0].version = 3, 8
    model.graph.input.append(helper.make_tensor_value_info("f", TensorProto.FLOAT, [32, 32, 3, 3]))
    for node in model.graph.node:
        if node.op_type == "Erf":
            node.op_type = "Tanh"
    return model


@pytest.mark.skipif(not blocks_here(), reason="convolutions have no layout of their own on this processor")
@pytest.mark.parametrize(
    ("make", "open_weights", "added"),
    [
        (convolutions, {"f"}, 0),
        (old_convolutions, {"f"}, 0),
        (pools, set(), 4),
        (read_twice, set(), 6),
        (lambda: read_twice(13), set(), 6),
        (lambda: read_twice(13, 3), set(), 6),
    ],
    ids=["convolutions", "ir3", "pools", "shared", "shared-opset13", "shared-ir3"],
)
def test_convolutions_and_pools_stay_where_a_session_is_told_nothing(
    tmp_path: Path, make: Callable[[], onnx.ModelProto], open_weights: set[str], added: int
) -> None:
    """At level extended: the file is for every processor, and no default of ONNX Runtime lays it out anew."""
    shape = {"n": 2, "h": 5, "w": 6}
    out = tmp_path / "m.onnx"
    found = optimize(make(), out, delivery="anchors", search=QUICK)
    assert found.figures.delivery.changed_at_load == 0
    assert found.figures.verified
    assert PROCESSOR not in {entry.key for entry in found.proto.metadata_props}
    assert {i.name for i in found.proto.graph.input} - {"x"} == open_weights
    planned = len(found.details.before.plan.order) + found.figures.delivery.anchors
    assert len(found.proto.graph.node) == planned + added
    assert 0 <= found.figures.moved_nodes <= planned
    # Nobody has to feed a weight, and it is no input to those who ask.
    assert [i.name for i in create_session(out).get_inputs()] == ["x"]
    measured = measure(out, shape, latency_runs=0)
    own = measure(out, shape, settings=shipped(), latency_runs=0, plan=measured.settings)
    assert own.prediction.why_not == ""
    assert measured.nodes_equal == 1
    assert own.runs[0].requested_peak == measured.predicted_peak == found.details.after.at(measured.shape)


def test_what_is_added_takes_no_name_of_the_model() -> None:
    model = pools()
    model.graph.node[0].name = "erf/as_it_is"
    layout = SteadyLayout(unused_mark(model), pooled=frozenset({"a"}))
    written = steady(model, layout)
    assert [node.name for node in written.graph.node if layout.is_added(node)] == [
        "a/as_it_is_/shape",
        "a/as_it_is_",
    ]
    assert [node.input[0] for node in written.graph.node if node.op_type.endswith("Pool")] == [
        "a/as_it_is_",
        "a/as_it_is_",
        "d",
    ]


def test_a_graph_that_changes_again_is_planned_as_it_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = iter([(3,), (3,), (), ()])  # as it is, and with what could keep it
    monkeypatch.setattr(baseline, "changed_nodes", lambda *_: next(left))
    model = load_model(halves())
    settled, notices = settled_baseline(model, "extended", "cpu", tmp_path)
    assert settled is not model
    assert "once more" in notices[0]
    assert "may round otherwise" in notices[0]  # so it does where Casts of float16 are in the way at first
    assert settled_baseline(settled, "extended", "cpu", tmp_path) == (settled, ())


def test_a_graph_that_can_be_kept_is_the_last(tmp_path: Path) -> None:
    model = load_model(halved(build("decoder", layers=1)))
    base, _ = usable_baseline(model, "extended", "cpu", tmp_path)
    assert changed_nodes(base, "extended")
    assert settled_baseline(base, "extended", "cpu", tmp_path) == (base, ())
    layout = kept_layout(base, "extended")
    halves_of = {t.name for t in base.proto.graph.initializer if t.data_type == TensorProto.FLOAT16}
    assert layout.weights < halves_of  # a table that others read is none of them
    readers = {n.op_type for n in base.proto.graph.node for name in n.input if name in layout.weights}
    assert (readers, layout.shared) == ({"Cast"}, frozenset())


@pytest.mark.skipif(not blocks_here(), reason="convolutions have no layout of their own on this processor")
def test_convolutions_keep_their_layout_at_level_all(tmp_path: Path) -> None:
    shape = {"n": 2, "h": 5, "w": 6}
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
