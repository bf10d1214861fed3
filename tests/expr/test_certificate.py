"""Certificates are recomputed: a changed one is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest

from onnx_symmem.expr.certificate import Certificate, check
from onnx_symmem.expr.decide import compare
from onnx_symmem.expr.domain import Domain, SymbolRange
from onnx_symmem.expr.proof import Leaf, Spend
from onnx_symmem.expr.text import parse

FREE = Domain()
CACHE = Domain({"past": SymbolRange(0)}).with_inequality(parse("total - past"))
NONZERO = Domain({"u": SymbolRange(0)}).with_inequality(parse("H*W - u"))
EXPERTS = Domain(
    {n: SymbolRange(0) for n in "abc"}, {}, tuple(map(parse, ("2*t - a - b - c", "t - a", "t - b", "t - c")))
)
SMALL = Domain({"x": SymbolRange(1, 5), "y": SymbolRange(1, 7)})

CLAIMS = {
    "shift": ("a*b", "2*a*b + 3", FREE),
    "bernstein": ("x*y", "2*x + 3*y + 12", SMALL),
    "points": ("5*x*y", "x**2*y + 6*y", SMALL),
    "linked": ("64*S", "2048*((S + 31)//32)", FREE),
    "rounded": ("2*floor_f32(H, 0.3)", "H", FREE),
    "cases": ("a*b", "max(a, b)**2", FREE),
    "residues": ("(past + 7)//8", "(total + 7)//8", CACHE),
    "between": ("u**2", "H*W*u", NONZERO),
    "sectors": ("2*a*b", "a**2 + b**2", FREE),
    "widened": ("2*a*b", "a**2 + b**2", Domain({"b": SymbolRange(64)})),
    "shared": ("3*a + b + c", "4*t", EXPERTS),
    "boxes": ("0", "b*(a**2 - 10*a + 26)", FREE),
}


def certificate(name: str) -> Certificate:
    a, b, domain = CLAIMS[name]
    found = compare(parse(a), parse(b), domain).certificate
    assert found is not None
    return found


def changed(value: Any) -> Iterator[Any]:
    """The value with one number, or one child, changed."""
    if isinstance(value, bool) or value is None:
        return
    if isinstance(value, int):
        yield value + 1
        yield value - 1
    elif isinstance(value, tuple):
        for i, item in enumerate(value):
            yield from ((*value[:i], other, *value[i + 1 :]) for other in changed(item))
        if value:
            yield value[:-1]
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            if field.name in ("child", "children", "below", "above", "vector", "values", "degrees", "spent"):
                for other in changed(getattr(value, field.name)):
                    yield replace(value, **{field.name: other})


@pytest.mark.parametrize("name", sorted(CLAIMS))
def test_holds(name: str) -> None:
    assert check(certificate(name))


@pytest.mark.parametrize("name", sorted(CLAIMS))
def test_tampering_with_a_vector_is_refused(name: str) -> None:
    found = certificate(name)
    tampered = list(changed(found.proof))
    assert tampered
    for proof in tampered[:60]:
        assert not check(replace(found, proof=proof)), proof


@pytest.mark.parametrize("name", sorted(CLAIMS))
def test_a_proof_of_something_else_is_refused(name: str) -> None:
    found = certificate(name)
    assert not check(replace(found, high=found.low, low=found.high + 1))
    assert not check(replace(found, low=found.low * 2 + 1000))


def test_a_proof_does_not_hold_on_a_larger_domain() -> None:
    found = certificate("bernstein")
    assert not check(replace(found, domain=FREE))
    found = certificate("between")
    assert not check(replace(found, domain=FREE))


def test_unknown_names_and_facts_are_refused() -> None:
    found = certificate("shift")
    assert not check(replace(found, symbols=("a",)))
    assert not check(replace(found, facts=(3,)))
    assert not check(replace(found, proof=Leaf((("z", 1),), ())))


def test_a_negative_coefficient_is_refused() -> None:
    proof = Leaf((), (((("a", 1),), -1),))
    assert not check(Certificate(parse("a"), parse("0*a"), FREE, "shift", ("a",), (), proof))


def test_no_fact_is_spent_backwards() -> None:
    """Given, not taken off, 2*t - a - b - c would prove that a + b + c is never below 2*t."""
    fact = EXPERTS.facts().index(parse("2*t - a - b - c"))
    proof = Spend(1, ((0, -1),), Leaf((), ()))
    claim = Certificate(
        parse("2*t"), parse("a + b + c"), EXPERTS, "shared", ("a", "b", "c", "t"), (fact,), proof
    )
    assert not check(claim)
    assert check(replace(claim, low=claim.high, high=claim.low, proof=replace(proof, spent=((0, 1),))))
    assert not check(replace(claim, proof=replace(proof, times=0, spent=())))
