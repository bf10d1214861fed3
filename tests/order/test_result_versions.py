import numpy as np

from onnx_symmem.order.moments import Moments
from onnx_symmem.order.result_versions import ResultVersions
from tests.order.graphs import buffers, sorts, training, training_bytes

LAYERS = 8
SIZES = np.geomspace(0.3, 300, 25)  # bytes of an activation


def _tick(*_):
    pass


def _search(sizes=SIZES, regret=0.002, looks=1 << 62):
    """Weights that grow and shrink from layer to layer, and as many shapes as sizes of activations."""
    graph = training(LAYERS)
    weights = [40.0 + 30 * np.sin(2 * k) for k in range(LAYERS)]
    table = np.array([training_bytes(LAYERS, a, weights) for a in sizes]).T
    moments = Moments(graph, table)
    floor = np.zeros(len(sizes))
    return ResultVersions(moments, [tuple(range(graph.size))], floor, regret, looks)


def _ratios(search, picked):
    return search.peaks[list(picked)].min(axis=0) / search.peaks.min(axis=0)


def test_every_shape_gets_an_order_of_its_own():
    search = _search()
    before = search.peaks[0].copy()
    search.at_shapes(range(len(SIZES)), _tick)
    assert (search.peaks.min(axis=0) < before * 0.95).any()
    for order, peak in zip(search.orders, search.peaks, strict=True):
        assert sorts(search.moments.graph, order)
        assert np.allclose(peak, search.moments.along(order).max(axis=0))


def test_more_versions_are_nearer_to_the_best():
    worst = []
    for count in (1, 2, 4):
        search = _search()
        search.at_shapes(range(len(SIZES)), _tick)
        picked = search.versions(count, _tick)
        assert 1 <= len(picked) <= count
        worst.append((np.maximum(_ratios(search, picked) - 1.0015, 0) ** 2).sum())
    assert worst[0] > worst[1] >= worst[2]


def test_versions_are_better_than_the_best_of_what_single_shapes_had():
    search = _search()
    search.at_shapes(range(len(SIZES)), _tick)
    known = len(search.orders)
    picked = search.versions(2, _tick)
    goal = search.peaks.min(axis=0) * 1.0015
    best = min(
        (np.maximum(search.peaks[[a, b]].min(axis=0) / goal - 1, 0) ** 2).sum()
        for a in range(known)
        for b in range(a)
    )
    assert (np.maximum(search.peaks[list(picked)].min(axis=0) / goal - 1, 0) ** 2).sum() <= best + 1e-12


def test_one_order_that_is_best_everywhere_is_enough():
    search = _search(sizes=[5.0, 5.0])
    search.at_shapes((0,), _tick)
    picked = search.versions(4, _tick)
    assert np.allclose(_ratios(search, picked), 1)


def test_without_several_results_there_is_nothing_to_place():
    graph = buffers([[], [0], [1]])
    moments = Moments(graph, np.ones((3, 2)))
    assert not ResultVersions(moments, [(0, 1, 2)], np.zeros(2), 0.002).possible
    assert _search().possible


def test_the_same_again_is_the_same():
    found = []
    for _ in range(2):
        search = _search()
        search.at_shapes(range(len(SIZES)), _tick)
        found.append([search.orders[k] for k in search.versions(3, _tick)])
    assert found[0] == found[1]


def test_looks_bound_the_search():
    none = _search(looks=0)
    none.at_shapes(range(len(SIZES)), _tick)
    assert none.versions(4, _tick) == (0,)
    assert len(none.orders) == 1
    few, all_of_them = _search(looks=20_000), _search()
    for search in (few, all_of_them):
        search.at_shapes(range(len(SIZES)), _tick)
        assert len(search.versions(4, _tick)) <= 4
    assert 1 < len(few.orders) < len(all_of_them.orders)
