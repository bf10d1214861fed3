"""Least peak of any schedule, whatever is repeated or sent to the host, for all shapes; and what makes it so.

While a node runs, what it reads and makes is there, and so is every output of the graph that is made by then
in any schedule: an output is made by the first run of its node, which an ancestor's first run comes before.
In-place results count once with what they may overwrite. The maximum over all nodes, and the sum of all
outputs at the end, is a lower bound that only splitting nodes could get below (facts/ALGORITHMS, 8.7).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from onnx_symmem.expr.domain import Domain
from onnx_symmem.expr.expression import ZERO, Expr
from onnx_symmem.memory.peak import Peak, peak_of
from onnx_symmem.memory.plan import PlanInput
from onnx_symmem.memory.sizes import ValueSizes
from onnx_symmem.order.buffers import BIT_SET_NODES

__all__ = ["AnyFloor", "Pin", "any_floor"]


@dataclass(frozen=True, slots=True)
class Pin:
    """A tensor that must be there: its value, bytes, and why (read, made, output)."""

    value: int
    bytes: Expr
    why: str


@dataclass(frozen=True)
class AnyFloor:
    """The bound as a peak over the domain; its rows are nodes, and one more for the end of the run."""

    prepared: PlanInput
    sizes: ValueSizes
    peak: Peak
    rows: tuple[int, ...]

    def node_at(self, shape: Mapping[str, int]) -> int:
        """The node that makes the bound at a shape, or the number of nodes for the end of the run."""
        values = [m.evaluate(shape) for m in self.peak.members]
        return self.rows[self.peak.rows[values.index(max(values))]]

    def pins(self, shape: Mapping[str, int]) -> tuple[Pin, ...]:
        """What is there at that node, largest first."""
        found = _pins(self.prepared, self.sizes, _Outputs(self.prepared), self.node_at(shape))
        return tuple(sorted(found, key=lambda pin: (-pin.bytes.evaluate(shape), pin.value)))


class _Outputs:
    """Which outputs exist while a node runs in every schedule: made by an ancestor, or by the node itself."""

    def __init__(self, prepared: PlanInput) -> None:
        view = prepared.view
        self.makers: dict[int, list[int]] = {}
        for value in sorted(prepared.outputs):
            self.makers.setdefault(view.values[value].producer, []).append(value)
        place = {node: k for k, node in enumerate(self.makers)}
        self.nodes = list(self.makers)
        self.sets: list[int] | None = None
        if len(view.nodes) > BIT_SET_NODES and len(place) > 64:
            return
        sets = [0] * len(view.nodes)
        for node in _sorted(prepared):
            bits = 0
            for before in view.predecessors[node]:
                bits |= sets[before] | (1 << place[before] if before in place else 0)
            sets[node] = bits
        self.sets = sets

    def before(self, node: int) -> list[int]:
        """Outputs of a node's ancestors, ascending by node."""
        bits = 0 if self.sets is None else self.sets[node]
        return [v for k, maker in enumerate(self.nodes) if bits >> k & 1 for v in self.makers[maker]]


def _sorted(prepared: PlanInput) -> list[int]:
    view = prepared.view
    waiting = [len(p) for p in view.predecessors]
    order = [node for node, count in enumerate(waiting) if not count]
    for node in order:
        for after in view.successors[node]:
            waiting[after] -= 1
            if not waiting[after]:
                order.append(after)
    return order


def _pins(prepared: PlanInput, sizes: ValueSizes, outputs: _Outputs, node: int) -> list[Pin]:
    """What must be in memory while a node runs; the number of nodes stands for the end of the run."""

    def size(value: int) -> Expr:
        known = sizes.bytes[value]
        return ZERO if known is None or value in prepared.host else known

    if node == len(prepared.view.nodes):
        return [Pin(v, size(v), "output") for v in sorted(prepared.outputs)]
    kinds = prepared.kinds
    found = [Pin(v, size(v), "output") for v in outputs.before(node)]
    seen = {pin.value for pin in found}
    read = [b for b in dict.fromkeys(prepared.reads[node]) if kinds[b] == "node" and b not in seen]
    found += [Pin(b, size(b), "read") for b in read]
    found += [Pin(b, size(b), "made") for b in prepared.fixed[node]]
    # What may take the place of something read needs no memory of its own in some schedule.
    over = set(read)
    for value, sources in prepared.may[node]:
        if not over.intersection(sources):
            found.append(Pin(value, size(value), "made"))
    return found


def any_floor(prepared: PlanInput, sizes: ValueSizes, domain: Domain) -> AnyFloor:
    """The bound for every schedule of a graph; subgraphs and unknown sizes count as nothing."""
    outputs = _Outputs(prepared)
    rows: dict[Expr, int] = {}
    for node in (*range(len(prepared.view.nodes)), len(prepared.view.nodes)):
        total: dict[Expr, int] = {}
        for pin in _pins(prepared, sizes, outputs, node):
            total[pin.bytes] = total.get(pin.bytes, 0) + 1
        rows.setdefault(sum((e * k for e, k in total.items()), ZERO), node)
    return AnyFloor(prepared, sizes, peak_of(list(rows), domain), tuple(rows.values()))
