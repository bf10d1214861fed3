"""An order below given caps, or the proof that there is none: all down-sets that can be reached below them.

The live bytes f(D) after the nodes D ran are submodular: adding nodes to a larger set grows them less. So if
running X after D leads to f(D + X) <= f(D), with no more on the way than the caps allow and nothing in
between that is lower, X may as well run at once: every later moment of every order gets lower or stays (an
exchange argument). Nodes that shrink memory therefore run when they can, and a node whose own successors
take memory back to where it was before leaves no other choice. What remains is a search over sets by their
number of nodes; ways to the same set are one, since what is live depends on the set alone.

Exact where `states` sufficed at every number of nodes; where they did not, the sets that hold least are kept
and nothing is proved. Caps are exclusive. Bytes that are whole numbers below 2**53 are compared exactly.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from onnx_symmem.order.problem import OrderProblem

__all__ = ["DownSetProgram", "Reached"]

_ONE = np.uint64(1)
_LOOK = 1_000  # pairs that take as long as one look at no pair
_MIX = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(29))


@dataclass(frozen=True, slots=True)
class Reached:
    """Places of the problem's nodes in an order below the caps, or None: there is none where `exact`.

    `work` counts the (set, node) pairs that were looked at, in parts of 128 nodes, and what each look
    takes anyway, however many pairs there are.
    """

    order: tuple[int, ...] | None
    exact: bool
    work: int


@dataclass(slots=True)
class _Sets:
    """Down-sets as rows: nodes that ran, nodes that are ready, bytes live."""

    done: np.ndarray
    ready: np.ndarray
    live: np.ndarray

    def at(self, rows: np.ndarray) -> _Sets:
        return _Sets(self.done[rows], self.ready[rows], self.live[rows])

    def put(self, rows: np.ndarray, other: _Sets) -> None:
        self.done[rows], self.ready[rows], self.live[rows] = other.done, other.ready, other.live


class DownSetProgram:
    """One problem, for any caps."""

    def __init__(self, problem: OrderProblem) -> None:
        self.problem = problem
        self.count = count = len(problem.nodes)
        self.words = count // 64 + 1
        none = len(problem.readers)
        shapes = problem.sizes.shape[1]
        self.bit = self._sets([(k,) for k in range(count)])
        self.before = self._sets(problem.before)
        self.readers = np.vstack([self._sets(problem.readers), np.zeros((1, self.words), np.uint64)])
        self.sizes = np.vstack([problem.sizes, np.zeros((1, shapes))])
        self.reads = _padded(problem.reads, none)
        self.after = _padded(problem.after, -1)
        # Running a node can make these safe: they get ready, or become a buffer's last reader.
        near = [
            {*problem.after[k], *(r for b in problem.reads[k] for r in problem.readers[b])} - {k}
            for k in range(count)
        ]
        self.near = self._sets([tuple(sorted(n)) for n in near])
        self.below = self._descendants()

    def _sets(self, rows: Sequence[Sequence[int]]) -> np.ndarray:
        table = np.zeros((len(rows), self.words), dtype=np.uint64)
        for row, items in enumerate(rows):
            for item in items:
                table[row, item >> 6] |= _ONE << np.uint64(item & 63)
        return table

    def _descendants(self) -> np.ndarray:
        table = self.bit.copy()
        left = [len(s) for s in self.problem.after]
        stack = [k for k, count in enumerate(left) if not count]
        while stack:
            node = stack.pop()
            for producer in self.problem.before[node]:
                table[producer] |= table[node]
                left[producer] -= 1
                if not left[producer]:
                    stack.append(producer)
        return table

    def below_caps(self, caps: np.ndarray, states: int, work: int = 1 << 60) -> Reached:
        """An order all of whose moments are below `caps`, bytes per shape."""
        sets, spent = self._start(caps)
        waiting: dict[int, list[tuple[_Sets, np.ndarray, np.ndarray]]] = {}
        root = np.full(1, -1)
        waiting[int(self._flags(sets.done).sum())] = [(sets, root, root)]
        starts: list[int] = []
        made_by: list[tuple[np.ndarray, np.ndarray]] = []
        total, exact = 0, True
        for number in range(self.count + 1):
            if number not in waiting:
                continue
            sets, parents, nodes = _joined(waiting.pop(number))
            rows = _distinct(sets.done)
            if len(rows) > states:
                exact = False
                held = sets.live[rows].max(axis=1, initial=0.0)
                rows = rows[np.sort(np.argsort(held, kind="stable")[:states])]
            sets, parents, nodes = sets.at(rows), parents[rows], nodes[rows]
            starts.append(total)
            made_by.append((parents, nodes))
            if number == self.count:
                return Reached(self._path(caps, starts, made_by, total), exact, spent)
            state, node = np.nonzero(self._flags(sets.ready))
            spent += self._effort(len(state))
            if spent > work:
                return Reached(None, False, spent)
            moment = sets.live[state] + self.problem.needs[node]
            fits = (moment < caps).all(axis=1)
            state, node = state[fits], node[fits]
            kept, new, more = self._advanced(sets, state, node, caps)
            spent += more
            size = self._flags(new.done).sum(axis=1)
            for other in np.unique(size):
                these = np.flatnonzero(size == other)
                waiting.setdefault(int(other), []).append(
                    (new.at(these), state[kept][these] + total, node[kept][these])
                )
            total += len(rows)
        return Reached(None, exact, spent)

    def _start(self, caps: np.ndarray) -> tuple[_Sets, int]:
        first = self._sets([tuple(k for k, p in enumerate(self.problem.before) if not p)])
        sets = _Sets(np.zeros_like(first), first, self.problem.live[None, :].astype(np.float64))
        return sets, self._close(sets, caps, first.copy())

    def _advanced(
        self, sets: _Sets, state: np.ndarray, node: np.ndarray, caps: np.ndarray
    ) -> tuple[np.ndarray, _Sets, int]:
        """Rows of (state, node) that are worth going on with, the sets that they lead to, and the work."""
        new = self._ran(sets.at(state), node)
        work = self._close(new, caps, self.near[node], self.below[node])
        back = (new.live <= sets.live[state]).all(axis=1)
        forced = np.full(len(sets.done), self.count)
        np.minimum.at(forced, state[back], node[back])
        kept = np.flatnonzero((forced[state] == self.count) | (forced[state] == node))
        new = new.at(kept)
        return kept, new, work + self._close(new, caps, self._around(new.done & ~sets.done[state[kept]]))

    def _ran(self, sets: _Sets, node: np.ndarray) -> _Sets:
        """The sets after one more node each."""
        done = sets.done | self.bit[node]
        live = sets.live + self.problem.makes[node]
        for column in self.reads[node].T:
            dies = ((self.readers[column] & ~done) == 0).all(axis=1)
            live = live - np.where(dies[:, None], self.sizes[column], 0.0)
        ready = sets.ready & ~self.bit[node]
        for column in self.after[node].T:
            now = (column >= 0) & ((self.before[column] & ~done) == 0).all(axis=1)
            ready |= np.where(now[:, None], self.bit[column], np.uint64(0))
        return _Sets(done, ready, live)

    def _close(
        self, sets: _Sets, caps: np.ndarray, look: np.ndarray, within: np.ndarray | None = None
    ) -> int:
        """Run every ready node that grows memory at no shape, in place; returns the work.

        `look` are the nodes to look at first, `within` those that may run at all.
        """
        rows, look, work = np.arange(len(sets.done)), look.copy(), 0
        while True:
            open_ = look[rows] & sets.ready[rows]
            if within is not None:
                open_ &= within[rows]
            some = open_.any(axis=1)
            rows, open_ = rows[some], open_[some]
            if not len(rows):
                return work
            work += self._effort(len(rows))
            node = self._flags(open_).argmax(axis=1)
            live = sets.live[rows]
            new = self._ran(sets.at(rows), node)
            fits = (live + self.problem.needs[node] < caps).all(axis=1)
            safe = np.flatnonzero(fits & (new.live <= live).all(axis=1))
            look[rows] &= ~self.bit[node]
            sets.put(rows[safe], new.at(safe))
            look[rows[safe]] |= self.near[node[safe]]

    def _effort(self, pairs: int) -> int:
        return _LOOK + pairs * (1 + self.count // 128)

    def _around(self, ran: np.ndarray) -> np.ndarray:
        """Per row: the nodes that a set of nodes that ran can have made safe."""
        found = np.zeros_like(ran)
        row, node = np.nonzero(self._flags(ran))
        np.bitwise_or.at(found, row, self.near[node])
        return found

    def _flags(self, sets: np.ndarray) -> np.ndarray:
        """Sets as rows of zeros and ones."""
        data = np.ascontiguousarray(sets.astype("<u8", copy=False)).view(np.uint8)
        return np.unpackbits(data, axis=1, bitorder="little", count=self.count)

    def _path(
        self,
        caps: np.ndarray,
        starts: Sequence[int],
        made_by: Sequence[tuple[np.ndarray, np.ndarray]],
        last: int,
    ) -> tuple[int, ...]:
        """The order to the set numbered `last`: chosen nodes are on record, the others run as they did."""
        chosen: list[int] = []
        while last >= 0:
            at = bisect_right(starts, last) - 1
            parents, nodes = made_by[at]
            chosen.append(int(nodes[last - starts[at]]))
            last = int(parents[last - starts[at]])
        order: list[int] = []
        first = self._sets([tuple(k for k, p in enumerate(self.problem.before) if not p)])
        sets = _Sets(np.zeros_like(first), first, self.problem.live[None, :].astype(np.float64))
        self._replay(sets, caps, first.copy(), None, order)
        for node in chosen[-2::-1]:
            done = sets.done.copy()
            one = np.array([node])
            sets.put(np.zeros(1, dtype=np.int64), self._ran(sets, one))
            order.append(node)
            self._replay(sets, caps, self.near[one], self.below[one], order)
            self._replay(sets, caps, self._around(sets.done & ~done), None, order)
        return tuple(order)

    def _replay(
        self, sets: _Sets, caps: np.ndarray, look: np.ndarray, within: np.ndarray | None, order: list[int]
    ) -> None:
        """`_close` for one row, writing down what runs."""
        look, row = look.copy(), np.zeros(1, dtype=np.int64)
        while True:
            open_ = look & sets.ready if within is None else look & sets.ready & within
            if not open_.any():
                return
            node = self._flags(open_).argmax(axis=1)
            new = self._ran(sets, node)
            fits = bool((sets.live + self.problem.needs[node] < caps).all())
            look &= ~self.bit[node]
            if fits and bool((new.live <= sets.live).all()):
                order.append(int(node[0]))
                sets.put(row, new)
                look |= self.near[node]


def _joined(parts: Sequence[tuple[_Sets, np.ndarray, np.ndarray]]) -> tuple[_Sets, np.ndarray, np.ndarray]:
    sets = [part[0] for part in parts]
    return (
        _Sets(
            np.concatenate([s.done for s in sets]),
            np.concatenate([s.ready for s in sets]),
            np.concatenate([s.live for s in sets]),
        ),
        np.concatenate([part[1] for part in parts]),
        np.concatenate([part[2] for part in parts]),
    )


def _distinct(sets: np.ndarray) -> np.ndarray:
    """The first row of every set; sets that only look alike stay apart."""
    mixed = np.zeros(len(sets), dtype=np.uint64)
    for word in sets.T:
        mixed = (mixed * _MIX[0] + word) * _MIX[1]
        mixed ^= mixed >> _MIX[2]
    rank = np.argsort(mixed, kind="stable")
    first = np.ones(len(rank), dtype=bool)
    first[1:] = (sets[rank[1:]] != sets[rank[:-1]]).any(axis=1)
    return np.sort(rank[first])


def _padded(rows: Sequence[Sequence[int]], filler: int) -> np.ndarray:
    table = np.full((len(rows), max(map(len, rows), default=0)), filler, dtype=np.int64)
    for row, items in enumerate(rows):
        table[row, : len(items)] = items
    return table
