"""Floats that come from sizes by several roundings: not exact any more, but within one of the exact size.

Detection models scale an image by min(a / min(h, w), b / max(h, w)) in float32 and round the size down. No
expression states that to the last bit. The quotient of the exact numbers is off by a few units in the
last place, which is less than 1 for sizes below 2**20, so the rounded size is the exact floor, or one
more or less.
"""

from __future__ import annotations

from onnx import TensorProto

from onnx_symmem.expr.expression import ZERO, Expr, maximum, minimum
from onnx_symmem.shapes.facts import Facts
from onnx_symmem.shapes.values import Between, Estimate, Item, Real

__all__ = [
    "PRECISE",
    "estimate_of",
    "estimated_extremum",
    "estimated_product",
    "estimated_quotient",
    "floor_between",
]

PRECISE = (TensorProto.FLOAT, TensorProto.DOUBLE)
MAX_OPTIONS = 4


def estimate_of(facts: Facts, item: Item) -> Estimate | None:
    """A non-negative float as an estimate."""
    if isinstance(item, Estimate):
        return item
    if isinstance(item, float) and 0.0 <= item < 1 << 40:
        num, den = item.as_integer_ratio()
        return Estimate(((Expr.const(num), Expr.const(den)),))
    if isinstance(item, Real) and item.scale == 1.0 and facts.at_least(item.num, 0):
        return Estimate(((item.num, Expr.const(item.den)),))
    return None


def estimated_product(facts: Facts, elem: int, a: Item, b: Item) -> Estimate | None:
    """a * b; one of them has a single option."""
    x, y = estimate_of(facts, a), estimate_of(facts, b)
    if x is None or y is None or elem not in PRECISE or min(len(x.options), len(y.options)) > 1:
        return None
    if len(x.options) == 1:
        x, y = y, x
    ((num, den),) = y.options
    return Estimate(tuple((n * num, d * den) for n, d in x.options), x.largest)


def estimated_quotient(facts: Facts, elem: int, a: Item, b: Item) -> Estimate | None:
    """a / b for positive b."""
    x, y = estimate_of(facts, a), estimate_of(facts, b)
    if x is None or y is None or elem not in PRECISE or len(y.options) > 1:
        return None
    ((num, den),) = y.options
    if not facts.at_least(num, 1):
        return None
    return Estimate(tuple((n * den, d * num) for n, d in x.options), x.largest)


def estimated_extremum(facts: Facts, a: Item, b: Item, largest: bool) -> Estimate | None:
    """The larger or smaller of two floats."""
    x, y = estimate_of(facts, a), estimate_of(facts, b)
    if x is None or y is None:
        return None
    options = (*x.options, *y.options)
    if len(options) > MAX_OPTIONS or any(len(e.options) > 1 and e.largest != largest for e in (x, y)):
        return None
    return Estimate(options, largest)


def floor_between(facts: Facts, item: Estimate, up: int = 0) -> Between | None:
    """floor(item), or with `up` 1 ceil(item)."""
    floors = [num // den for num, den in item.options if facts.at_least(den, 1)]
    if len(floors) < len(item.options):
        return None
    pick = maximum if item.largest else minimum
    exact = facts.simplify(pick(*floors))
    return Between(facts.simplify(maximum(ZERO, exact - 1)), exact + 1 + up)
