"""Exact arrays, grids of values, and expressions as rows of a matrix."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnx_symmem.errors import DomainError, ExpressionError
from onnx_symmem.expr.exact import add, as_integers, matmul, multiply, power
from onnx_symmem.expr.expression import ZERO, Expr
from onnx_symmem.expr.grid import evaluate
from onnx_symmem.expr.matrix import PolyMatrix
from onnx_symmem.expr.text import parse
from tests.expr.strategies import expressions

BITS = st.sampled_from([3, 20, 40, 61, 63, 90, 200])


def integers(draw: st.DrawFn, rows: int, columns: int) -> list[list[int]]:
    bits = draw(BITS)
    number = st.integers(-(1 << bits), 1 << bits)
    return [[draw(number) for _ in range(columns)] for _ in range(rows)]


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_matmul_is_exact_at_every_size(data: st.DataObject) -> None:
    n, m, k = (data.draw(st.integers(1, 3)) for _ in range(3))
    a = data.draw(st.composite(integers)(n, m))
    b = data.draw(st.composite(integers)(m, k))
    expected = [[sum(a[i][x] * b[x][j] for x in range(m)) for j in range(k)] for i in range(n)]
    assert matmul(as_integers(a), as_integers(b)).tolist() == expected


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_elementwise_is_exact_at_every_size(data: st.DataObject) -> None:
    (a,) = data.draw(st.composite(integers)(1, 4))
    (b,) = data.draw(st.composite(integers)(1, 4))
    assert add(as_integers(a), as_integers(b)).tolist() == [x + y for x, y in zip(a, b, strict=True)]
    assert multiply(as_integers(a), as_integers(b)).tolist() == [x * y for x, y in zip(a, b, strict=True)]
    assert power(as_integers(a), 3).tolist() == [x**3 for x in a]


SHAPES = st.lists(
    st.fixed_dictionaries({name: st.integers(1, 1 << 30) for name in "abc"}), min_size=1, max_size=4
)


@settings(max_examples=100, deadline=None)
@given(st.lists(expressions(), min_size=1, max_size=3), SHAPES)
def test_grid_and_matrix_agree_with_evaluation(exprs: list[Expr], shapes: list[dict[str, int]]) -> None:
    expected = [[expr.evaluate(shape) for shape in shapes] for expr in exprs]
    assert evaluate(exprs, shapes).tolist() == expected
    matrix = PolyMatrix.from_exprs(exprs)
    assert matrix.evaluate(shapes).tolist() == expected
    assert matrix.exprs() == exprs


@settings(max_examples=60, deadline=None)
@given(st.lists(expressions(), min_size=1, max_size=5), st.lists(expressions(), max_size=3))
def test_rows_sum_join_and_unite(exprs: list[Expr], others: list[Expr]) -> None:
    matrix = PolyMatrix.from_exprs(exprs)
    sums = [sum(exprs[: i + 1], ZERO) for i in range(len(exprs))]
    assert matrix.cumsum().exprs() == sums
    assert matrix.joined(PolyMatrix.from_exprs(others)).exprs() == exprs + others
    twice = PolyMatrix.from_exprs(exprs + exprs[::-1])
    unique, like = twice.unique()
    assert unique.exprs() == list(dict.fromkeys(exprs))
    assert unique.take(like).exprs() == exprs + exprs[::-1]
    assert twice.without_empty_columns().exprs() == exprs + exprs[::-1]


def test_sums_beyond_int64() -> None:
    a = Expr.symbol("a")
    matrix = PolyMatrix.from_exprs([a * (1 << 61)] * 8)
    assert matrix.rows.dtype == np.int64
    assert matrix.cumsum().row(7) == a * (1 << 64)


def test_missing_sizes_and_zero_divisors_are_named() -> None:
    with pytest.raises(DomainError, match="does not give the size of 'b'"):
        evaluate([parse("a + b")], [{"a": 1}])
    with pytest.raises(ExpressionError, match="a//b: division by zero"):
        evaluate([parse("a//b")], [{"a": 1, "b": 0}])
    assert evaluate([], [{"a": 1}]).shape == (0, 1)
