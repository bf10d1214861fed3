from dataclasses import replace
from itertools import pairwise

import pytest

from onnx_symmem.errors import UsageError
from onnx_symmem.expr.domain import Domain
from onnx_symmem.graph.view import view_model
from onnx_symmem.memory.execution_order import default_order, priority_order
from onnx_symmem.memory.plan import prepare
from onnx_symmem.memory.profile import profile
from onnx_symmem.memory.sizes import from_written, value_sizes
from onnx_symmem.order.limits import USUAL_SECONDS, SearchLimits, limits_for, within_budget
from onnx_symmem.order.planner import plan_order
from onnx_symmem.shapes.engine import infer_shapes
from tests.order.test_planner import branches

SAMPLES = ({"batch": 1, "seq": 1}, {"batch": 64, "seq": 64})
MODEL = branches([(1, 8), (8, 1), (3, 3), (2, 5), (5, 2)])


def planned(limits):
    view = view_model(MODEL)
    shapes = infer_shapes(view, Domain())
    sizes, keys = value_sizes(shapes.graph), from_written(shapes.graph)
    prepared = {
        "default": prepare(view.graph, keys, None, default_order),
        "priority": prepare(view.graph, keys, None, priority_order),
    }
    file = tuple(range(len(view.graph.nodes)))
    before = profile(prepared["priority"].plan(file), sizes)
    return plan_order(prepared, sizes, shapes.domain, SAMPLES, before, {"file": file}, limits)


def test_the_usual_budget_is_the_usual_search_whatever_the_size():
    usual = within_budget(USUAL_SECONDS)
    assert usual == replace(SearchLimits(), per_node=False)
    assert limits_for(usual, 4_000) == (usual, None)


def test_more_seconds_never_mean_less_work_and_none_means_heuristics():
    budgets = [within_budget(s) for s in (1, 5, 20, 60, 1000)]
    for less, more in pairwise(budgets):
        assert less.window.work < more.window.work
        assert less.window.pairs < more.window.pairs
        assert less.bound.work < more.bound.work
        assert less.placing < more.placing
        assert less.window.windows <= more.window.windows
    nothing = within_budget(0)
    assert (nothing.improved, nothing.rounds, nothing.bound.work) == (0, 0, 0)
    found = planned(nothing)
    assert not any("search" in c.name for c in found.candidates)


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
def test_other_budgets_are_refused(seconds):
    with pytest.raises(UsageError, match="time budget"):
        within_budget(seconds)


def test_budget_and_seed_decide_the_order():
    for limits in (within_budget(2), within_budget(2, SearchLimits(seed=5))):
        first, second = planned(limits), planned(limits)
        assert first.choice.chosen.order == second.choice.chosen.order
        assert [c.order for c in first.candidates] == [c.order for c in second.candidates]
        assert first.floor == second.floor
    peaks = {planned(replace(SearchLimits(), seed=s)).choice.after.at(SAMPLES[1]) for s in range(3)}
    assert len(peaks) == 1


def test_the_floor_is_below_every_order_at_its_shape():
    found = planned(SearchLimits())
    for k, shape in enumerate(SAMPLES):
        least = min(c.peaks[k] for c in found.candidates)
        assert 0 < found.floor[k] <= least
        assert found.choice.after.at(shape) <= 1.02 * found.floor[k]
