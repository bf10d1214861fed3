"""Domains: solved facts, bounds that hold, simplification that keeps values, legal samples."""

from __future__ import annotations

import copy
from itertools import islice

import pytest
from hypothesis import given, settings

from onnx_symmem.errors import DomainError, ExpressionError
from onnx_symmem.expr.domain import Domain, SymbolRange
from onnx_symmem.expr.expression import Expr
from onnx_symmem.expr.text import parse
from tests.expr.strategies import domains, expressions, legal_points


def values(expr: Expr, domain: Domain, where: Expr | None = None) -> list[int]:
    """Values at the legal points of a small box at which `where` (None: `expr`) has one."""
    found = []
    for shape in islice(legal_points(domain, 5), 150):
        try:
            (where or expr).evaluate(shape)
        except ExpressionError:  # a divisor is zero there
            continue
        found.append(expr.evaluate(shape))
    return found


@settings(max_examples=150, deadline=None)
@given(expressions(), domains())
def test_bounds_and_quick_proofs_hold(expr: Expr, domain: Domain) -> None:
    low, high = domain.bounds(expr)
    found = values(expr, domain)
    assert all(low is None or low <= v for v in found)
    assert all(high is None or v <= high for v in found)
    if domain.nonneg(expr):
        assert all(v >= 0 for v in found)


@settings(max_examples=150, deadline=None)
@given(expressions(), domains())
def test_simplification_keeps_values(expr: Expr, domain: Domain) -> None:
    simple = domain.simplify(expr)
    assert values(simple, domain, expr) == values(expr, domain)
    assert domain.simplify(simple) == simple


@settings(max_examples=40, deadline=None)
@given(domains())
def test_samples_are_legal_and_reproducible(domain: Domain) -> None:
    shapes = domain.samples(20, seed=3)
    assert all(domain.contains(shape) for shape in shapes)
    assert len({tuple(sorted(shape.items())) for shape in shapes}) == len(shapes)
    assert shapes == Domain(domain.ranges, domain.equalities, domain.inequalities).samples(20, seed=3)


BATCH = Domain({"T": SymbolRange(1, 512), "S": SymbolRange(8, None, 8), "u": SymbolRange(0)})


@pytest.mark.parametrize(
    ("text", "simple"),
    [
        ("max(1, batch)", "batch"),
        ("min(T, 512)", "T"),
        ("max(0, T - 1)", "T - 1"),
        ("max(u, 1)", "max(1, u)"),
        ("T//513", "0"),
        ("(T + 511)//512", "1"),
        ("S % 8", "0"),
        ("8*(S//8)", "S"),
        ("S//4*4", "S"),
        ("(S + 3)//8", "S//8"),
        ("(S*T + 5)//8", "T*(S//8) + 5//8"),
        ("max(T//2, T)", "T"),
        ("min((T + 1)//2, T)", "(T + 1)//2"),
        ("max(batch*T, T)", "T*batch"),
    ],
)
def test_simplify(text: str, simple: str) -> None:
    assert BATCH.simplify(parse(text)) == parse(simple)


def test_bounds() -> None:
    assert BATCH.bounds(parse("3*T + 2")) == (5, 1538)
    assert BATCH.bounds(parse("batch*S - batch")) == (7, None)
    assert BATCH.bounds(parse("T - 2*(T//2)")) == (0, 1)
    assert BATCH.bounds(parse("3 - u*u")) == (None, 3)


def test_equalities_are_solved_and_never_loop() -> None:
    domain = Domain().with_equality("S0", parse("12*S1")).with_equality("N", parse("S0*B"))
    domain = domain.with_equality("S1", parse("S2 + 1"))
    assert domain.equalities == {
        "S0": parse("12*S2 + 12"),
        "N": parse("12*B*S2 + 12*B"),
        "S1": parse("S2 + 1"),
    }
    assert domain.with_equality("S0", parse("12*S1")) == domain
    with pytest.raises(DomainError, match="contradicts"):
        domain.with_equality("S0", parse("12*S1 + 1"))


def test_an_equality_with_a_factor_makes_the_other_side_divisible() -> None:
    domain = Domain().with_equal(parse("12*x"), parse("y"))
    assert domain.equalities == {"y": parse("12*x")}
    domain = Domain().with_equal(parse("6*x"), parse("4*y"))
    ((name, value),) = domain.equalities.items()
    assert (name, value) == ("y", parse("x + x//2"))
    assert domain.range_of("x").divisor == 2


def test_product_ties_and_common_factors() -> None:
    assert Domain().with_equal(parse("B*S"), parse("N")).equalities == {"N": parse("B*S")}
    assert Domain().with_equal(parse("B*S"), parse("B*T")).equalities == {"S": parse("T")}
    tied = Domain().with_equal(parse("B*S"), 12)
    assert tied.contains({"B": 3, "S": 4})
    assert not tied.contains({"B": 5, "S": 4})


def test_facts_tighten_ranges() -> None:
    domain = Domain({"S0": SymbolRange(24, 100)}).with_equality("S0", parse("12*S1"))
    assert domain.range_of("S1") == SymbolRange(2, 8)
    assert domain.range_of("S0") == SymbolRange(24, 96)
    domain = Domain().with_inequality(parse("100 - 3*x"))
    assert domain.range_of("x") == SymbolRange(1, 33)
    with pytest.raises(DomainError, match="no shape is legal"):
        domain.with_inequality(parse("x - 34"))


def test_facts_move_ends_through_other_facts() -> None:
    """Detection models: candidates <= min(150, ...) per level, kept ones <= candidates."""
    domain = Domain({"u": SymbolRange(0), "v": SymbolRange(0)})
    domain = domain.with_inequality(parse("2*min(150, 15*H*W) - u"))
    domain = domain.with_inequality(parse("min(u, 9223372036854775807) - v"))
    assert domain.range_of("v") == SymbolRange(0, 300)
    assert domain.simplify(parse("min(v, 9223372036854775807)")) == parse("v")
    assert parse("u - v") in domain.facts()
    assert copy.deepcopy(domain).facts() == domain.facts()


def test_contradicting_facts_end() -> None:
    domain = Domain().with_inequality(parse("x - y - 1"))
    assert not domain.with_inequality(parse("y - x")).samples(4)  # never legal, but no range shows it
    with pytest.raises(DomainError, match="no shape is legal"):
        Domain({"x": SymbolRange(1, 9)}).with_inequality(parse("x - y")).with_inequality(parse("y - 10"))


def test_facts_give_quick_proofs() -> None:
    domain = Domain({"past": SymbolRange(0)}).with_inequality(parse("total - past"))
    assert domain.nonneg(parse("total - past + 3"))
    assert domain.nonneg(parse("2*B*total - 2*B*past"))
    assert not domain.nonneg(parse("past - total + 100"))


def test_check_names_the_broken_fact() -> None:
    domain = Domain({"S": SymbolRange(8, 512, 8)}, {"N": parse("B*S")}, (parse("total - past"),))
    domain.check({"S": 16, "B": 2, "N": 32, "total": 4, "past": 4})
    for shape, message in [
        ({"S": 12}, "S = 12: expected a size in 8..512 step 8"),
        ({"B": 0}, "B = 0: expected a size in 1..inf"),
        ({"S": 16, "B": 2, "N": 31}, "N = 31: expected 32, since N = B[*]S"),
        ({"total": 3, "past": 4}, "-past [+] total = -1: expected 0 or more"),
    ]:
        with pytest.raises(DomainError, match=message):
            domain.check(shape)
        assert not domain.contains(shape)
    assert domain.completed({"S": 16, "B": 2}) == {"S": 16, "B": 2, "N": 32}


@pytest.mark.parametrize(("lo", "hi", "divisor"), [(5, 4, 1), (9, 15, 8), (1, 2, 0)])
def test_empty_ranges_are_refused(lo: int, hi: int, divisor: int) -> None:
    with pytest.raises(DomainError, match="expected|empty"):
        SymbolRange(lo, hi, divisor)


def test_equal_by_content() -> None:
    one = Domain({"a": SymbolRange(2), "b": SymbolRange(3)}, {"c": parse("a + b")}, (parse("a - b"),))
    two = Domain({"b": SymbolRange(3), "a": SymbolRange(2)}).with_inequality(parse("a - b"))
    two = two.with_equality("c", parse("a + b"))
    assert one == two
    assert hash(one) == hash(two)
    assert copy.deepcopy(one) == one
    assert one != one.with_ranges({"a": SymbolRange(3)})
