import numpy as np
import pytest

from onnx_symmem.order.flow import FlowNetwork
from onnx_symmem.order.pouring import all_flows


def greatest_flow(sources, vessels):
    at = {place: k for k, place in enumerate(vessels, 2)}
    arcs = [(at[place], 1, size) for place, size in vessels.items()]
    for k, (to, amount) in enumerate(sources, 2 + len(vessels)):
        arcs += [(0, k, amount), *((k, at[place], amount) for place in vessels if to >> place & 1)]
    network = FlowNetwork(2 + len(vessels) + len(sources), *zip(*arcs, strict=True))
    return network.maximum(0, 1)


@pytest.mark.parametrize("seed", range(40))
def test_it_is_what_the_greatest_flow_says(seed):
    rng = np.random.default_rng(seed)
    told = set()
    for _ in range(60):
        places = sorted(rng.choice(12, int(rng.integers(1, 8)), replace=False).tolist())
        vessels = {place: int(rng.integers(1, 9)) << 70 for place in places}
        # Places that are no vessels lead nowhere.
        bits = rng.random((int(rng.integers(1, 8)), 12)) < 0.4
        amounts = [int(a) << 70 for a in rng.integers(1, 9, len(bits))]
        sources = [
            (sum(1 << k for k in np.flatnonzero(row).tolist()), a)
            for row, a in zip(bits, amounts, strict=True)
        ]
        flow = greatest_flow(sources, vessels)
        for fill, wanted in ((True, sum(vessels.values())), (False, sum(amounts))):
            assert all_flows(sources, vessels, fill) == (flow == wanted)
            told.add((fill, flow == wanted))
    assert len(told) == 4


def test_what_others_poured_is_led_on_over_several_vessels():
    vessels = {0: 5, 1: 5, 2: 5, 3: 5}
    chain = [(0b1100, 5), (0b0110, 5), (0b0011, 5), (0b1000, 5)]
    for fill in (True, False):
        assert all_flows(chain, vessels, fill)
        assert not all_flows([*chain[:3], (0b1100, 5), (0b1000, 1)], vessels, fill=False)


def test_nothing_flows_from_nowhere():
    assert all_flows([], {}, True)
    assert all_flows([], {}, False)
    assert all_flows([], {0: 1}, False)
    assert not all_flows([], {0: 1}, True)
    assert not all_flows([(0, 1)], {0: 1}, False)
