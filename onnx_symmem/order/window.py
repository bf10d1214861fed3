"""Local search on an order: re-sequence short windows around its worst steps, exactly within the window.

What is live before and after a window does not depend on the order inside it, so the best inner order is
found by dynamic programming over the sets of window nodes that have run (facts/ALGORITHMS, 8.5 item 4).
Cost of a moment is the largest ratio, over a few steering shapes, of bytes live to a reference peak at that
shape: one order is steered for all of them at once. The search is bounded by windows and states, never by
time, so the same input gives the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from onnx_symmem.order.buffers import BufferGraph

__all__ = ["WindowLimits", "improve_order", "live_bytes"]


@dataclass(frozen=True, slots=True)
class WindowLimits:
    """`windows` tried at most, `width` nodes each, `states` kept per step of one window's program."""

    windows: int = 100
    width: int = 24
    states: int = 400


class _Moments:
    """Bytes live along orders of one graph at several shapes; what does not depend on the order is kept."""

    def __init__(self, graph: BufferGraph, sizes: np.ndarray) -> None:
        self.graph, self.sizes = graph, sizes
        self.producer = np.array(graph.producer, dtype=np.int64)
        dying = [b for b, pinned in enumerate(graph.pinned) if not pinned]
        self.dying = np.array(dying, dtype=np.int64)
        self.readers = np.array([r for b in dying for r in graph.readers[b]], dtype=np.int64)
        counts = np.array([len(graph.readers[b]) for b in dying], dtype=np.int64)
        self.starts = np.cumsum(counts) - counts
        self.alloc = np.zeros((graph.size, sizes.shape[1]))
        np.add.at(self.alloc, self.producer, sizes)

    def positions(self, order: Sequence[int]) -> np.ndarray:
        """Step of every node."""
        position = np.empty(self.graph.size, dtype=np.int64)
        position[list(order)] = np.arange(self.graph.size)
        return position

    def last_use(self, position: np.ndarray) -> np.ndarray:
        """Step of the last reader of every buffer in `dying`."""
        if not self.dying.size:
            return np.zeros(0, dtype=np.int64)
        return np.asarray(np.maximum.reduceat(position[self.readers], self.starts))

    def live(self, position: np.ndarray) -> np.ndarray:
        """Bytes live while each step runs, (steps, shapes)."""
        change = np.zeros((self.graph.size + 1, self.sizes.shape[1]))
        np.add.at(change, position[self.producer], self.sizes)
        np.subtract.at(change, self.last_use(position) + 1, self.sizes[self.dying])
        return np.asarray(np.cumsum(change, axis=0)[:-1])


def live_bytes(graph: BufferGraph, sizes: np.ndarray, order: Sequence[int]) -> np.ndarray:
    """Bytes live while each step runs, float64 of shape (steps, shapes); `sizes` is (buffers, shapes)."""
    moments = _Moments(graph, np.asarray(sizes, dtype=np.float64))
    return moments.live(moments.positions(order))


def improve_order(
    graph: BufferGraph,
    sizes: np.ndarray,
    order: Sequence[int],
    reference: np.ndarray,
    limits: WindowLimits | None = None,
    tick: Callable[[], None] | None = None,
) -> tuple[int, ...]:
    """An order whose largest live/reference ratio is at most that of `order`.

    `sizes` are bytes, (buffers, shapes); `reference` are bytes per shape (a lower bound or the best peak
    known). `tick` is called once per window.
    """
    limits = limits or WindowLimits()
    scaled = np.asarray(sizes, dtype=np.float64) / np.maximum(np.asarray(reference, dtype=np.float64), 1.0)
    moments = _Moments(graph, scaled)
    current = list(order)
    position = moments.positions(current)
    live = moments.live(position)
    exhausted: set[tuple[int, int]] = set()
    for _ in range(limits.windows):
        if tick is not None:
            tick()
        cost = live.max(axis=1, initial=0.0)
        at = int(cost.argmax()) if cost.size else 0
        start = _next_window(at, len(current), limits.width, exhausted)
        if start is None:
            break
        nodes = current[start : start + limits.width]
        before = live[start] - moments.alloc[nodes[0]] if nodes else live[:0]
        better = _best_sequence(moments, nodes, position, start, before, limits.states, float(cost[at]))
        if better is None:
            exhausted.add((at, start))
            continue
        current[start : start + len(nodes)] = better
        position = moments.positions(current)
        live = moments.live(position)
        exhausted.clear()
    return tuple(current)


def _next_window(at: int, steps: int, width: int, exhausted: set[tuple[int, int]]) -> int | None:
    """First window around the worst step that has not failed: centred, then early, then late."""
    if not steps:
        return None
    for offset in (width // 2, width - 2, 1, width // 4, 3 * width // 4):
        start = max(0, min(at - offset, steps - width))
        if (at, start) not in exhausted:
            return start
    return None


def _best_sequence(
    moments: _Moments,
    nodes: Sequence[int],
    position: np.ndarray,
    start: int,
    before: np.ndarray,
    states: int,
    worst: float,
) -> list[int] | None:
    """The window's nodes in an order whose worst moment is below `worst`, or None where none is found.

    A state is a set of nodes that ran, as a bit set; all states of one step are advanced at once.
    """
    graph = moments.graph
    local = {node: k for k, node in enumerate(nodes)}
    needs = [sum(1 << local[p] for p in graph.predecessors[n] if p in local) for n in nodes]
    frees = _frees(moments, nodes, local, position, start + len(nodes))
    masks = np.zeros(1, dtype=np.int64)
    most, total, live = np.zeros(1), np.zeros(1), before[None, :]
    history: list[tuple[np.ndarray, np.ndarray]] = []
    for _ in nodes:
        parts = []
        for k, node in enumerate(nodes):
            able = np.flatnonzero(((masks >> k) & 1 == 0) & (needs[k] & ~masks == 0))
            moment = live[able] + moments.alloc[node]
            cost = moment.max(axis=1, initial=0.0)
            fits = cost < worst
            able, moment, cost = able[fits], moment[fits], cost[fits]
            if not able.size:
                continue
            after = masks[able] | (1 << k)
            for mask, size in frees[k]:
                moment[mask & ~after == 0] -= size
            choice = np.full(able.size, k)
            parts.append((after, np.maximum(most[able], cost), total[able] + cost, moment, able, choice))
        if not parts:
            return None
        masks, most, total, live, parent, choice = (
            np.concatenate([part[column] for part in parts]) for column in range(6)
        )
        # Of the ways to one set of nodes only the best can lead to the best sequence.
        rank = np.lexsort((total, most, masks))
        first = np.ones(rank.size, dtype=bool)
        first[1:] = masks[rank][1:] != masks[rank][:-1]
        keep = rank[first]
        if keep.size > states:
            keep = keep[np.lexsort((masks[keep], total[keep], most[keep]))[:states]]
        masks, most, total, live = masks[keep], most[keep], total[keep], live[keep]
        history.append((parent[keep], choice[keep]))
    at, path = 0, []
    for parent, choice in reversed(history):
        path.append(nodes[int(choice[at])])
        at = int(parent[at])
    return path[::-1]


def _frees(
    moments: _Moments, nodes: Sequence[int], local: dict[int, int], position: np.ndarray, end: int
) -> list[list[tuple[int, np.ndarray]]]:
    """Per window node: (set of window readers, bytes) of the buffers that may die when it runs."""
    graph = moments.graph
    frees: list[list[tuple[int, np.ndarray]]] = [[] for _ in nodes]
    for buffer in dict.fromkeys(b for node in nodes for b in graph.reads[node]):
        readers = graph.readers[buffer]
        if graph.pinned[buffer] or any(position[r] >= end for r in readers):
            continue
        inside = [local[r] for r in readers if r in local]
        entry = (sum(1 << k for k in inside), moments.sizes[buffer])
        for k in inside:
            frees[k].append(entry)
    return frees
