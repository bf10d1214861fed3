"""The order in which ONNX Runtime executes the nodes of a file.

Two traversals exist. DEFAULT is a depth-first search from the leaves against the edges: the leaf that
stands last in the file is visited first, and at each node the producer that stands last in the file.
PRIORITY_BASED takes, among the nodes that are ready, Shape and Size before the rest, then the one that
stands first in the file; so a sorted file without Shape and Size runs exactly as written. Both apply to
the graph that is left after loading: Constant nodes have become initializers (here they come first and
cost nothing), and nodes that ONNX Runtime adds at load stand behind the file's.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

from onnx_symmem.errors import UsageError
from onnx_symmem.graph.view import GraphView

__all__ = ["OrderRule", "check_order", "default_order", "priority_order"]

OrderRule = Callable[[GraphView], tuple[int, ...]]

_RANK = {"Constant": 0, "Shape": 1, "Size": 1}


def default_order(view: GraphView, file_order: Sequence[int] | None = None) -> tuple[int, ...]:
    """Node indices as executed under ExecutionOrder.DEFAULT, for a file that lists them in `file_order`.

    `file_order` is a permutation of the node indices (None: as in the view).
    """
    place = _places(view, file_order)
    before, after = view.predecessors, view.successors
    nodes = range(len(place)) if file_order is None else file_order
    done = [node for node in nodes if view.nodes[node].op == "Constant"]
    stack = [node for node in nodes if not after[node]]
    if file_order is not None:
        before = tuple(tuple(sorted(p, key=place.__getitem__)) if len(p) > 1 else p for p in before)
    seen = bytearray(len(place))
    for node in done:
        seen[node] = 1
    while stack:
        node = stack.pop()
        if node < 0:
            done.append(~node)
            continue
        if seen[node]:
            continue
        seen[node] = 1
        stack.append(~node)
        stack.extend(p for p in before[node] if not seen[p])
    return tuple(done)


def priority_order(view: GraphView, file_order: Sequence[int] | None = None) -> tuple[int, ...]:
    """Node indices as executed under ExecutionOrder.PRIORITY_BASED, for a file listed in `file_order`.

    `file_order` is a permutation of the node indices (None: as in the view).
    """
    place = _places(view, file_order)
    count = len(place)
    nodes = range(count) if file_order is None else file_order
    # One integer per node: its rank, then its place in the file.
    key = [place[n.index] + count * _RANK.get(n.op, 2) for n in view.nodes]
    waiting = [len(p) for p in view.predecessors]
    ready = [key[node] for node in range(count) if not waiting[node]]
    heapq.heapify(ready)
    done: list[int] = []
    while ready:
        node = nodes[heapq.heappop(ready) % count]
        done.append(node)
        for s in view.successors[node]:
            waiting[s] -= 1
            if not waiting[s]:
                heapq.heappush(ready, key[s])
    return tuple(done)


def check_order(view: GraphView, order: Sequence[int]) -> None:
    """Raise UsageError unless `order` lists every node once, producers before their readers."""
    place = _places(view, order)
    for node, before in enumerate(view.predecessors):
        for p in before:
            if place[p] > place[node]:
                raise UsageError(
                    f"order runs {view.nodes[node].label()} before {view.nodes[p].label()}, whose output it "
                    "reads; expected a topological order"
                )


def _places(view: GraphView, order: Sequence[int] | None) -> Sequence[int]:
    """Position of every node in `order`."""
    count = len(view.nodes)
    if order is None:
        return range(count)
    place = [-1] * count
    for position, node in enumerate(order):
        if not 0 <= node < count or place[node] >= 0:
            raise UsageError(f"order has a wrong or second node {node}; expected 0..{count - 1} once each")
        place[node] = position
    if len(order) != count:
        raise UsageError(f"order has {len(order)} nodes; the graph has {count}")
    return place
