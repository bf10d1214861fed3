"""sympy as an oracle: values, canonical forms, floor, modulus, max and min."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from onnx_symmem.expr.domain import Domain, SymbolRange
from onnx_symmem.expr.expression import Expr, ceildiv, maximum, minimum, scaled_floor
from onnx_symmem.expr.sympy_form import to_sympy
from onnx_symmem.expr.text import parse
from tests.expr.strategies import NAMES, expressions, polynomials

SHAPES = st.fixed_dictionaries({name: st.integers(1, 40) for name in NAMES})


@dataclass(frozen=True)
class Twin:
    """The same formula built by us and by sympy, step by step."""

    ours: Expr
    theirs: Any


def twins() -> st.SearchStrategy[Twin]:
    """Sums, products, quotients by numbers of either sign and by sizes, remainders, extrema; nested."""
    symbol = st.sampled_from(NAMES).map(
        lambda name: Twin(Expr.symbol(name), sympy.Symbol(name, integer=True, positive=True))
    )
    number = st.integers(-9, 9).map(lambda n: Twin(Expr.const(n), sympy.Integer(n)))
    divisor = st.sampled_from([-7, -3, -2, 2, 3, 4, 8])

    def grown(inner: st.SearchStrategy[Twin]) -> st.SearchStrategy[Twin]:
        return st.one_of(
            st.builds(lambda x, y: Twin(x.ours + y.ours, x.theirs + y.theirs), inner, inner),
            st.builds(lambda x, y: Twin(x.ours - y.ours, x.theirs - y.theirs), inner, inner),
            st.builds(lambda x, y: Twin(x.ours * y.ours, x.theirs * y.theirs), inner, inner),
            st.builds(lambda x, d: Twin(x.ours // d, sympy.floor(x.theirs / d)), inner, divisor),
            st.builds(lambda x, d: Twin(x.ours % d, sympy.Mod(x.theirs, d)), inner, divisor),
            st.builds(
                lambda x, d: Twin(ceildiv(x.ours, abs(d)), sympy.ceiling(x.theirs / abs(d))), inner, divisor
            ),
            st.builds(lambda x, y: Twin(x.ours // y.ours, sympy.floor(x.theirs / y.theirs)), inner, symbol),
            st.builds(
                lambda x, y: Twin(maximum(x.ours, y.ours), sympy.Max(x.theirs, y.theirs)), inner, inner
            ),
            st.builds(
                lambda x, y: Twin(minimum(x.ours, y.ours), sympy.Min(x.theirs, y.theirs)), inner, inner
            ),
        )

    return st.recursive(symbol | number, grown, max_leaves=6)


@settings(max_examples=120, deadline=None)
@given(twins(), SHAPES)
def test_canonical_forms_have_the_values_of_what_was_written(twin: Twin, shape: dict[str, int]) -> None:
    there = {sympy.Symbol(name, integer=True, positive=True): size for name, size in shape.items()}
    assert twin.ours.evaluate(shape) == twin.theirs.subs(there)


@settings(max_examples=100, deadline=None)
@given(expressions(), SHAPES)
def test_values_are_the_same_in_sympy(expr: Expr, shape: dict[str, int]) -> None:
    formula = to_sympy(expr)
    there = {sympy.Symbol(name, integer=True, positive=True): size for name, size in shape.items()}
    assert formula.subs(there) == expr.evaluate(shape)
    assert {symbol.name for symbol in formula.free_symbols} <= expr.symbols()


@settings(max_examples=80, deadline=None)
@given(polynomials(), polynomials())
def test_equal_forms_are_equal_polynomials(x: Expr, y: Expr) -> None:
    product, both = to_sympy(x * y), to_sympy(x) * to_sympy(y)
    assert sympy.expand(product - both) == 0
    assert (sympy.expand(to_sympy(x) - to_sympy(y)) == 0) == (x == y)
    assert sympy.expand(to_sympy(x.substitute({"a": y})) - to_sympy(x).subs(_symbol("a"), to_sympy(y))) == 0


def _symbol(name: str) -> Any:
    return sympy.Symbol(name, integer=True, positive=True)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["a//3", "(a + 5)//4", "a%7", "-a//3", "(2*a + 1)//(3*b)", "max(a, b) - min(a, b)"]),
    SHAPES,
)
def test_our_text_is_read_alike_by_python(text: str, shape: dict[str, int]) -> None:
    expr = parse(text)
    again = parse(str(to_sympy(expr)))  # sympy's spelling: floor(a/3), Max(a, b)
    assert again.evaluate(shape) == expr.evaluate(shape)


def test_signs_of_symbols() -> None:
    domain = Domain({"u": SymbolRange(0)})
    (symbol,) = to_sympy(parse("u + 1"), domain).free_symbols
    assert symbol.is_nonnegative
    assert symbol.is_positive is None
    assert to_sympy(parse("u")).is_positive
    assert to_sympy(7) == 7
    assert to_sympy(Expr.symbol("DynamicDimension.0") * 2).free_symbols == {_symbol("DynamicDimension.0")}


def test_float32_floors() -> None:
    formula = to_sympy(scaled_floor(Expr.symbol("a"), 0.6) + 1)
    assert str(formula) == "floor_f32(a, 3/5) + 1"
    assert [formula.subs(_symbol("a"), n) for n in (5, 10, 15)] == [4, 7, 10]


@pytest.mark.parametrize("module", ["onnx_symmem.expr.sympy_form", "onnx_symmem.expr.decide"])
def test_sympy_is_imported_late(module: str) -> None:
    code = f"import sys, {module}; sys.exit('sympy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
