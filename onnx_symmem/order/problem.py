"""Some nodes of a graph whose order is to be found: as part of an order, or apart from all orders.

A *window* stands between fixed nodes of a known order: what is live before it and who reads after it is
known. A *restriction* forgets all nodes but some: those keep their indirect dependences, and a buffer lives
as long as the kept nodes alone force it to. Any order of the graph leaves an order of the kept nodes that
holds no more at any of them, so no order's peak is below the least peak of a restriction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from onnx_symmem.order.buffers import BufferGraph
from onnx_symmem.order.moments import Moments

__all__ = [
    "OrderProblem", "ancestors", "completed", "nodes_of_window", "restriction", "result_groups", "window",
]  # fmt: skip

_MOST = 32  # nodes of a result's group


@dataclass(frozen=True, slots=True, eq=False)
class OrderProblem:
    """Nodes by place in `nodes`, with dependences among themselves and buffers that die among them.

    `reads` and `readers` are buffers per node and nodes per buffer, `makers` the nodes that make them, -1 for
    what is there at the start; `sizes` bytes (buffers, shapes). Per node
    and shape: `needs` is held above what is live while it runs, `makes` what it adds to what is live before
    any buffer dies. `live` is there at the start.
    """

    nodes: tuple[int, ...]
    before: tuple[tuple[int, ...], ...]
    after: tuple[tuple[int, ...], ...]
    reads: tuple[tuple[int, ...], ...]
    readers: tuple[tuple[int, ...], ...]
    makers: tuple[int, ...]
    sizes: np.ndarray
    needs: np.ndarray
    makes: np.ndarray
    live: np.ndarray


def nodes_of_window(
    moments: Moments, order: Sequence[int], live: np.ndarray, start: int, end: int, small: float = 0.0
) -> tuple[int, ...]:
    """The nodes of `window`, at next to no cost: to see how many they are."""
    nodes = tuple(order[start:end])
    if not small:
        return nodes
    kept = moments.touching(_counted(moments, live, small)).tolist()
    return tuple(n for n in nodes if kept[n]) or nodes


def _counted(moments: Moments, live: np.ndarray, small: float) -> np.ndarray:
    """Which buffers are not small at all shapes."""
    return np.asarray((moments.sizes > small * live.max(axis=0, initial=0.0)).any(axis=1))


def window(
    moments: Moments, order: Sequence[int], live: np.ndarray, start: int, end: int, small: float = 0.0
) -> OrderProblem:
    """The steps from `start` to before `end` of an order, of which `live` are the bytes of every step.

    Buffers of less than the part `small` of the peak at all shapes count as nothing, and nodes that neither
    make nor read others are left out.
    """
    graph, sizes, alloc = moments.graph, moments.sizes, moments.alloc
    last = np.full(len(sizes), len(order))
    last[moments.dying] = moments.last_use(moments.positions(order))
    dies = last < end
    if small:
        counted = _counted(moments, live, small)
        dies &= counted
        sizes = np.where(counted[:, None], sizes, 0.0)
        alloc = np.zeros_like(alloc)
        np.add.at(alloc, moments.producer[counted], sizes[counted])
    nodes = nodes_of_window(moments, order, live, start, end, small)
    place = {node: k for k, node in enumerate(nodes)}
    inner = dies.tolist()
    read = dict.fromkeys(b for node in nodes for b in graph.reads[node] if inner[b])
    buffers = {buffer: k for k, buffer in enumerate(read)}
    makes = alloc[list(nodes)]
    if len(nodes) == end - start:
        before = tuple(tuple(place[p] for p in graph.predecessors[n] if p in place) for n in nodes)
    else:
        inside = sum(1 << node for node in nodes)
        below = (graph.ancestors[node] & inside & ~(1 << node) for node in nodes)
        before = tuple(tuple(place[p] for p in _last(graph, bits)) for bits in below)
    return OrderProblem(
        nodes,
        before,
        _reversed(before),
        tuple(tuple(buffers[b] for b in graph.reads[n] if b in buffers) for n in nodes),
        tuple(tuple(place[r] for r in graph.readers[b] if r in place) for b in buffers),
        tuple(place.get(graph.producer[b], -1) for b in buffers),
        sizes[list(buffers)].reshape(len(buffers), sizes.shape[1]),
        makes,
        makes,
        live[start] - moments.alloc[order[start]],
    )


def completed(graph: BufferGraph, nodes: Sequence[int], part: Sequence[int]) -> tuple[int, ...]:
    """All `nodes`, a sorted part of an order: those of `part` in its order, each other one just before it is
    needed."""
    left = set(nodes)
    found: list[int] = []
    for wanted in (*part, *nodes):
        stack = [wanted]
        while stack:
            node = stack[-1]
            missing = [p for p in graph.predecessors[node] if p in left and p != node] if node in left else []
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            if node in left:
                left.remove(node)
                found.append(node)
    return tuple(found)


def restriction(graph: BufferGraph, sizes: np.ndarray, kept: Iterable[int]) -> OrderProblem:
    """The kept nodes apart from all others; `sizes` are bytes (buffers, shapes).

    A reader that is not kept is stood for by the kept nodes that must run before it. Results that may
    overwrite an operand in some orders take nothing of their own while their node runs.
    """
    nodes = tuple(sorted(kept, key=lambda n: (graph.ancestors[n].bit_count(), n)))
    place = {node: k for k, node in enumerate(nodes)}
    inside = sum(1 << node for node in nodes)
    below = [graph.ancestors[node] & inside & ~(1 << node) for node in nodes]
    before = tuple(tuple(place[p] for p in _last(graph, bits)) for bits in below)
    makes = np.zeros((len(nodes), sizes.shape[1]))
    needs = np.zeros((len(nodes), sizes.shape[1]))
    reads: list[list[int]] = [[] for _ in nodes]
    readers: list[tuple[int, ...]] = []
    rows: list[int] = []
    known: dict[int, tuple[int, ...]] = {}
    for k, node in enumerate(nodes):
        for buffer in graph.makes[node]:
            if not sizes[buffer].any():
                continue
            makes[k] += sizes[buffer]
            if graph.pinned[buffer]:
                continue
            users: set[int] = set()
            for reader in graph.readers[buffer]:
                if reader not in known:
                    bits = graph.ancestors[reader] & inside
                    known[reader] = (reader,) if reader in place else tuple(_last(graph, bits))
                users.update(place[u] for u in known[reader])
            for user in sorted(users):
                reads[user].append(len(readers))
            readers.append(tuple(sorted(users)))
            rows.append(buffer)
    needs += makes
    for node, made, _ in graph.optional_share:
        if node in place:
            needs[place[node]] -= sizes[made]
    return OrderProblem(
        nodes, before, _reversed(before), tuple(map(tuple, reads)), tuple(readers),
        tuple(place[graph.producer[b]] for b in rows), sizes[rows].reshape(len(rows), sizes.shape[1]),
        needs, makes, np.zeros(sizes.shape[1]),
    )  # fmt: skip


def ancestors(problem: OrderProblem) -> tuple[int, ...]:
    """Per node, the set of all nodes that have to run before it, as bits."""
    found = [0] * len(problem.nodes)
    left = [len(p) for p in problem.before]
    stack = [k for k, count in enumerate(left) if not count]
    while stack:
        node = stack.pop()
        for earlier in problem.before[node]:
            found[node] |= found[earlier] | 1 << earlier
        for later in problem.after[node]:
            left[later] -= 1
            if not left[later]:
                stack.append(later)
    return tuple(found)


def result_groups(
    before: Sequence[Sequence[int]], after: Sequence[Sequence[int]]
) -> tuple[tuple[int, ...], ...]:
    """Groups of nodes that lead to one last node only, which belongs to its group, as each weight's gradient.

    Nothing waits for them: each may run at any time after what it reads was made. No two share a node. Groups
    of many nodes are left out. `before` and `after` are each node's neighbours.
    """
    found: list[tuple[int, ...]] = []
    for last in (node for node, later in enumerate(after) if not later):
        group = {last}
        stack = [last]
        while stack and len(group) <= _MOST:
            for node in before[stack.pop()]:
                if node not in group and all(later in group for later in after[node]):
                    group.add(node)
                    stack.append(node)
        if len(group) <= _MOST:
            found.append(tuple(sorted(group)))
    return tuple(found)


def _reversed(before: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    after: list[list[int]] = [[] for _ in before]
    for k, producers in enumerate(before):
        for p in producers:
            after[p].append(k)
    return tuple(map(tuple, after))


def _last(graph: BufferGraph, bits: int) -> list[int]:
    """Of a set of nodes those that no other one of it depends on."""
    found: list[int] = []
    while bits:
        # In a topological numbering the highest one is last; in others any node may be covered later.
        node = bits.bit_length() - 1
        bits &= ~graph.ancestors[node]
        found = [other for other in found if not graph.ancestors[node] >> other & 1]
        found.append(node)
    return found
