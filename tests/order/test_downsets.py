import numpy as np
import pytest

from onnx_symmem.order.downsets import DownSetProgram
from onnx_symmem.order.moments import Moments
from onnx_symmem.order.problem import restriction, window
from tests.order.graphs import all_orders, peak, random_graph


def bytes_of(sizes):
    return np.array([sizes], dtype=np.float64).T


@pytest.mark.parametrize("seed", range(60))
def test_the_optimum_is_found_and_proved(seed):
    graph, sizes = random_graph(seed, 8)
    best = min(peak(graph, sizes, order) for order in all_orders(graph))
    program = DownSetProgram(restriction(graph, bytes_of(sizes), range(graph.size)))
    found = program.below_caps(np.array([best + 1.0]), 10_000)
    assert found.exact
    order = [program.problem.nodes[k] for k in found.order]
    assert peak(graph, sizes, order) == best
    below = program.below_caps(np.array([float(best)]), 10_000)
    assert below.exact
    assert below.order is None


@pytest.mark.parametrize("seed", range(60))
def test_no_order_is_below_a_restriction(seed):
    graph, sizes = random_graph(seed, 8)
    best = min(peak(graph, sizes, order) for order in all_orders(graph))
    kept = np.flatnonzero(np.random.default_rng(seed).random(graph.size) < 0.6).tolist()
    program = DownSetProgram(restriction(graph, bytes_of(sizes), kept))
    found = program.below_caps(np.array([best + 1.0]), 10_000)
    assert found.exact
    assert sorted(found.order) == list(range(len(kept)))


@pytest.mark.parametrize("seed", range(40))
def test_a_window_keeps_what_is_outside(seed):
    graph, sizes = random_graph(seed, 30)
    rng = np.random.default_rng(seed)
    table = np.array([sizes, rng.integers(0, 90, len(sizes))], dtype=np.float64).T
    moments = Moments(graph, table)
    order, live = graph.topological, moments.along(graph.topological)
    start, end = 6, 24
    program = DownSetProgram(window(moments, order, live, start, end))
    caps = live[start:end].max(axis=0) + 0.5
    found = program.below_caps(caps, 300)
    assert found.order is not None
    part = [program.problem.nodes[k] for k in found.order]
    again = moments.along((*order[:start], *part, *order[end:]))
    assert (again[start:end] < caps).all()
    np.testing.assert_array_equal(
        np.delete(again, range(start, end), 0), np.delete(live, range(start, end), 0)
    )


def test_too_few_states_prove_nothing():
    graph, sizes = random_graph(3, 20)
    best = min(peak(graph, sizes, o) for o in (graph.topological,))
    program = DownSetProgram(restriction(graph, bytes_of(sizes), range(graph.size)))
    found = program.below_caps(np.array([best * 0.9]), 1)
    assert found.order is not None or not found.exact
