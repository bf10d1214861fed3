"""Canonical forms: identities that arithmetic applies, and values that they keep."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnx_symmem.errors import ExpressionError
from onnx_symmem.expr.atom import Atom
from onnx_symmem.expr.expression import ONE, ZERO, Expr, ceildiv, maximum, minimum, scaled_floor
from tests.expr.strategies import NAMES, expressions

A, B, C = (Expr.symbol(name) for name in NAMES)
SHAPES = st.fixed_dictionaries({name: st.integers(1, 40) for name in NAMES})


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (A + B + A, "2*a + b"),
        ((A + 1) * (A - 1), "a**2 - 1"),
        (8 * ((A - 1) // 8) + 8, "8*((a + 7)//8)"),
        ((A // 2) // 3, "a//6"),
        ((A // 2 + 1) // 3, "(a + 2)//6"),
        ((6 * A + 5) // 4, "a + a//2 + 1"),
        ((A * B) // A, "b"),
        ((4 * A * B) // (6 * A), "(2*b)//3"),
        (A % 1, "0"),
        (ceildiv(A, 4), "(a + 3)//4"),
        (ceildiv(A * B, B), "a"),
        (maximum(A, A + 2, 3), "max(3, a + 2)"),
        (maximum(maximum(A, B), C), "max(a, b, c)"),
        (minimum(A, A), "a"),
        (scaled_floor(A, 2.0), "2*a"),
        (scaled_floor(A, 0.25), "a//4"),
        (scaled_floor(A, 0.3), "floor_f32(a, 0.3)"),
        ((A // -2), "-a + a//2"),
    ],
)
def test_canonical_text(expr: Expr, text: str) -> None:
    assert str(expr) == text


@settings(max_examples=150, deadline=None)
@given(expressions(), expressions(), SHAPES)
def test_arithmetic_keeps_values(x: Expr, y: Expr, shape: dict[str, int]) -> None:
    u, v = x.evaluate(shape), y.evaluate(shape)
    assert (x + y).evaluate(shape) == u + v
    assert (x - y).evaluate(shape) == u - v
    assert (x * y).evaluate(shape) == u * v
    assert (x // 3).evaluate(shape) == u // 3
    assert (x % 5).evaluate(shape) == u % 5
    assert maximum(x, y).evaluate(shape) == max(u, v)
    assert minimum(x, y).evaluate(shape) == min(u, v)


@settings(max_examples=100, deadline=None)
@given(expressions(), expressions(True), SHAPES)
def test_substitution_keeps_values(x: Expr, y: Expr, shape: dict[str, int]) -> None:
    value = y.evaluate(shape)
    if value > 0:
        assert x.substitute({"a": y}).evaluate(shape) == x.evaluate({**shape, "a": value})


@settings(deadline=None)
@given(st.lists(expressions(), min_size=1, max_size=4), SHAPES)
def test_atoms_that_are_known_at_a_shape_are_not_computed_again(
    exprs: list[Expr], shape: dict[str, int]
) -> None:
    known: dict[Atom, int] = {}
    assert [e.evaluate(shape, known) for e in exprs] == [e.evaluate(shape) for e in exprs]
    for atom, value in known.items():
        assert atom.evaluate(shape) == value
    told = {atom: value + 1 for atom, value in known.items()}
    for atom in told:
        assert Expr.of(atom).evaluate(shape, told) == known[atom] + 1


@settings(max_examples=60, deadline=None)
@given(expressions(), expressions(True))
def test_exact_quotient_undoes_a_product(x: Expr, y: Expr) -> None:
    if y != ZERO:
        assert (x * y).exact_quotient(y) == x


def test_float32_floor_is_that_of_float32() -> None:
    expr = scaled_floor(A, 0.6)
    assert [expr.evaluate({"a": n}) for n in (5, 10, 15)] == [3, 6, 9]  # 0.6 as a float32 is above 0.6


def test_division_by_zero_is_named() -> None:
    with pytest.raises(ExpressionError, match=r"division by zero"):
        A // ZERO
    with pytest.raises(ExpressionError, match=r"a//b: division by zero at"):
        (A // B).evaluate({"a": 1, "b": 0})


def test_negative_power_is_refused() -> None:
    with pytest.raises(ExpressionError, match="no negative powers"):
        A**-1
    assert A**0 == ONE


@pytest.mark.parametrize("hash_seed", ["0", "1"])
def test_text_and_pickles_do_not_depend_on_hash_seeds(hash_seed: str) -> None:
    expr = maximum(A * B, C + 1) * (A // 2 + B) - C // B + Expr.symbol("x y")
    code = (
        "import pickle, sys; e = pickle.loads(sys.stdin.buffer.read());"
        "from onnx_symmem.expr.text import parse; same = parse(str(e));"
        "assert same == e and len({e, same}) == 1; print(e)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=pickle.dumps(expr),
        capture_output=True,
        check=True,
        env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": ":".join(sys.path)},
    )
    assert done.stdout.decode().strip() == str(expr)
