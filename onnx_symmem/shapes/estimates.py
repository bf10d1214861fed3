"""Floats that come from sizes by several roundings, and the sizes that they are rounded to.

Detection models scale an image by min(a / min(h, w), b / max(h, w)) in float32 and round the size down. As
long as every step is a quotient of exact numbers or a product with one, the roundings are those of
`scaled_floor`, and the size is exact; as they are monotone, the smaller of two is taken last.

Where a step is neither, the quotient of the exact numbers is off by a few units in the last place, which is
less than 1 for sizes below 2**20, so the rounded size is the exact floor, or one more or less.

    1 / q from Div   ONNX Runtime's optimiser makes (1 / q) * p one division where it can, which rounds
                     otherwise: both have to hold. Reciprocal(q) * p it leaves as it is.
"""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from onnx_symmem.expr.expression import ONE, ZERO, Expr, maximum, minimum, scaled_floor
from onnx_symmem.expr.scaled import is_scale
from onnx_symmem.shapes.facts import Facts
from onnx_symmem.shapes.values import Between, Estimate, Item, Option, Real

__all__ = [
    "PRECISE",
    "converted",
    "estimate_of",
    "estimated_extremum",
    "estimated_product",
    "estimated_quotient",
    "floor_between",
    "whole_of",
]

PRECISE = (TensorProto.FLOAT, TensorProto.DOUBLE)
MAX_OPTIONS = 4
MAX_FACTORS = 4

Factors = tuple[tuple[Expr, Expr], ...]


def estimate_of(facts: Facts, elem: int, item: Item) -> Estimate | None:
    """A non-negative float as an estimate."""
    if isinstance(item, Estimate):
        return item
    if isinstance(item, float) and 0.0 <= item < 1 << 40:
        num, den = map(Expr.const, item.as_integer_ratio())
        return Estimate((Option(num, den, _single(elem, num, den) if is_scale(item) else ()),))
    if isinstance(item, Real) and facts.at_least(item.num, 0):
        num, den = item.num, Expr.const(item.den)
        if item.scale == 1.0:
            exact = float(np.float32(item.den)) == item.den
            return Estimate((Option(num, den, _single(elem, num, den) if exact else ()),))
        if is_scale(item.scale) and item.scale > 0 and item.den == 1:
            top, bottom = map(Expr.const, item.scale.as_integer_ratio())
            return Estimate((Option(num * top, bottom, ((num, ONE), (top, bottom))),))
    return None


def _single(elem: int, num: Expr, den: Expr) -> Factors:
    return ((num, den),) if elem == TensorProto.FLOAT else ()


def converted(item: Estimate, source: int, target: int) -> Estimate | None:
    """An estimate cast to another type."""
    if target == source:
        return item
    if target not in PRECISE:
        return None
    return Estimate(tuple(Option(o.num, o.den) for o in item.options), item.largest)


def estimated_product(facts: Facts, elem: int, a: Item, b: Item) -> Estimate | None:
    """a * b; one of them has a single option."""
    x, y = estimate_of(facts, elem, a), estimate_of(facts, elem, b)
    if x is None or y is None or elem not in PRECISE or min(len(x.options), len(y.options)) > 1:
        return None
    if len(x.options) == 1:
        x, y = y, x
    (other,) = y.options
    return Estimate(tuple(_multiplied(option, other) for option in x.options), x.largest)


def _multiplied(a: Option, b: Option) -> Option:
    """The product: of a single factor and others the roundings are known, of several and several not."""
    x, y = sorted((a.factors, b.factors), key=len)
    known = len(x) == 1 and len(y) < MAX_FACTORS
    return Option(a.num * b.num, a.den * b.den, x + y if known else ())


def estimated_quotient(facts: Facts, elem: int, a: Item, b: Item, exact: bool) -> Estimate | None:
    """a / b for positive b; `exact` says that neither was rounded before."""
    x, y = estimate_of(facts, elem, a), estimate_of(facts, elem, b)
    if x is None or y is None or elem not in PRECISE or len(y.options) > 1:
        return None
    (by,) = y.options
    if not facts.at_least(by.num, 1):
        return None
    options = []
    for option in x.options:
        num, den = option.num * by.den, option.den * by.num
        options.append(Option(num, den, _single(elem, num, den) if exact else ()))
    return Estimate(tuple(options), x.largest)


def estimated_extremum(facts: Facts, elem: int, a: Item, b: Item, largest: bool) -> Estimate | None:
    """The larger or smaller of two floats."""
    x, y = estimate_of(facts, elem, a), estimate_of(facts, elem, b)
    if x is None or y is None:
        return None
    options = (*x.options, *y.options)
    if len(options) > MAX_OPTIONS or any(len(e.options) > 1 and e.largest != largest for e in (x, y)):
        return None
    return Estimate(options, largest)


def whole_of(facts: Facts, item: Estimate, *times: tuple[Expr, Expr], up: bool = False) -> Expr | None:
    """floor(item), or ceil, of `times` the item in float32; None where a rounding is not known."""
    sizes = []
    for option in item.options:
        factors = (*times, *option.factors)
        positive = all(facts.at_least(num, 0) and facts.at_least(den, 1) for num, den in factors)
        if not option.factors or not positive:
            return None
        if up:
            ((num, den), *others) = factors
            sizes.append(-scaled_floor((-num, den), *others))
        else:
            sizes.append(scaled_floor(*factors))
    return facts.simplify((maximum if item.largest else minimum)(*sizes))


def floor_between(facts: Facts, item: Estimate, up: int = 0) -> Expr | Between | None:
    """floor(item), or with `up` 1 ceil(item): a size, or what it is between."""
    whole = whole_of(facts, item, up=bool(up))
    if whole is not None:
        return whole
    floors = [o.num // o.den for o in item.options if facts.at_least(o.den, 1)]
    if len(floors) < len(item.options):
        return None
    pick = maximum if item.largest else minimum
    exact = facts.simplify(pick(*floors))
    return Between(facts.simplify(maximum(ZERO, exact - 1)), exact + 1 + up)
