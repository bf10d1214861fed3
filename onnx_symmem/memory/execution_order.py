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
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from onnx_symmem.errors import UsageError
from onnx_symmem.graph.view import GraphView

__all__ = ["RULES", "OrderRule", "check_order", "default_order", "file_for_default", "priority_order"]

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


RULES: Mapping[str, Callable[[GraphView, Sequence[int] | None], tuple[int, ...]]] = MappingProxyType(
    {"default": default_order, "priority": priority_order}
)
"""The traversals by the names that session settings give them."""


def file_for_default(view: GraphView, order: Sequence[int]) -> tuple[int, ...] | None:
    """A sorted file order that DEFAULT executes exactly in `order`, or None where none was found.

    DEFAULT visits the operand, and the leaf, that stands last in the file first. So of two operands the
    one that runs first has to stand behind the other, unless the other depends on it; together with the
    edges these wishes are sorted, and the result is tried.
    """
    check_order(view, order)
    place = _places(view, order)
    after: list[list[int]] = [list(s) for s in view.successors]
    leaves = [node for node in order if not view.successors[node]]
    below = _ancestors(view, order)
    for siblings in (*view.predecessors, leaves):
        ran = sorted(siblings, key=place.__getitem__)
        for k, second in enumerate(ran):
            # The nearest sibling that the second does not depend on; those before it follow from that.
            first = next((f for f in reversed(ran[:k]) if not below[second] >> f & 1), None)
            if first is not None:
                after[second].append(first)
    waiting = [0] * len(place)
    for followers in after:
        for node in followers:
            waiting[node] += 1
    ready = [(place[node], node) for node in order if not waiting[node]]
    heapq.heapify(ready)
    file: list[int] = []
    while ready:
        node = heapq.heappop(ready)[1]
        file.append(node)
        for follower in after[node]:
            waiting[follower] -= 1
            if not waiting[follower]:
                heapq.heappush(ready, (place[follower], follower))
    if len(file) < len(place) or default_order(view, file) != tuple(order):
        return None
    return tuple(file)


def _ancestors(view: GraphView, order: Sequence[int]) -> list[int]:
    """Per node: bit set of all nodes it depends on."""
    sets = [0] * len(order)
    for node in order:
        bits = 0
        for before in view.predecessors[node]:
            bits |= sets[before] | 1 << before
        sets[node] = bits
    return sets


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
