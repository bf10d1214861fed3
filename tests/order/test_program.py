import numpy as np
import pytest

from onnx_symmem.order.moments import Moments
from onnx_symmem.order.program import Segment, _distinct, _first, best_sequence
from tests.order.graphs import all_orders, peak, random_graph


def whole(graph, shapes=1):
    return Segment(graph.topological, np.zeros(shapes))


@pytest.mark.parametrize("seed", range(20))
def test_the_optimum_is_found_and_nothing_below_it(seed):
    graph, sizes = random_graph(seed, 8)
    best = min(peak(graph, sizes, order) for order in all_orders(graph))
    table = np.array([sizes], dtype=np.float64).T
    found = best_sequence(graph, table, whole(graph), np.array([best + 0.5]), 10_000)
    assert found.exact
    assert peak(graph, sizes, found.nodes) == best
    assert best_sequence(graph, table, whole(graph), np.array([float(best)]), 10_000).nodes is None


@pytest.mark.parametrize("seed", range(10))
def test_caps_hold_at_every_shape(seed):
    graph, sizes = random_graph(seed, 25)
    rng = np.random.default_rng(seed)
    table = np.array([sizes, rng.integers(0, 90, len(sizes))], dtype=np.float64).T
    moments = Moments(graph, table)
    caps = moments.along(graph.topological).max(axis=0) + 0.5
    found = best_sequence(graph, table, whole(graph, 2), caps, 50)
    if found.nodes is not None:
        assert sorted(found.nodes) == list(range(graph.size))
        assert (moments.along(found.nodes).max(axis=0) < caps).all()
    else:
        assert not found.exact


@pytest.mark.parametrize("seed", range(10))
def test_a_segment_keeps_what_later_nodes_read(seed):
    graph, sizes = random_graph(seed, 14)
    table = np.array([sizes], dtype=np.float64).T
    moments = Moments(graph, table)
    order, live = graph.topological, moments.along(graph.topological)
    start, end = 4, 11
    nodes, later = order[start:end], set(order[end:])
    lasting = frozenset(b for n in nodes for b in graph.reads[n] if set(graph.readers[b]) & later)
    segment = Segment(nodes, live[start] - moments.alloc[order[start]], lasting)
    found = best_sequence(graph, table, segment, live[start:end].max(axis=0) + 0.5, 10_000)
    assert found.nodes is not None
    better = (*order[:start], *found.nodes, *order[end:])
    assert moments.along(better)[start:end].max() <= live[start:end].max()
    assert (moments.along(better)[end:] == live[end:]).all()


@pytest.mark.parametrize("seed", range(20))
def test_of_equal_keys_the_least_is_kept_and_the_first_ones_by_rank_are_chosen(seed):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 3000))
    # Keys that share their low bits meet in the same slots.
    key = rng.integers(0, max(1, count // 3), count) << int(rng.choice([0, 30, 45]))
    most, total = (rng.integers(0, 3, count).astype(float) for _ in range(2))
    rank = np.lexsort((total, most, key))
    first = np.append(True, key[rank][1:] != key[rank][:-1])
    kept = _distinct(key, most, total)
    assert sorted(kept.tolist()) == sorted(rank[first].tolist())
    level, held = most[kept], rng.integers(0, 3, kept.size).astype(float)
    for some in {1, kept.size // 2, kept.size} - {0}:
        chosen = _first(level, held, total[kept], key[kept], some)
        assert chosen.tolist() == np.lexsort((key[kept], total[kept], held, level))[:some].tolist()
