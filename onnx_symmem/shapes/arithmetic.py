"""Arithmetic on single items of followed tensors, by the rules of ONNX for each element type.

Integers and booleans are exact expressions (sizes do not overflow int64); a comparison that the domain
does not decide is still exact, as min(1, max(0, difference)). Floats are the business of `reals`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Any

import numpy as np
from onnx import TensorProto

from onnx_symmem.expr.expression import ONE, ZERO, Expr, maximum, minimum
from onnx_symmem.shapes.estimates import converted, floor_between
from onnx_symmem.shapes.facts import Facts
from onnx_symmem.shapes.growth import is_grown
from onnx_symmem.shapes.reals import (
    constant,
    fits,
    is_exact,
    lifted,
    real_ceil,
    real_div,
    real_extremum,
    real_floor,
    real_mul,
    real_reciprocal,
    real_sum,
    rounded,
)
from onnx_symmem.shapes.values import FLOAT_TYPES, Between, Estimate, Item, Real

__all__ = ["BINARY", "COMPARE", "UNARY", "Binary", "Unary", "cast", "choose", "fmod", "truth"]

Unary = Callable[[Facts, int, Item], Item]
Binary = Callable[[Facts, int, Item, Item], Item]

CHOICE = (20, 3)  # (terms, depth) of a choice between two sizes that is still worth stating


# -- unary -------------------------------------------------------------------------------------------
def _negate(_facts: Facts, _elem: int, item: Item) -> Item:
    if isinstance(item, Real):
        return Real(-item.num, item.den, item.scale)
    return -item if isinstance(item, Expr | float) else None


def _abs(facts: Facts, _elem: int, item: Item) -> Item:
    if isinstance(item, Expr):
        return facts.simplify(maximum(item, -item))
    if isinstance(item, Real):
        return item if facts.at_least(item.num, 0) and item.scale >= 0 else None
    if isinstance(item, Estimate | Between):
        return item
    return None if item is None else abs(item)


def _sqrt(_facts: Facts, elem: int, item: Item) -> Item:
    return constant(np.sqrt, elem, item) if isinstance(item, float) else None


def _reciprocal(facts: Facts, elem: int, item: Item) -> Item:
    return real_reciprocal(facts, elem, item)


def _not(_facts: Facts, _elem: int, item: Item) -> Item:
    return ONE - item if isinstance(item, Expr) else None


def _sign(facts: Facts, _elem: int, item: Item) -> Item:
    return facts.simplify(maximum(-1, minimum(1, item))) if isinstance(item, Expr) else None


UNARY: dict[str, Unary] = {
    "Neg": _negate,
    "Abs": _abs,
    "Not": _not,
    "Sign": _sign,
    "Floor": real_floor,
    "Ceil": real_ceil,
    "Sqrt": _sqrt,
    "Reciprocal": _reciprocal,
}


# -- binary ------------------------------------------------------------------------------------------
def _add(facts: Facts, elem: int, a: Item, b: Item) -> Item:
    if isinstance(a, Expr) and isinstance(b, Expr):
        return a + b
    if isinstance(a, float) and isinstance(b, float):
        return constant(np.add, elem, a, b)
    return real_sum(facts, elem, a, b, 1)


def _sub(facts: Facts, elem: int, a: Item, b: Item) -> Item:
    if isinstance(a, Expr) and isinstance(b, Expr):
        return a - b
    if isinstance(a, float) and isinstance(b, float):
        return constant(np.subtract, elem, a, b)
    return real_sum(facts, elem, a, b, -1)


def _mul(facts: Facts, elem: int, a: Item, b: Item) -> Item:
    if isinstance(a, Expr) and isinstance(b, Expr):
        return a * b
    if isinstance(a, float) and isinstance(b, float):
        return constant(np.multiply, elem, a, b)
    if elem in FLOAT_TYPES:
        return real_mul(facts, elem, a, b)
    # A known zero decides the product even where the other factor is unknown.
    return ZERO if ZERO in (a, b) else None


def _div(facts: Facts, elem: int, a: Item, b: Item) -> Item:
    """Division: true for floats; for integers towards zero, as C does."""
    if isinstance(a, float) and isinstance(b, float):
        return constant(np.divide, elem, a, b)
    if not isinstance(a, Expr) or not isinstance(b, Expr):
        return real_div(facts, elem, a, b)
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
    return facts.simplify(maximum(0, a) // b - maximum(0, -a) // b)


def _mod(facts: Facts, _elem: int, a: Item, b: Item) -> Item:
    """Mod with fmod=0: the sign of the divisor."""
    if not isinstance(a, Expr) or not isinstance(b, Expr) or not b.terms:
        return None
    return facts.simplify(a % b)


def fmod(facts: Facts, elem: int, a: Item, b: Item) -> Item:
    """Mod with fmod=1: the sign of the dividend."""
    if isinstance(a, float) and isinstance(b, float):
        return constant(np.fmod, elem, a, b)
    if not isinstance(a, Expr) or not isinstance(b, Expr):
        return None
    quotient = _div(facts, elem, a, b)
    return facts.simplify(a - b * quotient) if isinstance(quotient, Expr) else None


def _max(facts: Facts, elem: int, a: Item, b: Item) -> Item:
    if isinstance(a, Expr) and isinstance(b, Expr):
        return facts.simplify(maximum(a, b))
    if isinstance(a, float) and isinstance(b, float):
        return max(a, b)
    return real_extremum(facts, elem, a, b, True)


def _min(facts: Facts, elem: int, a: Item, b: Item) -> Item:
    if isinstance(a, Expr) and isinstance(b, Expr):
        return facts.simplify(minimum(a, b))
    if isinstance(a, float) and isinstance(b, float):
        return min(a, b)
    return real_extremum(facts, elem, a, b, False)


def _pow(_facts: Facts, elem: int, a: Item, b: Item) -> Item:
    if isinstance(a, float) and isinstance(b, float):
        return constant(np.power, elem, a, b)
    exponent = b.as_int() if isinstance(b, Expr) else None
    if isinstance(b, float) and b == int(b):
        exponent = int(b)
    return a**exponent if isinstance(a, Expr) and exponent is not None and 0 <= exponent <= 8 else None


def _and(_facts: Facts, _elem: int, a: Item, b: Item) -> Item:
    if ZERO in (a, b):
        return ZERO
    return a * b if isinstance(a, Expr) and isinstance(b, Expr) else None


def _or(_facts: Facts, _elem: int, a: Item, b: Item) -> Item:
    if ONE in (a, b):
        return ONE
    return ONE - (ONE - a) * (ONE - b) if isinstance(a, Expr) and isinstance(b, Expr) else None


def _xor(_facts: Facts, _elem: int, a: Item, b: Item) -> Item:
    return a + b - 2 * (a * b) if isinstance(a, Expr) and isinstance(b, Expr) else None


BINARY: dict[str, Binary] = {
    "Add": _add,
    "Sub": _sub,
    "Mul": _mul,
    "Div": _div,
    "Mod": _mod,
    "Max": _max,
    "Min": _min,
    "Pow": _pow,
    "And": _and,
    "Or": _or,
    "Xor": _xor,
    "Sum": _add,
}


# -- comparison and choice ---------------------------------------------------------------------------
def truth(facts: Facts, positive: Expr) -> Expr:
    """1 where the integer is positive, else 0."""
    return facts.simplify(minimum(1, maximum(0, positive)))


def _compare(sign: int, offset: int) -> Binary:
    """A comparison of a and b that holds where sign*(b - a) + offset > 0."""

    def apply(facts: Facts, _elem: int, a: Item, b: Item) -> Item:
        if isinstance(a, Expr) and isinstance(b, Expr):
            return truth(facts, (b - a) * sign + offset)
        if isinstance(a, float) and isinstance(b, float):
            gap = (b - a) * sign
            return Expr.const(int(gap > 0 or (offset == 1 and gap == 0)))
        x, y = lifted(a), lifted(b)
        if x is None or y is None or not is_exact(x) or not is_exact(y):
            return None
        den = max(x.den, y.den)
        return truth(facts, (y.num * (den // y.den) - x.num * (den // x.den)) * sign + offset)

    return apply


def _equal(facts: Facts, _elem: int, a: Item, b: Item) -> Item:
    if isinstance(a, Expr) and isinstance(b, Expr):
        gap = a - b
        return ONE if not gap.terms else facts.simplify(ONE - truth(facts, maximum(gap, -gap)))
    if isinstance(a, float) and isinstance(b, float):
        return Expr.const(int(a == b))
    return None


COMPARE: dict[str, Binary] = {
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
        picks: tuple[tuple[Expr, Any], ...] = ((no - yes, minimum), (yes - no, maximum))
        for gap, pick in picks:
            if other in (maximum(0, gap), maximum(0, gap + 1)):
                return facts.simplify(pick(yes, no))
    mixed = no + condition * (yes - no)
    return None if is_grown(mixed, *CHOICE) else facts.simplify(mixed)


def cast(facts: Facts, source: int, target: int, item: Item) -> Item:
    """Cast between the followed types; integers narrow only where they are known to fit."""
    if item is None:
        return None
    if target in FLOAT_TYPES:
        return _to_float(facts, source, target, item)
    if target == TensorProto.BOOL:
        if isinstance(item, Expr):
            return truth(facts, maximum(item, -item)) if source != TensorProto.BOOL else item
        return Expr.const(int(item != 0.0)) if isinstance(item, float) else None
    if isinstance(item, Expr):
        return item if _in_range(facts, item, target) else None
    if isinstance(item, float):
        return Expr.const(int(item)) if isfinite(item) else None
    if isinstance(item, Between):
        return item
    if isinstance(item, Estimate):
        return floor_between(facts, item)
    if facts.at_least(item.num, 0) and item.scale >= 0:
        whole = real_floor(facts, source, item)
        return whole.num if isinstance(whole, Real) else None
    return item.num if is_exact(item) and item.den == 1 else None


def _to_float(facts: Facts, source: int, target: int, item: Item) -> Item:
    if isinstance(item, float):
        return rounded(item, target)
    if isinstance(item, Real):
        return item if target == source or (target == TensorProto.DOUBLE and is_exact(item)) else None
    if isinstance(item, Estimate):
        return converted(item, source, target)
    if not isinstance(item, Expr):
        return None
    value = item.as_int()
    if value is not None:
        return rounded(value, target)
    return Real(item) if fits(facts, item, target) else None


def _in_range(facts: Facts, item: Expr, target: int) -> bool:
    """Whether an integer survives the cast; sizes are taken to fit 32 bits."""
    if target in (TensorProto.INT64, TensorProto.INT32):
        return True
    lo, hi = facts.bounds(item)
    if lo is None:
        return False
    if target in (TensorProto.UINT32, TensorProto.UINT64):
        return lo >= 0
    signed: dict[int, int] = {TensorProto.INT8: 127, TensorProto.INT16: 32767}
    unsigned: dict[int, int] = {TensorProto.UINT8: 255, TensorProto.UINT16: 65535}
    if target in signed:
        return hi is not None and hi <= signed[target] and lo >= -signed[target] - 1
    return hi is not None and hi <= unsigned.get(target, -1) and lo >= 0
