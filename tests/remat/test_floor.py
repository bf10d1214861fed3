"""The bound for any schedule: below every level at every shape, and it names what pins it."""

import numpy as np

from models.build import build
from onnx_symmem.remat.floor import any_floor
from onnx_symmem.remat.retention import derive
from onnx_symmem.remat.timeline import timeline
from tests.remat.training import Ground, chain


def test_no_schedule_is_below_it():
    ground = Ground(build("transformer_train", layers=1))
    samples = [{"batch": 2, "seq": 8}, {"batch": 4, "seq": 64}, {"batch": 1, "seq": 1}]
    floor = any_floor(ground.prepared, ground.sizes, ground.domain)
    tables = ground.tables(samples)
    movable = [g for g, yes in enumerate(tables.movable) if yes]
    draw = np.random.default_rng(0)
    for _ in range(20):
        chosen = draw.choice(movable, size=len(movable) // 2, replace=False)
        absent = {int(g): sorted(draw.integers(0, 2 * len(ground.order), 8).tolist()) for g in chosen}
        peaks = timeline(tables, derive(tables, ground.order, absent)[0]).peaks
        assert all(floor.peak.at(s) <= p for s, p in zip(samples, peaks, strict=True))


def test_pins_add_up_to_the_bound():
    ground = Ground(build("transformer_train", layers=1))
    floor = any_floor(ground.prepared, ground.sizes, ground.domain)
    for shape in ({"batch": 1, "seq": 1}, {"batch": 8, "seq": 128}):
        pins = floor.pins(shape)
        assert sum(p.bytes.evaluate(shape) for p in pins) == floor.peak.at(shape)
        assert all(p.why in ("read", "made", "output") for p in pins)
        largest = [p.bytes.evaluate(shape) for p in pins]
        assert largest == sorted(largest, reverse=True)


def test_a_chain_needs_what_one_node_reads_and_makes():
    ground = Ground(chain(6))
    floor = any_floor(ground.prepared, ground.sizes, ground.domain)
    assert floor.peak.at({"n": 5}) == 3 * 20
