"""Bytes in use at every moment of a run, as polynomials: a plan with sizes put in.

A row is what ONNX Runtime's profiler shows for a node: sampled after its kernel has run and before
anything it read last is freed. Rows count what the arena holds for tensors, that is outputs and activations;
graph inputs belong to the caller and weights are there before the run, so these are scopes of
their own. Growing is positive: a step's impact is what it allocates minus what it frees.

An If has one row per node of each branch, as if that branch were taken, and then its own. A branch
sees what is alive around the If, keeps what the branch itself made until its last use, and writes its outputs
into the If's; outputs whose dims are all numbers exist before the branch starts. The body of a Loop or Scan
has rows that bound every iteration: carried values of the iteration before, and scan outputs in full.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from onnx_symmem.expr.exact import IntArray, Table, absolute, any_in_row
from onnx_symmem.expr.expression import ZERO, Expr
from onnx_symmem.expr.grid import Grid
from onnx_symmem.expr.matrix import PolyMatrix
from onnx_symmem.graph.view import INITIALIZER, Node
from onnx_symmem.memory.plan import OUTPUT, Plan
from onnx_symmem.memory.sizes import ValueSizes

__all__ = ["MemoryProfile", "Moment", "NotCounted", "Slot", "profile"]

EXACT, BOUND, UNKNOWN = "exact", "bound", "unknown"
ACTIVATION, HOST = "activation", "host"
END = -1
_NO_SIZE = "its size is unknown"

Path = tuple[tuple[str, int], ...]
"""Where a moment lies inside a node with subgraphs: (attribute name, node index), outer first."""


@dataclass(frozen=True, slots=True)
class Moment:
    """What one row stands for: the step, its node, and inside control flow the node that runs within.

    `bound` marks rows of Loop and Scan bodies, which hold for every iteration.
    """

    step: int
    node: int
    path: Path = ()
    bound: bool = False


@dataclass(frozen=True, slots=True)
class Slot:
    """A value of the main graph or of a subgraph that may take memory; `bytes` None: unknown.

    `scope` is output, activation, or host: in the CPU's memory while the rows count the provider's.
    """

    name: str
    bytes: Expr | None
    scope: str


@dataclass(frozen=True, slots=True)
class NotCounted:
    """A value that takes memory which the rows leave out, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class MemoryProfile:
    """Bytes in use at every moment of one plan.

    `in_use` and `outputs` have one row per moment: all that is counted, and graph outputs alone.
    `inputs` and `weights` are the sums of their scopes, without what `not_counted` lists.
    """

    plan: Plan
    moments: tuple[Moment, ...]
    in_use: PolyMatrix
    outputs: PolyMatrix
    inputs: Expr
    weights: Expr
    not_counted: tuple[NotCounted, ...]
    slots: tuple[Slot, ...]
    events: tuple[IntArray, IntArray, IntArray]

    @property
    def label(self) -> str:
        """exact; bound where a subgraph is counted; unknown where something is not counted.

        Every row of an If is exact if its branch is taken, but their maximum is that of the larger branch.
        """
        if self.not_counted:
            return UNKNOWN
        return BOUND if any(m.bound or m.path for m in self.moments) else EXACT

    @cached_property
    def step_rows(self) -> tuple[int, ...]:
        """Per step: the row of the node itself (rows inside it come before)."""
        return tuple(k for k, m in enumerate(self.moments) if not m.path)

    def peaks(self, grid: Grid) -> tuple[int, ...]:
        """Bytes at each shape of a grid: the largest row; 0 without nodes."""
        if not self.moments:
            return (0,) * len(grid.shapes)
        values = Table(grid.matrix(self.in_use.basis))
        rows = self.in_use.rows
        floats = rows.astype(np.float64)
        at, error = floats @ values.floats, np.abs(floats) @ np.abs(values.floats)
        error *= (values.floats.shape[0] + 8) * 2.0**-51
        # Rows that can be the largest somewhere are few; exact numbers may be long.
        near = any_in_row(at + error >= (at - error).max(axis=0))
        return tuple(int(v) for v in values.times(rows[near]).max(axis=0))

    def where(self, row: int) -> str:
        """The moment in words, e.g. `If 'pick' / then_branch / Conv 'c1'`."""
        moment, view = self.moments[row], self.plan.view
        node = view.nodes[moment.node]
        words = [node.label()]
        for name, index in moment.path:
            view = node.subgraphs[name]
            if index < 0:
                words += [name, "end"]
                break
            node = view.nodes[index]
            words += [name, node.label()]
        return " / ".join(words)

    def live(self, row: int) -> tuple[Slot, ...]:
        """Tensors in memory at a row, in the order in which they were allocated."""
        rows, slots, signs = self.events
        count: dict[int, int] = {}
        for at in range(int(np.searchsorted(rows, row, side="right"))):
            slot = int(slots[at])
            count[slot] = count.pop(slot, 0) + int(signs[at])
        return tuple(self.slots[s] for s, times in count.items() for _ in range(times))


def profile(plan: Plan, sizes: ValueSizes) -> MemoryProfile:
    """The memory profile of a plan; `sizes` are those of the planned graph."""
    recorder = _Recorder()
    recorder.run(recorder.enter(plan, sizes))
    count = len(recorder.moments)
    rows, slots, signs = (np.array(column, dtype=np.int64) for column in recorder.events())
    table = PolyMatrix.from_exprs([ZERO if s.bytes is None else s.bytes for s in recorder.slots])
    outputs = np.array([s.scope == OUTPUT for s in recorder.slots], dtype=bool)[slots]
    inputs, weights, missing = _outside(plan, sizes)
    return MemoryProfile(
        plan,
        tuple(recorder.moments),
        PolyMatrix(table.basis, _running(table.rows, rows, slots, signs, count)),
        PolyMatrix(table.basis, _running(table.rows, rows[outputs], slots[outputs], signs[outputs], count)),
        inputs,
        weights,
        (*missing, *recorder.not_counted()),
        tuple(recorder.slots),
        (rows, slots, signs),
    )


def _running(
    table: IntArray,
    rows: IntArray,
    slots: IntArray,
    signs: IntArray,
    count: int,
) -> IntArray:
    """Per row: the sum of all signed table rows up to it; exact integers where int64 could overflow."""
    if len(slots) == 0 or count == 0:
        return np.zeros((count, table.shape[1]), dtype=np.int64)
    dtype: Any = np.int64 if absolute(table) * len(slots) < 1 << 62 else object
    sums = np.zeros((len(slots) + 1, table.shape[1]), dtype=dtype)
    np.cumsum(table[slots].astype(dtype) * signs[:, None].astype(dtype), axis=0, out=sums[1:])
    picked: IntArray = sums[np.searchsorted(rows, np.arange(count), side="right")]
    return picked


def _outside(plan: Plan, sizes: ValueSizes) -> tuple[Expr, Expr, tuple[NotCounted, ...]]:
    """Sums of graph inputs and of weights (subgraphs' included), and what of them has no size."""
    missing: list[NotCounted] = []

    def total(plan: Plan, inner: ValueSizes, wanted: Iterable[int]) -> Expr:
        times: dict[Expr, int] = {}
        for value in wanted:
            size = inner.bytes[value]
            if size is None:
                missing.append(NotCounted(plan.view.values[value].name, inner.why.get(value, _NO_SIZE)))
            else:
                times[size] = times.get(size, 0) + 1
        return sum((size * k for size, k in times.items()), ZERO)

    def weights(plan: Plan, inner: ValueSizes) -> Expr:
        own = plan.view.initializers
        kinds = enumerate(plan.source.kinds)
        result = total(plan, inner, (v for v, kind in kinds if kind == INITIALIZER or v in own))
        for at, sub in plan.subplans.items():
            result = result + weights(sub, inner.subgraphs[at])
        return result

    inputs = total(plan, sizes, (v for v in plan.view.inputs if v not in plan.view.initializers))
    return inputs, weights(plan, sizes), tuple(missing)


@dataclass(frozen=True, slots=True)
class _Frame:
    """A graph being run: its plan, and the slot of each of its values is `first` + value index."""

    plan: Plan
    first: int
    inner: Mapping[tuple[int, str], _Frame]


class _Recorder:
    """Collects moments, and what is allocated and freed between them."""

    def __init__(self) -> None:
        self.moments: list[Moment] = []
        self.slots: list[Slot] = []
        self.why: list[str] = []
        self.rows: list[int] = []
        self.changed: list[int] = []
        self.signs: list[int] = []

    def enter(
        self, plan: Plan, sizes: ValueSizes, prefix: str = "", outputs: Mapping[int, str] | None = None
    ) -> _Frame:
        """Register a graph's values and those of its subgraphs.

        `outputs` gives the scope of values that are written into an enclosing graph's.
        """
        first = len(self.slots)
        if outputs is None:
            outputs = dict.fromkeys(plan.source.outputs, OUTPUT)
        host = plan.source.host
        for value, size in zip(plan.view.values, sizes.bytes, strict=True):
            scope = HOST if value.index in host else outputs.get(value.index, ACTIVATION)
            self.slots.append(Slot(prefix + value.name, size, scope))
            self.why.append(sizes.why.get(value.index, _NO_SIZE))
        inner: dict[tuple[int, str], _Frame] = {}
        for at, sub in plan.subplans.items():
            node = plan.view.nodes[at[0]]
            scopes: dict[int, str] = {}
            if node.op == "If":
                for mine, theirs in zip(node.outputs, sub.view.outputs, strict=False):
                    scopes[theirs] = outputs.get(mine, ACTIVATION)
            inner[at] = self.enter(
                sub, sizes.subgraphs[at], f"{prefix}{node.name or node.op}/{at[1]}/", scopes
            )
        return _Frame(plan, first, inner)

    def run(self, frame: _Frame) -> None:
        """Record the main graph."""
        self._steps(frame, None, frozenset())

    def _steps(self, frame: _Frame, at: Moment | None, present: frozenset[int]) -> None:
        """Record a graph's nodes; inside another node, `at` is where; `present` outputs exist already."""
        plan, first = frame.plan, frame.first
        nodes = plan.view.nodes
        for step, (node, made, freed) in enumerate(
            zip(plan.order, plan.allocations, plan.releases, strict=True)
        ):
            moment = Moment(step, node)
            if at is not None:
                name = at.path[-1][0]
                moment = Moment(at.step, at.node, (*at.path[:-1], (name, node)), at.bound)
            made = tuple(v for v in made if v not in present) if present else made
            for name in nodes[node].subgraphs:
                self._inside(frame, nodes[node], name, made, moment)
            self._change((first + v for v in made), 1)
            self.moments.append(moment)
            self._change((first + v for v in freed), -1)

    def _inside(self, frame: _Frame, node: Node, name: str, made: Collection[int], outer: Moment) -> None:
        """Record one subgraph of a node, which allocates `made`, and forget what it leaves behind."""
        since = len(self.rows)
        sub = frame.inner[node.index, name]
        at = Moment(outer.step, outer.node, (*outer.path, (name, END)), outer.bound or node.op != "If")
        if node.op == "If":
            # An output of the If may lie in an old buffer, or be the early output of a branch around it;
            # nothing is allocated for it then.
            pairs = [*zip(node.outputs, sub.plan.view.outputs, strict=False)]
            reused = {mine for theirs, mine in pairs if theirs >= 0 and theirs not in made}
            early = [mine for _, mine in pairs if mine in sub.plan.source.static and mine not in reused]
            self._change((sub.first + v for v in dict.fromkeys(early)), 1)
            self._steps(sub, at, frozenset((*early, *reused)))
        else:
            results = [frame.first + v for v in node.outputs if v >= 0]
            self._change((sub.first + v for v in sub.plan.view.inputs), 1)
            self._change(results, 1)
            self._steps(sub, at, frozenset())
            # A Loop joins its collected scan outputs while it still holds the pieces.
            self._change(results, 1)
            self.moments.append(at)
        net: dict[int, int] = {}
        for slot, sign in zip(self.changed[since:], self.signs[since:], strict=True):
            net[slot] = net.get(slot, 0) + sign
        for slot, times in net.items():
            self._change([slot] * times, -1)

    def _change(self, slots: Iterable[int], sign: int) -> None:
        """Allocate (+1) or free (-1) before the next moment."""
        row = len(self.moments)
        for slot in slots:
            if self.slots[slot].scope == HOST:
                continue
            self.rows.append(row)
            self.changed.append(slot)
            self.signs.append(sign)

    def events(self) -> tuple[list[int], list[int], list[int]]:
        """(row, slot, sign) of every change that a row shows, by row."""
        shown = bisect_left(self.rows, len(self.moments))
        return self.rows[:shown], self.changed[:shown], self.signs[:shown]

    def not_counted(self) -> Iterator[NotCounted]:
        """Values that the rows would count if their sizes were known."""
        for slot in dict.fromkeys(self.changed):
            if self.slots[slot].bytes is None:
                yield NotCounted(self.slots[slot].name, self.why[slot])
