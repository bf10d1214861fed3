"""Local search on an order: its worst steps are taken apart by cuts, moves and programs of short windows.

An order is judged by its peak at each steering shape as a ratio to a reference, worst shape first: an order
is better if its largest ratio is smaller, or that is equal and the second largest is smaller, and so on. So
once nothing helps at the worst shape, the others are improved as far as it does not suffer. The search is
bounded by moves and by looked-at states, never by time, so the same input gives the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from onnx_symmem.order.buffers import BIT_SET_NODES, BufferGraph
from onnx_symmem.order.cut import CutFinder
from onnx_symmem.order.descent import split_by_cuts
from onnx_symmem.order.downsets import DownSetProgram
from onnx_symmem.order.moments import Moments, live_bytes
from onnx_symmem.order.problem import completed, nodes_of_window, window
from onnx_symmem.order.program import Segment, best_sequence
from onnx_symmem.order.sinking import run_early, run_late
from onnx_symmem.order.valleys import ValleySearch

__all__ = ["Failures", "Spent", "WindowLimits", "improve_order", "live_bytes"]

_EQUAL = 1e-9
_EXACT = 1e-12  # rounding of sums; a ceiling is one of what is proved to the byte
_MET = 1 + 1e-3  # ratio to the reference, best a bound, from which on nothing is tried for a shape
_ABOVE = 1e6  # added to a ratio that is above the ceiling
_VALLEYS = (0.8, 0.5)  # a wide window ends where less than this part of the peak is live
_DRAWN = 4  # windows per shape that are drawn
_WIDE = 6  # times the usual width, at most
_NEAR = 1 + 2.0**-7  # ratio to the reference from which on whole parts are not worth their time
_PARTS = (
    0.3,
    0.15,
    0.05,
    0.0,
)  # the same for whole parts of an order, which are searched exactly if possible
_SMALL = 2.0**-10  # of the peak: buffers below count as nothing in them
_UNITS = 1 << 40  # of a reference, for searches in whole numbers
_ATTEMPT = 1_250_000  # looks of one search from valley to valley
_SHARE = 4  # parts of what is left that one search by number of nodes may take, after one of these
_LOOKS = 3  # looks of a search from valley to valley that take as long as one at a pair

Move = tuple[str, int, int]

Failures = dict[tuple[str, int, int], list[np.ndarray]]
"""Caps, bytes per shape, below which a move found no order of some nodes, by the nodes that ran before and
after them.

What can be done between two points of an order depends on the nodes alone, not on their order. So searches
from several orders of a graph share it, and searches at some of the shapes with those at more: what is not
possible below the caps of some is not below those of all. Shapes that were not searched have infinite caps.
"""


@dataclass(frozen=True, slots=True)
class WindowLimits:
    """`windows` moves at most, windows of `width` nodes, `states` kept per step of one window's program;
    `work` bounds the states that all programs look at together, `splits` the nodes of all parts cut. Parts
    between valleys have up to `part` nodes that touch large buffers; `sets` are kept per number of nodes, and
    `pairs` bounds what they look at together."""

    windows: int = 400
    width: int = 32
    states: int = 1000
    work: int = 4_000_000
    splits: int = 120_000
    part: int = 700
    sets: int = 2_000
    pairs: int = 1_500_000

    def left(self, spent: Spent, parts: int = 1) -> WindowLimits:
        """One of several equal parts of what is left to spend."""
        return replace(
            self,
            work=max(0, self.work - spent.work) // parts,
            splits=max(0, self.splits - spent.splits) // parts,
            pairs=max(0, self.pairs - spent.pairs) // parts,
        )

    def share(self, parts: int) -> WindowLimits:
        """One of several equal parts of all that may be spent."""
        return self.left(Spent(), parts)


@dataclass(slots=True)
class Spent:
    """What searches took of `WindowLimits`."""

    work: int = 0
    splits: int = 0
    pairs: int = 0


class _Search:
    """An order under improvement, and which moves have failed on it."""

    def __init__(
        self,
        graph: BufferGraph,
        scaled: np.ndarray,
        order: Sequence[int],
        limits: WindowLimits,
        ceiling: np.ndarray,
        seed: int,
        failed: Failures,
        unit: np.ndarray,
        columns: Sequence[int],
    ) -> None:
        self.graph, self.limits, self.failed = graph, limits, failed
        self.unit, self.columns = unit, np.asarray(columns, dtype=np.int64)
        self.ceiling = ceiling * (1 + _EXACT)
        self.moments = Moments(graph, scaled)
        self.finder = CutFinder(graph)
        self.draw = np.random.default_rng(seed)
        self.names = np.random.default_rng(0).integers(1, 1 << 62, graph.size, dtype=np.int64)
        self.work = self.splits = self.pairs = 0
        self.take(tuple(order))

    def take(self, order: tuple[int, ...]) -> None:
        """Go on from an order."""
        self.order = order
        self.live = self.moments.along(order)
        self.peaks = self.live.max(axis=0, initial=0.0)
        # A set of nodes that ran, by name: sums of random numbers, of which no two are met that are equal.
        self.ran = np.concatenate([[0], np.cumsum(self.names[np.asarray(order, dtype=np.int64)])])
        self.untried = self.moves()

    def better(self, order: Sequence[int]) -> bool:
        """Whether an order's ratios, sorted, come before the current ones."""
        peaks = self.moments.along(order).max(axis=0, initial=0.0)
        for new, old in zip(self._ratios(peaks), self._ratios(self.peaks), strict=True):
            if abs(new - old) > _EQUAL * old:
                return bool(new < old and max(new, old) > 1.0)
        return False

    def _ratios(self, peaks: np.ndarray) -> list[float]:
        """Peaks by shape, largest first; above the ceiling counts more than all that is below it."""
        return sorted((np.where(peaks > self.ceiling, _ABOVE, 0.0) + peaks).tolist(), reverse=True)

    def moves(self) -> Iterator[tuple[int, Move]]:
        """(shape, move) by ratio of the shape; the cheap ones first."""
        above = self.peaks > self.ceiling
        shapes = [k for k in range(len(self.peaks)) if self.peaks[k] > _MET or above[k]]
        shapes.sort(key=lambda k: (not above[k], -self.peaks[k], k))
        for shape in shapes:
            for early in (1, 0):
                yield shape, ("cut", early, 0)
                yield shape, ("cut", early, 1)
            yield shape, ("late", 0, 0)
            yield shape, ("early", 0, 0)
            yield from ((shape, move) for move in self._windows(shape))
            yield from ((shape, move) for move in self._parts(shape))
            yield from ((shape, move) for move in self._drawn(shape))

    def _windows(self, shape: int) -> Iterator[Move]:
        """Windows around the first and the last worst step, then wider ones between valleys."""
        live, width, steps = self.live[:, shape], self.limits.width, len(self.order)
        worst = np.flatnonzero(live >= self.peaks[shape] * (1 - _EQUAL))
        seen: set[tuple[int, int]] = set()
        for at in dict.fromkeys((int(worst[0]), int(worst[-1]))):
            for offset in (width // 2, width - 2, 1, width // 4, 3 * width // 4):
                start = max(0, min(at - offset, steps - width))
                seen.add((start, min(steps, start + width)))
                yield "window", start, min(steps, start + width)
            for part in _VALLEYS:
                low = np.flatnonzero(live < part * live[at])
                start = max((int(s) + 1 for s in low if s < at), default=0)
                end = min((int(s) for s in low if s > at), default=steps)
                start, end = max(start, at - _WIDE * width), min(end, at + _WIDE * width)
                if (start, end) not in seen:
                    seen.add((start, end))
                    yield "window", start, end

    def _drawn(self, shape: int) -> Iterator[Move]:
        """Windows of any place and width over any of the worst steps."""
        live, steps = self.live[:, shape], len(self.order)
        worst = np.flatnonzero(live >= self.peaks[shape] * (1 - _EQUAL))
        for _ in range(_DRAWN):
            width = int(self.draw.integers(self.limits.width // 2, 2 * self.limits.width))
            at = int(self.draw.choice(worst)) - int(self.draw.integers(width))
            start = max(0, min(at, steps - width))
            yield "window", start, min(steps, start + width)

    def _parts(self, shape: int) -> Iterator[Move]:
        """Parts around the worst step between valleys that get deeper."""
        live, steps = self.live[:, shape], len(self.order)
        if steps > BIT_SET_NODES or self.peaks[shape] <= _NEAR:
            return
        at = int(live.argmax())
        seen: set[tuple[int, int]] = set()
        for part in _PARTS:
            low = np.flatnonzero(live < part * live[at])
            start = max((int(s) + 1 for s in low[low < at]), default=0)
            end = min((int(s) for s in low[low > at]), default=steps)
            if (start, end) not in seen:
                seen.add((start, end))
                yield "part", start, end

    def moved(self, shape: int, move: Move) -> tuple[int, ...] | None:
        """The order that a move leads to."""
        kind, first, second = move
        if kind == "late":
            return run_late(self.moments, self.order, shape)
        if kind == "early":
            return run_early(self.moments, self.order, shape)
        if kind == "cut":
            weights = None
            if second:
                weights = np.zeros(len(self.peaks))
                weights[shape] = 1.0
            left = self.limits.splits - self.splits
            if left <= 0:
                return None
            order, spent = split_by_cuts(
                self.moments, self.finder, self.order, weights, bool(first), left // 3
            )
            self.splits += spent
            return order
        peaks, goal = self.peaks, self.peaks[shape]
        caps = np.where(peaks > goal, peaks * (1 + _EQUAL), goal * (1 - _EQUAL))
        if self.peaks[shape] > self.ceiling[shape]:
            caps = np.full(len(peaks), np.inf)
        caps = np.minimum(caps, np.where(peaks > self.ceiling, peaks * (1 + _EQUAL), self.ceiling))
        caps[shape] = goal * (1 - _EQUAL)
        key = kind, int(self.ran[first]), int(self.ran[second])
        failed = self.failed.setdefault(key, [])
        told = np.full(int(self.columns.max(initial=-1)) + 1, np.inf)
        told[self.columns] = caps * self.unit
        if any(_within(told, known) for known in failed):
            return None
        found = (
            self._reordered(first, second, caps) if kind == "part" else self._sequence(first, second, caps)
        )
        # What ended for want of work may be found by a search that has some left.
        if found is None and self.work < self.limits.work and self.pairs < self.limits.pairs:
            failed.append(told)
        return found

    def _sequence(self, start: int, end: int, caps: np.ndarray) -> tuple[int, ...] | None:
        """The order with the best order of a window, as far as it was looked for."""
        left = self.limits.work - self.work
        if left <= 0:
            return None
        found = best_sequence(
            self.graph, self.moments.sizes, self._segment(start, end), caps, self.limits.states, left
        )
        self.work += found.work
        if found.nodes is None:
            return None
        return (*self.order[:start], *found.nodes, *self.order[end:])

    def _reordered(self, start: int, end: int, caps: np.ndarray) -> tuple[int, ...] | None:
        """The order with a part of it below the caps, but for small buffers."""
        left = self.limits.pairs - self.pairs
        if left <= 0:
            return None
        where = self.moments, self.order, self.live, start, end, _SMALL
        if len(nodes_of_window(*where)) > self.limits.part:
            return None
        problem = window(*where)
        found = ValleySearch(problem, _UNITS).below_caps(caps, min(left * _LOOKS, _ATTEMPT))
        self.pairs += found.work // _LOOKS
        if found.order is None and not found.exact:
            left = (self.limits.pairs - self.pairs) // _SHARE
            found = DownSetProgram(problem).below_caps(caps, self.limits.sets, left)
            self.pairs += found.work
        if found.order is None:
            return None
        part = completed(self.graph, self.order[start:end], [problem.nodes[k] for k in found.order])
        return (*self.order[:start], *part, *self.order[end:])

    def _segment(self, start: int, end: int) -> Segment:
        nodes = self.order[start:end]
        later = set(self.order[end:])
        read = dict.fromkeys(b for node in nodes for b in self.graph.reads[node])
        lasting = frozenset(b for b in read if any(r in later for r in self.graph.readers[b]))
        return Segment(nodes, self.live[start] - self.moments.alloc[nodes[0]], lasting)


def _within(caps: np.ndarray, known: np.ndarray) -> bool:
    """Whether caps are nowhere above others; for shapes past their end both are infinite."""
    both = min(len(caps), len(known))
    return bool((caps[:both] <= known[:both] * (1 + _EQUAL)).all() and np.isinf(known[both:]).all())


def improve_order(
    graph: BufferGraph,
    sizes: np.ndarray,
    order: Sequence[int],
    reference: np.ndarray,
    limits: WindowLimits | None = None,
    tick: Callable[[], None] | None = None,
    ceiling: np.ndarray | None = None,
    seed: int = 0,
    failed: Failures | None = None,
    spent: Spent | None = None,
    columns: Sequence[int] | None = None,
) -> tuple[int, ...]:
    """An order whose largest live/reference ratio is at most that of `order`.

    `sizes` are bytes, (buffers, shapes); `reference` are bytes per shape, best a lower bound of the peak:
    nothing is done to get below it. To stay at or below `ceiling`, bytes per shape, comes before everything
    else. `tick` is called once per move. `seed` draws windows that are tried when no other move helps.
    `failed` is what other searches of the graph found out, at shapes of which these are those numbered
    `columns`, by default the first ones; what this one takes is added to `spent`.
    """
    limits = limits or WindowLimits()
    if not len(order):
        return ()
    unit = np.maximum(np.asarray(reference, dtype=np.float64), 1.0)
    top = np.full(len(unit), np.inf) if ceiling is None else np.asarray(ceiling, dtype=np.float64) / unit
    search = _Search(
        graph,
        np.asarray(sizes, dtype=np.float64) / unit,
        order,
        limits,
        top,
        seed,
        {} if failed is None else failed,
        unit,
        range(len(unit)) if columns is None else columns,
    )
    for _ in range(limits.windows):
        if tick is not None:
            tick()
        step = next(search.untried, None)
        if step is None:
            break
        moved = search.moved(*step)
        if moved is not None and moved != search.order and search.better(moved):
            search.take(moved)
    if spent is not None:
        spent.work += search.work
        spent.splits += search.splits
        spent.pairs += search.pairs
    return search.order
