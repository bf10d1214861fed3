"""A file whose DEFAULT traversal runs any wanted order: it has more leaves where depth first would deviate.

DEFAULT visits the leaves of a graph from the last in the file to the first, and before a leaf everything it
needs that has not run. A `Size` that nobody reads is a leaf; put on an output of a node (an *anchor*) it
makes the search visit that node, and then itself, at a time of our choosing. Anchors on every node force
every order (facts/ONNXRUNTIME, 1.4); here each leaf is the one whose visit runs the longest stretch of it.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right, insort
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from onnx_symmem.graph.view import GraphView
from onnx_symmem.memory.execution_order import check_order, full_from, places_in

__all__ = ["AnchoredSearch", "Anchoring", "anchored_file", "fewer_anchors"]

_FURTHER = 32  # ends of a stretch that are tried beyond the one that was found first


@dataclass(frozen=True, slots=True)
class Anchoring:
    """`file` lists all nodes, and `~node` for the anchor of a node; `anchored` are the nodes that have one.

    The anchors run right behind their nodes, which run in the wanted order.
    """

    file: tuple[int, ...]
    anchored: tuple[int, ...]


def anchored_file(
    view: GraphView, order: Sequence[int], anchorable: Collection[int] | None = None
) -> Anchoring | None:
    """A sorted file that DEFAULT runs in `order`; None where there is none.

    `anchorable` are the nodes that may have an anchor, by default all with an output. Raises UsageError where
    `order` is not topological.
    """
    check_order(view, order)
    if anchorable is None:
        anchorable = {node.index for node in view.nodes if any(v >= 0 for v in node.outputs)}
    constants = sum(node.op == "Constant" for node in view.nodes)
    if any(view.nodes[node].op != "Constant" for node in order[:constants]):
        return None
    playback, longest = _Playback(view, order, anchorable), len(order)
    while True:
        found = playback.file(constants, longest)
        if found is not None or longest <= 1:
            return found
        longest //= 4  # places that contradict each other: shorter stretches ask less of the file


class _Playback:
    """The search played back: the leaves it starts from, and which node has to stand before which."""

    def __init__(self, view: GraphView, order: Sequence[int], anchorable: Collection[int]) -> None:
        self.view, self.order, self.anchorable = view, order, anchorable
        self.place = places_in(view, order)
        self.starts = full_from(view, order, self.place)

    def file(self, done: int, longest: int) -> Anchoring | None:
        """The file, from stretches of at most `longest` nodes; the first `done` nodes need no visit."""
        before: list[tuple[int, int]] = []  # (a, b): a stands before b in the file
        leaves: list[int] = []
        successors, anchorable = self.view.successors, self.anchorable
        may_end = [n for n in self.order if not successors[n] or n in anchorable]
        self.coming = sorted(((self.starts[n], self.place[n]) for n in may_end), reverse=True)
        self.ends: list[int] = []  # places of leaves before which, from `done` on, only their ancestors run
        while done < len(self.order):
            found = self._stretch(done, longest)
            if found is None:
                return None
            end, edges = found
            leaf = self.order[end]
            leaf = ~leaf if self.view.successors[leaf] else leaf
            before += edges
            if leaves:
                before.append((leaf, leaves[-1]))
            leaves.append(leaf)
            done = end + 1
        return self._sorted(before, tuple(~leaf for leaf in leaves if leaf < 0))

    def _stretch(self, done: int, longest: int) -> tuple[int, list[tuple[int, int]]] | None:
        """The end of the longest stretch from place `done` that one visit runs, and what that asks."""
        while self.coming and self.coming[-1][0] <= done:
            insort(self.ends, self.coming.pop()[1])
        last = done + longest - 1
        best: tuple[int, list[tuple[int, int]]] | None = None
        while (at := bisect_right(self.ends, last) - 1) >= 0 and self.ends[at] >= done:
            end = self.ends[at]
            reached, edges = self._visit(self.order[end], done)
            if reached > end:
                best = end, edges
                break
            # What ran in order so far may be a stretch; what follows is seldom in one with it.
            last = min(end - 1, max(reached - 1, done))
        if best is not None:
            # Seldom is not never: a few of the next ends may be reached all the same.
            first = bisect_right(self.ends, best[0])
            for end in self.ends[first : first + _FURTHER]:
                if end >= done + longest:
                    break
                reached, edges = self._visit(self.order[end], done)
                if reached > end:
                    best = end, edges
        return best

    def _visit(self, leaf: int, done: int) -> tuple[int, list[tuple[int, int]]]:
        """The place up to which a visit of `leaf` can run the order from place `done`, and what that asks."""
        edges: list[tuple[int, int]] = []
        stack = [[leaf, -1]]  # nodes being visited, each with its producer visited last
        while stack:
            node, last = stack[-1]
            waiting = [p for p in self.view.predecessors[node] if self.place[p] >= done]
            fits = [p for p in waiting if self.starts[p] <= done]
            if fits:
                producer = max(fits, key=self.place.__getitem__)
                if last >= 0:
                    edges.append((producer, last))
                stack[-1][1] = producer
                stack.append([producer, -1])
            elif not waiting and self.place[node] == done:
                done += 1
                stack.pop()
            else:
                break
        return done, edges

    def _sorted(self, before: Sequence[tuple[int, int]], anchored: tuple[int, ...]) -> Anchoring | None:
        """Nodes and anchors sorted by what reads what and by `before`, near the order; None if cyclic."""
        numbers = [*range(len(self.order)), *(~node for node in anchored)]
        index = {number: k for k, number in enumerate(numbers)}
        after = [list(s) for s in self.view.successors] + [[] for _ in anchored]
        for node in anchored:
            after[node].append(index[~node])
        for first, second in before:
            after[index[first]].append(index[second])
        waiting = [0] * len(numbers)
        for followers in after:
            for k in followers:
                waiting[k] += 1
        key = [2 * self.place[n] if n >= 0 else 2 * self.place[~n] + 1 for n in numbers]
        ready = [(key[k], k) for k, count in enumerate(waiting) if not count]
        heapq.heapify(ready)
        file: list[int] = []
        while ready:
            k = heapq.heappop(ready)[1]
            file.append(numbers[k])
            for follower in after[k]:
                waiting[follower] -= 1
                if not waiting[follower]:
                    heapq.heappush(ready, (key[follower], follower))
        return Anchoring(tuple(file), anchored) if len(file) == len(numbers) else None


class AnchoredSearch:
    """What DEFAULT runs of a file of an `Anchoring` when it has fewer anchors: nodes only, in order."""

    def __init__(self, view: GraphView, file: Sequence[int]) -> None:
        place = [0] * len(view.nodes)
        for at, number in enumerate(file):
            if number >= 0:
                place[number] = at
        self.file, self.view = file, view
        self.before = tuple(
            tuple(sorted(p, key=place.__getitem__)) if len(p) > 1 else p for p in view.predecessors
        )
        self.constants = [n for n in file if n >= 0 and view.nodes[n].op == "Constant"]

    def order(self, anchored: Collection[int]) -> tuple[int, ...]:
        """The order that runs where of all anchors only those of these nodes are there."""
        after, before = self.view.successors, self.before
        stack = [n if n >= 0 else ~n for n in self.file if (not after[n] if n >= 0 else ~n in anchored)]
        done = list(self.constants)
        seen = bytearray(len(before))
        for node in done:
            seen[node] = 1
        while stack:
            node = stack.pop()
            if node < 0:
                done.append(~node)
            elif not seen[node]:
                seen[node] = 1
                stack.append(~node)
                stack.extend(p for p in before[node] if not seen[p])
        return tuple(done)


def fewer_anchors(
    view: GraphView, found: Anchoring, fits: Callable[[tuple[int, ...]], bool], trials: int
) -> tuple[tuple[int, ...], Anchoring]:
    """An order that `fits` and its file, with anchors left out as far as `trials` orders tell.

    Halves are left out first, then quarters, down to single anchors.
    """
    search = AnchoredSearch(view, found.file)
    kept = list(found.anchored)
    size = len(kept)
    while size and trials > 0:
        at = 0
        while at < len(kept) and trials > 0:
            fewer = kept[:at] + kept[at + size :]
            trials -= 1
            if fits(search.order(frozenset(fewer))):
                kept = fewer
            else:
                at += size
        size //= 2
    wanted = frozenset(kept)
    file = tuple(n for n in found.file if n >= 0 or ~n in wanted)
    return search.order(wanted), Anchoring(file, tuple(kept))
