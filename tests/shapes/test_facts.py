"""Small solvers and forms: each keeps the values of what it rewrites, each fact it states follows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_symmem.expr.domain import Domain, SymbolRange
from onnx_symmem.expr.expression import Expr, maximum, minimum
from onnx_symmem.expr.text import parse
from onnx_symmem.shapes.facts import Facts
from onnx_symmem.shapes.forms import as_ceilings, as_extremum, with_divisors, without_presence
from onnx_symmem.shapes.growth import extent, is_grown
from onnx_symmem.shapes.solve import divisor_of, elimination, symbol_bound

TEXTS = (
    "7*x - 7*((6*x)//7)",
    "x - x//2",
    "2*x - 2*(x//2) + 1",
    "n*x - n*(x//2)",
    "(5*x + 3)//8",
    "x - (2*x + 4)//5",
    "2*x - (3*x + 1)//7 - 1",
    "(x + 3)//4",
    "x - max(0, x - n)",
    "n + max(0, x - n)",
    "x - min(x, n)",
    "max(x, n) - n",
    "3*x*n - (x//2)*n",
)


@pytest.mark.parametrize("text", TEXTS)
def test_forms_keep_values(text: str) -> None:
    expr = parse(text)
    changed = as_extremum(as_ceilings(expr))
    for x in range(30):
        for n in range(7):
            assert changed.evaluate({"x": x, "n": n}) == expr.evaluate({"x": x, "n": n})


@pytest.mark.parametrize(
    "text", ["x*min(1, x)", "n*x*min(1, x)**2", "min(1, x)**3*min(1, n) - n*min(1, n) + x"]
)
def test_presence_is_said_once(text: str) -> None:
    expr = parse(text)
    changed = without_presence(expr, lambda e: True)
    assert "**" not in str(changed)
    assert str(changed).count("min") < text.count("min")
    for x in range(5):
        for n in range(5):
            assert changed.evaluate({"x": x, "n": n}) == expr.evaluate({"x": x, "n": n})
    assert without_presence(expr, lambda e: False) == expr


def test_forms_are_short() -> None:
    assert str(as_ceilings(parse("7*x - 7*((6*x)//7)"))) == "7*((x + 6)//7)"
    assert str(as_ceilings(parse("(3*x)//5"))) == str(as_ceilings(parse("x - (2*x + 4)//5"))) == "(3*x)//5"
    assert str(as_ceilings(parse("n*x - n*(x//2)"))) == "n*((x + 1)//2)"
    assert as_extremum(parse("x - max(0, x - n)")) == minimum(parse("x"), parse("n"))
    assert as_extremum(parse("n + max(0, x - n)")) == maximum(parse("x"), parse("n"))


@given(st.integers(1, 6), st.integers(0, 5), st.sampled_from([1, 2, 4, 8, 16]), st.integers(1, 4))
def test_divisible_sizes_have_one_form(factor: int, shift: int, by: int, power: int) -> None:
    x, y = Expr.symbol("x"), Expr.symbol("y")
    expr = factor * ((x * factor + shift) // by) * (y // 2) ** power + x
    form = with_divisors(expr, {"x": 8, "y": 2})
    for a in range(0, 80, 8):
        for b in range(0, 8, 2):
            assert form.evaluate({"x": a, "y": b}) == expr.evaluate({"x": a, "y": b})
    assert with_divisors(form, {"x": 8, "y": 2}) == form


def test_levels_of_a_divisible_size_look_alike() -> None:
    divisors = {"h": 8, "w": 8}
    for left, right, form in (
        ("2*(h//8)", "h//4", "h//4"),
        ("(h + 3)//4", "h//4", "h//4"),
        ("8*(h//8)", "h", "h"),
        ("4*(h//8)*(w//8)", "(h//4)*(w//4)", "(h//4)*(w//4)"),
    ):
        assert str(with_divisors(parse(left), divisors)) == str(with_divisors(parse(right), divisors)) == form


def test_bounds_of_one_symbol_are_exact() -> None:
    for text in (
        "x - 3", "5 - x", "(x - 4)//3 - 2", "2 - (x + 1)//4", "2*((x + 3)//5) - 3",
        "Max((x + 1)//4 - 2, Min(1, (x + 3)//4 - 2)) - 1", "Max((x + 1)//4, Min(1, x)) - 5",
        "3 - Min(x - 2, Max(1, (x + 1)//2))", "Min((x - 1)//2, x - 7)", "2 - Max(x//3, x//5, 2)",
    ):  # fmt: skip
        expr = parse(text)
        found = symbol_bound(expr)
        assert found is not None
        _, lo, hi = found
        for x in range(-40, 60):
            assert (expr.evaluate({"x": x}) >= 0) == ((lo is None or x >= lo) and (hi is None or x <= hi)), (
                text
            )
    for text in ("x - y", "Max(x, y) - 3", "Max(1, x) - 1", "Min(1, x) - 2", "Max(x - 9, 4 - x)"):
        assert symbol_bound(parse(text)) is None


def test_divisors_are_found_or_not_claimed() -> None:
    assert divisor_of(parse("2*(x//2) - x")) == ("x", 2)
    assert divisor_of(parse("4*((x + 3)//4) - x")) == ("x", 4)
    assert divisor_of(parse("2*(x//4) - x//2")) is None  # holds for 0 and 1 mod 4
    assert divisor_of(parse("2*(x//2) - x + 1")) is None  # odd numbers


def test_fresh_symbols_are_solved_before_inputs() -> None:
    def always(_: Expr) -> bool:
        return True

    assert elimination(parse("4*u - x"), ["u"], ["x"], always) == ("u", parse("x//4"))
    assert elimination(parse("y*u - x"), ["u"], ["x", "y"], always) == ("u", parse("x//y"))
    assert elimination(parse("total - past - seq"), [], ["seq", "past", "total"], always) == (
        "total",
        parse("past + seq"),
    )
    assert elimination(parse("x - 2*y*z"), [], ["y", "z", "x"], always) == ("x", parse("2*y*z"))
    assert elimination(parse("x*x - y*y"), [], ["x", "y"], always) is None


def test_facts_narrow_the_domain_and_stay_within_it() -> None:
    facts = Facts(Domain({"h": SymbolRange(1, 100)}), ("h", "w"))
    facts.require_nonneg(parse("(h - 5)//2"), "Conv 'c'", "kernel")
    facts.require_equal(parse("2*(h//2)"), parse("h"), "Concat 'd'", "halves")
    assert facts.domain.range_of("h") == SymbolRange(6, 100, 2)
    assert facts.simplify(parse("(h + 1)//2")) == parse("h//2")
    assert facts.at_least(parse("h - 6"), 0)
    assert [limit.text for limit in facts.limits] == ["h >= 5", "h % 2 == 0"]


def test_facts_can_be_taken_back() -> None:
    facts = Facts(Domain())
    mark = facts.mark()
    facts.declare("u", 0, parse("h*w"))
    facts.require_nonneg(parse("h - 3"), "", "")
    assert facts.bounds(parse("h")) == (3, None)
    facts.reset(mark)
    assert facts.bounds(parse("h")) == (1, None)
    assert not facts.limits


def test_bounds_of_fresh_symbols_hold_in_the_domain() -> None:
    facts = Facts(Domain(), ("h", "w"))
    facts.declare("u", 0, parse("h*w"))
    assert facts.domain.contains({"u": 6, "h": 2, "w": 3})
    assert not facts.domain.contains({"u": 7, "h": 2, "w": 3})
    assert facts.at_least(parse("h*w - u"), 0)


def test_one_operand_may_prove_a_bound() -> None:
    facts = Facts(Domain())
    assert facts.at_least(parse("n - min(150, n)"), 0)
    assert facts.at_least(parse("max(n, m) - n"), 0)
    assert not facts.at_least(parse("n - max(n, m)"), 0)


def test_growth_counts_what_is_inside() -> None:
    assert extent(parse("a + b")) == (2, 0)
    assert extent(parse("(a + 1)//2"))[1] == 1
    deep = parse("a")
    for k in range(20):
        deep = maximum(deep // 3 + 1, Expr.symbol(f"s{k}")) * 2
    assert is_grown(deep)
