"""Orders that versions are made of where results may be made early or late: training above all.

Where every result is best made depends on the shape (`order.deferral`), so at each shape another order is
best, and no few of them are near the best everywhere by themselves. First every shape and its neighbours get
an order with the results placed for them. Of these twice as many as wanted are taken that are near the best
together; then two at a time are made one, where that costs least, with its results placed for all shapes that
no other one is good at; between that each is placed anew for the shapes that are left to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from onnx_symmem.order.candidates import Tick
from onnx_symmem.order.contraction import Contraction, offshoots
from onnx_symmem.order.deferral import deferrable, deferred
from onnx_symmem.order.moments import Moments
from onnx_symmem.order.specialists import apart, shares

__all__ = ["ResultVersions"]

_MET = 1 + 1e-3  # ratio to the floor from which on nothing is tried for a shape
_NEAR = 0.5  # of the regret allowed: nearer to the best known counts as equal
_LESS = 1e-4  # part by which an order for one shape has to be better
_MISSES = 16  # orders in a row in which placing gained nothing
_REGION = 8  # shapes that are placed for together with one
_WIDER = 2  # times the versions wanted that are picked first
_LANES = 24  # shapes that stand for all that a version is for, at first
_REPEATS = 3  # how often those that were given away are added
_STARTS, _LAST_STARTS = 2, 4  # orders that results are placed in for a version, later on
_MERGED = 4  # pairs of versions that are made one on trial
_ROUNDS = 6
_CHANGED = 1e-12


class ResultVersions:
    """The search; `moments` have bytes (buffers, shapes), `floor` is bytes per shape that no order is below.

    Placing ends after about `looks` at bytes (steps times shapes); what is known by then is chosen from.
    """

    def __init__(
        self,
        moments: Moments,
        orders: Sequence[tuple[int, ...]],
        floor: np.ndarray,
        regret: float,
        looks: int = 1 << 62,
    ) -> None:
        self.left = looks
        self.moments, self.floor, self.near = moments, np.maximum(floor, 1.0), 1 + _NEAR * regret
        self.shares = shares(moments.sizes)
        self.groups = offshoots(moments.graph)
        self.orders = list(orders)
        self.peaks = np.array([moments.along(order).max(axis=0, initial=0.0) for order in orders])
        self.contracted: dict[int, Contraction] = {}
        self.tried: set[tuple[int, tuple[int, ...]]] = set()

    @property
    def possible(self) -> bool:
        """Whether there are results that may wait for each other."""
        return len(self.groups) > 1

    def at_shapes(self, columns: Sequence[int], tick: Tick) -> bool:
        """Add orders with results placed for every shape alone, the given ones first, and for each of those
        with its neighbours; whether that gained more than regret. It ends after many orders without gain."""
        gained, misses = False, 0
        every = [*columns, *(k for k in range(self.peaks.shape[1]) if k not in columns)]
        for done, k in enumerate(every):
            tick("placing results at one shape", done, len(every))
            least = now = float(self.peaks[:, k].min())
            for start in np.argsort(self.peaks[:, k], kind="stable").tolist()[:_STARTS]:
                if now <= self.floor[k] * _MET or misses >= _MISSES or self.left <= 0:
                    break
                order, peak = self._placed(start, np.array([k]), self.floor)
                misses += 1
                if peak[k] < now * (1 - _LESS):
                    self._add(order, peak)
                    now, misses = float(peak[k]), 0
            gained |= now * self.near < least
        for done, k in enumerate(columns if gained else ()):
            tick("placing results for neighbours", done, len(columns))
            region = np.abs(self.shares - self.shares[:, [k]]).sum(axis=0).argsort(kind="stable")[:_REGION]
            goal = self._goal()
            above = _above(self.peaks[:, region] / goal[region])
            start = int(above.argmin())
            if above[start] > _CHANGED and self.left > 0:
                order, peak = self._placed(start, region, goal)
                if float(_above(peak[region] / goal[region])) < above[start]:
                    self._add(order, peak)
        return gained

    def versions(self, count: int, tick: Tick) -> tuple[int, ...]:
        """Places in `orders` of at most so many that together are near the best known."""
        few = self._picked(count)
        if not _above((self.peaks / self._goal())[few].min(axis=0)):
            return tuple(few)
        picked = self._replaced(self._picked(_WIDER * count))
        while len(picked) > count:
            tick("making one order of two", _WIDER * count - len(picked), count)
            picked = self._replaced(self._merged(picked))
        for number in range(_ROUNDS):
            tick("improving orders for parts of the domain", number, _ROUNDS)
            before = sorted(picked)
            picked = self._replaced(self._exchanged(picked), _LAST_STARTS)
            if sorted(picked) == before:
                break
        return tuple(picked)

    def _add(self, order: tuple[int, ...], peak: np.ndarray) -> int:
        """Its place among the orders, the last one if it is new."""
        if order not in self.orders:
            self.orders.append(order)
            self.peaks = np.vstack([self.peaks, peak])
        return self.orders.index(order)

    def _goal(self) -> np.ndarray:
        """Bytes per shape that are as good as the best known."""
        return np.asarray(np.maximum(self.peaks.min(axis=0), 1.0) * self.near)

    def _placed(
        self, start: int, shapes: np.ndarray, goal: np.ndarray, others: np.ndarray | None = None
    ) -> tuple[tuple[int, ...], np.ndarray]:
        """(An order with its results placed anew for some shapes, its peaks at all.)"""
        if start not in self.contracted:
            self.contracted[start] = deferrable(self.moments, self.orders[start], self.groups)
        small = self.contracted[start]
        self.left -= len(small.moving) * len(small.units) * len(shapes)
        units = deferred(small.at(shapes, goal[shapes]), None if others is None else others[shapes])
        return small.expanded(units), small.moments.along(units).max(axis=0, initial=0.0)

    def _picked(self, count: int) -> list[int]:
        """Orders that together are nearest, one after the other."""
        ratios = self.peaks / self._goal()
        picked: list[int] = []
        now = np.full(ratios.shape[1], np.inf)
        for _ in range(count):
            k = int(_above(np.minimum(ratios, now)).argmin())
            if k not in picked:
                picked.append(k)
            now = np.minimum(now, ratios[k])
        return self._exchanged(picked)

    def _exchanged(self, picked: Sequence[int]) -> list[int]:
        """Each exchanged for the order that is best beside the others, until none is."""
        ratios, now = self.peaks / self._goal(), list(picked)
        least = float(_above(ratios[now].min(axis=0)))
        changed = True
        while changed:
            changed = False
            for place in range(len(now)):
                above = _above(np.minimum(ratios, _least(ratios, now, (place,))))
                k = int(above.argmin())
                if above[k] < least - _CHANGED:
                    now[place], least, changed = k, float(above[k]), True
        return now

    def _replaced(self, picked: Sequence[int], starts: int = _STARTS) -> list[int]:
        """Each version with its results placed anew for the shapes that no other one is good at."""
        now = list(picked)
        for place in range(len(now)):
            goal = self._goal()
            ratios = self.peaks / goal
            others = _least(ratios, now, (place,))
            above = _above(np.minimum(ratios, others))
            rest = tuple(sorted(now[:place] + now[place + 1 :]))
            nearest = np.argsort(above, kind="stable").tolist()[:starts]
            fresh = [k for k in dict.fromkeys([now[place], *nearest]) if (k, rest) not in self.tried]
            self.tried.update((k, rest) for k in fresh)
            least, k = self._together(fresh, others, goal)
            if least < min(float(above[now[place]]), float(above.min())) - _CHANGED:
                now[place] = k
            elif above.min() < above[now[place]] - _CHANGED:
                now[place] = int(above.argmin())
        return now

    def _merged(self, picked: Sequence[int]) -> list[int]:
        """One order in place of two, of those pairs for which an order is near already."""
        goal = self._goal()
        ratios = self.peaks / goal
        pairs = []
        for pair in combinations(range(len(picked)), 2):
            others = _least(ratios, picked, pair)
            above = _above(np.minimum(ratios, others))
            pairs.append((float(above.min()), pair, np.argsort(above, kind="stable").tolist()[:_STARTS]))
        found: list[tuple[float, tuple[int, int], int]] = []
        for now, pair, nearest in sorted(pairs)[:_MERGED]:
            others = _least(ratios, picked, pair)
            starts = list(dict.fromkeys([*nearest, *(picked[k] for k in pair)]))[: _STARTS + 1]
            left, k = self._together(starts, others, goal)
            found.append((left, pair, k) if left < now else (now, pair, nearest[0]))
        _, pair, k = min(found)
        return [*(p for place, p in enumerate(picked) if place not in pair), k]

    def _together(self, starts: Sequence[int], others: np.ndarray, goal: np.ndarray) -> tuple[float, int]:
        """(What is above the goal of the best order that was made of some, its place); results are placed for
        the shapes that are worst, and what is given away for it is added to them."""
        own = np.flatnonzero(others > 1)
        best = (np.inf, -1)
        for start in starts if len(own) else ():
            now = np.minimum(self.peaks[start] / goal, others)
            worst = np.argsort(-now[own], kind="stable")[: _LANES // 2].tolist()
            lanes = own[apart(self.shares[:, own], worst, _LANES)]
            for _ in range(_REPEATS if self.left > 0 else 0):
                order, peak = self._placed(start, lanes, goal, others)
                left = np.maximum(np.minimum(peak / goal, others) - 1, 0.0) ** 2
                if left.sum() < best[0]:
                    best = (float(left.sum()), self._add(order, peak))
                if left.sum() < _above(now):
                    break
                left[lanes] = 0.0
                more = np.argsort(-left, kind="stable")[: _LANES // 2]
                more = more[left[more] > 0]
                if not len(more):
                    break
                lanes = np.concatenate([lanes, more])
        return best


def _above(ratios: np.ndarray) -> np.ndarray:
    """The squares by which peaks are above the goal at all shapes together."""
    return np.asarray((np.maximum(ratios - 1, 0.0) ** 2).sum(axis=-1))


def _least(ratios: np.ndarray, picked: Sequence[int], without: Sequence[int]) -> np.ndarray:
    """The least of the picked rows, but for some of them."""
    rest = [k for place, k in enumerate(picked) if place not in without]
    return np.asarray(ratios[rest].min(axis=0, initial=np.inf))
