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

    windows: int = 200
    width: int = 20
    states: int = 400


def live_bytes(graph: BufferGraph, sizes: np.ndarray, order: Sequence[int]) -> np.ndarray:
    """Bytes live while each step runs, float64 of shape (steps, shapes); `sizes` is (buffers, shapes)."""
    position = np.empty(graph.size, dtype=np.int64)
    position[list(order)] = np.arange(graph.size)
    change = np.zeros((graph.size + 1, sizes.shape[1]))
    born = position[list(graph.producer)] if graph.producer else np.zeros(0, dtype=np.int64)
    np.add.at(change, born, sizes)
    for buffer, readers in enumerate(graph.readers):
        if not graph.pinned[buffer]:
            change[max(position[r] for r in readers) + 1] -= sizes[buffer]
    return np.asarray(np.cumsum(change, axis=0)[:-1])


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
    current = list(order)
    cost = live_bytes(graph, scaled, current).max(axis=1)
    exhausted: set[tuple[int, int]] = set()
    for _ in range(limits.windows):
        if tick is not None:
            tick()
        at = int(cost.argmax())
        start = _next_window(at, len(current), limits.width, exhausted)
        if start is None:
            break
        part = current[start : start + limits.width]
        better = _best_sequence(graph, scaled, current, start, len(part), limits.states, float(cost[at]))
        if better is None:
            exhausted.add((at, start))
            continue
        current[start : start + len(part)] = better
        cost = live_bytes(graph, scaled, current).max(axis=1)
        exhausted.clear()
    return tuple(current)


def _next_window(at: int, steps: int, width: int, exhausted: set[tuple[int, int]]) -> int | None:
    """First window around the worst step that has not failed: centred, then early, then late."""
    for offset in (width // 2, width - 2, 1, width // 4, 3 * width // 4):
        start = max(0, min(at - offset, steps - width))
        if (at, start) not in exhausted:
            return start
    return None


def _best_sequence(
    graph: BufferGraph,
    sizes: np.ndarray,
    order: Sequence[int],
    start: int,
    width: int,
    states: int,
    worst: float,
) -> list[int] | None:
    """The window's nodes in an order whose worst moment is below `worst`, or None where none is found."""
    nodes = list(order[start : start + width])
    local = {node: k for k, node in enumerate(nodes)}
    needs = [sum(1 << local[p] for p in graph.predecessors[n] if p in local) for n in nodes]
    position = {node: k for k, node in enumerate(order)}
    alloc = [sizes[list(graph.makes[n])].sum(axis=0) for n in nodes]
    # Buffers that die inside the window: dead once all their readers in it have run.
    dying: list[tuple[int, np.ndarray]] = []
    seen: set[int] = set()
    for node in nodes:
        for buffer in graph.reads[node]:
            if buffer in seen or graph.pinned[buffer]:
                continue
            seen.add(buffer)
            if all(position[r] < start + width for r in graph.readers[buffer]):
                dying.append((sum(1 << local[r] for r in graph.readers[buffer] if r in local), sizes[buffer]))
    frees: list[list[tuple[int, np.ndarray]]] = [[d for d in dying if d[0] >> k & 1] for k in range(width)]
    before = _live_before(graph, sizes, position, start)
    # Per set of nodes that ran: (worst moment so far, sum of moments, live bytes after, path).
    layer: dict[int, tuple[float, float, np.ndarray, tuple[int, ...]]] = {0: (0.0, 0.0, before, ())}
    for _ in range(len(nodes)):
        following: dict[int, tuple[float, float, np.ndarray, tuple[int, ...]]] = {}
        for done, (most, total, live, path) in layer.items():
            for k in range(width):
                if done >> k & 1 or needs[k] & ~done:
                    continue
                moment = live + alloc[k]
                cost = float(moment.max())
                if cost >= worst:
                    continue
                after = done | 1 << k
                ranked = (max(most, cost), total + cost)
                known = following.get(after)
                if known is not None and (known[0], known[1]) <= ranked:
                    continue
                left = moment
                for mask, size in frees[k]:
                    if mask & ~after == 0:
                        left = left - size
                following[after] = (*ranked, left, (*path, k))
        if len(following) > states:
            best = sorted(following.items(), key=lambda item: (item[1][0], item[1][1], item[0]))[:states]
            following = dict(best)
        layer = following
        if not layer:
            return None
    (_, _, _, path) = layer[(1 << len(nodes)) - 1]
    return [nodes[k] for k in path]


def _live_before(graph: BufferGraph, sizes: np.ndarray, position: dict[int, int], start: int) -> np.ndarray:
    """Bytes live between step start-1 and step start."""
    live = [
        buffer
        for buffer, node in enumerate(graph.producer)
        if position[node] < start
        and (graph.pinned[buffer] or any(position[r] >= start for r in graph.readers[buffer]))
    ]
    return np.asarray(sizes[live].sum(axis=0))
