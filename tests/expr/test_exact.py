"""Arithmetic on arrays is exact, however large the numbers."""

from __future__ import annotations

import numpy as np
import pytest

from onnx_symmem.expr.exact import Table, as_integers


def _exact(rows: np.ndarray, table: np.ndarray) -> np.ndarray:
    return np.asarray(rows.astype(object) @ table.astype(object))


@pytest.mark.parametrize("bits", [8, 27, 40, 61, 90, 1100])
@pytest.mark.parametrize("count", [1, 4, 60])
def test_products_and_their_signs_are_exact(bits: int, count: int) -> None:
    rng = np.random.default_rng(bits)
    table = as_integers([[int(x) << max(0, bits - 8) for x in row] for row in rng.integers(-9, 99, (5, 40))])
    rows = as_integers(rng.integers(-9, 99, (count, 5)).astype(object) * ((1 << max(0, bits - 8)) + 1))
    expected = _exact(rows, table)
    found = Table(table)
    assert np.array_equal(found.times(rows).astype(object), expected)
    holds = np.array([min(row) >= 0 for row in expected.tolist()])
    assert count < 60 or 0 < holds.sum() < count
    assert np.array_equal(found.none_negative(rows), holds)


@pytest.mark.parametrize("bits", [20, 35, 70])
def test_what_is_off_by_one_is_told(bits: int) -> None:
    """a*b - (a*b + d) for d of -1, 0 and 1, far beyond what float64 tells."""
    rng = np.random.default_rng(bits)
    a = [int(x) | 1 << bits for x in rng.integers(0, 1 << min(bits, 60), 600)]
    b = (1 << bits) + 12345
    d = rng.integers(-1, 2, 600).tolist()
    rows = as_integers([[x, -x * b + e] for x, e in zip(a, d, strict=True)])
    table = Table(as_integers([[b, 1], [1, 0]]))
    assert table.none_negative(rows).tolist() == [e >= 0 for e in d]


def test_numbers_beyond_float64_beside_zeros() -> None:
    """A zero row entry meets a number that float64 cannot hold, and the other way round."""
    huge = 1 << 2000
    table = Table(as_integers([[huge, -huge], [1, 1]]))
    rows = as_integers([[0, k - 2] for k in range(6)])
    expected = [k >= 2 for k in range(6)]
    assert table.times(rows).tolist() == [[k - 2, k - 2] for k in range(6)]
    assert table.none_negative(rows).tolist() == expected
    table = Table(as_integers([[0, 0], [1, 1]]))
    rows = as_integers([[huge, k - 2] for k in range(6)])
    assert table.none_negative(rows).tolist() == expected
