"""Candidate orders by list scheduling at one concrete shape: greedy, reverse greedy, LPMF, depth first.

Each takes the buffer graph and the bytes of every buffer at a steering shape and returns a topological
order. They steer only: what an order costs is decided by the exact plan, and whether it may be used by a
proof. Sources: XLA's list and DFS schedulers, PyTorch Inductor's LPMF (facts/ALGORITHMS, 2 and 3).
All are deterministic: ties fall to the lowest node index.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

from onnx_symmem.order.buffers import BufferGraph

__all__ = ["HEURISTICS", "Heuristic", "depth_first", "forward_greedy", "least_peak_first", "reverse_greedy"]

Heuristic = Callable[[BufferGraph, Sequence[int]], tuple[int, ...]]


class _Forward:
    """State of a forward schedule: readers left per buffer, impact of each node if it ran now.

    impact = bytes allocated - bytes freed; positive grows memory.
    """

    def __init__(self, graph: BufferGraph, sizes: Sequence[int]) -> None:
        self.graph, self.sizes = graph, sizes
        self.alloc = graph.allocation(sizes)
        self.left = [len(r) for r in graph.readers]
        self.waiting = [len(p) for p in graph.predecessors]
        self.impact = [
            alloc - sum(sizes[b] for b in reads if self.left[b] == 1 and not graph.pinned[b])
            for alloc, reads in zip(self.alloc, graph.reads, strict=True)
        ]
        self.done = [False] * graph.size
        self.ready = [not count for count in self.waiting]
        self.live = 0

    def run(self, node: int) -> list[int]:
        """Execute a node; returns the ready nodes that are new or whose impact changed."""
        graph = self.graph
        self.done[node] = True
        self.live += self.impact[node]
        touched = []
        for buffer in graph.reads[node]:
            self.left[buffer] -= 1
            if self.left[buffer] == 1 and not graph.pinned[buffer] and self.sizes[buffer]:
                last = next(r for r in graph.readers[buffer] if r != node and not self.done[r])
                self.impact[last] -= self.sizes[buffer]
                touched.append(last)
        for after in graph.successors[node]:
            self.waiting[after] -= 1
            if not self.waiting[after]:
                self.ready[after] = True
                touched.append(after)
        return [other for other in dict.fromkeys(touched) if self.ready[other]]


def forward_greedy(graph: BufferGraph, sizes: Sequence[int]) -> tuple[int, ...]:
    """Always run the ready node with the least impact (the paper's rule, with numbers for expressions)."""
    state = _Forward(graph, sizes)
    heap = [(state.impact[node], node) for node in range(graph.size) if state.ready[node]]
    heapq.heapify(heap)
    order: list[int] = []
    while heap:
        impact, node = heapq.heappop(heap)
        if state.done[node] or impact != state.impact[node]:
            continue
        order.append(node)
        for other in state.run(node):
            heapq.heappush(heap, (state.impact[other], other))
    return tuple(order)


def least_peak_first(graph: BufferGraph, sizes: Sequence[int]) -> tuple[int, ...]:
    """LPMF: run the node that raises the peak so far least; among those that do not, least impact first."""
    state = _Forward(graph, sizes)
    start = [node for node in range(graph.size) if state.ready[node]]
    by_impact = [(state.impact[node], node) for node in start]
    by_alloc = [(state.alloc[node], state.impact[node], node) for node in start]
    heapq.heapify(by_impact)
    heapq.heapify(by_alloc)
    peak = 0
    order: list[int] = []
    for _ in range(graph.size):
        while state.done[by_alloc[0][2]] or by_alloc[0][1] != state.impact[by_alloc[0][2]]:
            heapq.heappop(by_alloc)
        node = by_alloc[0][2]
        if state.live + by_alloc[0][0] <= peak:
            aside = []
            while True:
                impact, candidate = heapq.heappop(by_impact)
                if state.done[candidate] or impact != state.impact[candidate]:
                    continue
                if state.live + state.alloc[candidate] <= peak:
                    node = candidate
                    break
                aside.append((impact, candidate))
            for entry in aside:
                heapq.heappush(by_impact, entry)
        peak = max(peak, state.live + state.alloc[node])
        order.append(node)
        for other in state.run(node):
            heapq.heappush(by_impact, (state.impact[other], other))
            heapq.heappush(by_alloc, (state.alloc[other], state.impact[other], other))
    return tuple(order)


def reverse_greedy(graph: BufferGraph, sizes: Sequence[int]) -> tuple[int, ...]:
    """Schedule from the end: among nodes whose successors are placed, the one that grows memory least.

    Going backwards, a node ends the life of what it makes and starts the life of what it reads. This is
    BladeDISC++'s bottom-up list scheduling, with numbers for expressions.
    """
    waiting = [len(s) for s in graph.successors]
    live = list(graph.pinned)

    def growth(node: int) -> int:
        new = sum(sizes[b] for b in graph.reads[node] if not live[b])
        return new - sum(sizes[b] for b in graph.makes[node] if live[b])

    current = [growth(node) for node in range(graph.size)]
    ready = [not count for count in waiting]
    # Later nodes first among equals, so that equal choices keep the file's order.
    heap = [(current[node], -node) for node in range(graph.size) if ready[node]]
    heapq.heapify(heap)
    done = [False] * graph.size
    order: list[int] = []
    while heap:
        cost, negative = heapq.heappop(heap)
        node = -negative
        if done[node] or cost != current[node]:
            continue
        done[node] = True
        order.append(node)
        touched: list[int] = []
        for buffer in graph.reads[node]:
            if not live[buffer]:
                live[buffer] = True
                touched.extend(graph.readers[buffer])
                touched.append(graph.producer[buffer])
        for before in graph.predecessors[node]:
            waiting[before] -= 1
            if not waiting[before]:
                ready[before] = True
                touched.append(before)
        for other in dict.fromkeys(touched):
            if not done[other] and ready[other]:
                current[other] = growth(other)
                heapq.heappush(heap, (current[other], -other))
    return tuple(reversed(order))


def depth_first(graph: BufferGraph, sizes: Sequence[int]) -> tuple[int, ...]:
    """Post-order from the sinks, the operand that needs most memory beyond its result first.

    The need of a subtree is Sethi and Ullman's number in bytes, computed as if shared nodes were repeated.
    """
    alloc = graph.allocation(sizes)
    need = [0] * graph.size
    ranked: list[list[int]] = [[] for _ in range(graph.size)]
    for node in graph.topological:
        operands = sorted(graph.predecessors[node], key=lambda p: (alloc[p] - need[p], p))
        held, most = 0, 0
        for operand in operands:
            most = max(most, held + need[operand])
            held += alloc[operand]
        need[node] = max(most, held + alloc[node])
        ranked[node] = operands
    order: list[int] = []
    seen = [False] * graph.size
    sinks = sorted((node for node, s in enumerate(graph.successors) if not s), key=lambda v: (-need[v], v))
    for sink in sinks:
        stack = [(sink, 0)]
        seen[sink] = True
        while stack:
            node, at = stack.pop()
            operands = ranked[node]
            while at < len(operands) and seen[operands[at]]:
                at += 1
            if at < len(operands):
                stack.append((node, at + 1))
                seen[operands[at]] = True
                stack.append((operands[at], 0))
            else:
                order.append(node)
    return tuple(order)


HEURISTICS: dict[str, Heuristic] = {
    "greedy": forward_greedy,
    "reverse-greedy": reverse_greedy,
    "lpmf": least_peak_first,
    "dfs": depth_first,
}
