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

__all__ = [
    "RULES",
    "OrderRule",
    "check_order",
    "default_order",
    "file_for_default",
    "full_from",
    "places_in",
    "priority_order",
]

OrderRule = Callable[[GraphView], tuple[int, ...]]

_RANK = {"Constant": 0, "Shape": 1, "Size": 1}


def default_order(view: GraphView, file_order: Sequence[int] | None = None) -> tuple[int, ...]:
    """Node indices as executed under ExecutionOrder.DEFAULT, for a file that lists them in `file_order`.

    `file_order` is a permutation of the node indices (None: as in the view).
    """
    place = places_in(view, file_order)
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
    place = places_in(view, file_order)
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


RULES: Mapping[str, Callable[..., tuple[int, ...]]] = MappingProxyType(
    {"default": default_order, "priority": priority_order}
)
"""The traversals by the names that session settings give them."""


def file_for_default(view: GraphView, order: Sequence[int]) -> tuple[int, ...] | None:
    """A sorted file order that DEFAULT executes exactly in `order`, or None where there is none.

    The search from the leaves is played back: of the producers that a node still waits for, the one visited
    next is the last in `order` whose waiting ancestors fill the places up to it. Each has to stand behind the
    one visited after it; a sorted order with these edges exists or no file does.
    """
    check_order(view, order)
    place = places_in(view, order)
    starts = full_from(view, order, place)
    after: list[list[int]] = [list(s) for s in view.successors]
    done = sum(node.op == "Constant" for node in view.nodes)
    if any(view.nodes[node].op != "Constant" for node in order[:done]):
        return None
    before = -1
    for leaf in (node for node in order if not view.successors[node] and place[node] >= done):
        if before >= 0:
            after[leaf].append(before)
        before = leaf
        stack = [[leaf, -1]]  # nodes being visited, each with its producer visited last
        while stack:
            node, last = stack[-1]
            waiting = [p for p in view.predecessors[node] if place[p] >= done]
            if waiting:
                fits = [p for p in waiting if starts[p] <= done]
                if not fits:
                    return None
                producer = max(fits, key=place.__getitem__)
                if last >= 0:
                    after[producer].append(last)
                stack[-1][1] = producer
                stack.append([producer, -1])
            elif place[node] == done:
                done += 1
                stack.pop()
            else:
                return None
    return _sorted_by_edges(after, order, place)


def full_from(view: GraphView, order: Sequence[int], place: Sequence[int]) -> list[int]:
    """Per node: the place from which on everything that runs before it is one of its ancestors.

    Going back from a node over ancestors only, the next one is an ancestor too if one of its successors runs
    no later than the node. So the search ends at the last place before it whose successors all run later.
    """
    found = [0] * len(order)
    outlasting: list[tuple[int, int]] = []  # (place, place of the first successor), places ascending
    for at, node in enumerate(order):
        while outlasting and outlasting[-1][1] <= at:
            outlasting.pop()
        found[node] = outlasting[-1][0] + 1 if outlasting else 0
        outlasting.append((at, min((place[s] for s in view.successors[node]), default=len(order))))
    return found


def _sorted_by_edges(
    after: Sequence[Sequence[int]], order: Sequence[int], place: Sequence[int]
) -> tuple[int, ...] | None:
    """The nodes sorted by the edges `after`, near `order`; None where these are cyclic."""
    waiting = [0] * len(place)
    for followers in after:
        for node in followers:
            waiting[node] += 1
    ready = [(place[node], node) for node in order if not waiting[node]]
    heapq.heapify(ready)
    found: list[int] = []
    while ready:
        node = heapq.heappop(ready)[1]
        found.append(node)
        for follower in after[node]:
            waiting[follower] -= 1
            if not waiting[follower]:
                heapq.heappush(ready, (place[follower], follower))
    return tuple(found) if len(found) == len(place) else None


def check_order(view: GraphView, order: Sequence[int]) -> None:
    """Raise UsageError unless `order` lists every node once, producers before their readers."""
    place = places_in(view, order)
    for node, before in enumerate(view.predecessors):
        for p in before:
            if place[p] > place[node]:
                raise UsageError(
                    f"order runs {view.nodes[node].label()} before {view.nodes[p].label()}, whose output it "
                    "reads; expected a topological order"
                )


def places_in(view: GraphView, order: Sequence[int] | None) -> Sequence[int]:
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
