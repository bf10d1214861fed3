import numpy as np

from onnx_symmem.order.moments import Moments
from onnx_symmem.order.specialists import apart, shares, specialists, unlike
from onnx_symmem.order.window import WindowLimits
from tests.order.graphs import all_orders, random_graph


def test_shapes_of_equal_proportions_are_alike():
    table = np.array([[1, 10, 1, 3, 5], [1, 10, 3, 1, 5]], dtype=np.float64)
    assert shares(table).tolist() == [[0.5, 0.5, 0.25, 0.75, 0.5], [0.5, 0.5, 0.75, 0.25, 0.5]]
    # Twice as large is no other shape; of two others the farther one comes first.
    assert unlike(shares(table), 1, 9) == [2, 3]
    assert unlike(shares(table), 1, 1) == [2]
    assert apart(shares(table), [3], 9) == [3, 2, 0]
    assert apart(shares(table), [], 9) == []


def test_each_shape_gets_an_order_as_good_as_any():
    graph, sizes = random_graph(5, 8)
    rng = np.random.default_rng(5)
    table = np.array(sizes, dtype=np.float64)[:, None] * rng.integers(1, 9, (len(sizes), 4)) + 1
    moments = Moments(graph, table)
    peaks = np.array([moments.along(order).max(axis=0) for order in all_orders(graph)])
    start = max(all_orders(graph), key=lambda order: moments.along(order).max())
    found = specialists(graph, table, [start], peaks.min(axis=0), WindowLimits())
    reached = [moments.along(order).max(axis=0)[k] for k, order in enumerate(found)]
    assert reached == peaks.min(axis=0).tolist()
    assert any(moments.along(start).max(axis=0) > peaks.min(axis=0))


def test_without_work_each_shape_has_the_best_order_known():
    graph, sizes = random_graph(5, 8)
    rng = np.random.default_rng(5)
    table = np.array(sizes, dtype=np.float64)[:, None] * rng.integers(1, 9, (len(sizes), 4)) + 1
    moments, orders = Moments(graph, table), list(all_orders(graph))
    peaks = np.array([moments.along(order).max(axis=0) for order in orders])
    known = orders[:: max(1, len(orders) // 7)]
    found = specialists(graph, table, known, np.zeros(4), WindowLimits(work=0, splits=0, pairs=0))
    own = peaks[:: max(1, len(orders) // 7)]
    assert (own.max(axis=0) > own.min(axis=0)).any()
    assert [moments.along(o).max(axis=0)[k] for k, o in enumerate(found)] == own.min(axis=0).tolist()
