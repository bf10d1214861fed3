"""What shared sizes come to at most: no split is above, and some split is as large."""

from __future__ import annotations

from itertools import product

import pytest

from onnx_symmem.expr.domain import Domain, SymbolRange
from onnx_symmem.expr.expression import Expr
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
