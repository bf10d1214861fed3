"""Absences give valid schedules in which nothing lives across them; where nodes only move they are free."""

import numpy as np
import pytest

from models.build import build
from onnx_symmem.remat.retention import derive
from onnx_symmem.remat.schedule import Step, check_schedule
from onnx_symmem.remat.timeline import schedule_from, timeline
from tests.remat.training import Ground, chain


@pytest.mark.parametrize("seed", range(8))
def test_any_absences_of_movable_classes_are_valid_and_kept(seed):
    ground = Ground(build("transformer_train", layers=1))
    tables = ground.tables([{"batch": 4, "seq": 32}])
    draw = np.random.default_rng(seed)
    movable = [g for g, yes in enumerate(tables.movable) if yes]
    chosen = draw.choice(movable, size=min(20, len(movable)), replace=False)
    moments = 2 * len(ground.order)
    absent = {int(g): sorted({int(m) for m in draw.integers(0, moments, 3)}) for g in chosen}
    codes, at = derive(tables, ground.order, absent)
    check_schedule(ground.view, schedule_from(tables, codes))
    assert at == sorted(at)
    for life in timeline(tables, codes).lifetimes:
        last = at[life.reads[-1]] if life.reads else at[life.made]
        assert not [m for m in absent.get(life.group, ()) if at[life.made] < m < last]


def test_without_absences_nothing_changes():
    ground = Ground(chain(4))
    codes, moments = derive(ground.tables([{"n": 4}]), ground.order, {})
    assert tuple(codes) == ground.order
    assert moments == [2 * k + 1 for k in range(len(codes))]


def test_a_chain_is_made_again_from_what_is_kept():
    ground = Ground(chain(4))
    tables = ground.tables([{"n": 1000}])
    x2, x3 = (ground.view.index[name] for name in ("x2", "x3"))
    # x2 and x3 are absent while x4 is made: both come back from x1 when the backward pass needs x3.
    codes, _ = derive(tables, ground.order, {x2: [7], x3: [8]})
    names = [ground.view.values[ground.view.nodes[c].outputs[0]].name for c in codes]
    assert names == ["x1", "x2", "x3", "x4", "x2", "x3", "g3", "g2", "g1", "out"]


def test_a_run_that_nobody_reads_moves_instead_of_repeating():
    ground = Ground(chain(3))
    tables = ground.tables([{"n": 1000}])
    g2 = ground.view.index["g2"]
    codes, _ = derive(tables, ground.order, {g2: [2 * 3 + 2]})
    assert sorted(codes) == sorted(ground.order)


def test_a_moved_class_comes_back_from_the_host():
    ground = Ground(chain(4), "cuda")
    tables = ground.tables([{"n": 1000}])
    x2 = ground.view.index["x2"]
    codes, _ = derive(tables, ground.order, {x2: [7, 9]}, frozenset((x2,)))
    steps = schedule_from(tables, codes)
    check_schedule(ground.view, steps)
    kinds = [(s.kind, s.index) for s in steps if s.kind != "run"]
    assert kinds == [("offload", x2), ("reload", x2)]
    assert sum(s.kind == "run" for s in steps) == len(ground.order)
    assert steps.index(Step("offload", x2)) == steps.index(Step("run", 1)) + 1
    assert steps.index(Step("reload", x2)) == steps.index(Step("run", 5)) - 1
