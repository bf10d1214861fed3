"""Splits of what is shared at which an expression is above others, though none of the samples shows it."""

from __future__ import annotations

import pytest

from onnx_symmem.expr.ascent import refuting_shape
from onnx_symmem.expr.domain import Domain, SymbolRange
from onnx_symmem.expr.matrix import PolyMatrix
from onnx_symmem.expr.text import parse

# Three experts find at most 2*t tokens, and each at most t.
EXPERTS = Domain(
    {name: SymbolRange(0, None) for name in "abc"},
    {},
    tuple(map(parse, ("2*t - a - b - c", "t - a", "t - b", "t - c"))),
)
LOW = "2060*a + 524*b + 524*c"
HIGHS = ("536*t + 2060*a", "1024*t + 520*a + 520*b + 520*c")
ROWS = PolyMatrix.from_exprs(map(parse, (LOW, *HIGHS)))


@pytest.mark.parametrize("start", [(0, 0, 0), (1000, 0, 0), (0, 1000, 1000), (1000, 1000, 0), (1, 998, 2)])
def test_every_start_leads_to_a_split_that_refutes(start: tuple[int, int, int]) -> None:
    shape = refuting_shape(ROWS, 0, (1, 2), EXPERTS, {"t": 1000, **dict(zip("abc", start, strict=True))})
    assert shape is not None
    assert EXPERTS.contains(shape)
    assert shape["t"] == 1000
    assert parse(LOW).evaluate(shape) > max(parse(high).evaluate(shape) for high in HIGHS)


def test_what_is_above_nowhere_is_not_refuted() -> None:
    rows = PolyMatrix.from_exprs(map(parse, (LOW, *HIGHS, "1048*t + 1036*a + 524*b")))
    start = {"t": 1000, "a": 1000, "b": 0, "c": 0}
    assert refuting_shape(rows.take([0, 1, 2]), 0, (1, 2), EXPERTS, start) is not None
    assert refuting_shape(rows.take([1, 0, 1]), 0, (1, 2), EXPERTS, start) is None


def test_nothing_moves_where_nothing_is_shared() -> None:
    rows = PolyMatrix.from_exprs([parse("9*a"), parse("a*a + 1")])
    assert refuting_shape(rows, 0, (1,), Domain(), {"a": 100}) is None
