"""The graph as schedulers see it: nodes that allocate buffers, buffers that die with their last reader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from onnx_symmem.expr.expression import ZERO, Expr
from onnx_symmem.expr.grid import evaluate
from onnx_symmem.graph.view import NODE
from onnx_symmem.memory.plan import PlanInput
from onnx_symmem.memory.sizes import ValueSizes

__all__ = ["BIT_SET_NODES", "BufferGraph", "buffer_bytes", "buffer_graph"]

BIT_SET_NODES = 6_000  # above, ancestor sets (n*n/8 bytes) cost more than they tell


@dataclass(frozen=True)
class BufferGraph:
    """Nodes 0..n-1 with their dependences, and buffers 0..b-1 with producer and readers.

    A buffer stands for all values that share its memory in every order (aliases, and in-place results
    that no order can prevent). `pinned[b]`: the buffer stays until the run ends (graph outputs, results
    that nobody reads). `optional_share` holds (node, buffer made, buffer that it may overwrite) for
    in-place results that depend on the order: the schedulers count both buffers, bounds must not. Such a
    result that nobody reads is not pinned, as it dies with what it overwrites: its node counts as a reader.
    Sizes are not part of the structure: every scheduler takes them in bytes, one per buffer. `values[b]`
    is the graph value whose size is the buffer's.
    """

    predecessors: tuple[tuple[int, ...], ...]
    successors: tuple[tuple[int, ...], ...]
    producer: tuple[int, ...]
    readers: tuple[tuple[int, ...], ...]
    pinned: tuple[bool, ...]
    optional_share: tuple[tuple[int, int, int], ...]
    values: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """Number of nodes."""
        return len(self.predecessors)

    @cached_property
    def makes(self) -> tuple[tuple[int, ...], ...]:
        """Per node: the buffers it allocates."""
        made: list[list[int]] = [[] for _ in range(self.size)]
        for buffer, node in enumerate(self.producer):
            made[node].append(buffer)
        return tuple(map(tuple, made))

    @cached_property
    def reads(self) -> tuple[tuple[int, ...], ...]:
        """Per node: the buffers whose release waits for it, ascending, once each."""
        read: list[list[int]] = [[] for _ in range(self.size)]
        for buffer, nodes in enumerate(self.readers):
            for node in nodes:
                read[node].append(buffer)
        return tuple(map(tuple, read))

    @cached_property
    def topological(self) -> tuple[int, ...]:
        """One topological order: Kahn's, first in first out, ties by index."""
        return _topological(self.predecessors, self.successors)

    @cached_property
    def ancestors(self) -> tuple[int, ...]:
        """Per node: bit set (Python int) of the node itself and everything it depends on."""
        return _reach(self.topological, self.predecessors)

    @cached_property
    def descendants(self) -> tuple[int, ...]:
        """Per node: bit set (Python int) of the node itself and everything that depends on it."""
        return _reach(self.topological[::-1], self.successors)

    def allocation(self, sizes: Sequence[int]) -> list[int]:
        """Bytes each node allocates."""
        return [sum(sizes[b] for b in made) for made in self.makes]


def _topological(
    predecessors: Sequence[Sequence[int]], successors: Sequence[Sequence[int]]
) -> tuple[int, ...]:
    waiting = [len(p) for p in predecessors]
    order = [node for node, count in enumerate(waiting) if not count]
    for node in order:
        for after in successors[node]:
            waiting[after] -= 1
            if not waiting[after]:
                order.append(after)
    return tuple(order)


def _reach(order: Sequence[int], neighbours: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Per node: bit set of itself and all nodes reached over `neighbours`, which `order` lists first."""
    sets = [0] * len(order)
    for node in order:
        bits = 1 << node
        for other in neighbours[node]:
            bits |= sets[other]
        sets[node] = bits
    return tuple(sets)


def buffer_graph(prepared: PlanInput) -> BufferGraph:
    """The scheduling view of a graph under ONNX Runtime's sharing rules.

    An in-place result joins its operand's buffer where that happens in every order: all other readers of
    the buffer run before the node in any case. Where a reader must run after it, it never happens; what is
    left depends on the order and is listed in `optional_share`.
    """
    view = prepared.view
    before, after = view.predecessors, view.successors
    ancestors: tuple[int, ...] | None = None
    if len(view.nodes) <= BIT_SET_NODES and any(prepared.may):
        ancestors = _reach(_topological(before, after), before)
    owner = list(range(len(view.values)))  # base -> base that owns its buffer
    made = [v.kind == NODE for v in view.values]
    readers: dict[int, set[int]] = {}
    count: dict[tuple[int, int], int] = {}
    for node, reads in enumerate(prepared.reads):
        for value in reads:
            readers.setdefault(value, set()).add(node)
            count[value, node] = count.get((value, node), 0) + 1
    optional: list[tuple[int, int, int]] = []
    for node in _topological(before, after):
        for value, sources in prepared.may[node]:
            for source in sources:
                root = owner[source]
                if not made[root] or root in prepared.outputs or count.get((source, node), 0) != 1:
                    continue
                others = readers.get(root, set()) - {node}
                if all(ancestors is not None and ancestors[node] >> r & 1 for r in others):
                    owner[value] = root
                    readers.setdefault(root, set()).update(readers.get(value, ()))
                    break
                if not any(ancestors is not None and ancestors[r] >> node & 1 for r in others):
                    optional.append((node, value, root))
                    break
    for node, value, _ in optional:
        if not readers.get(value) and value not in prepared.outputs:
            readers[value] = {node}
    buffers: dict[int, int] = {}
    producers: list[int] = []
    for made_by in range(len(view.nodes)):
        for value in (*prepared.fixed[made_by], *(v for v, _ in prepared.may[made_by])):
            if owner[value] == value:
                buffers[value] = len(producers)
                producers.append(made_by)
    read_by = tuple(tuple(sorted(readers.get(value, ()))) for value in buffers)
    return BufferGraph(
        before,
        after,
        tuple(producers),
        read_by,
        tuple(value in prepared.outputs or not nodes for value, nodes in zip(buffers, read_by, strict=True)),
        tuple((node, buffers[value], buffers[root]) for node, value, root in optional if root in buffers),
        tuple(buffers),
    )


def buffer_bytes(graph: BufferGraph, sizes: ValueSizes, shapes: Sequence[Mapping[str, int]]) -> np.ndarray:
    """Bytes per buffer and shape, (buffers, shapes); unknown and impossible sizes count as nothing."""
    exprs: list[Expr] = [sizes.bytes[v] or ZERO for v in graph.values]
    if not exprs:
        return np.zeros((0, len(shapes)))
    # Sizes are few, buffers many.
    place: dict[Expr, int] = {}
    rows = [place.setdefault(expr, len(place)) for expr in exprs]
    return np.maximum(evaluate(list(place), shapes), 0).astype(np.float64)[rows]
