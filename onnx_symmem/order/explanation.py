"""Why the peak is what it is: what is held at it, what the new order ended earlier, and what stands in the
way.

Shapes at which the same moment is the peak are one region. For each: the tensors that are held there; those
that the plan that would have run held at its own peak and the chosen order does not hold at the same node;
and the node that no order gets by with less at, with the tensors that are alive then at best. If these are
the node's own operands and results, only another node helps: one that works in place, in parts, or fused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnx_symmem.memory.profile import MemoryProfile
from onnx_symmem.memory.sizes import ValueSizes
from onnx_symmem.order.buffers import BIT_SET_NODES, BufferGraph, buffer_bytes
from onnx_symmem.order.cut import BEFORE, CutFinder
from onnx_symmem.order.cut_bound import CutLimits, peak_floor
from onnx_symmem.order.selection import OrderChoice

__all__ = ["HeldTensor", "OrderExplanation", "PeakRegion", "WayDown", "explain_order"]


@dataclass(frozen=True, slots=True)
class HeldTensor:
    """A tensor in memory at some moment: the node that makes it, and the one after which it goes.

    `until` is None where it stays to the end of the run.
    """

    name: str
    bytes: int
    made_by: str
    until: str | None

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "bytes": self.bytes, "made_by": self.made_by, "until": self.until}


@dataclass(frozen=True, slots=True)
class WayDown:
    """What a lower peak would take at one shape.

    No order holds less than `bytes` while `node` runs: at best `tensors` are alive then. `own` tells that all
    of them are read or made by the node. `reached`: the plan has exactly that peak. `proved`: no order is
    below `floor`, which counts what a minimum cut cannot see.
    """

    node: str
    bytes: int
    own: bool
    tensors: tuple[HeldTensor, ...]
    floor: int
    reached: bool

    def to_json(self) -> dict[str, Any]:
        return {
            "node": self.node,
            "bytes": self.bytes,
            "only_operands_and_results": self.own,
            "tensors": [t.to_json() for t in self.tensors],
            "no_order_below": self.floor,
            "reached": self.reached,
        }


@dataclass(frozen=True, slots=True)
class PeakRegion:
    """Sample shapes with the same peak moment; bytes and tensors are those at the last of them.

    `before` and `before_at` are the peak of the plan that would have run and its moment, `spared` what it
    held there that is not held while the same node runs now.
    """

    shapes: tuple[Mapping[str, int], ...]
    moment: str
    bytes: int
    tensors: tuple[HeldTensor, ...]
    before: int
    before_at: str
    spared: tuple[HeldTensor, ...]
    way_down: WayDown | None

    def to_json(self) -> dict[str, Any]:
        return {
            "shapes": [{"shape": dict(s)} for s in self.shapes],
            "moment": self.moment,
            "bytes": self.bytes,
            "tensors": [t.to_json() for t in self.tensors],
            "before": {"moment": self.before_at, "bytes": self.before},
            "spared": [t.to_json() for t in self.spared],
            "way_down": None if self.way_down is None else self.way_down.to_json(),
        }


@dataclass(frozen=True, slots=True)
class OrderExplanation:
    """`found_by` is how the chosen order came about, `steps` the methods that led to it, in their order."""

    found_by: str
    steps: tuple[str, ...]
    regions: tuple[PeakRegion, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "found_by": self.found_by,
            "steps": list(self.steps),
            "regions": [r.to_json() for r in self.regions],
        }


_STEPS: Mapping[str, str] = {
    "onnxruntime": "ONNX Runtime's own order",
    "file": "the order of the file",
    "greedy": "list scheduling: the ready node that grows memory least",
    "reverse-greedy": "list scheduling from the end",
    "lpmf": "list scheduling: the node that raises the peak least",
    "dfs": "depth first, the largest operand first",
    "search@": "search for one shape alone",
    "spliced": "the best parts of several orders, joined where these have run the same nodes",
    "+search": "the worst steps taken apart by cuts, moves and exact search of windows",
}


def explain_order(
    choice: OrderChoice,
    graph: BufferGraph,
    sizes: ValueSizes,
    shapes: Sequence[Mapping[str, int]],
    floor: Sequence[int] = (),
) -> OrderExplanation:
    """Explain a choice at some shapes; `floor` are bytes that no order is below at each of them.

    `graph` is the buffer graph of the priority traversal, `sizes` those of its values.
    """
    regions: dict[int, list[int]] = {}
    after, before = choice.chosen.profile, choice.before.profile
    if not after.moments or before is None or not shapes:
        return OrderExplanation(choice.chosen.name, _steps(choice.chosen.name), ())
    tops = after.in_use.evaluate(shapes).argmax(axis=0)
    for k, row in enumerate(tops.tolist()):
        regions.setdefault(row, []).append(k)
    bounds = _WaysDown(choice, graph, sizes, shapes)
    found = []
    for row, places in regions.items():
        shape = shapes[places[-1]]
        now = _peak_row(before, shape)
        then = _row_of(after, before.moments[now].node)
        gone = {t.name: t for t in _held(before, now, shape)}
        if then is not None:
            for tensor in _held(after, then, shape):
                gone.pop(tensor.name, None)
        least = floor[places[-1]] if floor else 0
        found.append(
            PeakRegion(
                tuple(shapes[k] for k in places),
                after.where(row),
                int(after.in_use.evaluate([shape])[row, 0]),
                _held(after, row, shape),
                int(before.in_use.evaluate([shape])[now, 0]),
                before.where(now),
                tuple(gone.values()) if then is not None else (),
                bounds.at(places[-1], int(least)),
            )
        )
    return OrderExplanation(choice.chosen.name, _steps(choice.chosen.name), tuple(found))


def _steps(name: str) -> tuple[str, ...]:
    start = next((words for key, words in _STEPS.items() if name.startswith(key)), name)
    return (start, _STEPS["+search"]) if "+search" in name else (start,)


def _peak_row(found: MemoryProfile, shape: Mapping[str, int]) -> int:
    return int(found.in_use.evaluate([shape])[:, 0].argmax())


def _row_of(found: MemoryProfile, node: int) -> int | None:
    """The row of a node of the main graph."""
    return next((row for row in found.step_rows if found.moments[row].node == node), None)


def _held(found: MemoryProfile, row: int, shape: Mapping[str, int]) -> tuple[HeldTensor, ...]:
    """Tensors in memory at a row, the largest first; unknown sizes are left out."""
    view, plan = found.plan.view, found.plan
    by_name = {v.name: v.index for v in view.values}
    last: dict[int, int] = {}
    for step, index in enumerate(plan.order):
        for value in view.nodes[index].reads():
            last[plan.root[value]] = step
    kept = {plan.root[v] for v in plan.source.outputs}
    tensors = []
    for slot in found.live(row):
        if slot.bytes is None or not (size := slot.bytes.evaluate(shape)):
            continue
        value = by_name.get(slot.name, -1)
        made = view.values[value].producer if value >= 0 else -1
        ends = None if value < 0 or value in kept or value not in last else plan.order[last[value]]
        tensors.append(
            HeldTensor(
                slot.name,
                size,
                view.nodes[made].label() if made >= 0 else "",
                None if ends is None else view.nodes[ends].label(),
            )
        )
    return tuple(sorted(tensors, key=lambda t: (-t.bytes, t.name)))


class _WaysDown:
    """Nodes at which no order can do with less, per shape."""

    def __init__(
        self,
        choice: OrderChoice,
        graph: BufferGraph,
        sizes: ValueSizes,
        shapes: Sequence[Mapping[str, int]],
    ) -> None:
        self.choice, self.graph, self.shapes = choice, graph, shapes
        self.view = choice.chosen.profile.plan.view
        self.table = buffer_bytes(graph, sizes, shapes)
        self.nodes: Sequence[int] = (-1,) * len(shapes)
        if 0 < graph.size <= BIT_SET_NODES:
            self.nodes = peak_floor(graph, self.table, (choice.chosen.order,), limits=CutLimits()).nodes

    def at(self, k: int, floor: int) -> WayDown | None:
        node = self.nodes[k]
        if node < 0:
            return None
        column = [int(b) for b in self.table[:, k]]
        finder = CutFinder(self.graph)
        roles = finder.roles(node)
        cut = finder.least(roles, column)
        ran = {n for n, role in enumerate(roles) if role == BEFORE} | set(cut.most)
        alive = [
            b
            for b, producer in enumerate(self.graph.producer)
            if column[b]
            and producer in ran
            and (self.graph.pinned[b] or any(r not in ran for r in self.graph.readers[b]))
        ]
        shared = [made for at, made, _ in self.graph.optional_share if at == node]
        made = [b for b in self.graph.makes[node] if column[b] and b not in shared]
        own = all(node in self.graph.readers[b] for b in alive)
        tensors = self._tensors((*made, *alive), column)
        total = sum(t.bytes for t in tensors)
        peak = self.choice.after.at(self.shapes[k])
        return WayDown(
            self.view.nodes[node].label(), total, own, tensors, max(floor, total), peak <= max(floor, total)
        )

    def _tensors(self, buffers: Iterable[int], column: Sequence[int]) -> tuple[HeldTensor, ...]:
        nodes = self.view.nodes
        place = {node: step for step, node in enumerate(self.choice.chosen.order)}
        found = []
        for b in buffers:
            readers = self.graph.readers[b]
            last = None if self.graph.pinned[b] or not readers else max(readers, key=place.__getitem__)
            found.append(
                HeldTensor(
                    self.view.values[self.graph.values[b]].name,
                    column[b],
                    nodes[self.graph.producer[b]].label(),
                    None if last is None else nodes[last].label(),
                )
            )
        return tuple(sorted(found, key=lambda t: (-t.bytes, t.name)))
