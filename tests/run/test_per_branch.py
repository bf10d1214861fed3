"""Orders and levels are never worse whichever branch of an If runs, not only where the larger one does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnx_symmem.expr.domain import Domain
from onnx_symmem.graph.load import load_model
from onnx_symmem.memory.execution_order import OrderRule, default_order, priority_order
from onnx_symmem.memory.plan import PlanInput, PlanOptions, prepare
from onnx_symmem.memory.profile import profile
from onnx_symmem.memory.sizes import from_written, value_sizes
from onnx_symmem.order.candidates import CandidateOrder, peaks_at
from onnx_symmem.order.planner import PlannedOrder
from onnx_symmem.order.selection import choose_order
from onnx_symmem.remat.levels import LevelOptions
from onnx_symmem.run.delivery import deliver_anchored
from onnx_symmem.run.measure import measure, measure_baseline
from onnx_symmem.run.optimized import OptimizedModel, OptimizeOptions
from onnx_symmem.run.per_branch import chosen_per_branch, has_ifs
from onnx_symmem.run.pipeline import optimize_model
from onnx_symmem.run.several import LevelWish, held_against
from onnx_symmem.shapes.engine import infer_shapes
from onnx_symmem.shapes.table import ModelShapes

FLOAT = TensorProto.FLOAT
SAMPLES = ({"n": 1}, {"n": 64})


def _wide(name: str, factor: int, of: str = "x") -> list[onnx.NodeProto]:
    return [
        helper.make_node("Concat", [of] * factor, [f"{name}/wide"], axis=1),
        helper.make_node("ReduceMax", [f"{name}/wide"], [f"{name}/max"], axes=[1]),
    ]


def _if(small: int, large: int, of: str = "x") -> onnx.NodeProto:
    inner = [
        helper.make_graph(
            _wide(k, n, of), k, [], [helper.make_tensor_value_info(f"{k}/max", FLOAT, ["n", 1])]
        )
        for k, n in (("small", small), ("large", large))
    ]
    return helper.make_node("If", ["few"], ["r"], name="if", then_branch=inner[0], else_branch=inner[1])


def _whole(nodes: list[onnx.NodeProto]) -> onnx.ModelProto:
    few = [
        helper.make_node("Shape", ["x"], ["s"], end=1),
        helper.make_node("Less", ["s", "ten"], ["few"]),
    ]
    x = helper.make_tensor_value_info("x", FLOAT, ["n", 16])
    y = helper.make_tensor_value_info("y", FLOAT, ["n", 1])
    ten = numpy_helper.from_array(np.array([10]), "ten")
    graph = helper.make_graph([*few, *nodes], "parts", [x], [y], [ten])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _model(branches: bool = True) -> onnx.ModelProto:
    """Two parts of 6 times the input, one after the other or at once, behind an If of 2 or 40 times."""
    return _whole(
        [
            _if(2, 40) if branches else helper.make_node("ReduceMax", ["x"], ["r"], axes=[1]),
            *_wide("a", 6),
            *_wide("b", 6),
            helper.make_node("Sum", ["r", "a/max", "b/max"], ["y"]),
        ]
    )


def _kept_over(small: int, large: int) -> onnx.ModelProto:
    """What is kept over an If, and can be made again behind it."""
    return _whole(
        [
            helper.make_node("Concat", ["x"] * 8, ["wide"], axis=1),
            helper.make_node("Tanh", ["wide"], ["kept"]),
            helper.make_node("ReduceMax", ["kept"], ["max"], axes=[1]),
            helper.make_node("Add", ["x", "max"], ["above"]),
            _if(small, large, "above"),
            helper.make_node("Mul", ["kept", "r"], ["m"]),
            helper.make_node("ReduceMax", ["m"], ["y"], axes=[1]),
        ]
    )


@pytest.fixture(scope="module")
def shapes() -> ModelShapes:
    return infer_shapes(load_model(_model()).view())


def _prepared(shapes: ModelShapes, rule: OrderRule = priority_order) -> PlanInput:
    return prepare(shapes.graph.view, from_written(shapes.graph), PlanOptions("cpu"), rule)


@pytest.fixture(scope="module")
def planned(shapes: ModelShapes) -> PlannedOrder:
    """What would have run, and an order that makes both parts at once: of the same peak, the If's."""
    prepared, sizes = _prepared(shapes), value_sizes(shapes.graph)

    def candidate(name: str, order: tuple[int, ...]) -> CandidateOrder:
        found = profile(prepared.plan(order), sizes)
        return CandidateOrder(name, order, "priority", order, found, peaks_at(found, SAMPLES))

    good, bad = candidate("ran", (0, 1, 2, 3, 4, 5, 6, 7)), candidate("at once", (0, 1, 2, 3, 5, 4, 6, 7))
    assert good.peaks == bad.peaks
    choice = choose_order(good.profile, (good, bad), shapes.domain, shapes=SAMPLES)
    return PlannedOrder(choice, (good, bad), SAMPLES)


def test_an_order_that_is_worse_where_the_smaller_branch_runs_is_not_taken(planned: PlannedOrder) -> None:
    good, bad = planned.candidates
    wrong = replace(planned, choice=replace(planned.choice, chosen=bad, never_worse="proved"))
    found = chosen_per_branch(wrong, good.profile, Domain())
    assert (found.chosen, found.never_worse) == (good, "proved")
    assert [t.outcome for t in found.tried if t.name == "ran"] == ["chosen"]
    right = replace(planned, choice=replace(planned.choice, chosen=good, never_worse="proved"))
    assert chosen_per_branch(right, good.profile, Domain()) is right.choice


def test_where_no_order_is_the_one_that_would_have_run_is_kept(planned: PlannedOrder) -> None:
    good, bad = planned.candidates
    alone = replace(
        planned, choice=replace(planned.choice, chosen=bad, never_worse="proved"), candidates=(bad, bad)
    )
    found = chosen_per_branch(alone, good.profile, Domain())
    assert (found.chosen, found.never_worse, found.proof) == (bad, "kept", None)


def test_without_ifs_nothing_changes() -> None:
    shapes = infer_shapes(load_model(_model(branches=False)).view())
    assert not has_ifs(profile(_prepared(shapes).plan(tuple(range(8))), value_sizes(shapes.graph)))


@pytest.mark.parametrize("told", [False, True])
def test_a_file_of_anchors_is_held_against_every_branch(
    planned: PlannedOrder, shapes: ModelShapes, told: bool
) -> None:
    good, bad = planned.candidates
    wrong = replace(planned.choice, chosen=bad, never_worse="proved")
    found = deliver_anchored(
        load_model(_model()), shapes, value_sizes(shapes.graph), _prepared(shapes, default_order),
        replace(planned, choice=wrong, candidates=(bad,)), good.order, SAMPLES, "none",
        good.profile if told else None,
    )  # fmt: skip
    ran = [node for node in found.choice.chosen.order if node < len(good.order)]
    both = ran.index(5) < ran.index(4)  # the second wide part before the first is gone
    assert (both, found.choice.never_worse) == ((False, "kept") if told else (True, "proved"))


@pytest.fixture(scope="module")
def levelled() -> OptimizedModel:
    wish = LevelWish(options=LevelOptions(levels=2, max_slowdown=3.0))
    return optimize_model(_kept_over(30, 40), None, options=OptimizeOptions(ort_level="none", levels=wish))


def test_the_first_level_is_never_worse_in_either_branch(levelled: OptimizedModel) -> None:
    assert levelled.levels is not None
    assert len(levelled.levels.levels) == 2
    assert (levelled.never_worse, levelled.notices) == ("proved", ())
    for n in (1, 9, 10, 64):
        before = measure_baseline(_kept_over(30, 40), {"n": n}, "none", runs=1, latency_runs=0)
        after = measure(levelled.proto, {"n": n}, runs=1, latency_runs=0)
        assert after.nodes_equal == 1
        most = before.runs[0].requested_peak + (levelled.levels.above or 0)
        assert after.runs[0].requested_peak <= most


def test_a_first_level_that_is_worse_in_one_branch_is_not_proved(levelled: OptimizedModel) -> None:
    assert levelled.levels is not None
    base = load_model(_kept_over(30, 40))
    for small, proved in ((30, True), (29, False)):
        ran = infer_shapes(load_model(_kept_over(small, 40)).view())
        before = profile(_prepared(ran).plan(tuple(range(len(ran.graph.view.nodes)))), value_sizes(ran.graph))
        plan, notices = held_against(
            replace(levelled.levels, above=None), levelled.choice, levelled.samples,
            replace(base, proto=levelled.proto), before,
        )  # fmt: skip
        assert (plan.above is not None, not notices) == (proved, proved)
        assert replace(levelled, levels=plan).never_worse == ("proved" if proved else "unproved")


@pytest.mark.parametrize("level", ["none", "extended"])
def test_what_is_written_is_never_worse_in_either_branch(level: str) -> None:
    proto = _model()
    found = optimize_model(proto, None, options=OptimizeOptions(ort_level=level))
    for n in (1, 9, 10, 64):
        before = measure_baseline(proto, {"n": n}, level, runs=1, latency_runs=0)
        after = measure(found.proto, {"n": n}, runs=1, latency_runs=0)
        assert before.nodes_equal == after.nodes_equal == 1
        assert after.runs[0].requested_peak <= before.runs[0].requested_peak
