import numpy as np
import pytest

from onnx_symmem.order.cut import CutFinder
from onnx_symmem.order.descent import split_by_cuts
from onnx_symmem.order.moments import Moments
from onnx_symmem.order.sinking import run_early, run_late
from tests.order.graphs import peak, random_graph
from tests.order.test_heuristics import two_branches


def is_order(graph, order):
    position = {node: k for k, node in enumerate(order)}
    return sorted(order) == list(range(graph.size)) and all(
        position[p] < position[n] for n in range(graph.size) for p in graph.predecessors[n]
    )


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("seed", range(15))
def test_splits_never_make_an_order_worse(seed, early):
    graph, sizes = random_graph(seed, 40)
    table = np.array([sizes, sizes[::-1]], dtype=np.float64).T
    scaled = table / table.sum(axis=0)
    moments, start = Moments(graph, scaled), graph.topological
    for weights in (None, np.array([1.0, 0.0])):
        found, _ = split_by_cuts(moments, CutFinder(graph), start, weights, early)
        assert is_order(graph, found)
        assert moments.along(found).max() <= moments.along(start).max()


def test_one_cut_brings_the_wide_tensors_apart():
    graph, sizes = two_branches()
    moments = Moments(graph, np.array([sizes], dtype=np.float64).T / 102)
    found, _ = split_by_cuts(moments, CutFinder(graph), (0, 1, 2, 3, 4, 5))
    assert peak(graph, sizes, found) == 102


@pytest.mark.parametrize("seed", range(15))
def test_sinking_keeps_dependences(seed):
    graph, sizes = random_graph(seed, 40)
    moments = Moments(graph, np.array([sizes], dtype=np.float64).T)
    assert is_order(graph, run_late(moments, graph.topological, 0))
    assert is_order(graph, run_early(moments, graph.topological, 0))


def test_a_node_that_only_grows_memory_waits_for_its_reader():
    graph, sizes = two_branches()
    moments = Moments(graph, np.array([sizes], dtype=np.float64).T)
    assert run_late(moments, (0, 1, 2, 3, 4, 5), 0) == (0, 1, 3, 2, 4, 5)
