"""Maxima and minima of sizes inside one another, as one maximum of minima that is as short as can be.

A pool after a pool after a pool would pile up extrema. What they are made of keeps the order of sizes, so it
goes inside: f(max(a, b)) = max(f(a), f(b)); and in a maximum of minima, a minimum that another one is never
below takes no part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import prod
from typing import TypeVar

from onnx_symmem.expr.atom import MAX, MIN, Atom
from onnx_symmem.expr.expression import Expr, maximum, minimum

__all__ = ["as_alternatives", "through_extrema"]

T = TypeVar("T")

MOST = 24  # minima that are compared pair by pair


def through_extrema(expr: Expr, function: Callable[[Expr], Expr]) -> Expr:
    """function(expr), for one that keeps the order, as the extremum of what it makes of every operand."""
    found = _extremum(expr)
    if found is None:
        return function(expr)
    largest, operands = found
    pick = maximum if largest else minimum
    return pick(*(through_extrema(operand, function) for operand in operands))


def as_alternatives(expr: Expr, nonneg: Callable[[Expr], bool]) -> Expr:
    """An extremum as a maximum of minima without those that take no part; `nonneg` proves sizes >= 0."""
    minima = _minima(expr)
    if minima is None or len(minima) == 1:
        return expr
    short = [_needed(parts, lambda a, b: nonneg(a - b)) for parts in minima]

    def above(high: Sequence[Expr], low: Sequence[Expr]) -> bool:
        """Whether the minimum of `low` is never above that of `high`."""
        return all(any(nonneg(h - part) for part in low) for h in high)

    return maximum(*(minimum(*parts) for parts in _needed(short, lambda a, b: above(b, a))))


def _extremum(expr: Expr) -> tuple[bool, list[Expr]] | None:
    """(whether a maximum, its operands) of an expression that is a multiple of one extremum plus a number."""
    rest = [(mono, c) for mono, c in expr.terms if mono]
    if len(rest) != 1 or len(rest[0][0]) != 1 or rest[0][0][0][1] != 1:
        return None
    atom: Atom = rest[0][0][0][0]
    factor, whole = rest[0][1], expr.constant_term()
    if atom.kind not in (MAX, MIN):
        return None
    return (atom.kind == MAX) == (factor > 0), [operand * factor + whole for operand in atom.args]


def _minima(expr: Expr) -> list[tuple[Expr, ...]] | None:
    """Operands of the minima whose maximum an expression is; None where there are too many."""
    found = _extremum(expr)
    if found is None:
        return [(expr,)]
    largest, operands = found
    parts = [_minima(operand) for operand in operands]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    if (sum if largest else prod)(map(len, known)) > MOST:
        return None
    if largest:
        return [one for part in known for one in part]
    return [tuple(dict.fromkeys(e for chosen in choice for e in chosen)) for choice in product(*known)]


def _needed(items: Sequence[T], implied: Callable[[T, T], bool]) -> list[T]:
    """Items without those that a kept or later one implies."""
    kept: list[T] = []
    for k, item in enumerate(items):
        others = [*kept, *items[k + 1 :]]
        if not any(implied(item, other) for other in others):
            kept.append(item)
    return kept
