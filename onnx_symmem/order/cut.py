"""The least memory with which a node can run, over all orders: a minimum cut over down-sets.

What ran before node v is a down-set D: it holds v's ancestors, and neither v nor its descendants. While v
runs, every buffer made in D that is pinned or still has a reader outside D is live, besides what v makes.
The least sum over all D is a minimum cut: of the network with an arc from each producer to its buffer with
the buffer's bytes, unlimited arcs from a buffer to its readers and from a node to what it depends on,
ancestors joined to the source, v and its descendants to the sink. Only nodes that are neither take part in
the flow.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from onnx_symmem.expr.exact import IntArray
from onnx_symmem.order.buffers import BufferGraph
from onnx_symmem.order.flow import UNLIMITED, FlowNetwork

__all__ = ["BEFORE", "FREE", "NOT_BEFORE", "CutFinder", "DownSetCut"]

FREE, BEFORE, NOT_BEFORE = 0, 1, 2
_EFFORT = 3_000_000  # looks at arcs per flow


@dataclass(frozen=True, slots=True)
class DownSetCut:
    """The least bytes live across a down-set, and the free nodes of the largest and of the smallest
    down-set that reaches it."""

    bytes: int
    most: tuple[int, ...]
    fewest: tuple[int, ...]


class CutFinder:
    """Minimum cuts of one graph."""

    def __init__(self, graph: BufferGraph) -> None:
        self.graph = graph
        self.known: dict[tuple[int, ...], dict[bytes, DownSetCut]] = {}  # by sizes, then roles
        self.producer = np.array(graph.producer, dtype=np.int64)
        self.pinned = np.array(graph.pinned, dtype=bool)
        counts = np.array([len(r) for r in graph.readers], dtype=np.int64)
        self.read = np.flatnonzero(counts)
        self.readers = np.array([r for rs in graph.readers for r in rs], dtype=np.int64)
        self.starts = (np.cumsum(counts) - counts)[self.read]
        self.reads = np.repeat(np.arange(len(counts)), counts)  # the buffer of each of `readers`
        self.before = np.array([p for ps in graph.predecessors for p in ps], dtype=np.int64)
        self.after = np.repeat(np.arange(graph.size), [len(p) for p in graph.predecessors])

    def roles(self, node: int) -> bytearray:
        """Per node what it is to a down-set before which `node` has not run: BEFORE, NOT_BEFORE, FREE."""
        return self.roles_within(node, (), ())

    def roles_within(self, node: int, done: Iterable[int], later: Iterable[int]) -> bytearray:
        """The same where `done` ran in any case and `later` did not."""
        roles = bytearray(self.graph.size)
        for other in done:
            roles[other] = BEFORE
        for other in later:
            roles[other] = NOT_BEFORE
        self._mark(roles, self.graph.predecessors[node], self.graph.predecessors, BEFORE)
        self._mark(roles, (node,), self.graph.successors, NOT_BEFORE)
        return roles

    @staticmethod
    def _mark(roles: bytearray, start: Iterable[int], over: Sequence[Sequence[int]], role: int) -> None:
        stack = [node for node in start if not roles[node]]
        for node in stack:
            roles[node] = role
        while stack:
            for other in over[stack.pop()]:
                if not roles[other]:
                    roles[other] = role
                    stack.append(other)

    def live_anyway(self, roles: bytearray) -> IntArray:
        """Buffers that are live across every down-set of these roles."""
        role = np.frombuffer(roles, dtype=np.uint8)
        return np.flatnonzero(self.outlives(role) & (role[self.producer] == BEFORE))

    def outlives(self, role: np.ndarray) -> np.ndarray:
        """Per buffer whether it is live across every down-set of these roles that makes it."""
        last = np.zeros(len(self.producer), dtype=np.uint8)
        if self.read.size:
            last[self.read] = np.maximum.reduceat(role[self.readers], self.starts)
        return self.pinned | (last == NOT_BEFORE)

    def across(self, ran: np.ndarray) -> IntArray:
        """Buffers that are live where just these nodes ran, which are told by a flag each."""
        lasts = self.pinned.copy()
        if self.read.size:
            lasts[self.read] |= np.logical_or.reduceat(~ran[self.readers], self.starts)
        return np.flatnonzero(lasts & ran[self.producer])

    def network(self, roles: bytearray) -> FreeNetwork:
        """The part of the network on which down-sets of these roles differ."""
        return FreeNetwork(self, roles)

    def least(self, roles: bytearray, sizes: Sequence[int]) -> DownSetCut:
        """The least bytes live across a down-set of these roles, and down-sets that reach it.

        It is kept for the next time: searches around an order begin with the same cuts over and over.
        """
        known = self.known.setdefault(tuple(sizes), {})
        found = known.get(bytes(roles))
        if found is None:
            always = sum(sizes[b] for b in self.live_anyway(roles).tolist())
            value, most, fewest = self.network(roles).solve(sizes, sets=True)
            found = known[bytes(roles)] = DownSetCut(always + value, most, fewest)
        return found


class FreeNetwork:
    """Arcs of the flow network for given roles, apart from capacities.

    A buffer is live if its tail ran and one of its heads did not. `arcs` are (buffers, tails, heads) of those
    that have one head, `stars` (buffers, tails, heads of all) of others, with as many as `degree` says.
    `needs` are nodes, and what they depend on.
    """

    def __init__(self, finder: CutFinder, roles: bytearray) -> None:
        role = np.frombuffer(roles, dtype=np.uint8)
        free = role == FREE
        nodes = np.flatnonzero(free)
        self.nodes: list[int] = nodes.tolist()
        self.source, self.sink = len(nodes), len(nodes) + 1
        self.vertices = len(nodes) + 2
        place = np.zeros(len(role), dtype=np.int64)
        place[nodes] = np.arange(len(nodes))
        needs = free[finder.after] & free[finder.before]
        self.needs = place[finder.after[needs]], place[finder.before[needs]]
        made = role[finder.producer]
        outlives = finder.outlives(role)
        ends = (made != NOT_BEFORE)[finder.reads] & ~outlives[finder.reads] & free[finder.readers]
        heads, of = place[finder.readers[ends]], finder.reads[ends]
        degree = np.bincount(of, minlength=len(made))
        tail = np.where(made == FREE, place[finder.producer], self.source)
        stays = np.flatnonzero((made == FREE) & outlives)
        alone = degree[of] == 1
        self.arcs = (
            np.concatenate([stays, of[alone]]).tolist(),
            np.concatenate([tail[stays], tail[of[alone]]]),
            np.concatenate([np.full(len(stays), self.sink), heads[alone]]),
        )
        buffers = np.flatnonzero(degree > 1)
        self.stars = buffers.tolist(), tail[buffers], heads[~alone]
        self.degree = degree[buffers]

    @property
    def effort(self) -> int:
        """Vertices and arcs."""
        return self.vertices + 2 * (len(self.arcs[0]) + len(self.stars[0])) + len(self.needs[0])

    def solve(self, sizes: Sequence[int], sets: bool = False) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
        """Bytes of a minimum cut, and with `sets` the free nodes of the largest and the smallest down-set.

        Where the flow takes too long, bytes that no cut is below, and no free nodes.
        """
        direct, shared = ([int(sizes[b]) for b in part[0]] for part in (self.arcs, self.stars))
        some, several = (np.flatnonzero(np.array(part, dtype=bool)) for part in (direct, shared))
        if not some.size and not several.size:
            return 0, (tuple(self.nodes) if sets else ()), ()
        stars = self.vertices + np.arange(len(several))
        chosen = np.zeros(len(shared), dtype=bool)
        chosen[several] = True
        of_star = np.repeat(chosen, self.degree)
        tails = (
            self.arcs[1][some],
            self.stars[1][several],
            np.repeat(stars, self.degree[several]),
            self.needs[0],
        )
        heads = self.arcs[2][some], stars, self.stars[2][of_star], self.needs[1]
        capacities = [c for c in direct if c] + [c for c in shared if c]
        count = sum(map(len, tails))
        capacities += [UNLIMITED] * (count - len(capacities))
        network = FlowNetwork(
            self.vertices + len(several), np.concatenate(tails), np.concatenate(heads), capacities
        )
        value = network.maximum(self.source, self.sink, _EFFORT)
        if not sets or not network.complete:
            return value, (), ()
        near = network.source_side(self.source)
        far = network.sink_side(self.sink)
        return (
            value,
            tuple(node for k, node in enumerate(self.nodes) if not far[k]),
            tuple(node for k, node in enumerate(self.nodes) if near[k]),
        )
