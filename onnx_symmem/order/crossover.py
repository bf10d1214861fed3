"""One order's beginning, and what is left of the nodes as another order has them.

At one shape an order is judged by its middle, where activations pile up; at another by its end, where
results do. The best orders at each differ in both, but only one part of each counts. What begins as one order
and goes on as the other is an order, too, wherever it changes over (one-point crossover of genetic
algorithms; here all places of a raster are looked at).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnx_symmem.order.moments import Moments

__all__ = ["crossings"]

_PLACES = 24  # at which one order may change over into another
_LEAD = 1e-3  # of a ratio to the best known: nearer counts as equal


def crossings(
    moments: Moments, orders: Sequence[Sequence[int]], known: np.ndarray, looks: int
) -> tuple[tuple[int, ...], ...]:
    """The crossing whose worst shape is best, and the one that is nearest to `known` at all shapes together.

    Bytes of `moments` are in units of a reference, and so are the best peaks `known` per shape. At most
    `looks` bytes (steps times shapes) are looked at, first those of pairs of the first orders. Only what is
    better than every one of the orders is returned.
    """
    whole = [np.asarray(order, dtype=np.int64) for order in orders]
    lives = [moments.along(order) for order in orders]
    if len(orders) < 2 or not len(lives[0]):
        return ()
    rows = [_measures(live.max(axis=0), known) for live in lives]
    best = [min(row[k] for row in rows) for k in range(2)]
    found: dict[int, np.ndarray] = {}
    steps, shapes = lives[0].shape
    left = looks // max(1, steps * shapes)
    places = np.unique(np.linspace(0, steps, _PLACES + 2).astype(np.int64)[1:-1])
    for a, b in _pairs(len(orders)):
        reached = np.maximum.accumulate(lives[a], axis=0)
        ran = moments.positions(whole[a])
        for place in places.tolist():
            if left <= 0:
                break
            # What was live up to here stays: nobody is better who is worse by then.
            if all(m >= least for m, least in zip(_measures(reached[place - 1], known), best, strict=True)):
                break
            left -= 1
            order = np.concatenate([whole[a][:place], whole[b][ran[whole[b]] >= place]])
            for k, measure in enumerate(_measures(moments.along(order).max(axis=0), known)):
                if measure < best[k]:
                    best[k], found[k] = measure, order
    return tuple(dict.fromkeys(tuple(order.tolist()) for _, order in sorted(found.items())))


def _measures(peaks: np.ndarray, known: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Peaks, the worst first; and the sum of squares by which they are above those known."""
    above = np.maximum(peaks / np.maximum(known, 1e-300) - 1 - _LEAD, 0.0)
    worst = tuple(sorted(np.round(peaks, 9).tolist(), reverse=True))
    return worst, (round(float((above**2).sum()), 12),)


def _pairs(count: int) -> list[tuple[int, int]]:
    """Places of two different orders, those of the first ones first."""
    pairs = [(a, b) for a in range(count) for b in range(count) if a != b]
    return sorted(pairs, key=lambda pair: (max(pair), pair))
