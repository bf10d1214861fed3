from itertools import combinations

import numpy as np
import pytest

from onnx_symmem.order.flow import UNLIMITED, FlowNetwork


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
    network = FlowNetwork(vertices)
    for arc in arcs:
        network.arc(*arc)
    value = network.maximum(0, 1)
    assert value == least_cut(vertices, arcs)
    early, late = network.source_side(0), [not x for x in network.sink_side(1)]
    for side in (early, late):
        assert side[0]
        assert not side[1]
        assert sum(c for a, b, c in arcs if side[a] and not side[b]) == value


@pytest.mark.parametrize("seed", range(10))
def test_many_arcs_at_once_make_the_network_that_single_ones_do(seed):
    rng = np.random.default_rng(seed)
    vertices, count = int(rng.integers(2, 9)), int(rng.integers(0, 25))
    ends = rng.integers(0, vertices, (count, 2))
    capacities = [int(c) << 70 for c in rng.integers(0, 20, count)]
    one_by_one, at_once = FlowNetwork(vertices), FlowNetwork.of(vertices, *ends.T, capacities)
    for (tail, head), capacity in zip(ends.tolist(), capacities, strict=True):
        one_by_one.arc(tail, head, capacity)
    assert at_once.out == one_by_one.out
    assert at_once.head == one_by_one.head
    assert at_once.capacity == one_by_one.capacity
    assert at_once.maximum(0, 1) == one_by_one.maximum(0, 1)


def test_unlimited_arcs_are_not_cut():
    network = FlowNetwork(4)
    network.arc(0, 2, 7)
    network.arc(2, 3, UNLIMITED)
    network.arc(3, 1, 9)
    assert network.maximum(0, 1) == 7


def test_a_flow_that_is_broken_off_is_below_the_least_cut():
    network = FlowNetwork(12)
    for middle in range(2, 12):
        network.arc(0, middle, middle)
        network.arc(middle, 1, 5)
    value = network.maximum(0, 1, effort=3)
    assert not network.complete
    assert 0 < value < sum(min(m, 5) for m in range(2, 12))
