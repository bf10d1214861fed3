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
        self.producer = np.array(graph.producer, dtype=np.int64)
        self.pinned = np.array(graph.pinned, dtype=bool)
        counts = np.array([len(r) for r in graph.readers], dtype=np.int64)
        self.read = np.flatnonzero(counts)
        self.readers = np.array([r for rs in graph.readers for r in rs], dtype=np.int64)
        self.starts = (np.cumsum(counts) - counts)[self.read]

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
        role = np.frombuffer(bytes(roles), dtype=np.uint8)
        outlives = self.pinned.copy()
        if self.read.size:
            last = np.maximum.reduceat(role[self.readers], self.starts)
            outlives[self.read] |= last == NOT_BEFORE
        return np.flatnonzero(outlives & (role[self.producer] == BEFORE))

    def network(self, roles: bytearray) -> FreeNetwork:
        """The part of the network on which down-sets of these roles differ."""
        return FreeNetwork(self.graph, roles)

    def least(self, roles: bytearray, sizes: Sequence[int]) -> DownSetCut:
        """The least bytes live across a down-set of these roles, and down-sets that reach it."""
        always = sum(sizes[b] for b in self.live_anyway(roles).tolist())
        value, most, fewest = self.network(roles).solve(sizes, sets=True)
        return DownSetCut(always + value, most, fewest)


class FreeNetwork:
    """Arcs of the flow network for given roles, apart from capacities."""

    def __init__(self, graph: BufferGraph, roles: bytearray) -> None:
        self.nodes = [node for node, role in enumerate(roles) if role == FREE]
        place = {node: k for k, node in enumerate(self.nodes)}
        self.source, self.sink = len(self.nodes), len(self.nodes) + 1
        self.vertices = len(self.nodes) + 2
        # (buffer, tail, heads): the buffer is live if the tail ran and one of the heads did not.
        self.lives: list[tuple[int, int, tuple[int, ...]]] = []
        self.needs: list[tuple[int, int]] = []
        seen: set[int] = set()
        for node in self.nodes:
            at = place[node]
            self.needs += [(at, place[p]) for p in graph.predecessors[node] if p in place]
            for buffer in graph.makes[node]:
                readers = graph.readers[buffer]
                if graph.pinned[buffer] or any(roles[r] == NOT_BEFORE for r in readers):
                    self.lives.append((buffer, at, (self.sink,)))
                elif readers:
                    self.lives.append((buffer, at, tuple(place[r] for r in readers)))
            for buffer in graph.reads[node]:
                if buffer in seen or roles[graph.producer[buffer]] != BEFORE or graph.pinned[buffer]:
                    continue
                seen.add(buffer)
                readers = graph.readers[buffer]
                if all(roles[r] != NOT_BEFORE for r in readers):
                    heads = tuple(place[r] for r in readers if r in place)
                    self.lives.append((buffer, self.source, heads))

    def solve(self, sizes: Sequence[int], sets: bool = False) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
        """Bytes of a minimum cut, and with `sets` the free nodes of the largest and the smallest down-set.

        Where the flow takes too long, bytes that no cut is below, and no free nodes.
        """
        direct: dict[tuple[int, int], int] = {}
        shared: dict[tuple[int, tuple[int, ...]], int] = {}
        for buffer, tail, heads in self.lives:
            size = int(sizes[buffer])
            if not size:
                continue
            if len(heads) == 1:
                direct[tail, heads[0]] = direct.get((tail, heads[0]), 0) + size
            else:
                shared[tail, heads] = shared.get((tail, heads), 0) + size
        if not direct and not shared:
            return 0, (tuple(self.nodes) if sets else ()), ()
        network = FlowNetwork(self.vertices + len(shared))
        for (tail, head), size in direct.items():
            network.arc(tail, head, size)
        for k, ((tail, heads), size) in enumerate(shared.items()):
            network.arc(tail, self.vertices + k, size)
            for head in heads:
                network.arc(self.vertices + k, head, UNLIMITED)
        for node, before in self.needs:
            network.arc(node, before, UNLIMITED)
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
