"""The best order of some nodes between fixed others: a dynamic program over the sets of nodes that ran.

Sizes are in units of a reference per shape, and the cost of a moment is its largest ratio over the shapes.
A state is a down-set; all states of one step are advanced at once. What is live depends on the set alone,
so of the ways to one set the one with the least worst moment is kept. Two rules cut the sets down without
losing the best order: a node that grows memory at no shape, and needs no more than was needed before, runs
at once; and moments below the reference are worth the same. Where more states are left than are allowed,
those that hold least are kept: then it is a beam search and no longer exact (facts/ALGORITHMS, 8.5).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from onnx_symmem.order.buffers import BufferGraph

__all__ = ["Found", "Segment", "best_sequence"]

_FLOOR = 1.0  # ratio to the reference below which nothing is gained


@dataclass(frozen=True, slots=True)
class Segment:
    """Nodes to order between fixed others.

    `live` are the bytes per shape before the first of them runs, `lasting` the buffers that they read and
    that someone after them reads too.
    """

    nodes: Sequence[int]
    live: np.ndarray
    lasting: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Found:
    """The nodes in order, None where no order stays below the caps, or none was found where not `exact`.

    `work` counts the (state, node) pairs that were looked at.
    """

    nodes: tuple[int, ...] | None
    exact: bool
    work: int


class _Tables:
    """A segment's nodes and buffers by local number, padded to rectangles; the last column is for padding.

    Bytes are (shapes, nodes or buffers): arrays along many states are faster than along few shapes.
    """

    def __init__(self, graph: BufferGraph, sizes: np.ndarray, segment: Segment) -> None:
        nodes = segment.nodes
        local = {node: k for k, node in enumerate(nodes)}
        buffers: dict[int, int] = {}
        for node in nodes:
            for buffer in graph.reads[node]:
                if not graph.pinned[buffer] and buffer not in segment.lasting:
                    buffers.setdefault(buffer, len(buffers))
        none = len(buffers)
        self.reads = _padded([[buffers[b] for b in graph.reads[n] if b in buffers] for n in nodes], none)
        after = [[local[s] for s in graph.successors[n] if s in local] for n in nodes]
        self.after = _padded(after, len(nodes))
        self.sizes = np.ascontiguousarray(np.vstack([sizes[list(buffers)], np.zeros((1, sizes.shape[1]))]).T)
        self.alloc = np.ascontiguousarray(
            np.array([sizes[list(graph.makes[n])].sum(axis=0) for n in nodes]).T
        )
        left = [sum(r in local for r in graph.readers[b]) for b in buffers]
        waiting = [sum(p in local for p in graph.predecessors[n]) for n in nodes]
        # No count is above that of the nodes; all states have theirs, so they are as short as can be.
        kind = np.int16 if len(nodes) < 1 << 15 else np.int32
        self.left = np.array([*left, 0], dtype=kind)
        self.waiting = np.array([*waiting, 1], dtype=kind)


def _padded(rows: Sequence[Sequence[int]], filler: int) -> np.ndarray:
    table = np.full((len(rows), max(map(len, rows), default=0)), filler, dtype=np.int64)
    for row, items in enumerate(rows):
        table[row, : len(items)] = items
    return table


def best_sequence(
    graph: BufferGraph,
    sizes: np.ndarray,
    segment: Segment,
    caps: np.ndarray,
    states: int,
    most_work: int = 1 << 60,
) -> Found:
    """The segment's nodes in an order all of whose moments are below `caps`, bytes per shape.

    `sizes` are bytes per buffer and shape in units of the reference; `states` are kept per step. Beyond
    `most_work` nothing is found.
    """
    tables, count = _Tables(graph, sizes, segment), len(segment.nodes)
    # Sets are told apart by sums of random numbers; a mistake would cost quality, never correctness.
    names = np.random.default_rng(0).integers(1, 1 << 62, count, dtype=np.int64)
    waiting, left = tables.waiting[None, :].copy(), tables.left[None, :].copy()
    live, most, total = np.array(segment.live, dtype=np.float64)[:, None], np.zeros(1), np.zeros(1)
    below = np.asarray(caps)[:, None]
    key = np.zeros(1, dtype=np.int64)
    history: list[tuple[np.ndarray, np.ndarray]] = []
    work, exact = 0, True
    for _ in range(count):
        state, node = np.divmod(np.flatnonzero(waiting == 0), count + 1)
        work += len(state)
        if work > most_work:
            return Found(None, False, work)
        before = live.take(state, axis=1)
        moment = before + tables.alloc.take(node, axis=1)
        fits = (moment < below).all(axis=0)
        if not fits.all():
            state, node = state[fits], node[fits]
            moment, before = moment.compress(fits, axis=1), before.compress(fits, axis=1)
        if not len(state):
            return Found(None, exact, work)
        cost, after = moment.max(axis=0, initial=0.0), moment
        for column in tables.reads[node].T:
            dies = np.flatnonzero(left[state, column] == 1)
            after[:, dies] -= tables.sizes[:, column[dies]]
        safe = (after <= before).all(axis=0) & (cost <= np.maximum(most[state], _FLOOR))
        forced = np.full(len(most), count)
        np.minimum.at(forced, state[safe], node[safe])
        kept = (forced[state] == count) | (forced[state] == node)
        state, node, cost, after = state[kept], node[kept], cost[kept], after.compress(kept, axis=1)
        most, total, key = np.maximum(most[state], cost), total[state] + cost, key[state] + names[node]
        rank = np.lexsort((total, most, key))
        first = np.ones(rank.size, dtype=bool)
        first[1:] = key[rank][1:] != key[rank][:-1]
        best = rank[first]
        if best.size > states:
            exact = False
            held, level = after[:, best].max(axis=0, initial=0.0), np.maximum(most[best], _FLOOR)
            best = best[np.lexsort((key[best], total[best], held, level))[:states]]
        state, node = state[best], node[best]
        most, total, key, live = most[best], total[best], key[best], after.take(best, axis=1)
        waiting, left = waiting[state], left[state]
        rows = np.arange(len(state))
        waiting[rows, node] = -1
        for column in tables.after[node].T:
            waiting[rows, column] -= 1
        for column in tables.reads[node].T:
            left[rows, column] -= 1
        waiting[:, count] = 1
        history.append((state, node))
    at = int(np.lexsort((total, most))[0])
    path: list[int] = []
    for state, node in reversed(history):
        path.append(segment.nodes[int(node[at])])
        at = int(state[at])
    return Found(tuple(reversed(path)), exact, work)
