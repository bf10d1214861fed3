"""Orders are never worse whichever branch of an If runs, not only where the larger one does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnx_symmem.expr.domain import Domain
from onnx_symmem.graph.load import load_model
from onnx_symmem.memory.execution_order import priority_order
from onnx_symmem.memory.plan import PlanOptions, prepare
from onnx_symmem.memory.profile import profile
from onnx_symmem.memory.sizes import from_written, value_sizes
from onnx_symmem.order.candidates import CandidateOrder, peaks_at
from onnx_symmem.order.planner import PlannedOrder
from onnx_symmem.order.selection import choose_order
from onnx_symmem.run.measure import measure, measure_baseline
from onnx_symmem.run.optimized import OptimizeOptions
from onnx_symmem.run.per_branch import chosen_per_branch, has_ifs
from onnx_symmem.run.pipeline import optimize_model
from onnx_symmem.shapes.engine import infer_shapes

FLOAT = TensorProto.FLOAT
SAMPLES = ({"n": 1}, {"n": 64})


def _wide(name: str, factor: int) -> list[onnx.NodeProto]:
    return [
        helper.make_node("Concat", ["x"] * factor, [f"{name}/wide"], axis=1),
        helper.make_node("ReduceMax", [f"{name}/wide"], [f"{name}/max"], axes=[1]),
    ]


def _model(branches: bool = True) -> onnx.ModelProto:
    """Two parts of 6 times the input, one after the other or at once, behind an If of 2 or 40 times."""
    inner = [
        helper.make_graph(_wide(k, n), k, [], [helper.make_tensor_value_info(f"{k}/max", FLOAT, ["n", 1])])
        for k, n in (("small", 2), ("large", 40))
    ]
    first = helper.make_node("If", ["few"], ["r"], name="if", then_branch=inner[0], else_branch=inner[1])
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], end=1),
        helper.make_node("Less", ["s", "ten"], ["few"]),
        first if branches else helper.make_node("ReduceMax", ["x"], ["r"], axes=[1]),
        *_wide("a", 6),
        *_wide("b", 6),
        helper.make_node("Sum", ["r", "a/max", "b/max"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", FLOAT, ["n", 16])
    y = helper.make_tensor_value_info("y", FLOAT, ["n", 1])
    graph = helper.make_graph(nodes, "parts", [x], [y], [numpy_helper.from_array(np.array([10]), "ten")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def planned() -> PlannedOrder:
    """What would have run, and an order that makes both parts at once: of the same peak, the If's."""
    model = load_model(_model())
    shapes = infer_shapes(model.view())
    view, sizes = shapes.graph.view, value_sizes(shapes.graph)
    prepared = prepare(view, from_written(shapes.graph), PlanOptions("cpu"), priority_order)

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
    model = load_model(_model(branches=False))
    shapes = infer_shapes(model.view())
    prepared = prepare(shapes.graph.view, from_written(shapes.graph), PlanOptions("cpu"), priority_order)
    assert not has_ifs(profile(prepared.plan(tuple(range(8))), value_sizes(shapes.graph)))


@pytest.mark.parametrize("level", ["none", "extended"])
def test_what_is_written_is_never_worse_in_either_branch(level: str) -> None:
    proto = _model()
    found = optimize_model(proto, None, options=OptimizeOptions(ort_level=level))
    for n in (1, 9, 10, 64):
        before = measure_baseline(proto, {"n": n}, level, runs=1, latency_runs=0)
        after = measure(found.proto, {"n": n}, runs=1, latency_runs=0)
        assert before.nodes_equal == after.nodes_equal == 1
        assert after.runs[0].requested_peak <= before.runs[0].requested_peak
