"""Decimal scales of sizes: up to which size float32 rounds a product as a small fraction would.

A Resize by 0.6 computes floor(float32(x) * float32(0.6)). For all x below 3,495,258 that is (3*x)//5; above,
it is sometimes one less. A size that is stated as the fraction is one that every tool can read and that the
algebra can reason about, but it holds only up to that x. The first x at which the two differ is found by
comparing them for every x, once per scale.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np

from onnx_symmem.expr.atom import SCALED_FLOOR, SYMBOL, Atom
from onnx_symmem.expr.expression import Expr, ceildiv, rebuild

__all__ = ["FractionScale", "as_fractions", "fraction_of", "has_scales"]

EXACT = 1 << 24  # integers up to here are exact in float32
WORTHWHILE = 1 << 20  # a fraction that holds for fewer sizes is of no use
MAX_DENOMINATOR = 1024
_BLOCK = 1 << 18


@dataclass(frozen=True, slots=True)
class FractionScale:
    """p/q stands for a float32 scale for all sizes below `until`, the first one that rounds otherwise."""

    p: int
    q: int
    until: int


@cache
def fraction_of(scale: float, up: bool = False) -> FractionScale | None:
    """The fraction for a positive scale, rounding down or `up`; None where no small one holds for long."""
    single = np.float32(scale)
    fraction = Fraction(float(single)).limit_denominator(MAX_DENOMINATOR)
    p, q = fraction.numerator, fraction.denominator
    if p < 1 or np.float32(p / q) != single:
        return None
    until = _first_difference(p, q, single, up)
    return FractionScale(p, q, until) if until >= WORTHWHILE else None


def _first_difference(p: int, q: int, single: np.float32, up: bool) -> int:
    """The least x, at most 2**24, at which rounding x*single is not rounding x*p/q."""
    for start in range(0, EXACT, _BLOCK):
        sizes = np.arange(start, start + _BLOCK, dtype=np.int64)
        product = sizes.astype(np.float32) * single
        found = (np.ceil(product) if up else np.floor(product)).astype(np.int64) * q
        exact = sizes * p + (q - 1 if up else 0)
        wrong = np.flatnonzero((found > exact) | (found <= exact - q))
        if wrong.size:
            return start + int(wrong[0])
    return EXACT


def _scale_of(atom: Atom) -> float | None:
    """The scale of an atom that is the floor of one size times a decimal."""
    if atom.kind != SCALED_FLOOR or len(atom.args) != 4 or atom.args[1] != 1:
        return None
    top, bottom = (part.as_int() for part in atom.args[2:])
    return None if top is None or bottom is None else top / bottom


def has_scales(expr: Expr) -> bool:
    """Whether a float32 floor stands anywhere in the expression."""
    return any(a.kind == SCALED_FLOOR or any(map(has_scales, a.args)) for a in expr.atoms())


def as_fractions(expr: Expr, allowed: Callable[[Expr, FractionScale], bool]) -> Expr:
    """The expression with fractions for float32 floors of sizes, where `allowed(size, fraction)`.

    A floor of -x stands for x rounded up.
    """

    def changed(atom: Atom) -> Expr:
        if atom.kind == SYMBOL:
            return Expr.of(atom)
        args = tuple(as_fractions(arg, allowed) for arg in atom.args)
        scale = _scale_of(atom)
        if scale is None:
            return rebuild(atom, args)
        size, up = (-args[0], True) if args[0].terms[0][1] < 0 else (args[0], False)
        fraction = fraction_of(scale, up)
        if fraction is None or not allowed(size, fraction):
            return rebuild(atom, args)
        whole = size * fraction.p
        return -ceildiv(whole, fraction.q) if up else whole // fraction.q

    return expr.map_atoms(changed) if has_scales(expr) else expr
