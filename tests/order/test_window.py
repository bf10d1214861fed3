from dataclasses import replace

import numpy as np
import pytest

from onnx_symmem.order.buffers import BufferGraph
from onnx_symmem.order.heuristics import depth_first
from onnx_symmem.order.window import (
    Failures,
    Spent,
    WindowLimits,
    _within,
    improve_order,
    live_bytes,
)
from tests.order.graphs import all_orders, peak, random_graph


@pytest.mark.parametrize("seed", range(15))
def test_live_bytes_agree_with_a_step_by_step_count(seed):
    graph, sizes = random_graph(seed, 30)
    order = depth_first(graph, sizes)
    table = np.array([sizes, [3 * s for s in sizes]], dtype=np.float64).T
    live = live_bytes(graph, table, order)
    assert live[:, 0].max() == peak(graph, sizes, order)
    np.testing.assert_array_equal(live[:, 1], 3 * live[:, 0])


@pytest.mark.parametrize("seed", range(15))
def test_a_window_over_the_whole_graph_finds_the_optimum(seed):
    graph, sizes = random_graph(seed, 8)
    start = next(all_orders(graph))
    table = np.array([sizes], dtype=np.float64).T
    found = improve_order(
        graph, table, start, np.array([1.0]), WindowLimits(windows=40, width=8, states=10_000)
    )
    assert peak(graph, sizes, found) == min(peak(graph, sizes, order) for order in all_orders(graph))


@pytest.mark.parametrize("seed", range(10))
def test_the_result_is_an_order_and_never_worse_by_the_worst_ratio(seed):
    graph, sizes = random_graph(seed, 60)
    rng = np.random.default_rng(seed)
    table = np.array([sizes, rng.integers(0, 90, len(sizes))], dtype=np.float64).T
    start = tuple(range(graph.size))
    reference = live_bytes(graph, table, start).max(axis=0)
    found = improve_order(graph, table, start, reference, WindowLimits(windows=30, width=12, states=60))
    assert sorted(found) == list(range(graph.size))
    position = {node: k for k, node in enumerate(found)}
    assert all(position[p] < position[n] for n in range(graph.size) for p in graph.predecessors[n])
    assert (live_bytes(graph, table, found).max(axis=0) / reference).max() <= 1.0


def test_what_failed_is_not_tried_again_and_what_ended_for_want_of_work_is():
    graph, sizes = random_graph(4, 40)
    table = np.array([sizes], dtype=np.float64).T
    start, reference = tuple(range(graph.size)), np.array([1.0])
    limits = WindowLimits(windows=60, width=10, states=50, sets=100, pairs=10_000_000)
    failed: Failures = {}
    first, again, none = Spent(), Spent(), Spent()
    found = improve_order(graph, table, start, reference, limits, failed=failed, spent=first)
    same = improve_order(graph, table, found, reference, limits, failed=failed, spent=again)
    assert same == found
    assert again.work < first.work / 2
    assert again.pairs < first.pairs / 2
    failed = {}
    little = replace(limits, work=1, pairs=1)
    improve_order(graph, table, start, reference, little, failed=failed, spent=none)
    assert not any(failed.values())
    other = improve_order(graph, table, start, reference, limits, failed=failed)
    assert peak(graph, sizes, other) == peak(graph, sizes, found)


def test_a_ceiling_is_kept_to_the_byte_however_large_it_is():
    """Two pairs of nodes: the second one first is better at the first shape, 2 bytes worse at the other."""
    graph = BufferGraph(
        ((), (0,), (), (2,)), ((1,), (), (3,), ()), (0, 1, 2, 3), ((1,), (), (3,), ()),
        (False, True, False, True), (),
    )  # fmt: skip
    table = np.array([[10, 10**12 + 5], [5, 1], [12, 10**12], [1, 2]], dtype=np.float64)
    first, second = (0, 1, 2, 3), (2, 3, 0, 1)
    tops = [live_bytes(graph, table, order).max(axis=0).tolist() for order in (first, second)]
    assert tops == [[18, 10**12 + 6], [16, 10**12 + 8]]
    limits, reference = WindowLimits(width=4), np.array([1.0, 1e12])
    free = improve_order(graph, table, first, reference, limits)
    assert live_bytes(graph, table, free).max(axis=0).tolist() == tops[1]
    ceiling = np.array([np.inf, tops[0][1]])
    assert improve_order(graph, table, first, reference, limits, ceiling=ceiling) == first


def test_what_failed_at_more_shapes_says_nothing_of_fewer():
    known, none = np.array([5.0, 3.0]), np.inf
    assert _within(np.array([5.0, 2.0]), known)
    assert _within(np.array([4.0]), np.array([5.0, none]))
    assert not _within(np.array([5.0]), known)
    assert not _within(np.array([none, 3.0]), known)


def test_what_failed_at_one_shape_is_not_tried_at_that_and_another():
    graph, sizes = random_graph(4, 40)
    table = np.array([[s / 100 for s in sizes], sizes], dtype=np.float64).T
    start, limits = tuple(range(graph.size)), WindowLimits(windows=60, width=10, states=50, sets=100)
    failed: Failures = {}
    found = improve_order(graph, table[:, [1]], start, np.ones(1), limits, failed=failed, columns=(1,))
    alone, after = Spent(), Spent()
    improve_order(graph, table, found, np.ones(2), limits, spent=alone)
    assert any(len(caps) == 2 and np.isinf(caps[0]) for known in failed.values() for caps in known)
    improve_order(graph, table, found, np.ones(2), limits, failed=failed, spent=after)
    assert after.work < alone.work


@pytest.mark.parametrize("seed", range(3))
def test_a_search_keeps_within_its_work(seed):
    graph, sizes = random_graph(seed, 60)
    table = np.array([sizes], dtype=np.float64).T
    limits, spent = WindowLimits(work=3_000, pairs=20_000, splits=500), Spent()
    improve_order(graph, table, tuple(range(graph.size)), np.array([1.0]), limits, spent=spent)
    assert 0 < spent.work <= 3_000 + 60 * 1_000
    assert spent.pairs <= 20_000 + 60 * 2_000
    assert spent.splits <= 500 + 2 * graph.size


def test_what_is_left_is_shared_and_never_less_than_nothing():
    limits, spent = WindowLimits(work=100, splits=60, pairs=10), Spent(work=40, splits=70, pairs=10)
    half = limits.left(spent, 2)
    assert (half.work, half.splits, half.pairs) == (30, 0, 0)
    third = limits.share(3)
    assert (third.work, third.splits, third.pairs) == (33, 20, 3)
    assert (third.windows, third.width) == (limits.windows, limits.width)
