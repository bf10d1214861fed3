"""Simulated run-time policies: none repeats without need, none exceeds a limit it says it kept."""

import pytest

from models.build import build
from onnx_symmem.remat.policy import POLICIES, simulate, static_peak
from onnx_symmem.remat.retention import derive
from onnx_symmem.remat.timeline import timeline
from tests.remat.training import Ground, chain


@pytest.mark.parametrize("policy", POLICIES)
def test_with_room_enough_nothing_happens(policy):
    ground = Ground(build("transformer_train", layers=1))
    tables = ground.tables([{"batch": 4, "seq": 64}])
    peak = static_peak(tables, ground.order, 0)
    run = simulate(tables, ground.order, 0, peak, policy)
    assert (run.fits, run.added, run.evicted, run.repeated) == (True, 0, 0, 0)
    assert run.peak == peak


@pytest.mark.parametrize("policy", POLICIES)
def test_a_limit_costs_repeats_and_is_kept(policy):
    ground = Ground(build("transformer_train", layers=2))
    tables = ground.tables([{"batch": 4, "seq": 64}])
    peak = static_peak(tables, ground.order, 0)
    run = simulate(tables, ground.order, 0, 0.8 * peak, policy)
    assert run.fits
    assert run.peak <= 0.8 * peak
    assert run.evicted > 0
    assert run.repeated > 0
    assert run.added > 0


def test_ours_evicts_what_is_cheap_and_far():
    """x1 is the cheapest to make again and the furthest away, so that is all that goes."""
    ground = Ground(chain(4))
    tables = ground.tables([{"n": 1000}])
    for policy in ("ours", "dtr", "size", "lru", "belady"):
        run = simulate(tables, ground.order, 0, 4 * 4000, policy)
        assert (run.fits, run.evicted, run.repeated) == (True, 1, 1), policy


def test_below_what_one_node_needs_nothing_fits():
    ground = Ground(chain(4))
    tables = ground.tables([{"n": 1000}])
    assert not any(simulate(tables, ground.order, 0, 2 * 4000, policy).fits for policy in POLICIES)


def test_the_static_peak_is_the_timeline_where_nothing_is_in_place():
    ground = Ground(chain(6))
    tables = ground.tables([{"n": 1000}])
    absent = {ground.view.index[name]: [11] for name in ("x1", "x2", "x4")}
    for marks in ({}, absent):
        codes, _ = derive(tables, ground.order, marks)
        assert static_peak(tables, codes, 0) == timeline(tables, codes).peaks[0]
