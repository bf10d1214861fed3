"""A result that nobody reads stays to the end of the run, unless it overwrites what dies with it."""

from itertools import permutations

import pytest
from onnx import helper

from models.random_graph import build_random_graph
from onnx_symmem.graph.load import load_model
from onnx_symmem.memory.execution_order import priority_order
from onnx_symmem.memory.plan import prepare
from onnx_symmem.memory.profile import profile
from onnx_symmem.memory.sizes import from_written, value_sizes
from onnx_symmem.order.bound import lower_bound
from onnx_symmem.order.candidates import peaks_at
from onnx_symmem.order.limits import SearchLimits
from onnx_symmem.run.measure import measure
from onnx_symmem.run.optimized import OptimizeOptions
from onnx_symmem.run.pipeline import optimize_model
from onnx_symmem.shapes.engine import infer_shapes
from tests.memory.runtime import info, model


def test_the_bound_is_not_above_the_best_of_all_orders():
    nodes = [
        helper.make_node("Exp", ["x"], ["u"], name="u"),
        helper.make_node("LeakyRelu", ["u"], ["unread"], name="unread"),
        helper.make_node("Sigmoid", ["u"], ["o"], name="o"),
        helper.make_node("Sin", ["x"], ["p"], name="p"),
    ]
    proto = model(nodes, [info("x", ["n"])], [info("o", ["n"]), info("p", ["n"])])
    shapes = infer_shapes(load_model(proto).view())
    prepared = prepare(shapes.graph.view, from_written(shapes.graph))
    sizes, at = value_sizes(shapes.graph), {"n": 100}
    orders = [o for o in permutations(range(4)) if o.index(0) < min(o.index(1), o.index(2))]
    peaks = [peaks_at(profile(prepared.plan(o), sizes), [at])[0] for o in orders]
    # At best 'unread' overwrites 'u', and only the outputs are left.
    assert min(peaks) == 2 * 400
    assert max(peaks) == 4 * 400
    bound = lower_bound(prepared, sizes, shapes.domain, orders, [at])
    assert max(e.evaluate(at) for e in bound) == min(peaks)
    assert priority_order(shapes.graph.view, orders[0]) == orders[0]


@pytest.mark.parametrize("seed", [75, 23])
def test_no_order_that_runs_is_below_a_bound(seed):
    search = SearchLimits()
    options = OptimizeOptions(verify=False, dispatch=False, search=search)
    found = optimize_model(build_random_graph(24, seed), None, options=options)
    for k, shape in enumerate(found.samples):
        least = min(tried.peaks[k] for tried in found.choice.tried)
        assert found.bound.at(shape) <= found.floor[k] <= least
    at = dict(found.samples[-2])
    assert measure(found.proto, at, runs=1, latency_runs=0).runs[0].requested_peak == found.after.at(at)
