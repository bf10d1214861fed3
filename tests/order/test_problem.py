import numpy as np
import pytest

from onnx_symmem.order.moments import Moments
from onnx_symmem.order.problem import nodes_of_window, window
from tests.order.graphs import random_graph

SMALL = 0.04  # of the peak


def problem(seed):
    graph, sizes = random_graph(seed, 40)
    rng = np.random.default_rng(seed)
    table = np.array([sizes, rng.integers(0, 90, len(sizes))], dtype=np.float64).T
    return graph, Moments(graph, table), graph.topological, table


@pytest.mark.parametrize("seed", range(12))
def test_what_is_small_at_all_shapes_counts_as_nothing(seed):
    graph, moments, order, table = problem(seed)
    live = moments.along(order)
    least = SMALL * live.max(axis=0)
    large = [b for b in range(len(table)) if (table[b] > least).any()]
    start, end = 8, 33
    kept = tuple(n for n in order[start:end] if any(b in large for b in (*graph.makes[n], *graph.reads[n])))
    assert 0 < len(kept) < end - start
    assert nodes_of_window(moments, order, live, start, end, SMALL) == kept
    found = window(moments, order, live, start, end, SMALL)
    assert found.nodes == kept
    made = [sum((table[b] for b in graph.makes[n] if b in large), np.zeros(2)) for n in kept]
    np.testing.assert_array_equal(found.makes, made)
    # What dies within: large, not pinned, and all its readers run before the end.
    dying = {
        b for n in kept for b in graph.reads[n]
        if b in large and not graph.pinned[b] and set(graph.readers[b]) <= set(order[:end])
    }  # fmt: skip
    assert sorted(map(tuple, found.sizes)) == sorted(tuple(table[b]) for b in dying)
    assert [len(reads) for reads in found.reads] == [len(dying & set(graph.reads[n])) for n in kept]


@pytest.mark.parametrize("seed", range(6))
def test_a_window_of_all_steps_has_all_nodes_and_their_dependences(seed):
    graph, moments, order, _ = problem(seed)
    found = window(moments, order, moments.along(order), 0, len(order))
    assert found.nodes == nodes_of_window(moments, order, moments.along(order), 0, len(order)) == order
    place = {node: k for k, node in enumerate(order)}
    assert [set(b) for b in found.before] == [{place[p] for p in graph.predecessors[n]} for n in order]
    np.testing.assert_array_equal(found.makes, moments.alloc[list(order)])
