"""Maximum flow in a small directed network with exact integer capacities.

Dinic's algorithm: breadth-first levels towards the sink, then augmenting paths along falling levels, each
arc looked at once per phase. Iterative, and capacities are Python integers of any size.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["UNLIMITED", "FlowNetwork"]

UNLIMITED = 1 << 200  # a capacity that no cut of finite capacity crosses


class FlowNetwork:
    """Vertices 0..n-1 and arcs with capacities; `maximum` may be called once.

    `complete` is False where it stopped early: the flow is then one that is possible, and no cut is known.
    """

    def __init__(self, vertices: int, tails: ArrayLike, heads: ArrayLike, capacities: Sequence[int]) -> None:
        ends = np.empty((len(capacities), 2), dtype=np.uint16 if vertices < 1 << 16 else np.int64)
        ends[:, 0], ends[:, 1] = tails, heads
        by_vertex = np.argsort(ends.ravel(), kind="stable").tolist()
        stops = np.cumsum(np.bincount(ends.ravel(), minlength=vertices)).tolist()
        # Arc 2k runs forward, 2k + 1 is its reverse.
        self.out: list[list[int]] = [by_vertex[a:b] for a, b in pairwise((0, *stops))]
        self.head: list[int] = ends[:, ::-1].ravel().tolist()
        self.capacity = [0] * (2 * len(capacities))
        self.capacity[::2] = capacities
        self.complete = False
        self.spent = 0

    def maximum(self, source: int, sink: int, effort: int = 1 << 60) -> int:
        """Value of a maximum flow, or of what was found by about `effort` looks at arcs.

        `capacity` then holds what is left of every arc.
        """
        total = 0
        while self.spent < effort:
            level = self._levels(source, sink)
            if level[source] < 0:
                self.complete = True
                break
            self.spent += len(self.head)
            total += self._blocking_flow(source, sink, level, effort)
        return total

    def source_side(self, source: int) -> list[bool]:
        """After `maximum`: the vertices that can still be reached, a minimum cut with fewest vertices."""
        return self._reached(source, 0)

    def sink_side(self, sink: int) -> list[bool]:
        """After `maximum`: the vertices that still reach the sink; the others are the largest minimum cut."""
        return self._reached(sink, 1)

    def _reached(self, start: int, against: int) -> list[bool]:
        seen = [False] * len(self.out)
        seen[start] = True
        stack = [start]
        while stack:
            for arc in self.out[stack.pop()]:
                other = self.head[arc]
                if not seen[other] and self.capacity[arc ^ against]:
                    seen[other] = True
                    stack.append(other)
        return seen

    def _levels(self, source: int, sink: int) -> list[int]:
        """Arcs to the sink over what is left, -1 where it is out of reach; stops once the source is met."""
        level = [-1] * len(self.out)
        level[sink] = 0
        head, capacity, out = self.head, self.capacity, self.out
        queue, depth = [sink], 0
        while queue and level[source] < 0:
            depth += 1
            further: list[int] = []
            for vertex in queue:
                for arc in out[vertex]:
                    if level[head[arc]] < 0 and capacity[arc ^ 1]:
                        level[head[arc]] = depth
                        further.append(head[arc])
            queue = further
        return level

    def _blocking_flow(self, source: int, sink: int, level: list[int], effort: int) -> int:
        head, capacity, out = self.head, self.capacity, self.out
        at = [0] * len(out)
        path: list[int] = []
        vertex, total = source, 0
        while True:
            if vertex == sink:
                least = min([capacity[arc] for arc in path])
                total += least
                self.spent += len(path)
                first = -1
                for k, arc in enumerate(path):
                    capacity[arc] -= least
                    capacity[arc ^ 1] += least
                    if first < 0 and not capacity[arc]:
                        first = k
                vertex = head[path[first] ^ 1]
                del path[first:]
                if self.spent > effort:
                    return total
                continue
            arcs, wanted = out[vertex], level[vertex] - 1
            k, count = at[vertex], len(arcs)
            while k < count:
                arc = arcs[k]
                if capacity[arc] and level[head[arc]] == wanted:
                    break
                k += 1
            at[vertex] = k
            if k < count:
                path.append(arc)
                vertex = head[arc]
            elif path:
                vertex = head[path.pop() ^ 1]
                at[vertex] += 1
            else:
                return total
