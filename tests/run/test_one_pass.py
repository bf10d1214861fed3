"""Where ONNX Runtime changes its own graph again: what would have run is the graph of one pass."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from models.build import build
from models.random_graph import build_random_graph
from onnx_symmem.api import Optimized, optimize
from onnx_symmem.errors import VerificationFailed
from onnx_symmem.expr.domain import Domain
from onnx_symmem.graph.load import load_model
from onnx_symmem.order.limits import SearchLimits, within_budget
from onnx_symmem.remat.levels import LevelOptions
from onnx_symmem.run.measure import measure, measure_baseline
from onnx_symmem.run.one_pass import about_rounding, ran_once
from onnx_symmem.run.optimized import OptimizeOptions
from onnx_symmem.run.pipeline import optimize_model
from onnx_symmem.run.session import shipped
from onnx_symmem.run.several import LevelWish
from onnx_symmem.shapes.engine import infer_shapes
from tests.run.half_precision import halved

QUICK = within_budget(0, SearchLimits())
SHAPES = ({"n": 2, "m": 3}, {"n": 5, "m": 8}, {"n": 40, "m": 17})


def _anchored(seed: int, out: Path) -> tuple[onnx.ModelProto, Optimized]:
    model = halved(build_random_graph(24, seed))
    return model, optimize(model, out, delivery="anchors", search=QUICK)


@pytest.mark.parametrize(("seed", "proved"), [(0, True), (4, True), (8, True), (26, False), (40, False)])
def test_what_is_said_is_about_what_a_session_of_the_model_takes(
    tmp_path: Path, seed: int, proved: bool
) -> None:
    out = tmp_path / "out.onnx"
    model, found = _anchored(seed, out)
    figures = found.figures
    said = [notice for notice in figures.notices if "graph after one pass" in notice]
    assert any("once more" in notice for notice in figures.notices)
    assert (figures.never_worse, bool(said)) == ("proved" if proved else "unproved", not proved)
    above = []
    for at in SHAPES:
        ran = measure_baseline(model, at, runs=1, latency_runs=0, mem_reuse=True)
        assert ran.nodes_equal == 1
        assert ran.runs[0].requested_peak == found.details.choice.before.at(at)
        took = measure(out, at, runs=1, latency_runs=0).runs[0].requested_peak
        assert took == found.details.after.at(at)
        above.append(took - ran.runs[0].requested_peak)
    assert (max(above) <= figures.overhead_bytes) == proved
    assert figures.moved_nodes <= figures.nodes_planned


def test_levels_are_held_against_one_pass_too() -> None:
    model = halved(build_random_graph(24, 26))
    options = OptimizeOptions(
        levels=LevelWish(options=LevelOptions(levels=1)), delivery="anchors", search=QUICK, verify=False
    )
    found = optimize_model(model, None, options=options)
    ran = measure_baseline(model, SHAPES[2], runs=1, latency_runs=0, mem_reuse=True).runs[0].requested_peak
    assert ran == found.choice.before.at(SHAPES[2])
    took = measure(found.proto, SHAPES[2], runs=1, latency_runs=0).runs[0].requested_peak
    assert took > ran
    assert (found.never_worse, any("level 0 of the file" in n for n in found.notices)) == ("unproved", True)


def test_casts_of_weights_are_not_computed_ahead_the_next_time(tmp_path: Path) -> None:
    """So the graph of one pass is the file's: with its bits, and with weights of float16."""
    model, out = halved(build("decoder", layers=1)), tmp_path / "out.onnx"
    found = optimize(model, out, delivery="anchors", search=QUICK)
    assert found.figures.delivery.changed_at_load == 0
    assert not any("once more" in notice or "one pass" in notice for notice in found.figures.notices)
    assert found.figures.verified
    assert out.stat().st_size < 1.05 * model.ByteSize()
    at = {"batch": 2, "dec_seq": 7, "enc_seq": 30}
    planned = measure(out, at, runs=1, latency_runs=0)
    plain = measure(out, at, settings=shipped(), runs=1, latency_runs=0, plan=planned.settings)
    assert planned.nodes_equal == 1
    assert plain.runs[0].requested_peak == planned.predicted_peak


def test_where_the_last_graph_rounds_otherwise_it_is_said_what_keeps_the_bits() -> None:
    for again, words in (
        (True, "differ; ONNX Runtime .*rounds otherwise.*`--ort-level none`"),
        (False, "differ$"),
    ):
        with pytest.raises(VerificationFailed, match=words) as met, about_rounding(again):
            raise VerificationFailed("numbers differ", 0.5, 0.25)
        assert (met.value.absolute, met.value.relative) == (0.5, 0.25)


def _counting(name: str, first: str) -> onnx.ModelProto:
    nodes = [helper.make_node("NonZero", [first], [name]), helper.make_node("Identity", [name], ["y"])]
    inputs = [helper.make_tensor_value_info(x, TensorProto.FLOAT, ["n"]) for x in ("x", "w")]
    y = helper.make_tensor_value_info("y", TensorProto.INT64, None)
    graph = helper.make_graph(nodes, "count", inputs, [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_sizes_that_data_decides_have_to_be_the_same() -> None:
    model = load_model(_counting("a", "x"))
    for other, same in ((_counting("a", "x"), True), (_counting("b", "w"), False)):
        shapes = infer_shapes(load_model(other).view())
        found = ran_once(model, shapes, Domain(), "extended", "cpu")
        assert (found is not None) == same
