"""What ONNX Runtime does with repeats, measured: the facts that levels are built on."""

import numpy as np
import pytest

from benchmarks import controls
from benchmarks.document import Page
from models.mlp_train import build_mlp_train


@pytest.fixture(scope="module")
def small():
    """Peaks in units by pattern and whether it repeats."""
    rows, wrong = controls._small_rows()
    assert wrong == []
    return {row[:2]: row[2] for row in rows}


@pytest.fixture(scope="module")
def train():
    """Rows of a small training step by pattern and whether it repeats: (peak, of keeping all, nodes)."""
    shape = {"batch": 256}
    model = controls.Repeats.of(build_mlp_train(16, 32, 2), shape)
    assert len(model.levels) > 1
    rows, wrong = controls._train_rows(model, shape)
    assert wrong == []
    return {row[:2]: row[2:5] for row in rows}


def close(units):
    """Beside whole units there are a few bytes of others."""
    return pytest.approx(units, abs=0.01)


def test_naive_if_saves_nothing(small):
    assert small["kept", "-"] == close(25)
    assert small["made again", "-"] == close(17)
    assert small["naive If", "yes"] == close(25)
    assert small["naive If", "no"] == close(25)


@pytest.mark.parametrize("pattern", ["drop If", "region If", "multi-version If"])
def test_other_ifs_save_what_repeating_saves_and_only_then(small, pattern):
    assert small[pattern, "yes"] == close(17)
    assert small[pattern, "no"] == close(25)


def test_size_frees_a_result_that_nobody_reads(small):
    assert small["a result nobody reads, kept", "-"] == close(21)
    assert small["a result nobody reads, with a Size on it", "-"] == close(17)


def test_output_of_constant_dims_is_there_before_its_branch_starts(small):
    assert small["output of a branch, of dims known when it is made", "-"] == close(9)
    assert small["output of a branch, of constant dims", "-"] == close(17)


def test_naive_ifs_on_a_training_step_cost_memory(train):
    kept = train["kept", "-"][0]
    assert train["naive If", "yes"][0] >= kept
    assert train["naive If", "no"][0] >= kept


def test_duplicates_without_if_are_merged_where_the_optimiser_is_on(train):
    kept = train["kept", "-"]
    alone, merged, apart = (train[f"duplicates, {w}", "-"] for w in ("none", "basic", "basic without CSE"))
    assert alone[0] < kept[0]
    assert alone[2] > kept[2]
    assert merged[2] < alone[2]
    assert merged[1] >= 1
    assert apart[1] < 1


def test_aliased_repeats_are_not_merged(train):
    alone, aliased = train["duplicates, none", "-"], train["aliased repeats, basic", "-"]
    assert aliased[0] == pytest.approx(alone[0], rel=1e-3)
    assert aliased[1] < 1 <= train["duplicates, basic", "-"][1]
    kept, again = (train["aliased repeats and anchors, all", a] for a in ("no", "yes"))
    assert kept[0] == pytest.approx(train["kept", "-"][0], rel=1e-3)
    assert again[0] == pytest.approx(alone[0], rel=1e-2)
    assert again[2] > kept[2]


def test_versions_save_and_constant_outputs_take_their_bytes_early(train):
    kept = train["kept", "-"][0]
    ours = {again: train["multi-version If", again][0] for again in ("no", "yes")}
    assert ours["no"] == pytest.approx(kept, rel=1e-3)
    assert ours["yes"] == pytest.approx(train["duplicates, none", "-"][0], rel=1e-2)
    assert ours["yes"] < kept
    for again in ("no", "yes"):
        assert train["If of constant outputs", again][0] > ours[again]


def test_optimiser_merges_repeats_of_one_branch_too(train):
    # Why a file of levels has to be loaded with optimisations off, as its settings say.
    assert train["multi-version If, basic", "yes"][1] >= 0.999
    assert train["multi-version If", "yes"][1] < 0.999


def test_naive_ifs_give_the_same_bits():
    model = controls.Repeats.of(build_mlp_train(8, 16, 1), {"batch": 64})
    assert sum(node.op_type == "If" for node in model.naive().graph.node) > 0
    rng = np.random.default_rng(0)
    feeds = {"x": rng.standard_normal((64, 8), dtype=np.float32), "labels": rng.integers(0, 10, 64)}
    plain = controls._ran(model.duplicated(0), feeds)
    for again in (False, True):
        assert controls._ran(model.naive(), {**feeds, controls.AGAIN: np.array(again)}).same(plain)


def test_page_says_what_is_met(monkeypatch):
    monkeypatch.setattr(controls, "build_mlp_train", lambda *_: build_mlp_train(16, 32, 2))
    monkeypatch.setattr(controls, "_SHAPE", {"batch": 256})
    page = controls.run()
    assert isinstance(page, Page)
    assert page.wrong == ()
    assert [finding.met for finding in page.findings] == [True] * 4
