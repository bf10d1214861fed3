from itertools import permutations

import numpy as np
import pytest

from onnx_symmem.order.contraction import offshoots
from onnx_symmem.order.deferral import DeferralLimits, _Deferral, deferrable, deferred
from onnx_symmem.order.moments import Moments
from tests.order.graphs import buffers, random_graph, sorts, training, training_bytes


def _placed(graph, table, order, goal=None, others=None, limits=None):
    moments = Moments(graph, table)
    small = deferrable(moments, order, offshoots(graph))
    unit = np.ones(table.shape[1]) if goal is None else np.asarray(goal, dtype=np.float64)
    units = deferred(small.at(np.arange(table.shape[1]), unit), others, limits)
    return small.expanded(units), moments


def _least(graph, table):
    """The least peak of any order at one shape."""
    moments = Moments(graph, table)
    best = np.inf
    for order in permutations(range(graph.size)):
        if sorts(graph, order):
            best = min(best, float(moments.along(order).max()))
    return best


LAYERS = 6
WEIGHTS = [10.0 * (LAYERS - k) for k in range(LAYERS)]  # the last layer has the smallest


def test_gradients_wait_where_activations_are_small_and_not_where_they_are_large():
    graph = training(LAYERS)
    file = tuple(range(graph.size))
    small = np.array([training_bytes(LAYERS, 1.0, WEIGHTS)]).T
    waiting, moments = _placed(graph, small, file)
    assert sorts(graph, waiting)
    # The file makes the largest gradient last, which is there twice then. Waiting, the smallest is last.
    assert moments.along(file).max() >= sum(WEIGHTS) + max(WEIGHTS)
    assert moments.along(waiting).max() <= sum(WEIGHTS) + min(WEIGHTS) + 2 * LAYERS
    large = np.array([training_bytes(LAYERS, 1000.0, WEIGHTS)]).T
    at_once, moments = _placed(graph, large, waiting)
    assert moments.along(at_once).max() <= moments.along(file).max() < moments.along(waiting).max()


@pytest.mark.parametrize("seed", range(12))
def test_from_any_order_of_two_layers_the_least_peak_is_found(seed):
    rng = np.random.default_rng(seed)
    # Two layers: the places of the two gradients are all there is to decide.
    graph = training(2)
    table = np.array([training_bytes(2, float(rng.integers(1, 30)), rng.integers(1, 30, 2).tolist())]).T
    order, moments = _placed(graph, table, tuple(range(graph.size)))
    assert moments.along(order).max() == _least(graph, table)


@pytest.mark.parametrize("seed", range(30))
def test_orders_stay_topological_and_never_get_worse(seed):
    rng = np.random.default_rng(seed)
    graph = random_graph(seed, 30)[0] if seed % 2 else training(int(rng.integers(2, 9)))
    table = rng.integers(1, 60, (len(graph.producer), 4)).astype(np.float64)
    moments = Moments(graph, table)
    start = graph.topological
    before = moments.along(start).max(axis=0)
    goal = before * rng.uniform(0.7, 1.0, 4)
    order, _ = _placed(graph, table, start, goal)
    assert sorts(graph, order)

    def above(peak):
        return (np.maximum(peak / goal - 1, 0) ** 2).sum()

    # But for what all moments together count beside the worst.
    assert above(moments.along(order).max(axis=0)) <= above(before) + 1e-4 * len(order) * 4


def test_shapes_that_another_order_serves_do_not_count():
    graph = training(LAYERS)
    table = np.array([training_bytes(LAYERS, a, WEIGHTS) for a in (1.0, 1000.0)]).T
    moments = Moments(graph, table)
    file = tuple(range(graph.size))
    goal = [moments.along(_placed(graph, table[:, [k]], file)[0]).max(axis=0)[k] for k in (0, 1)]
    both, _ = _placed(graph, table, file, goal)
    served, _ = _placed(graph, table, file, goal, np.array([np.inf, 1.0]))
    assert moments.along(both).max(axis=0)[0] > goal[0] * 1.02
    assert moments.along(served).max(axis=0)[0] <= goal[0]


def test_where_the_goal_is_met_nothing_moves():
    graph = training(4)
    table = np.ones((len(graph.producer), 1))
    order = tuple(range(graph.size))
    peak = Moments(graph, table).along(order).max(axis=0)
    assert _placed(graph, table, order, peak)[0] == order


def test_looks_bound_the_search():
    graph = training(LAYERS)
    table = np.array([training_bytes(LAYERS, 1.0, WEIGHTS)]).T
    order = tuple(range(graph.size))
    assert _placed(graph, table, order, limits=DeferralLimits(looks=0))[0] == order
    assert _placed(graph, table, order)[0] != order


def test_what_makes_and_reads_next_to_nothing_stays():
    # One large buffer, then a small one that two results are made of.
    graph = buffers([[], [0], [1], [1]])
    groups = offshoots(graph)
    assert set(groups) == {(2,), (3,)}
    for last, moving in ((1.0, 0), (1e8, 1)):
        moments = Moments(graph, np.array([[1e9], [1.0], [1.0], [last]]))
        assert len(deferrable(moments, range(4), groups).moving) == moving


@pytest.mark.parametrize("seed", range(20))
def test_what_counts_at_every_place_is_what_the_order_with_the_group_there_has(seed):
    rng = np.random.default_rng(seed)
    graph = training(4) if seed % 2 else random_graph(seed, 16)[0]
    table = rng.integers(1, 60, (len(graph.producer), 3)).astype(np.float64)
    moments = Moments(graph, table)
    goal = moments.along(graph.topological).max(axis=0) * 0.7
    small = deferrable(moments, graph.topological, offshoots(graph)).at(np.arange(3), goal)
    search = _Deferral(small, np.array([np.inf, 1.1, 1.0]))
    for group in range(len(small.moving)):
        mine = search.group[search.order] == group
        units, rest = search.order[mine], search.order[~mine]
        if not len(rest):
            continue
        first, found = search._places(group, rest)
        for k, above in enumerate(found):
            end = first + k + 1
            live = small.moments.along(np.concatenate([rest[:end], units, rest[end:]]))
            broad = (np.maximum(live - 1, 0) ** 2).sum(axis=0)
            assert np.isclose(above, search._above(live.max(axis=0), broad))
