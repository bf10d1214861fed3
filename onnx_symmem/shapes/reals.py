"""Floats that come from sizes: exact quotients, single rounded products, longer computations as estimates.

A float made of sizes stays a quotient as long as at most one rounding happened, and floor, ceil and
truncation of the rounded value are those of the exact one. That holds for n / d with integers n below
2**24 (float32) or 2**53 (float64): n / d lies at least 1 / d from the next integer, which is more than
half a unit in the last place; and for powers of two at any place. A product with another scale rounds;
`scaled_floor` keeps that rounding in the expression. What fits none of these is the business of `estimates`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Any

import numpy as np
from onnx import TensorProto

from onnx_symmem.expr.expression import Expr, ceildiv, maximum, minimum, scaled_floor
from onnx_symmem.expr.scaled import is_scale
from onnx_symmem.shapes.estimates import (
    estimated_extremum,
    estimated_product,
    estimated_quotient,
    floor_between,
)
from onnx_symmem.shapes.facts import Facts
from onnx_symmem.shapes.values import Between, Estimate, Item, Real

__all__ = [
    "constant", "fits", "is_exact", "lifted", "real_ceil", "real_div", "real_extremum", "real_floor",
    "real_mul", "real_reciprocal", "real_sum", "rounded",
]  # fmt: skip

_NUMPY: dict[int, Any] = {
    TensorProto.FLOAT: np.float32,
    TensorProto.DOUBLE: np.float64,
    TensorProto.FLOAT16: np.float16,
}
ODD_LIMIT = 64  # odd factors of a size up to this keep products below 2**24 for sizes below 2**18


def _is_power_of_two(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0


def rounded(value: float, elem: int) -> float | None:
    """The value in the precision of a type."""
    return constant(lambda x: x, elem, value)


def constant(function: Callable[..., Any], elem: int, *args: float) -> float | None:
    """A function of float constants, computed in the tensor's own precision."""
    kind = _NUMPY.get(elem)
    if kind is None:
        return None
    with np.errstate(all="ignore"):
        return float(function(*(kind(a) for a in args)))


def fits(facts: Facts, expr: Expr, elem: int) -> bool:
    """Whether the integer is exact as a float, taking single sizes to be below 2**24 as Resize does."""
    if elem == TensorProto.DOUBLE:
        return True
    if elem != TensorProto.FLOAT:
        return False
    lo, hi = facts.bounds(expr)
    if lo is not None and hi is not None and lo >= -(1 << 24) and hi <= 1 << 24:
        return True
    return expr.degree() <= 1 and all(_odd_part(c) <= ODD_LIMIT for m, c in expr.terms if m)


def _odd_part(number: int) -> int:
    number = abs(number)
    return number // (number & -number) if number else 0


def lifted(item: Item) -> Real | None:
    """A float item as a quotient."""
    if isinstance(item, Real):
        return item
    if isinstance(item, float) and isfinite(item) and abs(item) < 1 << 40:
        num, den = item.as_integer_ratio()
        return Real(Expr.const(num), den)
    return None


def is_exact(real: Real) -> bool:
    """Whether no rounding has happened yet."""
    return real.scale == 1.0 and _is_power_of_two(real.den)


def _exact_pair(a: Item, b: Item) -> tuple[Real, Real] | None:
    x, y = lifted(a), lifted(b)
    return None if x is None or y is None or not is_exact(x) or not is_exact(y) else (x, y)


def _quotient(facts: Facts, num: Expr, den: int, elem: int) -> Item:
    """num / den, both exact so far, as an item; None where the numerator might have been rounded."""
    value = num.as_int()
    if value is not None and _is_power_of_two(den):
        return rounded(value / den, elem)
    return Real(num, den) if fits(facts, num, elem) else None


def real_sum(facts: Facts, elem: int, a: Item, b: Item, sign: int) -> Item:
    """a + sign*b."""
    pair = _exact_pair(a, b)
    if pair is None:
        return None
    x, y = pair
    den = max(x.den, y.den)
    return _quotient(facts, x.num * (den // x.den) + y.num * (sign * (den // y.den)), den, elem)


def real_mul(facts: Facts, elem: int, a: Item, b: Item) -> Item:
    """a * b."""
    if isinstance(a, float):
        a, b = b, a
    x, y = lifted(a), lifted(b)
    if x is None or y is None or not is_exact(x):
        return estimated_product(facts, elem, a, b)
    if not isinstance(b, float):
        if is_exact(y):
            return _quotient(facts, x.num * y.num, x.den * y.den, elem)
        return estimated_product(facts, elem, a, b)
    factor = y.num.as_int() or 0
    if factor == 0:
        return 0.0
    integer = y.den == 1 and abs(factor) <= 1 << 16
    if integer or _is_power_of_two(abs(factor)) or (elem == TensorProto.DOUBLE and abs(factor) < 1 << 16):
        den = x.den * y.den
        whole = x.num.exact_quotient(Expr.const(den))
        if whole is not None:
            return _quotient(facts, whole * factor, 1, elem)
        return _quotient(facts, x.num * factor, den, elem)
    if elem == TensorProto.FLOAT and x.den == 1 and is_scale(b):
        return Real(x.num, 1, b)
    return estimated_product(facts, elem, a, b)


def real_div(facts: Facts, elem: int, a: Item, b: Item) -> Item:
    """a / b: exact floors follow where b is an integer or a power of two."""
    pair = _exact_pair(a, b)
    if pair is None:
        return estimated_quotient(facts, elem, a, b, exact=False)
    x, y = pair
    divisor = y.num.as_int()
    # By p / 2**k, the multiple of p nearest below is not what floor finds: integers and powers of two only.
    if not divisor or (y.den > 1 and not _is_power_of_two(abs(divisor))):
        return estimated_quotient(facts, elem, a, b, exact=a != 1.0)
    num, den = x.num * y.den, x.den * abs(divisor)
    num = -num if divisor < 0 else num
    whole = num.exact_quotient(Expr.const(den))
    return _quotient(facts, num, den, elem) if whole is None else _quotient(facts, whole, 1, elem)


def real_reciprocal(facts: Facts, elem: int, item: Item) -> Item:
    """1 / item, by an operator that stays what it is."""
    if isinstance(item, float):
        return constant(np.divide, elem, 1.0, item)
    found = real_div(facts, elem, 1.0, item)
    if isinstance(found, Estimate) and _exact_pair(1.0, item) is not None:
        return estimated_quotient(facts, elem, 1.0, item, exact=True)
    return found


def real_floor(facts: Facts, elem: int, item: Item) -> Item:
    """floor(item), still a float."""
    if isinstance(item, float):
        return constant(np.floor, elem, item)
    if isinstance(item, Estimate):
        return _whole(floor_between(facts, item))
    if not isinstance(item, Real):
        return None
    if item.scale != 1.0:
        return Real(scaled_floor(item.num, item.scale))
    return Real(facts.simplify(item.num // item.den))


def _whole(found: Expr | Between | None) -> Item:
    return Real(found) if isinstance(found, Expr) else found


def real_ceil(facts: Facts, elem: int, item: Item) -> Item:
    """ceil(item), still a float."""
    if isinstance(item, float):
        return constant(np.ceil, elem, item)
    if isinstance(item, Estimate):
        return _whole(floor_between(facts, item, 1))
    if not isinstance(item, Real):
        return None
    if item.scale != 1.0:
        return Real(-scaled_floor(-item.num, item.scale))
    return Real(facts.simplify(ceildiv(item.num, item.den)))


def real_extremum(facts: Facts, elem: int, a: Item, b: Item, largest: bool) -> Item:
    """The larger or smaller of two floats."""
    pair = _exact_pair(a, b)
    if pair is None:
        return estimated_extremum(facts, elem, a, b, largest)
    x, y = pair
    den = max(x.den, y.den)
    pick = maximum if largest else minimum
    return Real(facts.simplify(pick(x.num * (den // x.den), y.num * (den // y.den))), den)
