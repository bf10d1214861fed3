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
import numpy.typing as npt

from onnx_symmem.expr.exact import BoolArray, FloatArray, IntArray

__all__ = [
    "game_values",
    "game_weights",
    "games_weights",
    "integer_weights",
    "pair_interval",
    "shared_weights",
    "simplest_between",
    "whole_weights",
]

_TOLERANCE = 1e-9
_MAX_DENOMINATOR = 10**6
_MAX_QUOTIENTS = 40


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
    return Fraction(*_simplest(low + margin, high - margin, _MAX_QUOTIENTS))


def _simplest(low: float, high: float, quotients: int) -> tuple[int, int]:
    """(top, bottom) between low and high by their continued fractions, as far as floats tell."""
    whole = floor(low)
    if whole == low or quotients == 0:
        return whole, 1
    if whole + 1 <= high:
        return whole + 1, 1
    top, bottom = _simplest(1 / (high - whole), 1 / (low - whole), quotients - 1)
    return whole * top + bottom, top


def game_weights(payoffs: FloatArray) -> FloatArray | None:
    """Weights w >= 0 with sum 1 and w @ payoffs >= -tolerance, or None if there are none."""
    (weights,) = games_weights(payoffs[None])
    return None if np.isnan(weights).any() else weights


def games_weights(payoffs: FloatArray) -> FloatArray:
    """`game_weights` of many games of one size, games x members x tests; NaN where there are none."""
    weights, values = _solved(payoffs / np.maximum(np.abs(payoffs).max(axis=1, keepdims=True), 1e-300))
    weights[values < -1e-7] = np.nan
    return weights


def game_values(payoffs: FloatArray) -> FloatArray:
    """The values of many games of one size, games x members x tests, with payoffs in -1..1."""
    return _solved(payoffs)[1]


def _solved(payoffs: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(weights, values) of games with payoffs in -1..1; a value is what its weights are sure of."""
    games, members, tests = payoffs.shape
    if tests == 0 or members == 0 or games == 0:
        return np.full((games, members), np.nan), np.full(games, -np.inf)
    # The other player's program has a feasible start: maximise sum(y), (payoffs + 2) @ y <= 1, y >= 0.
    tables = np.zeros((games, members + 1, tests + members + 1))
    tables[:, :members, :tests] = payoffs + 2.0
    tables[:, :members, tests:-1] = np.eye(members)
    tables[:, :members, -1] = 1.0
    tables[:, -1, :tests] = 1.0
    open_games = np.arange(games)
    for step in range(30 * members + 30):
        gains = tables[open_games, -1, :-1]
        # The largest gain at first; then the first gain, which ends cycles (Bland 1977).
        enter = (gains if step < 20 * members else gains > _TOLERANCE).argmax(axis=1)
        going = gains[np.arange(len(enter)), enter] > _TOLERANCE
        open_games, enter = open_games[going], enter[going]
        if open_games.size == 0:
            break
        table = tables[open_games]
        at = np.arange(len(enter))
        columns = table[at, :members, enter]
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.where(columns > _TOLERANCE, table[:, :members, -1] / columns, np.inf)
        leave = ratios.argmin(axis=1)
        pivots = table[at, leave] / table[at, leave, enter][:, None]
        factors = table[at, :, enter]
        factors[at, leave] = 0.0
        table -= factors[:, :, None] * pivots[:, None, :]
        table[at, leave] = pivots
        tables[open_games] = table
        open_games = open_games[np.isfinite(ratios[at, leave])]
    weights = np.maximum(-tables[:, -1, tests:-1], 0.0)
    totals = weights.sum(axis=1)
    weights /= np.where(totals > 0, totals, 1.0)[:, None]
    values = np.matmul(weights[:, None, :], payoffs).min(axis=(1, 2))
    weights[totals == 0], values[totals == 0] = np.nan, -np.inf
    return weights, values


def whole_weights(weights: FloatArray, scale: int) -> IntArray:
    """Rows of weights with sum 1 as integers of about `scale` in all; rows that are NaN as zeros."""
    return np.rint(np.nan_to_num(weights) * scale).astype(np.int64)


def shared_weights(low: FloatArray, high: FloatArray) -> list[tuple[Fraction, npt.NDArray[np.intp]]]:
    """A fraction for every interval low..high of 0..1: few that lie in many of them.

    The interval that ends first is met in its upper part, and so are those that have begun there; those
    that are nearly points get one each.
    """
    narrow = high - low <= _TOLERANCE
    each = np.flatnonzero(narrow)
    found = [(simplest_between(float(low[i]), float(high[i])), each[k : k + 1]) for k, i in enumerate(each)]
    left = np.flatnonzero(~narrow)
    left = left[np.argsort(high[left], kind="stable")]
    while left.size:
        first = left[0]
        weight = simplest_between((float(low[first]) + float(high[first])) / 2, float(high[first]))
        met = low[left] <= float(weight)
        met[0] = True
        found.append((weight, left[met]))
        left = left[~met]
    return found


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
