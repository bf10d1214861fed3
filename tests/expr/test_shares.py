"""What shared sizes come to at most: no split is above, and some split is as large."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnx_symmem.expr.certificate import check
from onnx_symmem.expr.decide import Kind, compare
from onnx_symmem.expr.domain import Domain, SymbolRange
from onnx_symmem.expr.expression import ZERO, Expr
from onnx_symmem.expr.plan_order import plan_le
from onnx_symmem.expr.shares import competing, shared_bounds
from onnx_symmem.expr.text import parse

FACT = parse("2*t - a - b - c")
EXPERTS = Domain(
    {name: SymbolRange(0, None) for name in "abc"}, {}, (FACT, *map(parse, ("t - a", "t - b", "t - c")))
)


def test_who_competes() -> None:
    assert competing(FACT, "abct") == {"a": 1, "b": 1, "c": 1}
    assert competing(FACT, "abt") == {}
    assert competing(parse("2*t*a - a - 3*b - c"), "abct") == {"b": 3, "c": 1}


@pytest.mark.parametrize("text", ["520*a + 520*b + 2060*c + t", "7*a + 7*b + 7*c", "9*a + 5*b + 2*c + 4*t*t"])
def test_the_best_price_is_met_by_a_split(text: str) -> None:
    expr, t = parse(text), 6
    splits = [s for s in product(range(t + 1), repeat=3) if sum(s) <= 2 * t]
    most = max(expr.evaluate({"t": t, **dict(zip("abc", split, strict=True))}) for split in splits)
    bounds = [
        bound.substitute({n: parse("t") for n in "abc"}) for bound in shared_bounds(expr, FACT, EXPERTS)
    ]
    assert min(bound.evaluate({"t": t}) for bound in bounds) == most
    for bound in shared_bounds(expr, FACT, EXPERTS):
        assert all(
            (bound - expr).evaluate({"t": t, **dict(zip("abc", split, strict=True))}) >= 0 for split in splits
        )


@pytest.mark.parametrize("text", ["5*a + 3*t", "a*b + a + b", "4*t", "-a - b"])
def test_what_shares_nothing_has_no_such_bound(text: str) -> None:
    assert shared_bounds(parse(text), FACT, EXPERTS) == ()


def test_sizes_that_may_be_negative_share_nothing() -> None:
    domain = Domain({n: SymbolRange(0, None) for n in "ab"} | {"c": SymbolRange(-5, None)}, {}, (FACT,))
    assert shared_bounds(parse("a + b"), FACT, domain) == ()
    assert shared_bounds(parse("a + b"), FACT, EXPERTS) == (Expr.lift(2) * parse("t"),)


SPLITS = [
    {"t": t, "a": a, "b": b, "c": c}
    for t in range(1, 5)
    for a, b, c in product(range(t + 1), repeat=3)
    if a + b + c <= 2 * t
]
COSTS = st.integers(-3, 6)


@given(low=st.tuples(*[COSTS] * 6), highs=st.lists(st.tuples(*[COSTS] * 6), min_size=1, max_size=3))
@settings(max_examples=150, deadline=None)
def test_verdicts_hold_at_every_split(low: tuple[int, ...], highs: list[tuple[int, ...]]) -> None:
    def expr(costs: tuple[int, ...]) -> Expr:
        terms = ("a", "b", "c", "t", "t*t", "1")
        return sum((parse(term) * c for term, c in zip(terms, costs, strict=True)), ZERO)

    p, q = expr(low), [expr(high) for high in highs]
    found = plan_le([p], q, EXPERTS)
    if found.proved:
        assert found.check()
        assert all(p.evaluate(s) <= max(e.evaluate(s) for e in q) for s in SPLITS)
    elif found.witness is not None:
        assert EXPERTS.contains(found.witness)
        assert p.evaluate(found.witness) > max(e.evaluate(found.witness) for e in q)
    verdict = compare(p, q[0], EXPERTS)
    if verdict.kind in (Kind.LE, Kind.EQ):
        assert all(p.evaluate(s) <= q[0].evaluate(s) for s in SPLITS)
        assert verdict.certificate is None or check(verdict.certificate)
