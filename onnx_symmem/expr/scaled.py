"""Products of sizes in float32, rounded as ONNX Runtime rounds them: the rule of Resize's sizes.

    floor_f32(f1, f2, ..., fn) = floor(f1 * (f2 * (... * fn)))

A factor is a size, a decimal or a quotient of two sizes. Each is rounded to float32 once, and so is every
product, from the last to the first: floor_f32(x, 0.3) is what Resize makes of x, and floor_f32(x, 1/q, 160)
multiplies x by a scale that is 160 times a rounded reciprocal. Sizes are taken to be below 2**24, so that
float32 holds them exactly. Then a product has one form:

    a quotient is in lowest terms, a decimal is the fraction that it is in float32
    powers of two, which do not round, and signs are part of another factor
    the last two factors are joined where both are decimals, and else a decimal is the last

Rounding is monotone: the floor_f32 of the smaller of two factors is the smaller of their two floor_f32.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor, gcd
from typing import TYPE_CHECKING

import numpy as np

from onnx_symmem.errors import ExpressionError

if TYPE_CHECKING:
    from onnx_symmem.expr.expression import Expr

__all__ = [
    "LARGEST",
    "Factor",
    "Lines",
    "as_ratio",
    "canonical",
    "factor_text",
    "is_decimal",
    "is_scale",
    "lines_of",
    "product_f32",
    "unrounded",
]

LARGEST = 1 << 100  # of a size; float32 ends at 2**128
_FINEST = 60  # decimals are between 2**-60 and 2**60: no product of a few comes near float32's ends
_DIGITS = 24  # of float32, binary
_MOST_TIMES = 64  # a size below 2**18 times this is below 2**24
_MOST_SCALE = 1 << 16  # of an integer that a size is scaled by
_MOST_LOST = 120  # binary places from 1 to the least product that still has all digits

Factor = tuple["Expr | int", "Expr | int"]
"""top / bottom; constants are Python integers."""


def is_scale(decimal: float) -> bool:
    """Whether a decimal may be a factor: no nearer to 0 or infinity than 2**-60 and 2**60."""
    return 2.0**-_FINEST <= abs(decimal) <= 2.0**_FINEST


def as_ratio(decimal: float) -> tuple[int, int]:
    """A decimal as the fraction that it is in float32."""
    if decimal == 0:
        return 0, 1
    if not is_scale(decimal):
        raise ExpressionError(f"a scale of {decimal:g}: expected one between 2**-{_FINEST} and 2**{_FINEST}")
    return float(np.float32(decimal)).as_integer_ratio()


def product_f32(factors: Iterable[tuple[int, int]]) -> np.float32:
    """The product of quotients of integers in float32, the last two factors first."""
    result = np.float32(1)
    for top, bottom in reversed(list(factors)):
        if bottom == 0:
            raise ExpressionError(f"{top}/0: division by zero")
        if max(abs(top), abs(bottom)) > LARGEST:
            raise ExpressionError(f"{max(top, bottom, key=abs)}: a size beyond float32")
        with np.errstate(over="ignore", under="ignore"):
            result = np.float32(top) / np.float32(bottom) * result
    if not np.isfinite(result):
        raise ExpressionError("a product beyond float32")
    return result


def factor_text(top: Expr, bottom: Expr) -> str:
    """A factor in the syntax of expressions; a decimal is the shortest that reads back as this float32."""
    p, q = top.as_int(), bottom.as_int()
    if p is not None and q is not None:
        return str(p) if q == 1 else str(np.float32(p / q))
    if q == 1:
        return str(top)
    return "/".join(str(part) if part.is_simple else f"({part})" for part in (top, bottom))


# -- one form ------------------------------------------------------------------------------------------
def canonical(factors: Sequence[Factor]) -> list[Factor]:
    """The product in the form that the module's docstring describes; no factors if it is 0."""
    kept = [_reduced(*factor) for factor in factors]
    if any(top == 0 for top, _ in kept):
        return []
    kept = _without_powers_of_two(kept)
    while len(kept) > 1 and is_decimal(kept[-1]) and is_decimal(kept[-2]):
        kept[-2:] = [as_ratio(float(product_f32(kept[-2:])))]  # type: ignore[arg-type]
        kept = _without_powers_of_two(kept)
    kept[-2:] = sorted(kept[-2:], key=lambda f: (is_decimal(f), str(f[1]), str(f[0])))
    return kept


def is_decimal(factor: Factor) -> bool:
    """Whether the factor is a number."""
    return isinstance(factor[0], int) and isinstance(factor[1], int)


def _reduced(top: Expr | int, bottom: Expr | int) -> Factor:
    """A fraction in lowest terms; a number is rounded."""
    if isinstance(top, int) and isinstance(bottom, int):
        if bottom == 0:
            raise ExpressionError(f"{top}/0: division by zero")
        number = Fraction(top, bottom)
        whole = number.denominator == 1 and abs(number) <= 1 << _DIGITS
        return (number.numerator, 1) if whole else as_ratio(float(number))
    common = gcd(*_coefficients(top), *_coefficients(bottom))
    if _coefficients(bottom)[0] < 0:
        common = -common
    if common != 1:
        top, bottom = _constant(top // common), _constant(bottom // common)
    if not isinstance(bottom, int) and not isinstance(top, int):
        exact, inverse = top.exact_quotient(bottom), bottom.exact_quotient(top)
        if exact is not None:
            return _constant(exact), 1
        if inverse is not None:
            return 1, inverse
    return top, bottom


def _constant(part: Expr | int) -> Expr | int:
    value = part if isinstance(part, int) else part.as_int()
    return part if value is None else value


def _coefficients(part: Expr | int) -> list[int]:
    return [part] if isinstance(part, int) else [c for _, c in part.terms]


def _without_powers_of_two(factors: Sequence[Factor]) -> list[Factor]:
    """Powers of two as parts of the first other number, if there is one, and signs of numbers of a size's."""
    rest: list[Factor] = []
    p = q = sign = 1
    for top, bottom in factors:
        if not isinstance(top, int) or not isinstance(bottom, int):
            rest.append((top, bottom))
        elif _is_power_of_two(abs(top)) and _is_power_of_two(bottom):
            p, q, sign = p * abs(top), q * bottom, -sign if top < 0 else sign
        else:
            sign = -sign if top < 0 else sign
            rest.append((abs(top), bottom))
    if not rest:
        return [_reduced(p * sign, q)]
    sizes = [k for k, factor in enumerate(rest) if not is_decimal(factor)]
    numbers = [k for k, factor in enumerate(rest) if is_decimal(factor)]
    for at, top, bottom in (((numbers or sizes)[0], p, q), ((sizes or numbers)[0], sign, 1)):
        rest[at] = _reduced(rest[at][0] * top, rest[at][1] * bottom)
    return rest


def _is_power_of_two(number: int) -> bool:
    return number & (number - 1) == 0


def unrounded(product: Sequence[Factor]) -> Factor | None:
    """The fraction whose floor a canonical product has, where no rounding shows for usual sizes.

    n/d with n below 2**24 lies farther from the next integer than it is rounded; a size times a whole number
    is one.
    """
    (top, bottom), *others = product
    if not others:
        if isinstance(top, int):
            usual = abs(top) <= 1 << _DIGITS
        else:
            usual = top.degree() <= 1 and max(map(abs, _coefficients(top))) <= _MOST_TIMES
        dyadic = isinstance(bottom, int) and _is_power_of_two(bottom)
        return (top, bottom) if usual or dyadic else None
    ((times, below),) = others if len(others) == 1 else ((None, None),)
    if bottom == 1 and below == 1 and isinstance(times, int) and times <= _MOST_SCALE:
        return top * times, 1
    return None


# -- between two lines ---------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Lines:
    """low/n * size - 1 <= floor_f32 <= high/n * size wherever size >= 0."""

    size: Expr | int
    low: int
    high: int
    n: int


def lines_of(args: Sequence[Expr]) -> Lines | None:
    """The lines of a floor_f32, tops and bottoms in turn; None where it is no multiple of one size.

    Rounding a size, a quotient or a product errs by a factor within 1 +- 2**-24.
    """
    top, bottom = args[0], args[1]
    roundings, lost = -1, 0
    for k in range(0, len(args), 2):
        p, q = args[k].as_int(), args[k + 1].as_int()
        number = p is not None and q is not None
        roundings += 1 + (p is None) + (q is None) + (not number and q != 1)
        lost += _DIGITS if q is None else max(0, q.bit_length() - (p or 1).bit_length())
        if k:
            top, bottom = top * args[k], bottom * args[k + 1]
    over, under = _proportion(top, bottom)
    if not isinstance(under, int) or lost > _MOST_LOST:
        return None
    content = gcd(*_coefficients(over))
    if not content:
        return None
    exact, error, n = Fraction(content, under), Fraction(roundings, 1 << (_DIGITS - 1)), 1 << 20
    return Lines(_constant(over // content), floor(exact * (1 - error) * n), ceil(exact * (1 + error) * n), n)


def _proportion(top: Expr, bottom: Expr) -> Factor:
    """top / bottom in lowest terms, not rounded."""
    p, q = _constant(top), _constant(bottom)
    if isinstance(p, int) and isinstance(q, int):
        common = gcd(p, q)
        return p // common, q // common
    return _reduced(p, q)
