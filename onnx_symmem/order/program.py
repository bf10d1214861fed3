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

_FEW = 800  # sets that are told apart by sorting them
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
    """A segment's nodes and buffers by local number, padded to rectangles.

    What is left to happen is counted in one row: predecessors per node, then readers per buffer, then one
    column that padding points to. Bytes are (shapes, nodes or columns): arrays along many states are faster
    than along few shapes.
    """

    def __init__(self, graph: BufferGraph, sizes: np.ndarray, segment: Segment) -> None:
        nodes = segment.nodes
        local = {node: k for k, node in enumerate(nodes)}
        buffers: dict[int, int] = {}  # by column
        for node in nodes:
            for buffer in graph.reads[node]:
                if not graph.pinned[buffer] and buffer not in segment.lasting:
                    buffers.setdefault(buffer, len(nodes) + len(buffers))
        self.width = len(nodes) + len(buffers) + 1
        reads = [[buffers[b] for b in graph.reads[n] if b in buffers] for n in nodes]
        after = [[local[s] for s in graph.successors[n] if s in local] for n in nodes]
        self.reads = np.ascontiguousarray(_padded(reads, self.width - 1).T)
        self.counted = _padded([a + r for a, r in zip(after, reads, strict=True)], self.width - 1)
        own = np.zeros((self.width, sizes.shape[1]))
        own[len(nodes) : -1] = sizes[list(buffers)]
        self.sizes = np.ascontiguousarray(own.T)
        self.alloc = np.ascontiguousarray(
            np.array([sizes[list(graph.makes[n])].sum(axis=0) for n in nodes]).T
        )
        waiting = [sum(p in local for p in graph.predecessors[n]) for n in nodes]
        left = [sum(r in local for r in graph.readers[b]) for b in buffers]
        # All states have their counts, so they are as short as can be.
        most = max(*waiting, *left, 1)
        kind = np.int8 if most < 1 << 7 else np.int16 if most < 1 << 15 else np.int32
        self.left = np.array([*waiting, *left, 0], dtype=kind)


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
    left = tables.left[None, :].copy()
    live, most, total = np.array(segment.live, dtype=np.float64)[:, None], np.zeros(1), np.zeros(1)
    below = np.asarray(caps)[:, None]
    key = np.zeros(1, dtype=np.int64)
    history: list[tuple[np.ndarray, np.ndarray]] = []
    work, exact = 0, True
    for _ in range(count):
        ready = np.flatnonzero(left[:, :count] == 0)
        state = ready // count
        node = ready - state * count
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
        _free(after, tables, left, state, node)
        safe = (after <= before).all(axis=0) & (cost <= np.maximum(most.take(state), _FLOOR))
        if safe.any():
            forced = np.full(len(most), count)
            np.minimum.at(forced, state[safe], node[safe])
            must = forced.take(state)
            kept = (must == count) | (must == node)
            state, node, cost, after = state[kept], node[kept], cost[kept], after.compress(kept, axis=1)
        most, total = np.maximum(most.take(state), cost), total.take(state) + cost
        key = key.take(state) + names.take(node)
        best = _distinct(key, most, total)
        if best.size > states:
            exact = False
            held, level = (
                after.take(best, axis=1).max(axis=0, initial=0.0),
                np.maximum(most.take(best), _FLOOR),
            )
            best = best.take(_first(level, held, total.take(best), key.take(best), states))
        else:
            best = best.take(np.argsort(key.take(best)))
        state, node = state.take(best), node.take(best)
        most, total, key, live = most[best], total[best], key[best], after.take(best, axis=1)
        left = left.take(state, axis=0)
        rows = np.arange(0, left.size, tables.width)
        counts = left.ravel()  # the same memory
        counts[rows + node] = -1
        counts[(rows[:, None] + tables.counted.take(node, axis=0)).ravel()] -= 1
        history.append((state, node))
    at = int(np.lexsort((total, most))[0])
    path: list[int] = []
    for state, node in reversed(history):
        path.append(segment.nodes[int(node[at])])
        at = int(state[at])
    return Found(tuple(reversed(path)), exact, work)


def _free(after: np.ndarray, tables: _Tables, left: np.ndarray, state: np.ndarray, node: np.ndarray) -> None:
    """Take off, in place, what dies when each state's node runs."""
    buffers = tables.reads.take(node, axis=1)
    others = left.ravel().take(buffers + state * tables.width) != 1
    np.putmask(buffers, others, tables.width - 1)
    for column in buffers:
        after -= tables.sizes.take(column, axis=1)


def _distinct(key: np.ndarray, most: np.ndarray, total: np.ndarray) -> np.ndarray:
    """Of equal keys the place where `most` is least, then `total`, then the place itself; in any order."""
    if key.size <= _FEW:
        rank = np.lexsort((total, most, key))
        ranked, new = key.take(rank), np.ones(key.size, dtype=bool)
        np.not_equal(ranked[1:], ranked[:-1], out=new[1:])
        return rank[new]
    leader = _leaders(key)
    least = np.full(key.size, np.inf)
    np.minimum.at(least, leader, most)
    among = np.where(most == least.take(leader), total, np.inf)
    least.fill(np.inf)
    np.minimum.at(least, leader, among)
    tied = np.flatnonzero(among == least.take(leader))[::-1]
    first = np.full(key.size, key.size)
    first[leader.take(tied)] = tied  # of several, what is written last stays: the first place
    return first[first < key.size]


def _leaders(key: np.ndarray) -> np.ndarray:
    """Per place one with an equal key, the same for all of these: sorting would take far longer."""
    leader = np.arange(key.size)
    bits = key.size.bit_length() + 1
    places, shift = leader.copy(), 0
    slots = np.empty(1 << bits, dtype=np.int64)
    while places.size:
        slot = (key.take(places) >> shift) & ((1 << bits) - 1)
        slots[slot] = places
        found = slots.take(slot)
        same = key.take(found) == key.take(places)
        leader[places[same]] = found[same]
        # Others share the slot: every round settles one key of each at least.
        places = places[~same]
        shift = (shift + 7) % 40
    return leader


def _first(level: np.ndarray, held: np.ndarray, total: np.ndarray, key: np.ndarray, count: int) -> np.ndarray:
    """The first `count` places by level, then by what is held, then total, then key."""
    last = level.min()
    if np.count_nonzero(level == last) < count:
        last = np.partition(level, count - 1)[count - 1]
    among, tied = np.flatnonzero(level < last), np.flatnonzero(level == last)
    if among.size + tied.size > count:
        some, more = held.take(tied), count - among.size
        tied = tied[some <= np.partition(some, more - 1)[more - 1]]
    among = np.concatenate([among, tied])
    ranks = (key.take(among), total.take(among), held.take(among), level.take(among))
    return among.take(np.lexsort(ranks)[:count])
