import numpy as np
import pytest

from onnx_symmem.order.heuristics import HEURISTICS
from onnx_symmem.order.moments import Moments
from onnx_symmem.order.splice import splice
from tests.order.graphs import random_graph
from tests.order.test_descent import is_order
from tests.order.test_heuristics import two_branches


@pytest.mark.parametrize("seed", range(15))
def test_no_shape_gets_worse(seed):
    graph, sizes = random_graph(seed, 30)
    table = np.array([sizes, sizes[::-1]], dtype=np.float64).T
    moments = Moments(graph, table)
    orders = [method(graph, [int(s) for s in column]) for method in HEURISTICS.values() for column in table.T]
    found = splice(moments, orders)
    assert is_order(graph, found)
    assert (moments.along(found).max(axis=0) <= moments.along(orders[0]).max(axis=0)).all()


def test_the_better_part_of_each_is_taken():
    one, sizes = two_branches()
    # The same graph twice in a row; each order is good in one half only.
    size = one.size
    shift = [tuple(p + size for p in before) for before in one.predecessors]
    shift[0] = (size - 1,)
    after = [tuple(s + size for s in a) for a in one.successors]
    first = [*one.successors[:-1], (size,)]
    both = type(one)(
        (*one.predecessors, *shift),
        (*first, *after),
        (*one.producer, *(p + size for p in one.producer)),
        (*one.readers[:-1], (size,), *(tuple(r + size for r in rs) for rs in one.readers)),
        (*([False] * size), *one.pinned),
        (),
    )
    moments = Moments(both, np.array([[*sizes, *sizes]], dtype=np.float64).T)
    good, bad = (0, 1, 3, 2, 4, 5), (0, 1, 2, 3, 4, 5)
    orders = [(*a, *(n + size for n in b)) for a, b in ((good, bad), (bad, good))]
    assert splice(moments, orders) == (*good, *(n + size for n in good))
