"""The least of several maxima: proofs by parts, witnesses, and proofs that do not survive a change."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnx_symmem.expr.domain import Domain, SymbolRange
from onnx_symmem.expr.expression import Expr
from onnx_symmem.expr.least_order import Cut, Suffices, least_le
from onnx_symmem.expr.text import parse
from tests.expr.strategies import domains, legal_points, polynomials


def exprs(*texts: str) -> list[Expr]:
    return [parse(text) for text in texts]


def test_one_plan_where_a_is_small_and_another_where_it_is_large() -> None:
    plans = [exprs("a*b", "10*b + 1"), exprs("20*b", "3*b + 5")]
    bound = exprs("a*b", "11*b")
    assert least_le(plans, bound, Domain()).check()
    found = least_le([exprs("a*b - 12 + 12*b"), exprs("30*b")], exprs("a*b", "30*b - 20*b"), Domain())
    assert not found.proved
    assert found.witness is not None
    found = least_le(
        [exprs("7*b + a*a - 64"), exprs("9*b")], exprs("7*b", "a*b"), Domain({"b": SymbolRange(1, None)})
    )
    assert isinstance(found.proof, Cut)
    assert found.check()
    assert not any(least_le([plan], found.q, found.domain).proved for plan in found.plans)


def test_a_proof_that_was_changed_does_not_hold() -> None:
    found = least_le(
        [exprs("7*b + a*a - 64"), exprs("9*b")], exprs("7*b", "a*b"), Domain({"b": SymbolRange(1, None)})
    )
    proof = found.proof
    assert isinstance(proof, Cut)
    side = proof.below
    for changed in (
        replace(proof, at=proof.at + 1),
        replace(proof, above=proof.below),
        replace(proof, below=Suffices(side.domain, -1, None)),
        replace(proof, below=replace(side, plan=1 - side.plan))
        if isinstance(side, Suffices)
        else proof.below,
        side,
    ):
        assert not replace(found, proof=changed).check()
    assert not replace(found, q=tuple(exprs("6*b", "a*b"))).check()
    assert not replace(found, proof=None).check()


def test_all_shapes_of_a_small_domain_are_looked_at() -> None:
    domain = Domain({"a": SymbolRange(1, 9), "b": SymbolRange(1, 9)})
    # Which is at most 9 changes from each shape to the next.
    found = least_le([exprs("5 + 8*((a + b) % 2)"), exprs("13 - 8*((a + b) % 2)")], exprs("9"), domain)
    assert found.proof == Suffices(domain, -1, None)
    assert found.check()
    assert not least_le([exprs("5 + 8*((a + b) % 2)")], exprs("9"), domain).proved


@settings(max_examples=40, deadline=None)
@given(st.lists(polynomials(), min_size=3, max_size=4), domains(facts=False))
def test_what_is_proved_holds_and_witnesses_refute(found: list[Expr], domain: Domain) -> None:
    *first, q = found
    plans = [[first[0]], first[1:]]
    result = least_le(plans, [q], domain)

    def holds(shape: dict[str, int]) -> bool:
        most = q.evaluate(shape)
        return any(max(e.evaluate(shape) for e in plan) <= most for plan in plans)

    if result.proved:
        assert result.check()
        assert all(holds(shape) for shape in legal_points(domain, 5))
    elif result.witness is not None:
        assert domain.contains(result.witness)
        assert not holds(result.witness)


@pytest.mark.parametrize("plans", [[["a"]], [["a", "b"]], [["a + 1"], ["b + a"]]])
def test_a_plan_is_as_good_as_itself(plans: list[list[str]]) -> None:
    given = [exprs(*plan) for plan in plans]
    assert least_le(given, given[0], Domain()).check()
