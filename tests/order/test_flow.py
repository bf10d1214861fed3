from itertools import combinations

import numpy as np
import pytest

from onnx_symmem.order.flow import UNLIMITED, FlowNetwork


def network_of(vertices, arcs):
    tails, heads, capacities = zip(*arcs, strict=True) if arcs else ((), (), ())
    return FlowNetwork(vertices, tails, heads, capacities)


def least_cut(vertices, arcs):
    inner = range(2, vertices)
    best = None
    for count in range(vertices - 1):
        for chosen in combinations(inner, count):
            side = {0, *chosen}
            value = sum(c for a, b, c in arcs if a in side and b not in side)
            best = value if best is None else min(best, value)
    return best


@pytest.mark.parametrize("seed", range(30))
def test_the_flow_equals_the_least_cut(seed):
    rng = np.random.default_rng(seed)
    vertices = int(rng.integers(2, 9))
    pairs = [(a, b) for a in range(vertices) for b in range(vertices) if a != b and rng.random() < 0.4]
    arcs = [(a, b, int(rng.integers(0, 20)) << int(rng.choice([0, 70]))) for a, b in pairs]
    network = network_of(vertices, arcs)
    value = network.maximum(0, 1)
    assert value == least_cut(vertices, arcs)
    early, late = network.source_side(0), [not x for x in network.sink_side(1)]
    for side in (early, late):
        assert side[0]
        assert not side[1]
        assert sum(c for a, b, c in arcs if side[a] and not side[b]) == value


def test_unlimited_arcs_are_not_cut():
    network = network_of(4, [(0, 2, 7), (2, 3, UNLIMITED), (3, 1, 9)])
    assert network.maximum(0, 1) == 7


def test_a_flow_that_is_broken_off_is_below_the_least_cut():
    middles = range(2, 12)
    network = network_of(12, [*((0, m, m) for m in middles), *((m, 1, 5) for m in middles)])
    value = network.maximum(0, 1, effort=3)
    assert not network.complete
    assert 0 < value < sum(min(m, 5) for m in middles)
