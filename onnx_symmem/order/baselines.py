"""The schedulers that ours is compared with, under the names of where they come from.

    symbolic-greedy   the paper: among ready nodes the least symbolic impact; where two cannot be compared,
                      the graph's order decides
    reverse-list      BladeDISC++: the same from the end, the node that grows memory least is placed last
    inductor          PyTorch: the least peak at one shape of file order, LPMF, breadth first and depth first
    xla               XLA: the least peak at one shape of list scheduling, depth first and post-order

The symbolic ones decide with certificates on the whole domain and count how their comparisons were settled.
Ready nodes of equal impact are compared once (facts/ALGORITHMS, 1 to 3).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

import numpy as np

from onnx_symmem.expr.decide import Kind, Tally, compare
from onnx_symmem.expr.domain import Domain
from onnx_symmem.expr.expression import ZERO, Expr
from onnx_symmem.order.buffers import BufferGraph
from onnx_symmem.order.heuristics import depth_first, forward_greedy, least_peak_first
from onnx_symmem.order.moments import live_bytes

__all__ = ["breadth_first", "inductor", "post_order", "reverse_list", "symbolic_greedy", "xla"]


class _Comparisons:
    """Answers about differences of impacts, each found once, and how often they were asked for."""

    def __init__(self, domain: Domain) -> None:
        self.domain = domain
        self.known: dict[Expr, tuple[Kind, str]] = {}
        self.asked: list[tuple[Kind, str]] = []

    def less(self, a: Expr, b: Expr) -> bool | None:
        """Whether a < b somewhere and a <= b everywhere; None where the two cannot be compared."""
        difference = b - a
        if difference not in self.known:
            verdict = compare(ZERO, difference, self.domain)
            self.known[difference] = verdict.kind, verdict.tier
        self.asked.append(self.known[difference])
        kind = self.known[difference][0]
        if kind in (Kind.INCOMPARABLE, Kind.UNKNOWN):
            return None
        return kind == Kind.LE

    @property
    def tally(self) -> Tally:
        """Verdicts by kind and tier."""
        return Tally.of(self.asked)


class _Ready:
    """Ready nodes by impact; `first` tells which of two comes first where impacts do not."""

    def __init__(self, comparisons: _Comparisons, sign: int) -> None:
        self.comparisons, self.sign = comparisons, sign
        self.groups: dict[Expr, list[int]] = {}
        self.impact: dict[int, Expr] = {}

    def put(self, node: int, impact: Expr) -> None:
        """Add a node, or change its impact."""
        self.impact[node] = impact
        heapq.heappush(self.groups.setdefault(impact, []), self.sign * node)

    def take(self) -> int | None:
        """Remove and return the best node."""
        heads: list[tuple[int, Expr]] = []
        for impact in list(self.groups):
            heap = self.groups[impact]
            while heap and self.impact.get(self.sign * heap[0]) != impact:
                heapq.heappop(heap)
            if heap:
                heads.append((heap[0], impact))
            else:
                del self.groups[impact]
        if not heads:
            return None
        heads.sort(key=lambda head: head[0])
        best = heads[0]
        for head in heads[1:]:
            if self.comparisons.less(head[1], best[1]):
                best = head
        node = self.sign * heapq.heappop(self.groups[best[1]])
        del self.impact[node]
        return node


def symbolic_greedy(
    graph: BufferGraph, sizes: Sequence[Expr], domain: Domain
) -> tuple[tuple[int, ...], Tally]:
    """The paper's scheduler; impact is bytes allocated minus bytes freed."""
    ready = _Ready(_Comparisons(domain), 1)
    left = [len(r) for r in graph.readers]
    waiting = [len(p) for p in graph.predecessors]

    def impact(node: int) -> Expr:
        made = sum((sizes[b] for b in graph.makes[node]), ZERO)
        dies = (sizes[b] for b in graph.reads[node] if left[b] == 1 and not graph.pinned[b])
        return made - sum(dies, ZERO)

    for start, count in enumerate(waiting):
        if not count:
            ready.put(start, impact(start))
    order: list[int] = []
    done = [False] * graph.size
    while (node := ready.take()) is not None:
        order.append(node)
        done[node] = True
        touched: list[int] = []
        for buffer in graph.reads[node]:
            left[buffer] -= 1
            if left[buffer] == 1:
                touched += (r for r in graph.readers[buffer] if not done[r] and not waiting[r])
        for after in graph.successors[node]:
            waiting[after] -= 1
            if not waiting[after]:
                touched.append(after)
        for other in dict.fromkeys(touched):
            ready.put(other, impact(other))
    return tuple(order), ready.comparisons.tally


def reverse_list(graph: BufferGraph, sizes: Sequence[Expr], domain: Domain) -> tuple[tuple[int, ...], Tally]:
    """BladeDISC++'s scheduler: from the end, growth is bytes that come to life minus bytes made."""
    ready = _Ready(_Comparisons(domain), -1)
    live = list(graph.pinned)
    waiting = [len(s) for s in graph.successors]

    def growth(node: int) -> Expr:
        new = sum((sizes[b] for b in graph.reads[node] if not live[b]), ZERO)
        return new - sum((sizes[b] for b in graph.makes[node] if live[b]), ZERO)

    for start, count in enumerate(waiting):
        if not count:
            ready.put(start, growth(start))
    order: list[int] = []
    done = [False] * graph.size
    while (node := ready.take()) is not None:
        order.append(node)
        done[node] = True
        touched: list[int] = []
        for buffer in graph.reads[node]:
            if not live[buffer]:
                live[buffer] = True
                touched += (*graph.readers[buffer], graph.producer[buffer])
        for before in graph.predecessors[node]:
            waiting[before] -= 1
            if not waiting[before]:
                touched.append(before)
        for other in dict.fromkeys(touched):
            if not done[other] and not waiting[other]:
                ready.put(other, growth(other))
    return tuple(reversed(order)), ready.comparisons.tally


def breadth_first(graph: BufferGraph, _sizes: Sequence[int]) -> tuple[int, ...]:
    """First ready, first run."""
    return graph.topological


def post_order(graph: BufferGraph, _sizes: Sequence[int]) -> tuple[int, ...]:
    """Operands in the order of their indices, then the node, from the sinks."""
    return depth_first(graph, [0] * len(graph.producer))


def inductor(graph: BufferGraph, sizes: Sequence[int], file: Sequence[int]) -> tuple[int, ...]:
    """The best at one shape of what PyTorch's Inductor tries."""
    tried = (method(graph, sizes) for method in (least_peak_first, breadth_first, depth_first))
    return _least(graph, sizes, [tuple(file), *tried])


def xla(graph: BufferGraph, sizes: Sequence[int]) -> tuple[int, ...]:
    """The best at one shape of what XLA tries."""
    methods: tuple[Callable[[BufferGraph, Sequence[int]], tuple[int, ...]], ...] = (
        forward_greedy, depth_first, post_order,
    )  # fmt: skip
    return _least(graph, sizes, [method(graph, sizes) for method in methods])


def _least(graph: BufferGraph, sizes: Sequence[int], orders: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    table = np.asarray(sizes, dtype=np.float64)[:, None]
    return min(orders, key=lambda order: float(live_bytes(graph, table, order).max(initial=0.0)))
