"""Texts as exporters write them, and the round trip of every expression."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnx_symmem.errors import ExpressionError
from onnx_symmem.expr.expression import Expr
from onnx_symmem.expr.text import dim_from_text, parse
from tests.expr.strategies import expressions

H, W, A, B = (Expr.symbol(name) for name in "HWab")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8*(((height - 1)//8)) + 8", 8 * ((Expr.symbol("height") - 1) // 8) + 8),
        ("past + seq", Expr.symbol("past") + Expr.symbol("seq")),
        ("floor(H/2)", H // 2),
        ("ceiling(H/3)", (H + 2) // 3),
        ("ceil(H/W)", (H + W - 1) // W),
        ("Max(a, b, 3) + Min(a, b)", parse("max(3, a, b) + min(a, b)")),
        ("Mod(a, 7)", A - 7 * (A // 7)),
        ("a % b", A - B * (A // B)),
        ("FloorDiv(a, b)", A // B),
        ("CeilDiv(a, 4)", (A + 3) // 4),
        ("a**2", A * A),
        ("-a**2", -(A * A)),
        ("floor(H/2 + 1/2)", (H + 1) // 2),
        ("floor(0.5*H)", H // 2),
        ("2.0*H", 2 * H),
        ("1e2*H", 100 * H),
        ("floor(H*W/(2*W))", H // 2),
        ("Max(a/2, b/3)*6", parse("max(3*a, 2*b)")),
        ("ModularIndexing(a, 2, 3)", (A // 2) % 3),
        ("a--b", A + B),
        ("  ( a )  ", A),
        ("sym('DynamicDimension.0') + 1", Expr.symbol("DynamicDimension.0") + 1),
        ("sym('it\\'s \\u00e9\\n')", Expr.symbol("it's \u00e9\n")),
        ("max", Expr.symbol("max")),
    ],
)
def test_reads_what_exporters_write(text: str, expected: Expr) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a^2", "not part of an expression at column 2"),
        ("H/2", r"not an integer for every size; write floor\(H/2\)"),
        ("DynamicDimension.0", "expected an operator or the end|not part of an expression"),
        ("2x", "a number runs into a name"),
        ("a//0", "division by zero"),
        ("(a", r"expected '\)'"),
        ("", "expected a number, a name"),
        ("a b", "expected an operator or the end"),
        ("exp(a)", "unknown function 'exp'"),
        ("floor(a, b)", "floor does not take 2 arguments"),
        ("2**-1", "expected a power"),
        ("2**99999", "expected a power"),
        ("(a + b)**999", "a power up to 64"),
        ("9" * 5000, "too long"),
        ("(" * 5000, "nested parentheses"),
        ("floor_f32(H, 0)", "a scale above 0"),
        ("Max(a/b, 1)", "constant denominators"),
        ("sym('\\q')", "unknown escape"),
        ("__import__('os')", "expected a number, a name or"),
        ("__import__(os)", "unknown function"),
    ],
)
def test_refuses_the_rest_in_one_line(text: str, message: str) -> None:
    with pytest.raises(ExpressionError, match=message) as caught:
        parse(text)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_large_product_is_refused() -> None:
    sums = "*".join(f"({'+'.join(f's{i}_{j}' for j in range(40))})" for i in range(6))
    with pytest.raises(ExpressionError, match="too large"):
        parse(sums)


def test_unknown_symbols_can_be_refused() -> None:
    with pytest.raises(ExpressionError, match="unknown symbol 'b' at column 5"):
        parse("a + b", {"a": A}.get)


@settings(max_examples=150, deadline=None)
@given(expressions())
def test_round_trip(expr: Expr) -> None:
    assert parse(str(expr)) == expr


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=12), st.text(min_size=1, max_size=5))
def test_round_trip_of_any_name(first: str, second: str) -> None:
    expr = 3 * Expr.symbol(first) * Expr.symbol(second) + Expr.symbol(second) // 2 - 1
    assert parse(str(expr)) == expr


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet="ab12+-*/%(),. '\"\\MaxFlor", max_size=20))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(ExpressionError):
        assert isinstance(parse(text), Expr)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("unk__3", Expr.symbol("unk__3")),
        ("DynamicDimension.0", Expr.symbol("DynamicDimension.0")),
        ("M + N", Expr.symbol("M + N")),
        ("past + 1", Expr.symbol("past") + 1),
        ("past + new", Expr.symbol("past + new")),
        ("2", Expr.symbol("2")),
        ("-1", Expr.symbol("-1")),
        ("None", Expr.symbol("None")),
        ("", Expr.symbol("")),
        ("past", Expr.symbol("past")),
    ],
)
def test_a_dim_text_is_a_name_unless_its_symbols_are_known(text: str, expected: Expr) -> None:
    assert dim_from_text(text, {"past", "seq"}) == expected


def test_a_known_text_is_that_symbol() -> None:
    assert dim_from_text("M + N", {"M + N", "M", "N"}) == Expr.symbol("M + N")


NAMES = (
    "8*(((height - 1)//8)) + 8", "DynamicDimension.0", "M + N", "2", "-1", "None", "", " ", "a b", "it's",
    'x"y', "a\\b", "lambda", "if", "max", "sym", "floor_f32", "_0", "__", "\u00fcn\u00ef", "\u0663",
    "\U0001f642", "line\nbreak",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_any_name_survives_text_and_is_known_again(name: str) -> None:
    size = Expr.symbol(name)
    expr = 3 * size * A - (size + 5) // 7 * size + B % 3
    assert parse(str(expr)) == expr
    assert parse(str(expr)).symbols() == {name, "a", "b"}
    assert dim_from_text(name, {name}) == size
    if name != "8*(((height - 1)//8)) + 8":
        assert dim_from_text(name, {"height", "a"}) == size


def test_an_exporters_formula_of_a_known_symbol_is_read() -> None:
    height = Expr.symbol("height")
    assert dim_from_text("8*(((height - 1)//8)) + 8", {"height"}) == 8 * ((height - 1) // 8) + 8
    assert dim_from_text("8*(((height - 1)//8)) + 8", set()) == Expr.symbol("8*(((height - 1)//8)) + 8")
    assert dim_from_text("floor(height/2)", {"height"}) == height // 2


@pytest.mark.parametrize("large", [(1 << 63) - 1, 1 << 64, 10**60])
def test_huge_numbers_survive_text(large: int) -> None:
    expr = large * A - (A * B + large) // (large - 2) - large
    assert parse(str(expr)) == expr
    assert expr.evaluate({"a": 3, "b": 5}) == large * 3 - (15 + large) // (large - 2) - large
