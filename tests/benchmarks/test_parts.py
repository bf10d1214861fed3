"""Parts of the benchmark on graphs small enough for a test."""

from functools import partial

import numpy as np
import pytest

from benchmarks import __main__ as command
from benchmarks import (
    ablation,
    exact_search,
    exact_shapes,
    families,
    measured,
    orders,
    scale,
    seeds,
    verdicts,
)
from benchmarks.case import case_of
from benchmarks.document import Page
from benchmarks.families import FAMILIES, GraphSource, graph_sources
from models.encoder_decoder import build_encoder_decoder
from models.series_parallel import build_series_parallel
from onnx_symmem.expr.domain import Domain, SymbolRange
from onnx_symmem.expr.expression import ZERO
from onnx_symmem.graph.load import load_model
from onnx_symmem.memory.execution_order import check_order

ENCODER = partial(build_encoder_decoder, layers=1, width=16, heads=2)
MIXED = partial(build_series_parallel, 12, 1)
OTHER = partial(build_series_parallel, 12, 5)


def source(name, build):
    return GraphSource(name, "corpus", lambda: (load_model(build()), "none"))


@pytest.fixture
def small(monkeypatch):
    """Two small graphs in place of all families."""
    found = {"mixed": source("mixed", MIXED), "other": source("other", OTHER)}
    for part in (orders, verdicts, ablation, exact_shapes):
        monkeypatch.setattr(part, "graph_sources", lambda *_: found)
    monkeypatch.setattr(ablation, "WIDTHS", {"8..32": (8, 32)})
    return found


@pytest.fixture(scope="module")
def case():
    return case_of(load_model(MIXED()))


# ------------------------------------------------------------------------------------------------ cases


def test_case_is_narrowed_in_units_of_the_divisor():
    model = load_model(ENCODER())
    case = case_of(model, ranges={"enc_seq": SymbolRange(8, None, 8)}, width=(2, 4))
    assert case.domain.range_of("enc_seq") == SymbolRange(16, 32, 8)
    assert case.domain.range_of("batch") == SymbolRange(2, 4)


def test_no_scheduler_is_below_the_bound(case):
    peaks, ours = orders.peaks_by_method(case)
    assert list(peaks) == list(orders.METHODS)
    bound = case.bound(ours)
    assert orders._below("mixed", peaks, bound) == []
    for least, most in (("ours", "one order"), ("one order", "onnxruntime")):
        assert all(a <= b for a, b in zip(peaks[least], peaks[most], strict=True))
    assert orders._below("mixed", {"wrong": (0,) * len(bound)}, bound)


def test_impacts_add_up_to_what_is_left(case):
    graph = case.graph
    sizes = case.buffer_sizes(graph)
    left = sum((s for s, pinned in zip(sizes, graph.pinned, strict=True) if pinned), ZERO)
    assert sum(verdicts.impacts(case), ZERO) == left


def test_spread_is_even_and_complete_where_it_fits():
    exprs = [ZERO + k for k in range(10)]
    assert verdicts.spread(exprs, 20) == exprs
    assert verdicts.spread(exprs, 4) == [exprs[0], exprs[2], exprs[5], exprs[7]]


def test_every_family_has_graphs_by_unique_names(monkeypatch, tmp_path):
    found = graph_sources(corpus=tmp_path)
    assert {s.family for s in found.values()} == set(FAMILIES) - {"corpus"}
    with pytest.raises(ValueError, match="no family moebius"):
        families.graph_sources(("moebius",))


# ------------------------------------------------------------------------------------------------ pieces


def test_random_shapes_are_legal_distinct_and_the_same_each_time():
    domain = Domain({"n": SymbolRange(1, 64), "m": SymbolRange(32, None, 32)})
    found = exact_shapes.random_shapes(domain, ("n", "m"), 20, np.random.default_rng(0))
    assert found == exact_shapes.random_shapes(domain, ("n", "m"), 20, np.random.default_rng(0))
    assert len({tuple(s.items()) for s in found}) == 20
    assert all(1 <= s["n"] <= 64 and s["m"] % 32 == 0 for s in found)
    assert (
        len(
            exact_shapes.random_shapes(Domain({"n": SymbolRange(1, 3)}), ("n",), 20, np.random.default_rng(0))
        )
        == 3
    )


def test_shuffled_models_are_sorted_and_differ():
    model = load_model(ENCODER())
    view = model.view().graph
    assert seeds.shuffled(model.proto, view, 0) == model.proto
    names = {n.name: k for k, n in enumerate(model.proto.graph.node)}
    for seed in (1, 2):
        order = [names[n.name] for n in seeds.shuffled(model.proto, view, seed).graph.node]
        check_order(view, order)
        assert order != sorted(order)


def test_predictions_hold_for_a_random_graph():
    found = measured.check(measured.build_random_graph(12, 3), measured._SHAPES)
    assert len(found) == 2
    assert all(c.holds for c in found)


@pytest.mark.parametrize("change", [{"equal": 9}, {"formula": 7}, {"measured": 7}, {"nodes": 0, "equal": 0}])
def test_any_difference_is_seen(change):
    right = {"nodes": 10, "equal": 10, "formula": 8, "predicted": 8, "measured": 8}
    assert measured.Check(**right).holds
    assert measured.Check(**{**right, "formula": None}).holds
    changed = measured.Check(**{**right, **change})
    assert not changed.holds
    assert changed.as_predicted == (change == {"formula": 7})


def test_counts_of_a_measurement(monkeypatch):
    monkeypatch.setattr(measured, "build_random_graph", lambda nodes, seed: MIXED())
    found = (measured.Check(10, 10, 8, 8, 8), measured.Check(10, 10, 7, 8, 8))
    monkeypatch.setattr(measured, "check", lambda *_: found)
    page = measured.run(["random"], graphs=3)
    assert page.tables[0].rows == (("3 random graphs", 6, 6, 3, 60, 60),)
    assert len(page.wrong) == 3
    assert "by formula 7, predicted 8, measured 8" in page.wrong[0]


# ------------------------------------------------------------------------------------------------ parts


@pytest.mark.parametrize("seed", [2, 4])
def test_exact_search_and_cp_sat_agree(monkeypatch, seed):
    graphs = {"x": source("x", partial(build_series_parallel, 30, seed))}
    monkeypatch.setattr(exact_search, "graph_sources", lambda *_: graphs)
    page = exact_search.run(["x"])
    assert not page.wrong
    (row,) = page.tables[0].rows
    found = dict(zip(page.tables[0].columns, row, strict=True))
    assert found["proved"] == "yes"
    assert found["bound"] == found["CP-SAT peak"] == found["CP-SAT bound"] <= found["best known"]


def test_a_peak_that_rounding_may_explain_counts_as_optimal():
    assert orders.optimal_at((1000, 1001, 1002), (1000, 1000, 1000)) == 2


def test_orders(small):
    page = orders.run()
    assert [row[0] for row in page.tables[0].rows][:2] == ["mixed", "other"]
    assert page.wrong == ()
    for table in page.tables:
        assert {len(row) for row in table.rows} <= {len(table.columns)}


def test_verdicts(small):
    page = verdicts.run(["other"])
    assert len(page.tables[0].rows) == 3 * len(verdicts.WIDTHS)
    for row in page.tables[0].rows:
        assert sum(row[4:9]) == pytest.approx(1.0) or row[3] == 0


def test_ablation(small):
    page = ablation.run(["mixed"])
    for name, _, *found in page.tables[0].rows:
        by_step = dict(zip(ablation.STEPS, found, strict=True))
        assert name in ("mixed", "geometric mean")
        assert by_step["ours"] <= by_step["one order"] <= by_step["onnxruntime"] * (1 + 1e-9)
        assert by_step["portfolio"] <= by_step["onnxruntime"] * (1 + 1e-9)


def test_exact_shapes(small):
    page = exact_shapes.run(["other"], count=2)
    ((name, count, mean, largest, *_),) = page.tables[0].rows
    assert (name, count) == ("other", 2)
    assert 1.0 <= mean <= largest


def test_graph_that_fails_is_a_line_and_not_the_end(small, monkeypatch):
    def broken(self, width=(1, None)):
        raise RuntimeError("no such graph")

    monkeypatch.setattr(GraphSource, "case", broken)
    for part in (orders, verdicts, ablation, exact_shapes):
        page = part.run(["other"])
        assert page.wrong
        assert all("RuntimeError: no such graph" in line for line in page.wrong)


@pytest.mark.parametrize("graph", scale.GRAPHS)
def test_scale(graph):
    page = scale.run(["60"], orders.NO_SEARCH, [graph])
    (row,) = page.tables[0].rows
    found = dict(zip(page.tables[0].columns, row, strict=True))
    assert found["graph"] == graph
    assert 40 < found["nodes"] < 120
    stages = ("load", "shapes and profile", "plan", "bound")
    assert found["together"] == pytest.approx(sum(found[stage] for stage in stages))
    assert 1.0 <= found["ours / bound"] <= found["onnxruntime / bound"]
    assert page.findings[0].met is None


# ------------------------------------------------------------------------------------------------ command


def test_part_is_run_and_what_is_wrong_ends_with_1(monkeypatch, tmp_path, capsys):
    asked = []

    def run(only):
        asked.append(tuple(only))
        return Page("seeds", "Seeds", "", (), (), wrong=("x differs",) if "bad" in only else ())

    monkeypatch.setattr(seeds, "run", run)
    monkeypatch.setattr(command, "TABLES", tmp_path)
    assert command.main(["seeds", "--only", "a,b"]) == 0
    assert command.main(["seeds", "--only", "bad"]) == 1
    assert asked == [("a", "b"), ("bad",)]
    assert "wrong: x differs" in capsys.readouterr().out


def test_unknown_part_is_refused(capsys):
    with pytest.raises(SystemExit) as caught:
        command.main(["speed"])
    assert caught.value.code == 2
    assert "no part speed; there are corpus, measured" in capsys.readouterr().err
