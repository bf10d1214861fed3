import numpy as np
import pytest

from onnx_symmem.order.buffers import BufferGraph
from onnx_symmem.order.heuristics import HEURISTICS
from onnx_symmem.order.moments import Moments
from onnx_symmem.order.segments import improve_segments, low_points, segment_problem
from tests.order.graphs import random_graph
from tests.order.test_descent import is_order

BLOCK = 40


def blocks(seed, copies):
    """Equal blocks in a row, each reads the last result of the one before; bytes of one result per node."""
    rng = np.random.default_rng(seed)
    before = [set() for _ in range(BLOCK)]
    for node in range(1, BLOCK):
        near = np.arange(max(0, node - 12), node)
        before[node] |= {int(p) for p in rng.choice(near, min(len(near), int(rng.integers(1, 3))), False)}
    for node in range(BLOCK - 1):
        if not any(node in b for b in before[node + 1 :]):
            before[-1].add(node)
    sizes = rng.integers(1, 50, BLOCK)
    sizes[[0, -1]] = 5
    predecessors = []
    for first in range(0, copies * BLOCK, BLOCK):
        predecessors += [(first - 1,) if first else ()]
        predecessors += [tuple(sorted(p + first for p in b)) for b in before[1:]]
    readers = [[] for _ in predecessors]
    for node, producers in enumerate(predecessors):
        for p in producers:
            readers[p].append(node)
    read_by = tuple(map(tuple, readers))
    pinned = tuple(not r for r in read_by)
    graph = BufferGraph(tuple(predecessors), read_by, tuple(range(len(readers))), read_by, pinned, ())
    return graph, np.tile(sizes, copies)[:, None].astype(np.float64)


def best_heuristic(graph, table):
    column = [int(s) for s in table[:, 0]]
    orders = [method(graph, column) for method in HEURISTICS.values()]
    return min(orders, key=lambda order: Moments(graph, table).along(order).max())


def last_reads(moments, order):
    last = np.full(len(moments.sizes), len(order))
    last[moments.dying] = moments.last_use(moments.positions(order))
    return last


@pytest.mark.parametrize(
    ("line", "depth", "points"),
    [
        ([0, 9, 0, 9, 0], 5, [0, 2, 4]),
        ([0, 9, 6, 9, 0], 5, [0, 4]),
        ([0, 9, 3, 6, 2, 9, 0], 5, [0, 4, 6]),
        ([0, 9, 5, 20, 14, 30, 2], 4, [0, 2, 4, 6]),
        ([0], 1, [0]),
    ],
)
def test_low_points_lie_below_both_sides(line, depth, points):
    assert low_points(np.array(line, dtype=np.float64), depth) == points


@pytest.mark.parametrize("seed", range(10))
def test_a_segment_holds_what_the_order_holds(seed):
    graph, sizes = random_graph(seed, 30)
    moments = Moments(graph, np.array([sizes, sizes[::-1]], dtype=np.float64).T)
    order = graph.topological
    live = moments.along(order)
    for start, end in ((0, 12), (7, 22), (20, 30)):
        before = live[start] - moments.alloc[order[start]]
        problem = segment_problem(moments, order, last_reads(moments, order), before, start, end)
        place = {node: k + 1 for k, node in enumerate(problem.nodes)}
        inner = Moments(problem.graph, problem.sizes).along((0, *(place[n] for n in order[start:end])))
        assert np.allclose(inner, np.vstack([before, live[start:end]]))


def test_segments_are_equal_where_all_but_what_is_live_before_is():
    graph, table = blocks(0, 4)

    def form(sizes, start, width=BLOCK):
        moments, order = Moments(graph, sizes), tuple(range(graph.size))
        before = moments.along(order)[start] - moments.alloc[start]
        last = last_reads(moments, order)
        return segment_problem(moments, order, last, before, start, start + width).form

    assert form(table, BLOCK) == form(table, 2 * BLOCK)
    assert form(table, BLOCK) != form(table, 2 * BLOCK - 1)
    # Whether others read the last result or it stays to the end is the same; the first block reads none.
    assert form(table, BLOCK) == form(table, 3 * BLOCK)
    assert form(table, BLOCK) != form(table, 0)
    for node in range(2 * BLOCK, 3 * BLOCK):
        other = table.copy()
        other[node] += 1
        assert form(other, BLOCK) != form(other, 2 * BLOCK)


@pytest.mark.parametrize("seed", [0, 4, 10])
def test_equal_segments_are_searched_once_and_all_get_the_order(seed):
    peaks = []
    for copies in (8, 24):
        graph, table = blocks(seed, copies)
        start = best_heuristic(graph, table)
        floor = np.full(1, table.max())
        found = improve_segments(graph, table, start, floor)
        assert is_order(graph, found.order)
        assert found.segments == copies
        assert found.searched <= 3
        peaks.append(Moments(graph, table).along(found.order).max())
        assert peaks[-1] < Moments(graph, table).along(start).max()
        steps = [[n for n in found.order if n // BLOCK == k] for k in range(copies)]
        assert len({tuple(n % BLOCK for n in part) for part in steps[1:-1]}) == 1
    assert peaks[0] == peaks[1]


@pytest.mark.parametrize("seed", range(12))
def test_no_shape_gets_worse(seed):
    graph, table = blocks(seed, 3)
    both = np.hstack([table, np.random.default_rng(seed).permutation(table)])
    moments = Moments(graph, both)
    for start in (best_heuristic(graph, both), tuple(range(graph.size))):
        found = improve_segments(graph, both, start, both.max(axis=0))
        assert is_order(graph, found.order)
        assert (moments.along(found.order).max(axis=0) <= moments.along(start).max(axis=0)).all()


def test_nothing_to_order_and_a_bound_that_is_met():
    graph, table = blocks(1, 4)
    start = best_heuristic(graph, table)
    peak = Moments(graph, table).along(start).max(axis=0)
    assert improve_segments(graph, table, start, peak).order == start
    assert improve_segments(graph, table, start, peak).searched == 0
    empty = BufferGraph((), (), (), (), (), ())
    assert improve_segments(empty, np.zeros((0, 1)), (), np.ones(1)).order == ()
