"""Arithmetic on single items of followed tensors, by the rules of ONNX for each element type.

Integers: exact expressions (sizes do not overflow int64). Floats: constants are computed in their own
precision; a float that comes from sizes stays a quotient as long as at most one rounding happened and
floor, ceil and truncation of the rounded value are those of the exact one. That holds for n / d with
integers n below 2**24 (float32) or 2**53 (float64) [n/d lies at least 1/d from the next integer, more
than half a unit in the last place], and for powers of two at any place. A product with another scale
rounds; `scaled_floor` keeps that rounding in the expression. What fits none of these is unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Any

import numpy as np
from onnx import TensorProto

from onnx_symmem.expr.expression import ONE, ZERO, Expr, ceildiv, maximum, minimum, scaled_floor
from onnx_symmem.shapes.facts import Facts
from onnx_symmem.shapes.growth import is_grown
from onnx_symmem.shapes.values import FLOAT_TYPES, Item, Real

__all__ = ["BINARY", "COMPARE", "UNARY", "cast", "choose", "negate", "truth"]

_NUMPY: dict[int, Any] = {
    TensorProto.FLOAT: np.float32, TensorProto.DOUBLE: np.float64, TensorProto.FLOAT16: np.float16,
}  # fmt: skip
CHOICE = (20, 3)  # (terms, depth) of a choice between two sizes that is still worth stating
_ODD_LIMIT = 64  # odd factors of a size up to this keep products below 2**24 for sizes below 2**18


def _is_power_of_two(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0


def _rounded(value: Any, elem: int) -> float | None:
    kind = _NUMPY.get(elem)
    if kind is None:
        return None
    with np.errstate(all="ignore"):
        return float(kind(value))


def _constant(function: Callable[..., Any], elem: int, *args: float) -> float | None:
    """A function of float constants, computed in the tensor's own precision."""
    kind = _NUMPY.get(elem)
    if kind is None:
        return None
    with np.errstate(all="ignore"):
        return float(function(*(kind(a) for a in args)))


def _fits(facts: Facts, expr: Expr, elem: int) -> bool:
    """Whether the integer is exact as a float, taking single sizes to be below 2**24 as Resize does."""
    if elem == TensorProto.DOUBLE:
        return True
    if elem != TensorProto.FLOAT:
        return False
    lo, hi = facts.bounds(expr)
    if lo is not None and hi is not None and lo >= -(1 << 24) and hi <= 1 << 24:
        return True
    return expr.degree() <= 1 and all(_odd(c) <= _ODD_LIMIT for m, c in expr.terms if m)


def _odd(number: int) -> int:
    number = abs(number)
    return number // (number & -number) if number else 0


# -- reals -------------------------------------------------------------------------------------------
def _lift(item: Item) -> Real | None:
    """A quotient form of a float item; integers only, for constants."""
    if isinstance(item, Real):
        return item
    if isinstance(item, float) and isfinite(item) and abs(item) < 1 << 40:
        num, den = item.as_integer_ratio()
        return Real(Expr.const(num), den)
    return None


def _exact(real: Real) -> bool:
    return real.scale == 1.0 and _is_power_of_two(real.den)


def _simple(facts: Facts, num: Expr, den: int, elem: int) -> Item:
    """num / den, both exact so far, as an item; None where the numerator might have been rounded."""
    value = num.as_int()
    if value is not None and _is_power_of_two(den):
        return _rounded(value / den, elem)
    return Real(num, den) if _fits(facts, num, elem) else None


def _real_add(facts: Facts, elem: int, a: Item, b: Item, sign: int) -> Item:
    x, y = _lift(a), _lift(b)
    if x is None or y is None or not _exact(x) or not _exact(y):
        return None
    den = max(x.den, y.den)
    return _simple(facts, x.num * (den // x.den) + y.num * (sign * (den // y.den)), den, elem)


def _real_mul(facts: Facts, elem: int, a: Item, b: Item) -> Item:
    if isinstance(a, float):
        a, b = b, a
    x = _lift(a)
    if x is None or not _exact(x):
        return None
    if isinstance(b, float):
        y = _lift(b)
        if y is None:
            return None
        factor = y.num.as_int() or 0
        if factor == 0:
            return 0.0
        small = y.den == 1 and abs(factor) <= 1 << 16
        if small or _is_power_of_two(abs(factor)) or (elem == TensorProto.DOUBLE and abs(factor) < 1 << 16):
            den = x.den * y.den
            whole = x.num.exact_quotient(Expr.const(den))
            scaled = x.num * factor if whole is None else whole * factor
            return _simple(facts, scaled, den if whole is None else 1, elem)
        if elem == TensorProto.FLOAT and x.den == 1:
            return Real(x.num, 1, b)
        return None
    y = _lift(b)
    if y is None or not _exact(y):
        return None
    return _simple(facts, x.num * y.num, x.den * y.den, elem)


def _real_div(facts: Facts, elem: int, a: Item, b: Item) -> Item:
    x, y = _lift(a), _lift(b)
    if x is None or y is None or not _exact(x) or not _exact(y):
        return None
    divisor = y.num.as_int()
    if not divisor:
        return None
    num, den = x.num * y.den, x.den * abs(divisor)
    if divisor < 0:
        num = -num
    whole = num.exact_quotient(Expr.const(den))
    if whole is not None:
        return _simple(facts, whole, 1, elem)
    return _simple(facts, num, den, elem)


def _real_floor(facts: Facts, elem: int, item: Item) -> Item:
    if isinstance(item, float):
        return _constant(np.floor, elem, item)
    if not isinstance(item, Real):
        return None
    if item.scale != 1.0:
        return Real(scaled_floor(item.num, item.scale))
    return Real(facts.simplify(item.num // item.den))


def _real_ceil(facts: Facts, elem: int, item: Item) -> Item:
    if isinstance(item, float):
        return _constant(np.ceil, elem, item)
    if not isinstance(item, Real):
        return None
    if item.scale != 1.0:
        return Real(-scaled_floor(-item.num, item.scale))
    return Real(facts.simplify(ceildiv(item.num, item.den)))


def _real_extremum(facts: Facts, elem: int, a: Item, b: Item, pick: Callable[..., Expr]) -> Item:
    x, y = _lift(a), _lift(b)
    if x is None or y is None or not _exact(x) or not _exact(y):
        return None
    den = max(x.den, y.den)
    return Real(facts.simplify(pick(x.num * (den // x.den), y.num * (den // y.den))), den)


# -- unary -------------------------------------------------------------------------------------------
def negate(facts: Facts, elem: int, item: Item) -> Item:
    """-item."""
    if isinstance(item, Real):
        return Real(-item.num, item.den, item.scale)
    return None if item is None else -item


def _abs(facts: Facts, elem: int, item: Item) -> Item:
    if isinstance(item, Expr):
        return facts.simplify(maximum(item, -item))
    if isinstance(item, Real):
        return item if facts.at_least(item.num, 0) and item.scale >= 0 else None
    return None if item is None else abs(item)


def _float_function(function: Callable[..., Any]) -> Callable[[Facts, int, Item], Item]:
    def apply(facts: Facts, elem: int, item: Item) -> Item:
        return _constant(function, elem, item) if isinstance(item, float) else None

    return apply


def _reciprocal(facts: Facts, elem: int, item: Item) -> Item:
    return _div(facts, elem, 1.0, item)


def _not(facts: Facts, elem: int, item: Item) -> Item:
    return ONE - item if isinstance(item, Expr) else None


def _sign(facts: Facts, elem: int, item: Item) -> Item:
    if isinstance(item, Expr):
        return facts.simplify(maximum(-1, minimum(1, item)))
    return None


UNARY: dict[str, Callable[[Facts, int, Item], Item]] = {
    "Neg": negate,
    "Abs": _abs,
    "Not": _not,
    "Sign": _sign,
    "Floor": _real_floor,
    "Ceil": _real_ceil,
    "Sqrt": _float_function(np.sqrt),
    "Reciprocal": _reciprocal,
}


# -- binary ------------------------------------------------------------------------------------------
def _add(facts: Facts, elem: int, a: Item, b: Item) -> Item:
    if isinstance(a, Expr) and isinstance(b, Expr):
        return a + b
    if isinstance(a, float) and isinstance(b, float):
        return _constant(np.add, elem, a, b)
    return _real_add(facts, elem, a, b, 1)


def _sub(facts: Facts, elem: int, a: Item, b: Item) -> Item:
    if isinstance(a, Expr) and isinstance(b, Expr):
        return a - b
    if isinstance(a, float) and isinstance(b, float):
        return _constant(np.subtract, elem, a, b)
    return _real_add(facts, elem, a, b, -1)


def _mul(facts: Facts, elem: int, a: Item, b: Item) -> Item:
    if isinstance(a, Expr) and isinstance(b, Expr):
        return a * b
    if isinstance(a, float) and isinstance(b, float):
        return _constant(np.multiply, elem, a, b)
    if elem in FLOAT_TYPES:
        return _real_mul(facts, elem, a, b)
    # A known zero decides the product even where the other factor is unknown.
    return ZERO if ZERO in (a, b) else None


def _div(facts: Facts, elem: int, a: Item, b: Item) -> Item:
    """Division: true for floats; for integers towards zero, as C does."""
    if isinstance(a, float) and isinstance(b, float):
        return _constant(np.divide, elem, a, b)
    if not isinstance(a, Expr) or not isinstance(b, Expr):
        return _real_div(facts, elem, a, b)
    if not b.terms:
        return None
    exact = a.exact_quotient(b)
    if exact is not None:
        return exact
    # Division by a size presumes it is not zero, so a size >= 0 is as good as one > 0.
    if not facts.at_least(b, 0):
        if not facts.at_least(-b, 0):
            return None
        a, b = -a, -b
    if facts.at_least(a, 0):
        return facts.simplify(a // b)
    if facts.at_least(-a, 0):
        return facts.simplify(-((-a) // b))
    return None


def _mod(facts: Facts, elem: int, a: Item, b: Item) -> Item:
    """Mod with fmod=0: the sign of the divisor."""
    if not isinstance(a, Expr) or not isinstance(b, Expr) or not b.terms:
        return None
    return facts.simplify(a % b)


def fmod(facts: Facts, elem: int, a: Item, b: Item) -> Item:
    """Mod with fmod=1: the sign of the dividend."""
    if isinstance(a, float) and isinstance(b, float):
        return _constant(np.fmod, elem, a, b)
    quotient = _div(facts, elem, a, b) if isinstance(a, Expr) and isinstance(b, Expr) else None
    if not isinstance(quotient, Expr) or not isinstance(a, Expr) or not isinstance(b, Expr):
        return None
    return facts.simplify(a - b * quotient)


def _max(facts: Facts, elem: int, a: Item, b: Item) -> Item:
    if isinstance(a, Expr) and isinstance(b, Expr):
        return facts.simplify(maximum(a, b))
    if isinstance(a, float) and isinstance(b, float):
        return max(a, b)
    return _real_extremum(facts, elem, a, b, maximum)


def _min(facts: Facts, elem: int, a: Item, b: Item) -> Item:
    if isinstance(a, Expr) and isinstance(b, Expr):
        return facts.simplify(minimum(a, b))
    if isinstance(a, float) and isinstance(b, float):
        return min(a, b)
    return _real_extremum(facts, elem, a, b, minimum)


def _pow(facts: Facts, elem: int, a: Item, b: Item) -> Item:
    if isinstance(a, float) and isinstance(b, float):
        return _constant(np.power, elem, a, b)
    exponent = b.as_int() if isinstance(b, Expr) else int(b) if isinstance(b, float) and b == int(b) else None
    if isinstance(a, Expr) and exponent is not None and 0 <= exponent <= 8:
        return a**exponent
    return None


def _and(facts: Facts, elem: int, a: Item, b: Item) -> Item:
    if ZERO in (a, b):
        return ZERO
    return a * b if isinstance(a, Expr) and isinstance(b, Expr) else None


def _or(facts: Facts, elem: int, a: Item, b: Item) -> Item:
    if ONE in (a, b):
        return ONE
    return ONE - (ONE - a) * (ONE - b) if isinstance(a, Expr) and isinstance(b, Expr) else None


def _xor(facts: Facts, elem: int, a: Item, b: Item) -> Item:
    return a + b - 2 * (a * b) if isinstance(a, Expr) and isinstance(b, Expr) else None


BINARY: dict[str, Callable[[Facts, int, Item, Item], Item]] = {
    "Add": _add, "Sub": _sub, "Mul": _mul, "Div": _div, "Mod": _mod, "Max": _max, "Min": _min,
    "Pow": _pow, "And": _and, "Or": _or, "Xor": _xor, "Sum": _add,
}  # fmt: skip


# -- comparison and choice ---------------------------------------------------------------------------
def truth(facts: Facts, positive: Expr) -> Expr:
    """1 where the integer is positive, else 0."""
    return facts.simplify(minimum(1, maximum(0, positive)))


def _compare(sign: int, offset: int) -> Callable[[Facts, int, Item, Item], Item]:
    """a ? b as `sign * (b - a) + offset > 0`."""

    def apply(facts: Facts, elem: int, a: Item, b: Item) -> Item:
        if isinstance(a, Expr) and isinstance(b, Expr):
            return truth(facts, (b - a) * sign + offset)
        if isinstance(a, float) and isinstance(b, float):
            gap = (b - a) * sign
            return Expr.const(int(gap > 0 or (offset == 1 and gap == 0)))
        x, y = _lift(a), _lift(b)
        if x is None or y is None or not _exact(x) or not _exact(y):
            return None
        den = max(x.den, y.den)
        return truth(facts, (y.num * (den // y.den) - x.num * (den // x.den)) * sign + offset)

    return apply


def _equal(facts: Facts, elem: int, a: Item, b: Item) -> Item:
    if isinstance(a, Expr) and isinstance(b, Expr):
        gap = a - b
        return ONE if not gap.terms else facts.simplify(ONE - truth(facts, maximum(gap, -gap)))
    if isinstance(a, float) and isinstance(b, float):
        return Expr.const(int(a == b))
    return None


COMPARE: dict[str, Callable[[Facts, int, Item, Item], Item]] = {
    "Less": _compare(1, 0),
    "LessOrEqual": _compare(1, 1),
    "Greater": _compare(-1, 0),
    "GreaterOrEqual": _compare(-1, 1),
    "Equal": _equal,
}


def choose(facts: Facts, condition: Item, yes: Item, no: Item) -> Item:
    """`yes` where the condition is 1, else `no`; exact also where the condition depends on the shape."""
    if yes is no or yes == no:
        return yes
    if not isinstance(condition, Expr):
        return None
    decided = condition.as_int()
    if decided is not None:
        return yes if decided else no
    if not isinstance(yes, Expr) or not isinstance(no, Expr):
        return None
    atom = condition.as_atom()
    if atom is not None and atom.kind == "min" and len(atom.args) == 2 and ONE in atom.args:
        # min(1, max(0, e)) with e = no - yes: the smaller operand is taken; e = yes - no: the larger.
        other = atom.args[0] if atom.args[1] == ONE else atom.args[1]
        for gap, pick in ((no - yes, minimum), (yes - no, maximum)):
            if other == maximum(0, gap) or other == maximum(0, gap + 1):
                return facts.simplify(pick(yes, no))
    mixed = no + condition * (yes - no)
    return None if is_grown(mixed, *CHOICE) else facts.simplify(mixed)


def cast(facts: Facts, source: int, target: int, item: Item) -> Item:
    """Cast between the followed types; integers narrow without loss only where they are known to fit."""
    if item is None:
        return None
    if target in FLOAT_TYPES:
        if isinstance(item, float):
            return _rounded(item, target)
        if isinstance(item, Real):
            return item if target == source or (target == TensorProto.DOUBLE and _exact(item)) else None
        value = item.as_int()
        if value is not None:
            return _rounded(value, target)
        return Real(item) if _fits(facts, item, target) else None
    if target == TensorProto.BOOL:
        if isinstance(item, Expr):
            return truth(facts, maximum(item, -item)) if source != TensorProto.BOOL else item
        return Expr.const(int(item != 0.0)) if isinstance(item, float) else None
    if isinstance(item, Expr):
        return item if _in_range(facts, item, target) else None
    if isinstance(item, float):
        return Expr.const(int(item)) if isfinite(item) else None
    if not facts.at_least(item.num, 0) or item.scale < 0:
        return item.num if _exact(item) and item.den == 1 else None
    whole = _real_floor(facts, source, item)
    return whole.num if isinstance(whole, Real) else None


def _in_range(facts: Facts, item: Expr, target: int) -> bool:
    """Whether an integer survives the cast; sizes are taken to fit 32 bits."""
    if target in (TensorProto.INT64, TensorProto.INT32):
        return True
    lo, hi = facts.bounds(item)
    if lo is None or (lo < 0 and target in (TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32)):
        return False
    if target in (TensorProto.UINT32, TensorProto.UINT64):
        return lo >= 0
    limits: dict[int, int] = {
        TensorProto.INT8: 127,
        TensorProto.UINT8: 255,
        TensorProto.INT16: 32767,
        TensorProto.UINT16: 65535,
    }
    most = limits.get(target, -1)
    return hi is not None and hi <= most and lo >= -most - 1
