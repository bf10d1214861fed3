"""An independent check of a chosen plan before it is used: order, lifetimes, bytes, and the proof.

Nothing here uses the planner's bookkeeping. A run is replayed on names of contents: every buffer knows which
values its bytes are at the moment, in-place results replace them and aliases join them. A read of bytes that
are gone or overwritten, a buffer freed too early, twice, too late or never, and a profile that says anything
but the sum of what is there, are found this way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onnx_symmem.errors import VerificationFailed
from onnx_symmem.expr.domain import Domain
from onnx_symmem.expr.grid import Grid
from onnx_symmem.graph.view import INITIALIZER, NODE, GraphView, Node
from onnx_symmem.memory.plan import Plan
from onnx_symmem.memory.profile import HOST, MemoryProfile
from onnx_symmem.memory.sharing import sharing_of
from onnx_symmem.memory.sizes import ValueSizes
from onnx_symmem.order.selection import OrderChoice

__all__ = ["check_choice", "check_plan"]


def check_choice(
    choice: OrderChoice, sizes: ValueSizes, domain: Domain, shapes: Sequence[Mapping[str, int]]
) -> None:
    """Raise VerificationFailed unless the chosen order, its plan and bytes, and the proof hold."""
    chosen = choice.chosen.profile
    check_plan(chosen.plan)
    _check_bytes(chosen, sizes, shapes)
    for shape in shapes:
        largest = max((int(v) for v in chosen.in_use.on(Grid([shape])).ravel()), default=0)
        if largest != choice.after.at(shape):
            raise _wrong(f"the peak at {dict(shape)} is {largest} bytes, its expressions say otherwise")
    if choice.proof is None:
        return
    proof, matrix = choice.proof, choice.proof.matrix
    before = [member + choice.overhead for member in choice.before.members]
    for rows, members in ((proof.lows, choice.after.members), (proof.highs, before)):
        if {matrix.row(i) for i in rows} != {domain.solved(m) for m in members}:
            raise _wrong("the proof is not about the chosen plan and the one that would have run")
    if proof.domain != domain or not proof.check():
        raise _wrong("the proof that the chosen order is never worse does not hold")


def check_plan(plan: Plan) -> None:
    """Raise VerificationFailed unless a plan is one that a run can follow; without memory reuse."""
    _check_order(plan.view, plan.order)
    if not plan.source.options.mem_reuse:
        _Replay(plan).run()
    for sub in plan.subplans.values():
        check_plan(sub)


def _check_order(view: GraphView, order: Sequence[int]) -> None:
    if sorted(order) != list(range(len(view.nodes))):
        raise _wrong(f"the order does not list the {len(view.nodes)} nodes once each")
    made = {v.index for v in view.values if v.kind != NODE}
    for index in order:
        node = view.nodes[index]
        missing = next((v for v in node.reads() if v not in made), None)
        if missing is not None:
            raise _wrong(f"{node.label()} runs before '{view.values[missing].name}', which it reads, is made")
        made.update(v for v in node.outputs if v >= 0)


class _Replay:
    """A run of one graph under a plan; buffers are named by the value they were allocated for."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.view = plan, plan.view
        self.own = [v.kind == NODE and self.view.nodes[v.producer].op != "Constant" for v in self.view.values]
        self.outputs = {v for v in self.view.outputs if self.own[v]}
        self.holds: dict[int, set[int]] = {}
        self.last: dict[int, int] = {}
        for step, index in enumerate(plan.order):
            for value in self.view.nodes[index].reads():
                self.last[plan.root[value]] = step

    def run(self) -> None:
        """Replay all steps."""
        released: set[int] = set()
        for step, index in enumerate(self.plan.order):
            node = self.view.nodes[index]
            for value in node.reads():
                self._read(node, value)
            for value in self.plan.allocations[step]:
                if value in self.holds or value not in node.outputs:
                    raise _wrong(f"{node.label()} allocates '{self._name(value)}', which is not its to make")
                self.holds[value] = set()
            for position, value in enumerate(node.outputs):
                if value >= 0 and self.own[value]:
                    self._make(node, position, value)
            for buffer in self.plan.releases[step]:
                if buffer not in self.holds or buffer in released or self.last.get(buffer) != step:
                    raise _wrong(f"{node.label()} frees '{self._name(buffer)}' at the wrong time")
                if any(self.plan.root[v] == buffer for v in self.outputs):
                    raise _wrong(f"{node.label()} frees the graph output in '{self._name(buffer)}'")
                released.add(buffer)
                self.holds[buffer] = set()
        for value in sorted(self.outputs):
            self._read(None, value)
        kept = {self.plan.root[v] for v in self.outputs}
        for buffer in self.holds:
            if buffer not in released and buffer not in kept and buffer in self.last:
                raise _wrong(f"'{self._name(buffer)}' is never freed")

    def _read(self, node: Node | None, value: int) -> None:
        buffer = self.plan.root[value]
        if self.own[value] and self.own[buffer] and value not in self.holds.get(buffer, ()):
            who = node.label() if node else "the caller"
            raise _wrong(f"{who} reads '{self._name(value)}' after its bytes are gone")

    def _make(self, node: Node, position: int, value: int) -> None:
        buffer = self.plan.root[value]
        if buffer == value:
            if value not in self.holds:
                raise _wrong(f"{node.label()} has no memory for '{self._name(value)}'")
            self.holds[value] = {value}
            return
        options = self.plan.source.options
        sharing = sharing_of(node, "cpu" if node.index in options.host_nodes else options.provider)
        alias = self._shares(node, sharing.alias, position, buffer)
        if value in self.outputs and node.op != "Identity":
            raise _wrong(f"{node.label()} makes the graph output '{self._name(value)}' in another's memory")
        if not alias and not self._shares(node, sharing.in_place, position, buffer):
            raise _wrong(f"{node.label()} cannot make '{self._name(value)}' in '{self._name(buffer)}'")
        if not self.own[buffer]:
            if not alias:
                raise _wrong(f"{node.label()} overwrites '{self._name(buffer)}', which is not the run's")
            return
        if not alias:
            self.holds[buffer].clear()
        self.holds[buffer].add(value)

    def _shares(self, node: Node, pairs: Sequence[tuple[int, int]], position: int, buffer: int) -> bool:
        return any(
            to == position and at < len(node.inputs) and node.inputs[at] >= 0
            and self.plan.root[node.inputs[at]] == buffer
            for at, to in pairs
        )  # fmt: skip

    def _name(self, value: int) -> str:
        return self.view.values[value].name


def _check_bytes(found: MemoryProfile, sizes: ValueSizes, shapes: Sequence[Mapping[str, int]]) -> None:
    """The rows of the main graph's nodes are the sums of the buffers that are there."""
    plan, grid = found.plan, Grid(shapes)
    rows = found.in_use.on(grid)
    counted = [
        size is not None and slot.scope != HOST and plan.source.kinds[value] != INITIALIZER
        for value, (size, slot) in enumerate(zip(sizes.bytes, found.slots, strict=False))
    ]
    live = [0] * len(shapes)

    def change(buffer: int, sign: int) -> None:
        size = sizes.bytes[buffer]
        if counted[buffer] and size is not None:
            for k, value in enumerate(grid.expr(size).tolist()):
                live[k] += sign * value

    for step, row in enumerate(found.step_rows):
        for buffer in plan.allocations[step]:
            change(buffer, 1)
        if [int(v) for v in rows[row]] != live:
            node = plan.view.nodes[plan.order[step]]
            raise _wrong(f"the profile says {rows[row].tolist()} bytes at {node.label()}, not {live}")
        for buffer in plan.releases[step]:
            change(buffer, -1)


def _wrong(what: str) -> VerificationFailed:
    return VerificationFailed(f"plan check: {what}; nothing was written, please report this model")
