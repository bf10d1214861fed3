"""What only makes results of the graph runs when that costs least, early or late, each group at every place.

A weight's gradient may be made as soon as its layer was passed backwards, or any time later: until then the
layer's activations wait in its place. Which of the two is less depends on the shape, layer by layer, and so
does which group may come last, as its result is there twice while it is transposed. One such group is taken
out and put back where the worst moments of the whole order are least; so on, until no group gains. All places
are looked at at once: before a place its operands wait, behind it the result stays, so the peak of each is a
running maximum from the front and one from the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from onnx_symmem.order.contraction import Contraction, contraction
from onnx_symmem.order.moments import Moments

__all__ = ["DeferralLimits", "deferrable", "deferred"]

_SMALL = 2.0**-13  # of the peak: groups whose results are less stay where they are
_BROAD = 1e-4  # what all moments above the goal count beside the worst one
_GAIN = 1e-6  # part by which a place has to be better
_ENOUGH = 1e-2  # part by which a sweep has to be better for another one


@dataclass(frozen=True, slots=True)
class DeferralLimits:
    """`looks` at bytes (steps times shapes) of one search at most, in at most `sweeps` over all groups."""

    looks: int = 40_000_000
    sweeps: int = 6


def deferrable(moments: Moments, order: Sequence[int], groups: Sequence[Sequence[int]]) -> Contraction:
    """The graph along an order, in which those of some offshoots move whose results are more than next to
    nothing at some shape: where they are not, waiting gains nothing."""
    graph = moments.graph
    least = _SMALL * moments.along(order).max(axis=0, initial=0.0)
    large = []
    for group in groups:
        buffers = [b for node in group for b in graph.makes[node] if graph.pinned[b]]
        if (moments.sizes[buffers].max(axis=0, initial=0.0) > least).any():
            large.append(group)
    return contraction(moments, order, large)


def deferred(
    small: Contraction, others: np.ndarray | None = None, limits: DeferralLimits | None = None
) -> tuple[int, ...]:
    """An order of units whose peaks are nearer to one at all shapes, by squares of what they are above it.

    Bytes of `small` are in units of what is aimed at per shape. `others`, in the same units, are peaks that
    may be had instead, shape by shape: only the lesser of the two counts.
    """
    limits = limits or DeferralLimits()
    search = _Deferral(small, others)
    looks = len(small.units) * small.sizes.shape[1]
    left = limits.looks // max(1, looks)
    for _ in range(limits.sweeps):
        start = search.above
        for group in range(len(small.moving)):
            if left <= 0 or search.above <= 0:
                return tuple(search.order.tolist())
            left -= 1
            search.move(group)
        if search.above > start * (1 - _ENOUGH):
            break
    return tuple(search.order.tolist())


class _Deferral:
    """An order of units, and how much it is above the goal."""

    def __init__(self, small: Contraction, others: np.ndarray | None) -> None:
        self.graph, self.sizes = small.graph, small.sizes
        self.moments = Moments(self.graph, self.sizes)
        shapes = self.sizes.shape[1]
        self.others = np.full(shapes, np.inf) if others is None else others
        self.group = np.full(self.graph.size, -1)
        for k, units in enumerate(small.moving):
            self.group[list(units)] = k
        row = {int(b): k for k, b in enumerate(self.moments.dying)}
        self.inner: list[tuple[int, ...]] = [() for _ in small.moving]
        for unit in small.order:
            if self.group[unit] >= 0:
                self.inner[self.group[unit]] += (unit,)
        self.operands = [
            [(row[b], b) for b in dict.fromkeys(b for u in units for b in self.graph.reads[u])
             if b in row and self.graph.producer[b] not in units]
            for units in self.inner
        ]  # fmt: skip
        self.results = [
            sum((self.sizes[b] for u in units for b in self.graph.makes[u] if self.graph.pinned[b]),
                np.zeros(shapes))
            for units in self.inner
        ]  # fmt: skip
        self.order = np.array(small.order, dtype=np.int64)
        live = self.moments.along(self.order)
        self.above = float(self._above(live.max(axis=0), (np.maximum(live - 1, 0.0) ** 2).sum(axis=0)))

    def _above(self, peak: np.ndarray, broad: np.ndarray) -> np.ndarray:
        """What counts of peaks, (..., shapes), and of the squares by which all moments are above the goal."""
        here = np.maximum(np.minimum(peak, self.others) - 1, 0.0) ** 2
        # Where another order runs, moments of this one count for nothing.
        return np.asarray((here + _BROAD * np.where(peak < self.others, broad, 0.0)).sum(axis=-1))

    def move(self, group: int) -> None:
        """Put a group where it is best, if that is better than where it is."""
        mine = self.group[self.order] == group
        units, rest = self.order[mine], self.order[~mine]
        if not len(rest):
            return
        first, above = self._places(group, rest)
        best = int(above.argmin())
        if above[best] < self.above * (1 - _GAIN):
            end = first + best + 1
            self.order = np.concatenate([rest[:end], units, rest[end:]])
            self.above = float(above[best])

    def _places(self, group: int, rest: np.ndarray) -> tuple[int, np.ndarray]:
        """(The first step of the rest that the group may follow, what counts if it follows that or a later
        one.)"""
        graph, moments, steps = self.graph, self.moments, len(rest)
        place = np.full(graph.size, -1)
        place[rest] = np.arange(steps)
        made = place[moments.producer]
        last = np.maximum(moments.last_use(place), made[moments.dying])
        stays = made[moments.dying] >= 0
        grown = _until(made[made >= 0], self.sizes[made >= 0], steps)
        gone = _until(last[stays] + 1, self.sizes[moments.dying[stays]], steps + 1)
        kept, live = grown - gone[1:], grown - gone[:-1]  # after each step, and while it runs
        waits = np.zeros((steps + 1, len(self.others)))
        for row, buffer in self.operands[group]:
            waits[last[row] + 1] += self.sizes[buffer]
        waits = np.cumsum(waits, axis=0)
        early, late = live + waits[:-1], live + self.results[group]
        before = {p for unit in self.inner[group] for p in graph.predecessors[unit]}
        first = max(0, *(int(place[p]) for p in before)) if before else 0
        peak = np.maximum.accumulate(early, axis=0)[first:]
        behind = np.maximum.accumulate(late[::-1], axis=0)[::-1][first + 1 :]
        peak[:-1] = np.maximum(peak[:-1], behind)
        broad = np.cumsum(np.maximum(early - 1, 0.0) ** 2, axis=0)[first:]
        broad[:-1] += np.cumsum((np.maximum(late - 1, 0.0) ** 2)[::-1], axis=0)[::-1][first + 1 :]
        now = kept[first:] + waits[1:][first:]
        for made_here, read_last, operands in self._steps(group, last):
            now = now + made_here
            peak = np.maximum(peak, now)
            broad = broad + np.maximum(now - 1, 0.0) ** 2
            now = now - read_last
            for from_step, size in operands:
                now[max(0, from_step - first) :] -= size
        return first, self._above(peak, broad)

    def _steps(
        self, group: int, last: np.ndarray
    ) -> list[tuple[np.ndarray, np.ndarray, list[tuple[int, np.ndarray]]]]:
        """Per unit of a group: bytes it makes, bytes made in the group that die with it, and operands that do
        if the group follows their last other reader: (that one's step, bytes)."""
        graph, units = self.graph, self.inner[group]
        at = {unit: k for k, unit in enumerate(units)}
        found: list[tuple[np.ndarray, np.ndarray, list[tuple[int, np.ndarray]]]] = []
        nothing = np.zeros(len(self.others))
        dies: list[np.ndarray] = [nothing for _ in units]
        ends: list[list[tuple[int, np.ndarray]]] = [[] for _ in units]
        for unit in units:
            for b in graph.makes[unit]:
                if not graph.pinned[b]:
                    k = max(at[r] for r in graph.readers[b])
                    dies[k] = dies[k] + self.sizes[b]
        for row, buffer in self.operands[group]:
            ends[max(at[r] for r in graph.readers[buffer] if r in at)].append(
                (int(last[row]), self.sizes[buffer])
            )
        for k, unit in enumerate(units):
            makes = sum((self.sizes[b] for b in graph.makes[unit]), nothing)
            found.append((makes, dies[k], ends[k]))
        return found


def _until(places: np.ndarray, sizes: np.ndarray, steps: int) -> np.ndarray:
    """Bytes of all rows up to each step, (steps, shapes); `places` are the steps of the rows."""
    sums = np.zeros((len(sizes) + 1, sizes.shape[1]))
    ranked = np.argsort(places, kind="stable")
    np.cumsum(sizes[ranked], axis=0, out=sums[1:])
    return np.asarray(sums[np.searchsorted(places[ranked], np.arange(steps), side="right")])
