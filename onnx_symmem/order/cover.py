"""The fewest of several plans of which at every shape one is near the best: what versions are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np

__all__ = ["CoverLimits", "cover"]

_SETS = 20_000  # sets of plans that are compared
_EQUAL = 1e-9
_WITHIN = 0.5  # of the regret allowed


@dataclass(frozen=True, slots=True)
class CoverLimits:
    """At most `versions`; as many as it takes until none is more than `regret` above the best known; together
    better than the first by `gain` at one of the usual shapes."""

    versions: int = 4
    regret: float = 0.002
    gain: float = 0.01


def cover(
    peaks: np.ndarray, limits: CoverLimits, usual: int | None = None, free: bool = False
) -> tuple[int, ...]:
    """Rows of `peaks`, (plans, shapes), whose least is near the least of all rows at every column.

    Row 0 is one of them; if `free`, only where that keeps all within regret. As few as keep that; where
    `limits.versions` are too few, those that are nearest at the first `usual` columns, by the squares of what
    is above half the regret, then at the worst. Row 0 alone where others gain too little over it at the usual
    ones.
    """
    usual = peaks.shape[1] if usual is None else usual
    ratios = peaks / np.maximum(peaks.min(axis=0), 1.0)
    different = dict.fromkeys(row.tobytes() for row in ratios[1:])
    rows = [k for k in range(1, len(ratios)) if different.pop(ratios[k].tobytes(), 0) is None]
    picked: tuple[int, ...] = (0,)
    now = ratios[0]
    for count in range(2, limits.versions + 1):
        if not rows or now.max(initial=1.0) <= 1 + limits.regret:
            break
        starts = ((), (0,)) if free else ((0,),)
        found = [
            _best_set(ratios, picked if comb(len(rows), count - len(start)) > _SETS else start, rows, count,
                      limits.regret, usual)
            for start in starts
        ]  # fmt: skip
        best = min(found)[1]
        if ratios[list(found[-1][1])].min(axis=0).max() <= 1 + limits.regret:
            best = found[-1][1]  # row 0 is what is proved by itself: others need a reason
        together = ratios[list(best)].min(axis=0)
        if (together >= now - _EQUAL).all():
            break
        picked, now = tuple(sorted(best)), together
    gain = float((ratios[0] / np.maximum(now, 1.0))[:usual].max(initial=1.0)) - 1
    return picked if gain >= limits.gain else (0,)


def _best_set(
    ratios: np.ndarray, start: tuple[int, ...], rows: Sequence[int], count: int, regret: float, usual: int
) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """(what counts, the rows) of the best set of so many rows that begins like this."""
    left = [k for k in rows if k not in start]
    sets = np.array(list(combinations(left, count - len(start))), dtype=np.int64)
    if not sets.size:
        return (np.inf,), start
    together = ratios[sets].min(axis=1)
    if start:
        together = np.minimum(together, ratios[list(start)].min(axis=0))
    # What is well within regret is equal. Many shapes a little above it are no better than one that is more.
    above = np.maximum(together - 1 - _WITHIN * regret, 0.0)
    squares = (above[:, :usual] ** 2).mean(axis=1)
    outside = together.max(axis=1) > 1 + regret
    keys = np.round([together.mean(axis=1), above.max(axis=1), squares, outside], 12)
    best = int(np.lexsort(keys)[0])
    return tuple(float(k) for k in keys[::-1, best]), (*start, *sets[best].tolist())
