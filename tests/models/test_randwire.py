from __future__ import annotations

import numpy as np
import pytest

from models.randwire import small_world


@pytest.mark.parametrize("rewired", [0.0, 0.3, 0.75, 1.0])
def test_keeps_edges_and_stays_acyclic(rewired):
    wiring = small_world(32, 4, rewired, np.random.default_rng(1))
    assert sum(map(len, wiring)) == 32 * 4 // 2
    assert all(p < node for node, predecessors in enumerate(wiring) for p in predecessors)
    assert all(list(p) == sorted(set(p)) for p in wiring)


def test_unrewired_is_a_ring():
    assert small_world(6, 2, 0.0, np.random.default_rng(0)) == ((), (0,), (1,), (2,), (3,), (0, 4))
