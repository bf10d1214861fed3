"""Levels that a file keeps by itself: plain sessions take what was predicted, at every level."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from models.build import build
from onnx_symmem.api import Optimized, optimize
from onnx_symmem.errors import LimitNotMet, UsageError
from onnx_symmem.expr.domain import SymbolRange
from onnx_symmem.graph.load import load_model
from onnx_symmem.order.limits import SearchLimits, within_budget
from onnx_symmem.remat.expansion import expand
from onnx_symmem.rewrite.choice import LIMIT
from onnx_symmem.rewrite.reorder import delivery_of, execution_order_of
from onnx_symmem.rewrite.versions import Version, emit_versions
from onnx_symmem.run.inputs import generate_inputs
from onnx_symmem.run.kept_levels import KeptByFile
from onnx_symmem.run.measure import Measurement, measure
from onnx_symmem.run.session import kept_for, shipped
from onnx_symmem.run.unchanged import changed_results
from onnx_symmem.shapes.engine import infer_shapes
from tests.memory.runtime import info, model, number

QUICK = within_budget(0, SearchLimits())
DOMAIN = {"batch": SymbolRange(1, 8), "seq": SymbolRange(1, 128)}
GUARD = 4096  # bytes, far below what a memory pattern of a branch would add
SHAPES = ({"batch": 8, "seq": 128}, {"batch": 3, "seq": 40})


def _shipped(path: Path, at: dict[str, int], fed: dict[str, np.ndarray]) -> Measurement:
    """The file in a session that is told nothing, beside the plan that it is for."""
    plan = kept_for(load_model(path))
    return measure(path, at, settings=shipped(), overrides=fed, latency_runs=0, plan=plan)


def _as_planned(path: Path, found: Optimized, at: dict[str, int]) -> set[int]:
    """Run every level under the limit that it needs; returns those that run at the shape."""
    plan, ran = found.details.levels, set()
    assert plan is not None
    full = found.details.shapes.domain.completed(at)
    for level in range(len(plan.levels)):
        limit = plan.needed(level, full)
        if plan.level_at(full, limit) != level:
            continue
        ran.add(level)
        measured = _shipped(path, at, {LIMIT: np.array(limit, np.int64)})
        assert measured.prediction.why_not == ""
        assert measured.nodes_equal == 1
        assert measured.runs[0].requested_peak == measured.predicted_peak == plan.peak(level).at(full)
        # Branches have no memory pattern; what the guard takes is held in a block from the second run on.
        assert measured.runs[1].requested_peak <= measured.runs[0].requested_peak + GUARD
    return ran


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Optimized]:
    """A training step with two levels besides the first."""
    out = tmp_path_factory.mktemp("levels") / "out.onnx"
    proto = build("transformer_train", layers=1, width=64)
    return out, optimize(
        proto, out, domain=DOMAIN, delivery="anchors", levels=2, max_slowdown=1.5, search=QUICK
    )


@pytest.mark.parametrize("at", SHAPES)
def test_every_level_takes_what_is_predicted_in_a_plain_session(
    train: tuple[Path, Optimized], at: dict[str, int]
) -> None:
    assert len(_as_planned(*train, at)) >= 2


def test_levels_are_lower_and_said_to_be_kept(train: tuple[Path, Optimized]) -> None:
    path, found = train
    details, at = found.details, SHAPES[0]
    peaks = [details.levels.peak(k).at(at) for k in range(3)]
    assert peaks == sorted(peaks, reverse=True)
    assert peaks[2] < 0.9 * peaks[0]
    assert (details.never_worse, details.notices) == ("proved", ())
    assert peaks[0] <= details.before.plan.source.options.mem_reuse * details.choice.before.at(at)
    assert details.delivered.changed_at_load == 0
    assert details.delivered.anchors > 0
    model = load_model(path).proto
    assert (delivery_of(model), execution_order_of(model)) == ("anchors", "default")
    assert all(v.equal for v in details.verified)
    onnx.checker.check_model(model)


def test_levels_give_the_same_bits_in_one_plain_session(train: tuple[Path, Optimized]) -> None:
    path, found = train
    plan, at = found.details.levels, SHAPES[1]
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    assert LIMIT not in {i.name for i in session.get_inputs()}
    names = {i.name for i in session.get_inputs()}
    feeds = {k: v for k, v in generate_inputs(found.details.shapes, at).items() if k in names}
    first = session.run(None, feeds)
    for level in (1, 2):
        again = session.run(None, {**feeds, LIMIT: np.array(plan.needed(level, at), np.int64)})
        assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))


def _repeating(*dims: int | str) -> onnx.ModelProto:
    """A product of 64 columns is kept while two of 48 are made, or made again; early a bias is added."""
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(rng.standard_normal(size).astype(np.float32), name)
        for name, size in (("w", (8, 64)), ("bias", (64,)), ("v", (8, 48)))
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], name="m"),
        helper.make_node("Add", ["m", "bias"], ["a"], name="a"),
        helper.make_node("ReduceSum", ["a", "all"], ["s"], name="s", keepdims=0),
        helper.make_node("MatMul", ["x", "v"], ["other"], name="other"),
        helper.make_node("Mul", ["other", "s"], ["scaled"], name="scaled"),
        helper.make_node("ReduceSum", ["scaled", "all"], ["o"], name="o", keepdims=0),
        helper.make_node("Mul", ["m", "o"], ["late"], name="late"),
        helper.make_node("ReduceSum", ["late", "all"], ["y"], name="y", keepdims=0),
    ]
    return model(nodes, [info("x", [*dims, 8])], [info("y", [])], [*weights, number("all", [0, 1])])


def test_a_repeat_sets_off_no_fusion(tmp_path: Path) -> None:
    """With the product made again the first one has one reader, an Add: ONN"axes"], ["s"], name="s"),
    helper.make_node("Concat" Runtime would make a Gemm."""
    out, at = tmp_path / "out.onnx", {"n": 500}
    found = optimize(
        _repeating("n"), out, domain={"n": SymbolRange(1, 500)}, delivery="anchors", levels=1,
        max_slowdown=2.0, search=QUICK,
    )  # fmt: skip
    assert [level.recomputed for level in found.details.levels.levels[1:]] != [()]
    assert found.details.delivered.changed_at_load == 0
    assert _as_planned(out, found, at) == {0, 1}
    names = [n.name for g in _branches(found.proto.graph) for n in g.node]
    assert "m/kept" in names


def _branches(graph: onnx.GraphProto) -> list[onnx.GraphProto]:
    node = next(n for n in graph.node if n.op_type == "If")
    return [a.g for a in node.attribute]


def test_repeats_that_are_not_told_apart_are_merged() -> None:
    proto = _repeating("n")
    loaded = load_model(proto)
    shapes = infer_shapes(loaded.view())
    view = shapes.graph.view
    plan = optimize(proto, levels=1, max_slowdown=2.0, ort_level="none", search=QUICK).details.levels
    expansions = [expand(view, level.schedule, loaded.view().opsets) for level in plan.levels]
    versions = [
        Version(e, level.peak.members) for e, level in zip(expansions, plan.levels, strict=True)
    ]  # fmt: skip
    for apart in (False, True):
        made = emit_versions(proto, shapes, versions, apart=apart)
        file = KeptByFile(loaded, shapes.domain, [{"n": 500}]).keeping(made)
        gone = changed_results(replace(loaded, proto=file), "all")
        assert bool(gone) != apart


@pytest.mark.parametrize(("limit", "level"), [(1 << 30, 0), (4 * 500 * 150, 1)])
def test_a_model_of_constant_dims_gets_the_level_that_fits_and_keeps_it(
    tmp_path: Path, limit: int, level: int
) -> None:
    out = tmp_path / "out.onnx"
    found = optimize(
        _repeating(500), out, delivery="anchors", levels=1, max_slowdown=2.0, memory_limit=limit,
        counts=("activations",), search=QUICK,
    )  # fmt: skip
    assert not any(n.op_type == "If" for n in found.proto.graph.node)
    plan = found.details.levels
    assert plan.only == level
    assert found.details.delivered.changed_at_load == 0
    measured = _shipped(out, {}, {})
    assert measured.nodes_equal == 1
    assert measured.runs[0].requested_peak == measured.predicted_peak == plan.peak(level).at({}) <= limit
    assert plan.peak(1).at({}) < plan.peak(0).at({})


def test_buffers_of_constant_dims_are_not_reused(tmp_path: Path) -> None:
    """ONNX Runtime would hold each for the next of its size, as it knows all of them."""
    proto = build("transformer_train", layers=1, width=64)
    for value in (*proto.graph.input, *proto.graph.output, *proto.graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_value = SHAPES[0].get(dim.dim_param, 1)
    out = tmp_path / "out.onnx"
    found = optimize(
        proto, out, delivery="anchors", levels=3, max_slowdown=1.5, memory_limit=7_400_000,
        counts=("activations",), search=QUICK,
    )  # fmt: skip
    plan = found.details.levels
    assert plan.only == 2
    alone = [level.peak.at({}) for level in plan.levels]
    assert all(plan.peak(k).at({}) < 1.05 * alone[k] for k in range(3))
    measured = _shipped(out, {}, {})
    assert measured.nodes_equal == 1
    assert measured.runs[0].requested_peak == measured.predicted_peak == plan.peak(2).at({}) <= 7_400_000


def test_what_no_level_keeps_is_said(tmp_path: Path) -> None:
    with pytest.raises(LimitNotMet, match="every level needs"):
        optimize(
            _repeating(500), tmp_path / "out.onnx", delivery="anchors", levels=1, max_slowdown=2.0,
            memory_limit=4 * 500 * 100, counts=("activations",), search=QUICK,
        )  # fmt: skip
    assert not (tmp_path / "out.onnx").exists()


def test_copies_to_the_host_are_refused() -> None:
    with pytest.raises(UsageError, match="ask for levels without offloading"):
        optimize(_repeating("n"), delivery="anchors", levels=1, offload=True, provider="cuda")


def _convolutions() -> onnx.ModelProto:
    """Convolutions that ONN"axes"], ["s"], name="s"),
    helper.make_node("Concat" Runtime lays out in blocks; one is read early and late."""
    rng = np.random.default_rng(1)
    w = numpy_helper.from_array(rng.standard_normal((16, 16, 3, 3)).astype(np.float32), "w")
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="c", pads=[1, 1, 1, 1]),
        helper.make_node("Abs", ["c"], ["early"], name="early"),
        helper.make_node("ReduceMean", ["early"], ["s"], name="s", axes=[2, 3]),
        helper.make_node("Concat", ["x", "x"], ["wide"], name="wide", axis=1),
        helper.make_node("ReduceMean", ["s"], ["first"], name="first", axes=[1]),
        helper.make_node("Mul", ["wide", "first"], ["wider"], name="wider"),
        helper.make_node("ReduceMean", ["wider"], ["o"], name="o", axes=[2, 3]),
        helper.make_node("ReduceMean", ["o"], ["one"], name="one", axes=[1]),
        helper.make_node("Mul", ["c", "one"], ["late"], name="late"),
        helper.make_node("MaxPool", ["late"], ["p"], name="p", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("ReduceMean", ["p"], ["t"], name="t", axes=[2, 3]),
        helper.make_node("Add", ["s", "t"], ["y"], name="y"),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 16, "h", 16])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 16, 1, 1])]
    return model(nodes, inputs, outputs, [w])


def test_convolutions_are_not_laid_out_anew(tmp_path: Path) -> None:
    out, at = tmp_path / "out.onnx", {"n": 2, "h": 32}
    found = optimize(
        _convolutions(), out, domain={k: SymbolRange(1, v) for k, v in at.items()}, delivery="anchors",
        levels=1, max_slowdown=3.0, search=QUICK,
    )  # fmt: skip
    assert found.details.delivered.changed_at_load == 0
    assert "Conv" in [n.op_type for g in _branches(found.proto.graph) for n in g.node]
    assert _as_planned(out, found, at) == {0, 1}
