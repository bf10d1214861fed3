"""Division of sums of terms: exact quotients, whole multiples, and factors that cancel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd

from onnx_symmem.expr.atom import (
    Monomial,
    Term,
    common_monomial,
    monomial_order,
    monomial_over,
    monomial_times,
)

__all__ = ["cancelled", "exact_quotient", "whole_part"]

Terms = dict[Monomial, int]


def exact_quotient(top: Sequence[Term], bottom: Sequence[Term]) -> Terms | None:
    """q with q * bottom == top as polynomials; None where there is none. Both are in canonical order."""
    lead, lead_c = bottom[0]
    rest: Terms = dict(top)
    quotient: Terms = {}
    for _ in range(len(top) * 4 + 4):
        if not rest:
            return quotient
        mono, c = min(rest.items(), key=monomial_order)
        over = monomial_over(mono, lead)
        if over is None or c % lead_c:
            return None
        times = c // lead_c
        quotient[over] = quotient.get(over, 0) + times
        for m, k in bottom:
            product = monomial_times(over, m)
            left = rest.get(product, 0) - times * k
            if left:
                rest[product] = left
            else:
                del rest[product]
    return None


def whole_part(terms: Sequence[Term], mono: Monomial, c: int) -> tuple[Terms, Terms]:
    """(q, r) with terms == q * c*mono + r, where every coefficient of r that mono divides is in 0..c-1."""
    whole: Terms = {}
    rest: Terms = {}
    for m, k in terms:
        over = monomial_over(m, mono)
        if over is None:
            rest[m] = k
            continue
        if k // c:
            whole[over] = k // c
        if k % c:
            rest[m] = k % c
    return whole, rest


def cancelled(terms: Mapping[Monomial, int], mono: Monomial, c: int) -> tuple[Terms, Monomial, int]:
    """terms and c*mono without common factors; by a number, the constant is rounded down."""
    common = common_monomial([*terms, mono])
    below = monomial_over(mono, common) or ()
    factor = gcd(c, *(k for m, k in terms.items() if below or m != common))
    return {monomial_over(m, common) or (): k // factor for m, k in terms.items()}, below, c // factor
