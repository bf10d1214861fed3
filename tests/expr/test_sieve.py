"""Tests that rows failed give up others that fail, and never one that holds."""

from __future__ import annotations

import numpy as np
import pytest

from onnx_symmem.expr.covers import LINKED, build_cover
from onnx_symmem.expr.decide import relations
from onnx_symmem.expr.domain import Domain, SymbolRange
from onnx_symmem.expr.exact import Table
from onnx_symmem.expr.expression import Expr, maximum
from onnx_symmem.expr.matrix import PolyMatrix
from onnx_symmem.expr.sieve import Sieve

H, W = Expr.symbol("height"), Expr.symbol("width")
DOMAIN = Domain({"height": SymbolRange(1, 500)})
SIZES = PolyMatrix.from_exprs(
    [H * W, (H // 8) * (W // 8), (H // 2) * (W // 2), maximum(H // 4, W), H, W, Expr.const(1)]
)


def _rows(count: int, seed: int = 0, largest: int = 40) -> np.ndarray:
    return np.random.default_rng(seed).integers(-largest, largest, (count, len(SIZES.basis)))


def test_a_row_that_holds_always_passes() -> None:
    rng = np.random.default_rng(3)
    table = Table(rng.integers(-9, 9, (6, 12)))
    sieve = Sieve()
    rows = rng.integers(-9, 30, (4000, 6))
    # Some rows hold by a hair: their smallest number is 0.
    rows[:, 0] = 0
    table.array[0] = 1
    rows[:2000, 0] = -table.times(rows[:2000]).min(axis=1)
    holds = table.times(rows).min(axis=1) >= 0
    assert 500 < holds.sum() < 3500
    sieve.learn(rows[~holds][:300], table)
    passed = sieve.passed(rows)
    assert set(np.flatnonzero(holds).tolist()) <= set(passed.tolist())
    assert len(passed) < holds.sum() + (~holds).sum() // 8


def test_a_full_sieve_is_made_anew_by_what_fails_now() -> None:
    table = Table(-np.eye(200, dtype=np.int64))
    sieve = Sieve()
    for k in range(0, 200, 8):
        failed = np.repeat(np.eye(200, dtype=np.int64)[k : k + 8], 2, axis=0)
        sieve.learn(failed, table)
        assert sieve.passed(failed).size == 0
    assert sieve.passed(np.eye(200, dtype=np.int64)[:8]).size == 8  # long forgotten


@pytest.mark.parametrize("scale", [1, 1 << 58, 1 << 410], ids=["small", "2**58", "2**410"])
def test_covers_hold_what_their_blocks_hold(scale: int) -> None:
    cover = build_cover(SIZES.basis, DOMAIN, LINKED)
    assert cover is not None
    assert len(cover.blocks) > 1
    for seed in range(3):
        rows = _rows(3000 if scale == 1 else 600, seed)
        rows[::3] = np.abs(rows[::3])
        rows = rows.astype(object) * scale if scale > 1 else rows
        expected = np.logical_and.reduce(
            [np.all(np.asarray(block.tests.times(rows) >= 0, dtype=bool), axis=1) for block in cover.blocks]
        )
        assert expected.any()
        assert not expected.all()
        assert np.array_equal(cover.holds(rows), expected)


def test_verdicts_do_not_depend_on_the_rows_that_came_before() -> None:
    rows = _rows(6000, 5)
    rows[::2] = np.abs(rows[::2])
    together = relations(rows, SIZES.basis, DOMAIN)
    anew = Domain({"height": SymbolRange(1, 500)})
    order = np.random.default_rng(1).permutation(len(rows))
    parts = [relations(rows[some], SIZES.basis, anew) for some in np.array_split(order, 37)]
    assert np.array_equal(together.kinds[order], np.concatenate([part.kinds for part in parts]))
    assert np.array_equal(together.tiers[order], np.concatenate([part.tiers for part in parts]))
    assert len(set(together.tiers.tolist())) > 3
