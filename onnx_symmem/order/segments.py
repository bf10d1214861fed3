"""An order taken apart at its valleys; each segment is improved by itself, equal ones once.

Between two points of an order its nodes may be ordered anew without regard to all others: what ran before is
the same. So an order is cut where little is live, and the segments are improved from the worst on, until one
cannot be brought below the next. Networks repeat themselves (layers, their backward passes, blocks), and so
do segments: where nodes, in the file's order, depend on each other alike, and make and read buffers of the
same bytes that die within alike, all that is live on the way differs by what was live before. The order found
for one is then that of all. Equal are segments whose whole description is, node by node.

Every step takes time that is linear in the nodes, but for the search within a segment.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from onnx_symmem.order.buffers import BufferGraph
from onnx_symmem.order.moments import Moments
from onnx_symmem.order.window import Spent, WindowLimits, improve_order

__all__ = ["BySegments", "SegmentProblem", "improve_segments", "low_points", "segment_problem"]

_MET = 1 + 1e-3  # ratio to a bound from which on nothing is tried
_DEPTHS = (2.0**-1, 2.0**-3, 2.0**-5)  # of the peak, by which a valley lies below both its sides
_MOST = 1_000  # nodes of a segment that is improved
_LEAST = 2  # segments that take part in the peak, below which the search over the whole order does as well
_LESS = 1 - 1e-9
_TIED = 0.99  # of the peak, from which on a segment takes part in it


@dataclass(frozen=True, slots=True)
class SegmentProblem:
    """A segment as a graph of its own: node 0 makes what is there before, node k + 1 is `nodes[k]`.

    `sizes` are bytes (buffers, shapes); the first buffer is what outlives the segment or is read elsewhere.
    """

    nodes: tuple[int, ...]
    graph: BufferGraph
    sizes: np.ndarray

    @property
    def form(self) -> Hashable:
        """The same for segments that are equal but for what is live before them."""
        graph = self.graph
        return graph.predecessors, graph.producer, graph.readers, graph.pinned, self.sizes[1:].tobytes()


@dataclass(frozen=True, slots=True)
class BySegments:
    """The order, how many segments were worth an improvement, and how many of them were searched."""

    order: tuple[int, ...]
    segments: int
    searched: int


def low_points(across: np.ndarray, depth: float) -> list[int]:
    """Points of a line that lie at least `depth` below the highest ones on both their sides, and its ends."""
    found = [0]
    low, high, falling = 0, 0, True
    for at, value in enumerate(across.tolist()):
        if falling:
            if value < across[low]:
                low = at
            elif value >= across[low] + depth:
                if low > found[-1]:
                    found.append(low)
                high, falling = at, False
        elif value > across[high]:
            high = at
        elif value <= across[high] - depth:
            low, falling = at, True
    last = len(across) - 1
    if found[-1] != last:
        found.append(last)
    return found


def segment_problem(
    moments: Moments, order: Sequence[int], last: np.ndarray, before: np.ndarray, start: int, end: int
) -> SegmentProblem:
    """The steps from `start` to before `end` of an order, `before` being live there, by shape.

    `last` is the last step that reads a buffer, the number of steps for those that stay.
    """
    graph = moments.graph
    nodes = tuple(sorted(order[start:end]))
    place = {node: k + 1 for k, node in enumerate(nodes)}
    buffers: dict[int, int] = {}
    for node in nodes:
        for buffer in (*graph.makes[node], *graph.reads[node]):
            if graph.producer[buffer] in place or last[buffer] < end:
                buffers.setdefault(buffer, len(buffers) + 1)
    inside = list(buffers)
    producer = [0, *(place.get(graph.producer[b], 0) for b in inside)]
    readers = [(), *(tuple(sorted(place[r] for r in graph.readers[b] if r in place)) for b in inside)]
    predecessors = [
        tuple(sorted(place[p] for p in graph.predecessors[n] if p in place)) or (0,) for n in nodes
    ]
    successors: list[list[int]] = [[] for _ in range(len(nodes) + 1)]
    for k, producers in enumerate(predecessors):
        for p in producers:
            successors[p].append(k + 1)
    sizes = moments.sizes[inside].reshape(len(inside), moments.sizes.shape[1])
    there = sizes[[k for k, b in enumerate(inside) if graph.producer[b] not in place]].sum(axis=0)
    return SegmentProblem(
        nodes,
        BufferGraph(
            ((), *predecessors),
            tuple(map(tuple, successors)),
            tuple(producer),
            tuple(readers),
            (True, *(bool(last[b] >= end) for b in inside)),
            (),
        ),
        np.vstack([before - there, sizes]),
    )


class _Apart:
    """An order whose segments are improved one by one; bytes are in units of a reference."""

    def __init__(
        self,
        moments: Moments,
        order: Sequence[int],
        limits: WindowLimits,
        seed: int,
        tick: Callable[[], None] | None,
    ) -> None:
        self.moments, self.limits, self.seed, self.tick = moments, limits, seed, tick
        self.spent = Spent()
        self.known: set[Hashable] = set()  # forms that were searched
        # Orders found, by the dependences that they keep.
        self.orders: dict[Hashable, list[tuple[int, ...]]] = {}
        self.segments = self.searched = 0
        self.take(list(order))

    def take(self, order: list[int]) -> None:
        """Go on from an order."""
        self.order = order
        position = self.moments.positions(order)
        self.live = self.moments.live(position)
        self.before = self.live - self.moments.alloc[np.asarray(order, dtype=np.int64)]
        self.last = np.full(len(self.moments.sizes), len(order))
        self.last[self.moments.dying] = self.moments.last_use(position)

    def improve(self, depth: float) -> bool:
        """Improve the segments between low points of the worst shape; False where smaller ones may do."""
        peaks = self.live.max(axis=0)
        shape = int(peaks.argmax())
        if peaks[shape] <= _MET:
            return True
        ends = low_points(np.append(self.before[:, shape], 0.0), depth * peaks[shape])
        worth = sorted((-float(self.live[start:end].max()), start, end) for start, end in pairwise(ends))
        highest = [(start, end) for high, start, end in worth if -high >= peaks[shape] * _TIED]
        if any(self._too_long(start, end) for start, end in highest):
            return False
        if len(highest) < _LEAST:
            return True
        order, reached = list(self.order), _MET
        for high, start, end in worth:
            # A segment that is not above one that was improved before has no part in the peak.
            if -high <= reached or self._too_long(start, end):
                break
            found = self._improved(start, end, peaks, reached)
            if found is None:
                break
            order[start:end], now = found
            reached = max(reached, now)
        if order != self.order:
            self.take(order)
        return True

    def _too_long(self, start: int, end: int) -> bool:
        return end - start > min(_MOST, len(self.order) // 2)

    def _improved(
        self, start: int, end: int, peaks: np.ndarray, reached: float
    ) -> tuple[list[int], float] | None:
        """The nodes of a segment in a better order, and its highest point; None where there is none.

        From `reached` on a lower point is of no use.
        """
        problem = segment_problem(self.moments, self.order, self.last, self.before[start], start, end)
        place = {node: k for k, node in enumerate(problem.nodes)}
        now = (0, *(place[node] + 1 for node in self.order[start:end]))
        inner = Moments(problem.graph, problem.sizes)
        self.segments += 1
        like, form = problem.graph.predecessors, problem.form
        best: tuple[float, tuple[int, ...]] = float(inner.along(now).max()) * _LESS, ()

        def taken(places: tuple[int, ...]) -> None:
            nonlocal best
            high = inner.along(places).max(axis=0)
            if high.max() < best[0] and (high <= peaks).all():
                best = float(high.max()), places

        for places in self.orders.get(like, ()):
            taken(places)
        # What stands at an end is alike, but not equal: others read it, or nobody does.
        if form not in self.known and not (best[1] and best[0] <= reached):
            self.known.add(form)
            self.searched += 1
            places = self._searched(problem, now, peaks)
            self.orders.setdefault(like, []).append(places)
            taken(places)
        return ([problem.nodes[k - 1] for k in best[1][1:]], best[0]) if best[1] else None

    def _searched(self, problem: SegmentProblem, now: tuple[int, ...], peaks: np.ndarray) -> tuple[int, ...]:
        """The best order that is found with half of what is left."""
        half = self.limits.left(self.spent, 2)
        return improve_order(
            problem.graph, problem.sizes, now, np.ones(len(peaks)), half, self.tick, peaks, self.seed,
            spent=self.spent,
        )  # fmt: skip


def improve_segments(
    graph: BufferGraph,
    sizes: np.ndarray,
    order: Sequence[int],
    reference: np.ndarray,
    limits: WindowLimits | None = None,
    seed: int = 0,
    spent: Spent | None = None,
    tick: Callable[[], None] | None = None,
) -> BySegments:
    """An order whose peak is at no shape above that of `order`, and whose worst one is lower if possible.

    `sizes` are bytes (buffers, shapes), `reference` bytes per shape, best a lower bound. What the search
    takes is added to `spent`. Nothing is done where only one segment takes part in the peak.
    """
    if not len(order):
        return BySegments((), 0, 0)
    unit = np.maximum(np.asarray(reference, dtype=np.float64), 1.0)
    moments = Moments(graph, np.asarray(sizes, dtype=np.float64) / unit)
    apart = _Apart(moments, order, limits or WindowLimits(), seed, tick)
    for depth in _DEPTHS:
        if apart.improve(depth):
            break
    if spent is not None:
        spent.work += apart.spent.work
        spent.splits += apart.spent.splits
        spent.pairs += apart.spent.pairs
    return BySegments(tuple(apart.order), apart.segments, apart.searched)
