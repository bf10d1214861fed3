"""Counts of verdicts over all pairs, against comparing every pair alone."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnx_symmem.expr.census import census
from onnx_symmem.expr.decide import compare, relations
from onnx_symmem.expr.domain import Domain, SymbolRange
from onnx_symmem.expr.expression import Expr
from onnx_symmem.expr.matrix import PolyMatrix
from onnx_symmem.expr.tally import Kind, Tally
from onnx_symmem.expr.text import parse
from tests.expr.strategies import domains, expressions, legal_points, polynomials

FREE = Domain()


@settings(max_examples=60, deadline=None)
@given(st.lists(polynomials(3), max_size=7), domains(facts=False))
def test_every_pair_is_counted_as_if_compared_alone(exprs: list[Expr], domain: Domain) -> None:
    found = census(exprs, domain)
    alone = Tally.of(
        (verdict.kind, verdict.tier) for a, b in combinations(exprs, 2) for verdict in [compare(a, b, domain)]
    )
    assert found.total == alone.total == len(exprs) * (len(exprs) - 1) // 2
    # Together, expressions may be proved by a cheaper tier or seen at other samples; answers agree.
    assert found.settled >= alone.settled
    if alone.settled == 1.0 and Kind.EQ not in found.by_kind() and Kind.EQ not in alone.by_kind():
        assert found.by_kind() == alone.by_kind()


@settings(max_examples=60, deadline=None)
@given(st.lists(expressions(), min_size=2, max_size=5), domains())
def test_counts_are_not_refuted_by_small_shapes(exprs: list[Expr], domain: Domain) -> None:
    solid = [e for e in exprs if all(atom.kind == "symbol" for atom in e.atoms())] or [Expr.const(1)]
    points = list(legal_points(domain, 5))
    crossing = ordered = 0
    for a, b in combinations(solid, 2):
        signs = {(d > 0) - (d < 0) for p in points for d in [b.evaluate(p) - a.evaluate(p)]}
        crossing += {1, -1} <= signs
        ordered += len(signs) == 1
    kinds = census(solid, domain).by_kind()
    assert kinds.get("INCOMPARABLE", 0) + kinds.get("UNKNOWN", 0) >= crossing
    assert sum(kinds.values()) == len(solid) * (len(solid) - 1) // 2


def test_directions_and_equal_expressions() -> None:
    a, b, c = parse("4*batch*seq"), parse("8*batch*seq + 3"), parse("1000*batch")
    tally = census([a, b, a, c], FREE)
    assert tally.as_dict() == {
        "EQ": {"equal": 1},
        "LE": {"shift": 1},
        "GE": {"shift": 1},
        "INCOMPARABLE": {"samples": 3},
    }
    assert tally.share(Kind.INCOMPARABLE) == 0.5
    assert tally.decided == 0.5
    assert tally.settled == 1.0
    assert census([b, a], FREE).as_dict() == {"GE": {"shift": 1}}
    narrow = Domain({"seq": SymbolRange(250)})
    assert census([a, b, a, c], narrow).by_kind() == {"EQ": 1, "LE": 1, "GE": 4}


def test_nothing_to_compare() -> None:
    for exprs in ([], [parse("a")]):
        tally = census(exprs, FREE)
        assert (tally.total, tally.decided, tally.settled) == (0, 0.0, 0.0)


def test_huge_coefficients_count() -> None:
    a = Expr.symbol("a")
    tally = census([a * (1 << 70), a * (1 << 71), a], FREE)
    assert tally.by_kind() == {"LE": 1, "GE": 2}


def test_what_only_deep_tiers_settle() -> None:
    exprs = [parse("2*a*b"), parse("a**2 + b**2")]
    assert census(exprs, FREE).as_dict() == {"LE": {"sectors": 1}}
    assert census(exprs, FREE, deep=False).as_dict() == {"UNKNOWN": {"unknown": 1}}


@pytest.mark.parametrize("count", [0, 1, 20_000])
def test_relations_of_many_rows(count: int) -> None:
    rows = PolyMatrix.from_exprs([parse("a*b"), parse("-a"), parse("a - b"), parse("0*a")] * count)
    found = relations(rows.rows, rows.basis, FREE)
    assert found.tally.as_dict() == (
        {}
        if not count
        else {
            "LE": {"shift": count},
            "GE": {"shift": count},
            "INCOMPARABLE": {"samples": count},
            "EQ": {"equal": count},
        }
    )
