"""Weights of a convex combination that stays above: candidates in float64, for an exact check after.

A row r is dominated by members q_i if sum(w_i * q_i) - r has no negative coefficient in some table of
tests. For two members the weights are an interval; for more they are the optimal strategy of the
matrix game with payoffs (q_i - r) @ tests (von Neumann 1928), found by the simplex method.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import floor, lcm

import numpy as np

from onnx_symmem.expr.exact import BoolArray, FloatArray

__all__ = ["game_weights", "integer_weights", "pair_interval", "simplest_between"]

_TOLERANCE = 1e-9
_MAX_DENOMINATOR = 10**6


def pair_interval(first: FloatArray, second: FloatArray) -> tuple[FloatArray, FloatArray, BoolArray]:
    """(low, high, possible) per row: w in low..high makes w*first + (1 - w)*second >= 0 everywhere."""
    slope = first - second
    with np.errstate(divide="ignore", invalid="ignore"):
        root = -second / slope
    low = np.where(slope > 0, root, 0.0).max(axis=1, initial=0.0)
    high = np.where(slope < 0, root, 1.0).min(axis=1, initial=1.0)
    flat = np.logical_and.reduce((slope != 0) | (second >= 0), axis=1)
    possible: BoolArray = flat & (low <= high + _TOLERANCE)
    return low, high, possible


def simplest_between(low: float, high: float) -> Fraction:
    """The fraction with the least denominator in the inner part of an interval of 0..1."""
    if high - low <= _TOLERANCE:
        return min(
            max(Fraction((low + high) / 2).limit_denominator(_MAX_DENOMINATOR), Fraction(0)), Fraction(1)
        )
    margin = (high - low) / 16
    return _simplest(Fraction(low + margin), Fraction(high - margin))


def _simplest(low: Fraction, high: Fraction) -> Fraction:
    whole = floor(low)
    if whole == low:
        return Fraction(whole)
    if whole + 1 <= high:
        return Fraction(whole + 1)
    return whole + 1 / _simplest(1 / (high - whole), 1 / (low - whole))


def game_weights(payoffs: FloatArray) -> FloatArray | None:
    """Weights w >= 0 with sum 1 and w @ payoffs >= -tolerance, or None if there are none."""
    members, tests = payoffs.shape
    if tests == 0 or members == 0:
        return None
    payoffs = payoffs / np.maximum(np.abs(payoffs).max(axis=0), 1e-300)
    # The other player's program has a feasible start: maximise sum(y), (payoffs + 2) @ y <= 1, y >= 0.
    table = np.zeros((members + 1, tests + members + 1))
    table[:members, :tests] = payoffs + 2.0
    table[:members, tests:-1] = np.eye(members)
    table[:members, -1] = 1.0
    table[-1, :tests] = 1.0
    for step in range(30 * members + 30):
        gains = table[-1, :-1]
        enter = int(np.argmax(gains)) if step < 20 * members else int(np.argmax(gains > _TOLERANCE))
        if gains[enter] <= _TOLERANCE:
            break
        column = table[:members, enter]
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.where(column > _TOLERANCE, table[:members, -1] / column, np.inf)
        leave = int(np.argmin(ratios))
        if not np.isfinite(ratios[leave]):
            return None
        table[leave] /= table[leave, enter]
        others = np.arange(members + 1) != leave
        table[others] -= np.outer(table[others, enter], table[leave])
    weights = np.maximum(-table[-1, tests:-1], 0.0)
    total = weights.sum()
    if total <= 0:
        return None
    weights /= total
    return weights if (weights @ payoffs).min() >= -1e-7 else None


def integer_weights(weights: Sequence[float | Fraction]) -> tuple[int, ...]:
    """Integers in proportion to the weights, as exactly as small denominators allow."""
    fractions = [
        w if isinstance(w, Fraction) else Fraction(max(float(w), 0.0)).limit_denominator(_MAX_DENOMINATOR)
        for w in weights
    ]
    total = sum(fractions, Fraction(0))
    fractions = [w / total for w in fractions]
    common = lcm(*(w.denominator for w in fractions))
    return tuple(int(w * common) for w in fractions)
