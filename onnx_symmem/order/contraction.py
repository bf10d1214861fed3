"""A graph in which some nodes may still move and the others keep their order: what lies between two moves
is one node.

Nodes that are not to move run in the order they have. Between two places where something of a moving node
begins or ends, they are one node, which takes what the worst of its steps takes. So every order of the moving
nodes has the same peaks as the order of the whole graph that it stands for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from onnx_symmem.order.buffers import BufferGraph
from onnx_symmem.order.moments import Moments
from onnx_symmem.order.problem import result_groups

__all__ = ["Contraction", "contraction", "offshoots"]


@dataclass(frozen=True)
class Contraction:
    """The graph of units, its bytes (buffers, shapes), the order it was made of, in units; the nodes of every
    unit, and the groups of units that may move. What a run of nodes takes besides the buffers that go in or
    out is a buffer of its own, which may be negative: a step's live bytes are right, not a buffer's."""

    graph: BufferGraph
    sizes: np.ndarray
    order: tuple[int, ...]
    units: tuple[tuple[int, ...], ...]
    moving: tuple[tuple[int, ...], ...]

    def at(self, shapes: np.ndarray, unit: np.ndarray) -> Contraction:
        """The same at some of the shapes, with bytes as parts of a unit per shape."""
        return replace(self, sizes=self.sizes[:, shapes] / unit)

    @cached_property
    def moments(self) -> Moments:
        """Live bytes along orders of units."""
        return Moments(self.graph, self.sizes)

    def expanded(self, order: Sequence[int]) -> tuple[int, ...]:
        """An order of units as one of nodes."""
        return tuple(node for unit in order for node in self.units[unit])


def offshoots(graph: BufferGraph) -> tuple[tuple[int, ...], ...]:
    """Groups of nodes that nothing else waits for (`order.problem.result_groups`)."""
    return result_groups(graph.predecessors, graph.successors)


def contraction(moments: Moments, order: Sequence[int], moving: Sequence[Sequence[int]]) -> Contraction:
    """The graph of `moments` along an order of which only offshoots move."""
    graph, sizes = moments.graph, moments.sizes
    group = np.full(graph.size, -1)
    for k, nodes in enumerate(moving):
        group[list(nodes)] = k
    whole = np.asarray(order, dtype=np.int64)
    staying = whole[group[whole] < 0]
    place = np.full(graph.size, -1)
    place[staying] = np.arange(len(staying))
    last, live = _staying_only(moments, place, len(staying))
    ends = _ends(graph, whole, group, place, last, moving)
    runs = [part.tolist() for part in np.split(staying, np.array(ends, dtype=np.int64) + 1) if len(part)]
    units = [*map(tuple, runs), *((node,) for nodes in moving for node in nodes)]
    unit = np.empty(graph.size, dtype=np.int64)
    for k, nodes in enumerate(units):
        unit[list(nodes)] = k
    producer: list[int] = []
    readers: list[tuple[int, ...]] = []
    rows: list[int] = []
    for buffer in np.flatnonzero(sizes.any(axis=1)).tolist():
        made = int(unit[graph.producer[buffer]])
        users = sorted({int(unit[r]) for r in graph.readers[buffer]})
        # What is made and dies in one run is counted with it; a moving node has nothing but its buffers.
        if graph.pinned[buffer] or made >= len(runs) or any(user != made for user in users):
            producer.append(made)
            readers.append(tuple(users) or (made,))
            rows.append(buffer)
    pinned = [graph.pinned[buffer] for buffer in rows]
    counted = _counted(producer, readers, pinned, sizes[rows], len(runs))
    starts = np.cumsum([0, *map(len, runs[:-1])])
    within = np.maximum.reduceat(live, starts, axis=0) - counted if runs else np.zeros((0, sizes.shape[1]))
    before: list[set[int]] = [set() for _ in units]
    after: list[set[int]] = [set() for _ in units]
    for node, earlier in enumerate(graph.predecessors):
        for other in earlier:
            if unit[other] != unit[node]:
                before[unit[node]].add(int(unit[other]))
                after[unit[other]].add(int(unit[node]))
    small = BufferGraph(
        tuple(tuple(sorted(b)) for b in before),
        tuple(tuple(sorted(a)) for a in after),
        (*producer, *range(len(runs))),
        (*readers, *((k,) for k in range(len(runs)))),
        (*pinned, *(False for _ in runs)),
        (),
    )
    place_of = {node: k for k, nodes in enumerate(moving) for node in nodes}
    groups: list[list[int]] = [[] for _ in moving]
    for node, k in place_of.items():
        groups[k].append(int(unit[node]))
    return Contraction(
        small,
        np.vstack([sizes[rows], within]),
        tuple(dict.fromkeys(unit[whole].tolist())),
        tuple(units),
        tuple(map(tuple, groups)),
    )


def _staying_only(moments: Moments, place: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Without the nodes that move: the last step that reads or makes each buffer of `moments.dying`, -1 for
    none, and bytes live per step."""
    made = place[moments.producer]
    last = np.maximum(moments.last_use(place), made[moments.dying])
    change = np.zeros((steps + 1, moments.sizes.shape[1]))
    np.add.at(change, made[made >= 0], moments.sizes[made >= 0])
    stays = made[moments.dying] >= 0
    np.subtract.at(change, last[stays] + 1, moments.sizes[moments.dying[stays]])
    return last, np.cumsum(change, axis=0)[:-1]


def _ends(
    graph: BufferGraph,
    order: np.ndarray,
    group: np.ndarray,
    place: np.ndarray,
    last: np.ndarray,
    moving: Sequence[Sequence[int]],
) -> list[int]:
    """Steps of what stays after which a moving node may begin, runs now, or has a buffer to itself."""
    dying = {buffer: k for k, buffer in enumerate(b for b, stays in enumerate(graph.pinned) if not stays)}
    ends: set[int] = set()
    for nodes in moving:
        earlier = {p for node in nodes for p in graph.predecessors[node]}
        ends.add(max((int(place[p]) for p in earlier), default=-1))
        ends.update(int(last[dying[b]]) for node in nodes for b in graph.reads[node] if b in dying)
    now = -1
    for node in order.tolist():
        if group[node] < 0:
            now = int(place[node])
        else:
            ends.add(now)
    return sorted(ends - {-1, int(place.max(initial=-1))})


def _counted(
    producer: Sequence[int],
    readers: Sequence[Sequence[int]],
    pinned: Sequence[bool],
    sizes: np.ndarray,
    runs: int,
) -> np.ndarray:
    """Bytes that buffers between units count in each run, without what moves."""
    change = np.zeros((runs + 1, sizes.shape[1]))
    for k, made in enumerate(producer):
        if made < runs:
            change[made] += sizes[k]
            if not pinned[k]:
                change[max(made, *(r for r in (*readers[k], made) if r < runs)) + 1] -= sizes[k]
    return np.asarray(np.cumsum(change, axis=0)[:-1])
