import numpy as np
import pytest

from onnx_symmem.order.shape_bound import ShapeLimits, shape_bound
from tests.order.graphs import all_orders, peak, random_graph


@pytest.mark.parametrize("seed", range(40))
def test_the_bound_is_never_above_the_optimum_and_often_meets_it(seed):
    graph, sizes = random_graph(seed, 8)
    table = np.array([sizes, [7 * s for s in sizes]], dtype=np.float64).T
    best = min(peak(graph, sizes, order) for order in all_orders(graph))
    found = shape_bound(graph, table, [graph.topological], np.zeros(2))
    assert found.bytes[0] <= best
    assert found.bytes[0] >= 0.99 * best
    assert found.bytes[1] <= 7 * best


@pytest.mark.parametrize("seed", range(40))
def test_results_that_may_overwrite_an_operand_are_not_counted_twice(seed):
    graph, sizes = random_graph(seed, 8)
    # The last reader of a buffer of equal size may work in it: the moment is lower by that much.
    node = next(n for n in range(graph.size) if graph.reads[n] and graph.makes[n])
    source, made = graph.reads[node][0], graph.makes[node][0]
    sizes[made] = sizes[source]
    shared = type(graph)(
        graph.predecessors, graph.successors, graph.producer, graph.readers, graph.pinned,
        ((node, made, source),),
    )  # fmt: skip

    def in_place_peak(order):
        left = [len(r) for r in graph.readers]
        live = most = 0
        for n in order:
            live += sum(sizes[b] for b in graph.makes[n])
            last = left[source] == 1 and not graph.pinned[source]
            most = max(most, live - (sizes[made] if n == node and last else 0))
            for b in graph.reads[n]:
                left[b] -= 1
                if not left[b] and not graph.pinned[b]:
                    live -= sizes[b]
        return most

    best = min(map(in_place_peak, all_orders(graph)))
    table = np.array([sizes], dtype=np.float64).T
    assert shape_bound(shared, table, [graph.topological], np.zeros(1)).bytes[0] <= best


def test_without_work_the_known_bound_stays():
    graph, sizes = random_graph(1, 12)
    table = np.array([sizes], dtype=np.float64).T
    found = shape_bound(graph, table, [graph.topological], np.array([3.0]), ShapeLimits(work=0))
    assert found.bytes.tolist() == [3.0]
