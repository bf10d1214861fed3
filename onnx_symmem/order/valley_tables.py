"""An order problem in whole numbers: sets of nodes as bits, bytes of several shapes as lanes of one integer.

Above each lane stands a bit that tells which of two is larger, so that all shapes are compared at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush

import numpy as np

from onnx_symmem.order.problem import OrderProblem

__all__ = ["ValleyTables", "bits_of", "places_of"]

_TOGETHER = 4  # operands that a node may work in the place of, at most


class ValleyTables:
    """One problem. What is compared are whole numbers, `units` per byte."""

    def __init__(self, problem: OrderProblem, units: int = 1) -> None:
        count = self.count = len(problem.nodes)
        self.problem, self.units = problem, units
        sizes, needs, makes, live = (
            np.rint(part * units) for part in (problem.sizes, problem.needs, problem.makes, problem.live)
        )
        most = float((live + makes.sum(axis=0)).max(initial=0.0))
        self.lane = max(int(most), 1).bit_length() + 1
        shapes = sizes.shape[1]
        self.lanes = range(0, self.lane * shapes, self.lane)
        self.guard = sum(1 << (at + self.lane - 1) for at in self.lanes)
        self.sizes = [self._packed(row) for row in sizes]
        self.makes = [self._packed(row) for row in makes]
        self.saves = [self._packed(row) for row in makes - needs]
        self.start = self._packed(live)
        rank = _topological(problem)
        place = {node: k for k, node in enumerate(rank)}
        # Nodes by place in a topological order, so that the lowest bit of a set may run first.
        self.nodes = rank
        self.makes = [self.makes[node] for node in rank]
        self.saves = [self.saves[node] for node in rank]
        self.before = [bits_of(place[p] for p in problem.before[node]) for node in rank]
        self.after = [tuple(sorted(place[a] for a in problem.after[node])) for node in rank]
        self.readers = [bits_of(place[r] for r in readers) for readers in problem.readers]
        sized = [bool(size) for size in self.sizes]
        self.reads = [tuple(b for b in problem.reads[node] if sized[b]) for node in rank]
        upward: list[int] = []
        for k in range(count):
            bits = 1 << k
            for p in places_of(self.before[k]):
                bits |= upward[p]
            upward.append(bits)
        # What it takes to free a buffer, in any order but that some node has to be the last, or -1. One that
        # may work in the place of what it reads has to be, with any of that.
        self.takes = [joined(upward, readers) if sized[b] else 0 for b, readers in enumerate(self.readers)]
        frees = {(need, -1) for need in self.takes if need}
        for node, saved in enumerate(self.saves):
            read = self.reads[node] if saved else ()
            for some in range(1, 1 << min(len(read), _TOGETHER)):
                nodes = union(self.takes, [b for k, b in enumerate(read) if some >> k & 1])
                if not any(nodes >> after & 1 for after in self.after[node]):
                    frees.add((nodes, node))
        self.frees = sorted(frees)
        self.near = [
            (bits_of(self.after[k]) | union(self.readers, self.reads[k])) & ~(1 << k) for k in range(count)
        ]
        self.all = (1 << count) - 1
        self._set_back()

    def _set_back(self) -> None:
        """What is looked at from the end: nodes that make bytes, as if no others stood between them."""
        count = self.count
        self.makers = bits_of(k for k, made in enumerate(self.makes) if made)
        self.downward, self.makers_after = [0] * count, [0] * count
        for k in range(count - 1, -1, -1):
            found = 1 << k
            for after in self.after[k]:
                found |= self.downward[after]
                self.makers_after[k] |= 1 << after if self.makes[after] else self.makers_after[after]
            self.downward[k] = found
        self.makers_before = [0] * count
        for k in range(count):
            for before in places_of(self.before[k]):
                self.makers_before[k] |= 1 << before if self.makes[before] else self.makers_before[before]
        # Taking a node back can make these safe: those that it was taken back for, too, or that have to take
        # back others which read what it reads.
        own = [1 << k if self.makes[k] else self.makers_before[k] for k in range(count)]
        self.near_before = [own[k] | joined(own, union(self.readers, self.reads[k])) for k in range(count)]

    def _packed(self, row: np.ndarray) -> int:
        return sum(int(value) << (self.lane * k) for k, value in enumerate(row))

    def top(self, caps: np.ndarray) -> int | None:
        """The most that a moment may take, as lanes; None where a cap leaves nothing."""
        large = 1 << (self.lane - 1)  # no lane comes up to it
        found = [int(min(np.ceil(cap * self.units), large)) - 1 for cap in caps]
        return None if min(found, default=0) < 0 else self._packed(np.array(found, dtype=object))

    def at_most(self, one: int, other: int) -> bool:
        """Whether no lane is larger than the other's."""
        return ((other | self.guard) - one) & self.guard == self.guard

    def least(self, one: int, other: int) -> int:
        """The smaller of both, lane by lane."""
        if self.at_most(one, other):
            return one
        mask = (1 << self.lane) - 1
        return sum(min(one >> at & mask, other >> at & mask) << at for at in self.lanes)


def _topological(problem: OrderProblem) -> list[int]:
    """Places of the nodes, each after those before it; ties by place."""
    left = [len(before) for before in problem.before]
    waiting = [k for k, count in enumerate(left) if not count]
    found: list[int] = []
    while waiting:
        node = heappop(waiting)
        found.append(node)
        for after in problem.after[node]:
            left[after] -= 1
            if not left[after]:
                heappush(waiting, after)
    return found


def bits_of(places: Iterable[int]) -> int:
    """A set of places as an integer."""
    found = 0
    for place in places:
        found |= 1 << place
    return found


def places_of(bits: int) -> Iterator[int]:
    """The places of a set, lowest first."""
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


def joined(sets: Sequence[int], bits: int) -> int:
    found = 0
    for place in places_of(bits):
        found |= sets[place]
    return found


def union(sets: Sequence[int], which: Sequence[int]) -> int:
    found = 0
    for k in which:
        found |= sets[k]
    return found
