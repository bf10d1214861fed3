"""Levels: exact peaks that fall, costs that rise, level 0 untouched; optimal where exhaustion can tell."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from models.build import build
from onnx_symmem.expr.envelope import plan_le
from onnx_symmem.memory.plan import PlanOptions, prepare
from onnx_symmem.memory.profile import profile
from onnx_symmem.order.candidates import peaks_at
from onnx_symmem.remat.cost import Machine
from onnx_symmem.remat.expansion import expand
from onnx_symmem.remat.expansion_check import check_expansion
from onnx_symmem.remat.floor import any_floor
from onnx_symmem.remat.levels import LevelOptions, _next, plan_levels
from onnx_symmem.remat.schedule import check_schedule, schedule_of
from onnx_symmem.remat.search import RematLimits
from tests.remat.training import Ground, chain, least_runs

ROOT = Path(__file__).resolve().parents[2]
MODELS = [
    ("transformer_train", {"layers": 2}, {"batch": 4, "seq": 64}),
    ("mlp_train", {}, {"batch": 5000}),
]


def _levels(ground, samples, **options):
    return plan_levels(
        ground.shapes, ground.keys, ground.domain, ground.order, samples, LevelOptions(**options),
        opsets=ground.opsets,
    )  # fmt: skip


@pytest.mark.parametrize(("name", "options", "shape"), MODELS, ids=[m[0] for m in MODELS])
def test_levels_are_exact_and_fall(name, options, shape):
    ground = Ground(build(name, **options))
    levels = _levels(ground, [shape], max_slowdown=1.5)
    assert levels[0].schedule == schedule_of(ground.order)
    assert levels[0].operations == 0
    machine = Machine()
    once = ground.costs.total(ground.order)
    whole = machine.seconds(once[0].evaluate(shape), once[1].evaluate(shape))
    before = None
    for level in levels:
        check_schedule(ground.view, level.schedule)
        expansion = expand(ground.view, level.schedule, ground.opsets)
        check_expansion(expansion)
        planned = prepare(expansion.view(), expansion.keys(ground.keys))
        found = profile(planned.plan(range(len(expansion.steps))), expansion.sizes(ground.sizes))
        for at in (shape, {k: 2 * v + 1 for k, v in shape.items()}, dict.fromkeys(shape, 1)):
            assert level.peak.at(at) == peaks_at(found, [at])[0]
        added = machine.seconds(level.operations.evaluate(shape), level.moved.evaluate(shape))
        assert added <= 0.5 * whole * (1 + 1e-9)
        if before is not None:
            assert level.peak.at(shape) < before.peak.at(shape)
            assert added >= machine.seconds(before.operations.evaluate(shape), before.moved.evaluate(shape))
            proved = plan_le(level.peak.members, before.peak.members, ground.domain).proved
            assert level.never_above == proved
        before = level
    assert levels[-1].peak.at(shape) <= 0.8 * levels[0].peak.at(shape)


def test_levels_are_the_same_every_time():
    ground = Ground(build("transformer_train", layers=1))
    found = [_levels(ground, [{"batch": 4, "seq": 32}], limits=RematLimits(repairs=2)) for _ in range(2)]
    assert [x.schedule for x in found[0]] == [x.schedule for x in found[1]]


@pytest.mark.parametrize("count", [4, 6])
def test_levels_are_equal_steps_in_memory_and_time_together(count):
    """Where time per byte rises, targets spread over peaks alone leave a cliff at the end."""
    ground = Ground(build("transformer_train", layers=4))
    shape, machine = {"batch": 4, "seq": 64}, Machine()
    levels = _levels(ground, [shape], levels=count, max_slowdown=1.3)
    whole = machine.seconds(*(e.evaluate(shape) for e in ground.costs.total(ground.order)))
    peaks = np.array([level.peak.at(shape) for level in levels])
    added = [machine.seconds(x.operations.evaluate(shape), x.moved.evaluate(shape)) for x in levels]
    saved = (peaks[0] - peaks) / (peaks[0] - peaks[-1])
    steps = np.diff(saved + np.array(added) / (0.3 * whole))
    assert len(steps) == count
    assert steps.max() <= 1.35 * steps.mean()


def test_targets_divide_a_cliff():
    flat, cliff = np.arange(1, 11) / 10, np.array([0, 0, 0, 0, 0, 0, 0, 0.1, 0.5, 1.0])
    way = flat + cliff
    at, done, found = -1, 0.0, []
    for left in (4, 3, 2, 1):
        at = _next(way, done, at, left)
        done = way[at]
        found.append(at)
    assert found == [4, 7, 8, 9]
    # What was reached beyond a target counts: the rest is divided anew.
    assert _next(way, way[7], 7, 2) == 8


def test_a_tight_slowdown_adds_little():
    ground = Ground(build("transformer_train", layers=2))
    shape = {"batch": 4, "seq": 64}
    cheap, dear = (_levels(ground, [shape], max_slowdown=s)[-1] for s in (1.02, 1.5))
    total = ground.costs.total(ground.order)[0].evaluate(shape)
    assert cheap.operations.evaluate(shape) <= 0.1 * total
    assert dear.peak.at(shape) < cheap.peak.at(shape)


@pytest.mark.parametrize("length", [3, 4, 5])
def test_short_chains_against_exhaustion(length):
    ground = Ground(chain(length))
    shape = {"n": 1 << 20}
    unit = 4 * shape["n"]
    levels = _levels(ground, [shape], max_slowdown=4.0, limits=RematLimits(repairs=20))
    assert [level.peak.at(shape) // unit for level in levels[:1]] == [length + 1]
    least = next(k for k in range(1, length + 2) if least_runs(ground.view, k) is not None)
    assert any_floor(ground.prepared, ground.sizes, ground.domain).peak.at(shape) // unit <= least
    assert levels[-1].peak.at(shape) // unit <= least + (length > 4)
    for level in levels:
        tensors = level.peak.at(shape) // unit
        runs = len(level.schedule)
        assert runs >= least_runs(ground.view, tensors)
        assert runs <= least_runs(ground.view, tensors) + 1


def test_nothing_to_repeat_gives_level_zero_alone():
    ground = Ground(chain(1))
    assert len(_levels(ground, [{"n": 1000}])) == 1
    assert len(_levels(Ground(chain(5)), [{"n": 1000}], levels=0)) == 1


def test_the_host_is_used_on_a_device_of_its_own_and_where_it_is_faster():
    def last(provider, speed, **limits):
        ground = Ground(chain(6), provider)
        options = LevelOptions(
            max_slowdown=3.0, machine=Machine(host_bandwidth=speed), limits=RematLimits(**limits)
        )
        return ground, plan_levels(
            ground.shapes, ground.keys, ground.domain, ground.order, [{"n": 1 << 20}], options,
            PlanOptions(provider), ground.opsets,
        )  # fmt: skip

    ground, levels = last("cuda", 1e13, offload=True)
    assert levels[-1].offloaded
    assert levels[-1].peak.at({"n": 100}) < levels[0].peak.at({"n": 100})
    assert any(s.kind == "reload" for s in levels[-1].schedule)
    check_expansion(expand(ground.view, levels[-1].schedule, ground.opsets))
    _, slow = last("cuda", 1e9, offload=True)
    assert slow[-1].recomputed
    assert not slow[-1].offloaded
    _, host = last("cpu", 1e13, offload=True, recompute=False)
    assert len(host) == 1


def test_several_samples_are_lowered_together():
    ground = Ground(build("transformer_train", layers=2))
    samples = [{"batch": 16, "seq": 16}, {"batch": 2, "seq": 64}]
    levels = _levels(ground, samples, max_slowdown=1.5, levels=2)
    assert len(levels) == 3
    for shape in samples:
        assert levels[-1].peak.at(shape) <= 0.85 * levels[0].peak.at(shape)


def test_a_shape_at_which_no_repeat_frees_much_makes_no_level_dearer():
    ground = Ground(build("transformer_train", layers=2))
    large, small = {"batch": 4, "seq": 64}, {"batch": 1, "seq": 1}
    floor = any_floor(ground.prepared, ground.sizes, ground.domain).peak
    alone, both = _levels(ground, [large]), _levels(ground, [small, large])
    assert floor.at(small) > 0.99 * alone[0].peak.at(small)
    assert len(both) == len(alone)
    for one, other in zip(alone[1:-1], both[1:-1], strict=True):
        assert other.operations.evaluate(large) <= 1.25 * one.operations.evaluate(large)
        assert other.peak.at(large) <= 1.01 * one.peak.at(large)
        # What is kept there is what the limit of the large shape leaves room for.
        assert other.peak.at(small) <= max(both[0].peak.at(small), other.peak.at(large))


def test_hash_seeds_change_nothing():
    code = (
        "from models.build import build; from tests.remat.training import Ground;"
        "from onnx_symmem.remat.levels import plan_levels;"
        "g = Ground(build('transformer_train', layers=1));"
        "at = [{'batch': 4, 'seq': 32}];"
        "found = plan_levels(g.shapes, g.keys, g.domain, g.order, at, opsets=g.opsets);"
        "print([(s.kind, s.index) for level in found for s in level.schedule])"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, cwd=ROOT,
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("0", "1", "77")
    }  # fmt: skip
    assert len(outputs) == 1
