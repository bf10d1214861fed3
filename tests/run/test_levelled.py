"""Levels for a memory limit, from `optimize` to the run: what is needed, what runs, and when nothing fits."""

import io
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from rich.console import Console

from models.build import build
from onnx_symmem.errors import LimitNotMet, RunFailed, UnsupportedModel, UsageError, naming
from onnx_symmem.order.limits import SearchLimits, within_budget
from onnx_symmem.remat.levels import LevelOptions
from onnx_symmem.report.capacity import check_budget
from onnx_symmem.report.demand import model_demand
from onnx_symmem.report.optimization import optimization_figures
from onnx_symmem.report.text.optimization import show_optimization
from onnx_symmem.rewrite.choice import LIMIT
from onnx_symmem.rewrite.version_record import versions_of
from onnx_symmem.run.measure import measure, measure_baseline
from onnx_symmem.run.optimized import OptimizedModel, OptimizeOptions
from onnx_symmem.run.pipeline import optimize_model
from onnx_symmem.run.several import LevelWish
from tests.memory.runtime import info, model, number

DOMAIN = {"batch": (1, 8), "seq": (1, 128)}
LARGE = {"batch": 8, "seq": 128}
QUICK = within_budget(0, SearchLimits())


def _optimized(limit=None, verify=False, levels=2, **wish) -> OptimizedModel:
    proto = build("transformer_train", layers=1, width=64)
    wanted = LevelWish(limit, options=LevelOptions(levels=levels), **wish)
    options = OptimizeOptions(levels=wanted, verify=verify, search=QUICK)
    return optimize_model(proto, None, DOMAIN, options)


@pytest.fixture(scope="module")
def free() -> OptimizedModel:
    return _optimized(verify=True)


def test_every_level_runs_under_the_limit_that_it_needs(free):
    plan = free.levels
    assert len(plan.levels) == 3
    needed = [plan.needed(k, LARGE) for k in range(3)]
    assert needed == sorted(needed, reverse=True)
    for level, limit in enumerate(needed):
        assert plan.level_at(LARGE, limit) == level
        fed = {LIMIT: np.array(limit, np.int64)}
        found = measure(free.proto, LARGE, overrides=fed, runs=1, latency_runs=0)
        assert found.version == level
        assert found.nodes_equal == 1
        # All that the limit covers: the run, inputs and weights.
        assert found.runs[0].requested_peak + plan.counted.evaluate(LARGE) == limit
    one_less = {LIMIT: np.array(needed[0] - 1, np.int64)}
    assert measure(free.proto, LARGE, overrides=one_less, runs=1, latency_runs=0).version == 1


def test_every_level_is_verified(free):
    assert all(v.equal for v in free.verified)
    assert len(free.verified) >= 3
    # Where no weights are packed, products with a single row are the likeliest to round otherwise.
    assert {"batch": 1, "seq": 1} in [dict(v.shape) for v in free.verified]


def test_a_model_of_levels_is_not_optimised_again(free):
    """ONNX Runtime merges equal nodes: what levels repeat would be kept, and the guard not know."""
    with pytest.raises(UnsupportedModel, match="has levels; .* give the model that they were made from"):
        optimize_model(free.proto, None, options=OptimizeOptions(search=QUICK))


def test_without_a_limit_the_first_level_runs(free):
    assert measure(free.proto, LARGE, runs=1, latency_runs=0).version == 0
    assert free.never_worse == "proved"
    for at in (LARGE, {"batch": 1, "seq": 1}):
        found = measure(free.proto, at, runs=1, latency_runs=0)
        assert found.runs[0].requested_peak == free.after.at(at)
        alone = free.levels.levels[0].peak.at(at)
        assert alone < free.after.at(at) <= alone + free.levels.overhead


def test_the_limit_of_the_file_decides(free):
    middle = free.levels.needed(1, LARGE)
    found = _optimized(middle)
    assert versions_of(found.proto)["limit"]["default"] == middle
    for at in (LARGE, {"batch": 8, "seq": 64}, {"batch": 1, "seq": 1}):
        level = found.levels.level_at(at)
        assert measure(found.proto, at, runs=1, latency_runs=0).version == level
        assert found.levels.needed(level, at) <= middle
    assert found.levels.level_at(LARGE) == 1


def test_what_the_limit_covers_is_counted_as_asked(free):
    plan = _optimized(counts=("activations",), reserve=1000).levels
    assert plan.counted == 1000
    both = free.levels.counted.evaluate(LARGE)
    weights = free.choice.chosen.profile.weights.evaluate({}) + free.levels.constants
    assert both == 4 * 64 * 8 * 128 + 8 * 8 * 128 + weights
    with pytest.raises(UsageError, match="has to count activations"):
        _optimized(counts=("weights",))


def test_the_constants_of_the_guard_are_weights_that_the_limit_covers(free):
    """As `check` counts the file, weights and all, every level takes what the guard thinks it does."""
    plan = free.levels
    known = {t.name for t in free.source.proto.graph.initializer}
    added = [t for t in free.proto.graph.initializer if t.name.startswith("symmem")]
    assert not known & {t.name for t in added}
    assert plan.constants == sum(numpy_helper.to_array(t).nbytes for t in added) > 8
    for level in range(3):
        limit = plan.needed(level, LARGE)
        assert model_demand(free.proto, DOMAIN, limit=limit).demand.at(LARGE) == limit
        assert check_budget(model_demand(free.proto, DOMAIN, limit=limit), limit, [LARGE]).holds


def test_a_limit_that_cannot_be_met_says_what_stands_in_the_way(free):
    least = free.levels.needed(2, LARGE)
    with pytest.raises(LimitNotMet) as caught:
        _optimized(least - 1)
    text = str(caught.value)
    assert f"at batch=8,seq=128 every level needs {least:,} bytes or more" in text
    assert "whatever is repeated" in text
    assert "a level fits there up to batch=7 or seq=127" in text
    assert "\n" not in text
    assert caught.value.exit_code == 1
    assert _optimized(least).levels.level_at(LARGE) == 2


def test_an_open_domain_is_judged_at_its_least_shape():
    proto = build("mlp_train")
    wish = LevelWish(10 << 20, options=LevelOptions(levels=1))
    options = OptimizeOptions(levels=wish, verify=False, search=QUICK)
    assert optimize_model(proto, None, None, options).levels is not None
    options = OptimizeOptions(levels=LevelWish(1 << 20), verify=False, search=QUICK)
    with pytest.raises(LimitNotMet, match="at batch=1 every level needs"):
        optimize_model(proto, None, None, options)


def test_errors_name_the_file_and_what_to_do(tmp_path):
    """Also those that are raised where the file is not known."""
    path = tmp_path / "old.onnx"
    proto = _repeating("n", 16)
    proto.opset_import[0].version = 8
    for node in proto.graph.node:
        if node.op_type == "ReduceSum":  # axes were an attribute then
            del node.input[1:]
            node.attribute.append(helper.make_attribute("axes", [0]))
    onnx.save(proto, path)
    wish = LevelWish(options=LevelOptions(levels=1))
    with pytest.raises(UnsupportedModel) as caught:
        optimize_model(path, None, None, OptimizeOptions(levels=wish, verify=False, search=QUICK))
    assert str(caught.value) == (
        f"{path}: versions are chosen with operators of opset 9, and the model has opset 8; optimize it "
        "without a memory limit and levels"
    )
    for error in (UnsupportedModel, RunFailed, LimitNotMet):
        with pytest.raises(error, match=r"^m\.onnx: broken$"), naming("m.onnx"), naming("m.onnx"):
            raise error("broken")


def _repeating(*dims: int | str) -> onnx.ModelProto:
    """A value of 8 times the input is kept while one of 6 times is made, or made again."""
    nodes = [
        helper.make_node("Concat", ["x"] * 8, ["big"], name="big", axis=0),
        helper.make_node("ReduceSum", ["big", "all"], ["s"], name="s", keepdims=0),
        helper.make_node("Concat", ["x"] * 6, ["other"], name="other", axis=0),
        helper.make_node("Mul", ["other", "s"], ["scaled"], name="scaled"),
        helper.make_node("ReduceSum", ["scaled", "all"], ["o"], name="o", keepdims=0),
        helper.make_node("Mul", ["big", "o"], ["m"], name="m"),
        helper.make_node("ReduceSum", ["m", "all"], ["y"], name="y", keepdims=0),
    ]
    return model(nodes, [info("x", list(dims))], [info("y", [*dims[1:]])], [number("all", [0])])


def test_a_static_model_gets_its_level_without_if():
    proto = _repeating(1000)
    for limit, repeats in ((1 << 30, 0), (4 * 1000 * 19, 1)):
        wish = LevelWish(limit, ("activations",), options=LevelOptions(levels=1, max_slowdown=2.0))
        options = OptimizeOptions(levels=wish, ort_level="none", search=QUICK)
        found = optimize_model(proto, None, None, options)
        ops = [n.op_type for n in found.proto.graph.node]
        assert "If" not in ops
        assert ops.count("Concat") == 2 + repeats
        peak = measure(found.proto, {}, runs=1, latency_runs=0)
        assert peak.nodes_equal == 1
        assert peak.runs[0].requested_peak <= limit


def test_a_limit_is_exact_where_deciding_takes_more_than_the_model():
    wish = LevelWish(None, ("activations",), options=LevelOptions(levels=1, max_slowdown=2.0))
    options = OptimizeOptions(levels=wish, ort_level="none", search=QUICK)
    found = optimize_model(_repeating("n", 1, 1), None, None, options)
    plan = found.levels
    assert len(plan.levels) == 2
    chosen = {}
    for n in (1, 2, 3, 100):
        at = {"n": n}
        for level, limit in ((0, plan.needed(0, at)), (1, plan.needed(0, at) - 1)):
            assert plan.level_at(at, limit) == level
            fed = {LIMIT: np.array(limit, np.int64)}
            ran = measure(found.proto, at, overrides=fed, runs=1, latency_runs=0)
            assert ran.version == level
            assert ran.nodes_equal == 1
            assert ran.runs[0].requested_peak == plan.needed(level, at)
        chosen[n] = plan.needed(1, at)
    # At the least shape the guard itself; then one condition is left of it, and the output is early.
    extra = {n: size - plan.levels[1].peak.at({"n": n}) for n, size in chosen.items()}
    assert extra.pop(1) > 1 + 4
    assert set(extra.values()) == {1 + 4} == {plan.overhead}


def test_no_repeat_helps_where_nothing_can_be_repeated():
    nodes = [helper.make_node("Relu", ["x"], ["y"], name="y")]
    proto = model(nodes, [info("x", ["n"])], [info("y", ["n"])])
    options = OptimizeOptions(levels=LevelWish(), verify=True, search=QUICK)
    found = optimize_model(proto, None, None, options)
    assert len(found.levels.levels) == 1
    assert any("no repeat lowers the peak" in n for n in found.notices)
    assert [n.op_type for n in found.proto.graph.node] == ["Relu"]
    onnx.checker.check_model(found.proto)


def test_sizes_that_only_data_tell_decide_nothing():
    """Twice as wide as the number of nonzero elements: before the run nobody knows which level would fit."""
    nodes = [
        helper.make_node("NonZero", ["x"], ["where"], name="where"),
        helper.make_node("Cast", ["where"], ["found"], name="found", to=1),
        helper.make_node("Concat", ["found"] * 8, ["big"], name="big", axis=0),
        helper.make_node("ReduceSum", ["big", "all"], ["s"], name="s", keepdims=0),
        helper.make_node("Concat", ["found"] * 6, ["other"], name="other", axis=0),
        helper.make_node("Mul", ["other", "s"], ["scaled"], name="scaled"),
        helper.make_node("ReduceSum", ["scaled", "all"], ["o"], name="o", keepdims=0),
        helper.make_node("Mul", ["big", "o"], ["m"], name="m"),
        helper.make_node("ReduceSum", ["m", "all"], ["y"], name="y", keepdims=0),
    ]
    proto = model(nodes, [info("x", ["n"])], [info("y", [])], [number("all", [0, 1])])
    wish = LevelWish(options=LevelOptions(levels=1, max_slowdown=3.0))
    options = OptimizeOptions(levels=wish, ort_level="none", search=QUICK, verify=False)
    with pytest.raises(UnsupportedModel) as caught:
        optimize_model(proto, None, None, options)
    text = str(caught.value)
    assert "NonZero 'where'" in text
    assert "without a memory limit and levels" in text
    assert "\n" not in text
    assert caught.value.exit_code == 3


def test_shapes_where_nothing_is_gained_hold_back_no_other():
    """At batch 1 and seq 1 the gradients are all there is, and that is more than a sixteenth of the most."""
    proto = build("transformer_train", layers=1, width=64)
    wish = LevelWish(options=LevelOptions(levels=2))
    options = OptimizeOptions(levels=wish, verify=False, search=QUICK)
    plan = optimize_model(proto, None, {"batch": (1, 4), "seq": (1, 64)}, options).levels
    most, least = {"batch": 4, "seq": 64}, {"batch": 1, "seq": 1}
    assert 16 * plan.levels[0].peak.at(least) > plan.levels[0].peak.at(most)
    assert len(plan.levels) > 1
    assert plan.levels[-1].peak.at(most) < 0.8 * plan.levels[0].peak.at(most)


def test_where_no_single_dim_can_shrink_enough_a_smaller_shape_is_named(free):
    plan = free.levels

    def least_at(shape):
        return min(plan.needed(k, shape) for k in range(len(plan.levels)))

    # Below what either dim alone can reach, above the least shape.
    wanted = min(least_at({**LARGE, n: 1}) for n in LARGE) - 1
    assert wanted > least_at({"batch": 1, "seq": 1})
    with pytest.raises(LimitNotMet) as caught:
        _optimized(wanted)
    text = str(caught.value)
    around = plan.counted.evaluate(LARGE)
    assert f"besides {around:,} of weights, inputs and reserve" in text
    said = text.rpartition("a level fits at ")[2]
    shape = {name: int(size) for name, size in (part.split("=") for part in said.split(","))}
    assert least_at(shape) <= wanted
    # One of 64 steps larger does not fit.
    larger = {n: min(LARGE[n], shape[n] + -(-LARGE[n] // 64) + 1) for n in LARGE}
    assert least_at(larger) > wanted


def test_never_worse_is_said_of_what_runs():
    """Level 0 runs with its shape arithmetic first: by what that adds it is above what would have run."""
    nodes = [
        helper.make_node("Tanh", ["x"], ["a"]),
        helper.make_node("Concat", ["a", "a"], ["b"], axis=0),
        helper.make_node("Shape", ["a"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Slice", ["b", "zero", "n", "zero"], ["c"]),
        helper.make_node("Concat", ["a"] * 6, ["d"], axis=0),
        helper.make_node("ReduceMax", ["d"], ["e"], axes=[0], keepdims=1),
        helper.make_node("Mul", ["c", "e"], ["y"]),
    ]
    proto = model(nodes, [info("x", ["n", 16])], [info("y", ["n", 16])], [number("zero", [0])])
    wish = LevelWish(options=LevelOptions(levels=2))
    found = optimize_model(proto, None, None, OptimizeOptions(levels=wish, verify=False, search=QUICK))
    figures = optimization_figures(found, None)
    for n in (1, 2, 5, 40):
        before = measure_baseline(proto, {"n": n}, runs=1, latency_runs=0).runs[0].requested_peak
        after = measure(found.proto, {"n": n}, runs=1, latency_runs=0).runs[0].requested_peak
        assert figures.never_worse == "proved"
        assert after <= before + figures.overhead_bytes
    assert figures.overhead_bytes <= 64
    unproved = replace(found, levels=replace(found.levels, above=None))
    assert unproved.never_worse == "unproved"
    said = io.StringIO()
    show_optimization(Console(file=said, width=200), optimization_figures(unproved, None))
    assert "not proved: at some shape the peak may be larger" in said.getvalue()
