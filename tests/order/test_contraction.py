import numpy as np
import pytest

from onnx_symmem.order.buffers import BufferGraph
from onnx_symmem.order.contraction import contraction, offshoots
from onnx_symmem.order.moments import Moments
from tests.order.graphs import buffers, random_graph, random_order, sorts, training


def test_a_weights_gradient_is_an_offshoot_of_what_only_it_needs():
    graph = training(3)
    groups = offshoots(graph)
    # Each layer's raw gradient and its transpose; the last layer's input gradient leads nowhere else.
    assert {tuple(sorted(g)) for g in groups} >= {(5, 6), (8, 9), (11, 12)}
    taken = [node for group in groups for node in group]
    assert len(taken) == len(set(taken))


def test_what_two_results_need_is_no_offshoot():
    # 0 -> 1, and 2 and 3 read 1.
    assert set(offshoots(buffers([[], [0], [1], [1]]))) == {(2,), (3,)}


def test_large_groups_are_left_out():
    chain = buffers([[k - 1] if k else [] for k in range(40)])
    assert offshoots(chain) == ()


@pytest.mark.parametrize("seed", range(40))
def test_every_order_of_units_has_the_peaks_of_the_order_it_stands_for(seed):
    rng = np.random.default_rng(seed)
    graph = training(int(rng.integers(2, 7))) if seed % 2 else random_graph(seed, 24)[0]
    sizes = rng.integers(0, 50, (len(graph.producer), 3)).astype(np.float64)
    moments = Moments(graph, sizes)
    order = random_order(graph, seed)
    groups = [group for group in offshoots(graph) if rng.random() < 0.8]
    small = contraction(moments, order, groups)
    assert small.expanded(small.order) == order
    assert sorted(node for unit in small.units for node in unit) == list(range(graph.size))
    assert len(small.units) <= graph.size
    moving = {unit for group in small.moving for unit in group}
    staying = [unit for unit in small.order if unit not in moving]
    for draw in range(8):
        # Any order of the units that keeps that of those that stay.
        drawn = random_order(small.graph, draw)
        rank = {unit: k for k, unit in enumerate(staying)}
        stays = iter(staying)
        mixed = [next(stays) if unit in rank else unit for unit in drawn]
        if not sorts(small.graph, mixed):
            continue
        whole = small.expanded(mixed)
        assert sorts(graph, whole)
        assert np.allclose(small.moments.along(mixed).max(axis=0), moments.along(whole).max(axis=0))


def test_what_moves_may_run_anywhere_after_what_it_reads():
    graph = training(4)
    sizes = np.ones((len(graph.producer), 1))
    moments = Moments(graph, sizes)
    groups = offshoots(graph)
    small = contraction(moments, range(graph.size), groups)
    moved = {unit for group in small.moving for unit in group}
    assert not any(set(small.graph.successors[unit]) - moved for unit in moved)
    late = [u for u in small.order if u not in moved] + [u for u in small.order if u in moved]
    assert np.allclose(small.moments.along(late).max(axis=0), moments.along(small.expanded(late)).max(axis=0))


def test_sizes_at_some_shapes_in_units():
    graph = training(3)
    sizes = np.arange(1.0, 1 + 2 * len(graph.producer)).reshape(-1, 2)
    moments = Moments(graph, sizes)
    small = contraction(moments, range(graph.size), offshoots(graph))
    one = small.at(np.array([1]), np.array([10.0]))
    assert np.allclose(one.moments.along(one.order)[:, 0], small.moments.along(small.order)[:, 1] / 10)


def test_what_moves_may_begin_right_after_what_it_reads():
    # 1 makes what 2 and 3 read one after the other, and 4, which is an output.
    graph = buffers([[], [0], [1], [1, 2], [1], [3]])
    moments = Moments(graph, np.ones((6, 1)))
    small = contraction(moments, (0, 1, 2, 3, 4, 5), [(4,)])
    assert (0, 1) in small.units


def test_a_result_that_only_its_own_node_holds_counts_where_that_node_moves():
    # 1 makes what nobody reads and may overwrite what 0 made: it dies with it.
    graph = BufferGraph(
        ((), (0,), (0,)),
        ((1, 2), (), ()),
        (0, 1, 2),
        ((1, 2), (1,), ()),
        (False, False, True),
        ((1, 1, 0),),
    )
    moments = Moments(graph, np.array([[100.0], [100.0], [10.0]]))
    for order in ((0, 1, 2), (0, 2, 1)):
        small = contraction(moments, order, [(1,)])
        assert small.moments.along(small.order).max() == moments.along(order).max()
