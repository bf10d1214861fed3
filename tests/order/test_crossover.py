from itertools import pairwise

import numpy as np

from onnx_symmem.order.crossover import crossings
from onnx_symmem.order.moments import Moments
from tests.order.graphs import buffers, in_parts


def _two_parts(seed: int = 0):
    """Chains of two parts, one behind the other: at the first shape only the first part is large.

    Part one has ten chains, then all are joined; part two has ten chains after that.
    """
    rng = np.random.default_rng(seed)
    made, reads, sizes = [], [], []
    for part in (0, 1):
        joint = [] if not part else [len(made) - 1]
        ends = []
        for _ in range(10):
            large = int(rng.integers(50, 100))
            for k, size in enumerate((large, 5)):
                reads.append(list(joint) if not k else [len(made) - 1])
                made.append(len(made))
                sizes.append([size, 1] if not part else [1, size])
            ends.append(len(made) - 1)
        reads.append(ends)
        made.append(len(made))
        sizes.append([1, 1])
    return buffers(reads), np.array(sizes, dtype=np.float64)


def test_the_good_parts_of_two_orders_make_one():
    graph, sizes = _two_parts()
    one, other = in_parts(2, {1}), in_parts(2, {0})
    moments = Moments(graph, sizes)
    best = moments.along(in_parts(2, set())).max(axis=0)
    scaled = Moments(graph, sizes / best)
    found = crossings(scaled, [one, other], np.ones(2), 1 << 30)
    assert found
    for order in found:
        assert sorted(order) == list(range(graph.size))
        place = {node: k for k, node in enumerate(order)}
        assert all(place[p] < place[n] for n in range(graph.size) for p in graph.predecessors[n])
    assert min(scaled.along(order).max() for order in found) < 1.05
    assert all(scaled.along(order).max() > 1.5 for order in (one, other))


def test_nothing_is_returned_that_is_no_better():
    graph, sizes = _two_parts(1)
    best = in_parts(2, set())
    moments = Moments(graph, sizes)
    scaled = Moments(graph, sizes / moments.along(best).max(axis=0))
    assert crossings(scaled, [best, in_parts(2, {0})], np.ones(2), 1 << 30) == ()
    assert crossings(scaled, [in_parts(2, {0})], np.ones(2), 1 << 30) == ()


def test_looks_bound_the_search():
    graph, sizes = _two_parts(2)
    moments = Moments(graph, sizes)
    orders = [in_parts(2, {1}), in_parts(2, {0})]
    known = np.min([moments.along(order).max(axis=0) for order in orders], axis=0)
    scaled = Moments(graph, sizes / known)
    many = [crossings(scaled, orders, np.ones(2), looks) for looks in (0, 42 * 2 * 8, 1 << 30)]
    assert many[0] == ()
    worst = [min((scaled.along(o).max() for o in found), default=np.inf) for found in many]
    assert all(more <= less for less, more in pairwise(worst))
    assert worst[-1] < worst[0]
