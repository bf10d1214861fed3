"""A graph and its sizes in numbers, as the search for levels reads them: lists by index, no expressions.

Values that alias each other in every order form a *class*, named by the first of them (`memory.plan`): they
live and die together, whatever is repeated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from onnx_symmem.expr.grid import Grid
from onnx_symmem.graph.view import NODE, GraphView
from onnx_symmem.memory.plan import PlanInput
from onnx_symmem.memory.profile import profile
from onnx_symmem.memory.sharing import sharing_of
from onnx_symmem.memory.sizes import ValueSizes
from onnx_symmem.remat.cost import Machine, NodeCosts, keep_reason
from onnx_symmem.remat.optional_outputs import is_optional

__all__ = ["Tables", "tables_of"]

_SMALL = 1 / 4096  # of the peak: smaller tensors are kept, not repeated


@dataclass(frozen=True)
class Tables:
    """Per node: `reads` and `makes` (values), `alias` and `in_place` per output made (the value shared, the
    values that may be taken over), `optional` per output (may be left out in a repeat), `seconds` per shape,
    `repeatable`, and `inner`, the bytes per shape that its subgraphs need above its own row.

    Per value: `prior` (there before the run), `output`, `consumed` (some node reads it), `producer`, `group`
    (its class), `bytes` per shape (0 in the host's memory), and `host_seconds` of one copy. Per class:
    `movable`, whether it may be dropped and made again.
    """

    view: GraphView
    reads: tuple[tuple[int, ...], ...]
    makes: tuple[tuple[int, ...], ...]
    alias: tuple[tuple[int, ...], ...]
    in_place: tuple[tuple[tuple[int, ...], ...], ...]
    optional: tuple[tuple[bool, ...], ...]
    repeatable: tuple[bool, ...]
    seconds: np.ndarray
    host_seconds: np.ndarray
    inner: np.ndarray
    prior: tuple[bool, ...]
    output: tuple[bool, ...]
    consumed: tuple[bool, ...]
    producer: tuple[int, ...]
    group: tuple[int, ...]
    movable: tuple[bool, ...]
    bytes: np.ndarray
    end_bytes: int
    on_device: bool

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return len(self.reads)

    @property
    def shapes(self) -> int:
        """Number of sample shapes."""
        return int(self.bytes.shape[1])


def tables_of(
    prepared: PlanInput,
    sizes: ValueSizes,
    costs: NodeCosts,
    shapes: Sequence[Mapping[str, int]],
    order: Sequence[int],
    machine: Machine | None = None,
    opsets: Mapping[str, int] | None = None,
) -> Tables:
    """The numbers of a graph at the sample `shapes`; `order` is the one whose peak small tensors are held to.

    Values of unknown size count as nothing, as in the profile, and are never repeated.
    """
    view, provider = prepared.view, prepared.options.provider
    machine = machine or Machine()
    grid = Grid(shapes)
    table = np.zeros((len(view.values), len(shapes)))
    for value, size in enumerate(sizes.bytes):
        if size is not None and value not in prepared.host:
            table[value] = grid.expr(size).astype(np.float64)
    prior = [kind != NODE for kind in prepared.kinds]
    outputs = prepared.outputs
    makes, alias, in_place, optional = [], [], [], []
    shared_ok = {v: frozenset(s) for pairs in prepared.may for v, s in pairs}
    for node in view.nodes:
        sharing = sharing_of(node, provider)
        made, from_, over, free = [], [], [], []
        for position, value in enumerate(node.outputs):
            if value < 0 or prior[value]:
                continue
            given = [node.inputs[a] for a, b in sharing.alias if b == position and a < len(node.inputs)]
            taken = [node.inputs[a] for a, b in sharing.in_place if b == position and a < len(node.inputs)]
            taken = [
                v for v in taken if v >= 0 and prepared.key[v] >= 0 and prepared.key[v] == prepared.key[value]
            ]
            if value in shared_ok:
                taken = [v for v in taken if prepared.base[v] in shared_ok[value]]
            elif value not in outputs:
                taken = []
            made.append(value)
            from_.append(next((v for v in given if v >= 0), -1))
            over.append(tuple(taken))
            free.append(is_optional(node, position, opsets))
        makes.append(tuple(made))
        alias.append(tuple(from_))
        in_place.append(tuple(over))
        optional.append(tuple(free))
    repeatable = tuple(not keep_reason(view, node) and node.index not in costs.unknown for node in view.nodes)
    found = profile(prepared.plan(order), sizes)
    rows = found.in_use.on(grid).astype(np.float64)
    inner = np.zeros((len(view.nodes), len(shapes)))
    own = {moment.step: row for row, moment in enumerate(found.moments) if not moment.path}
    for row, moment in enumerate(found.moments):
        if moment.path:
            inner[moment.node] = np.maximum(inner[moment.node], rows[row] - rows[own[moment.step]])
    least = rows.max(axis=0, initial=0.0) * _SMALL
    members: dict[int, list[int]] = {}
    for value, base in enumerate(prepared.base):
        members.setdefault(base, []).append(value)
    movable = [False] * len(view.values)
    for base, values in members.items():
        if prior[base] or base in outputs or sizes.bytes[base] is None:
            continue
        movable[base] = bool((table[base] > least).any()) and all(
            repeatable[view.values[v].producer] for v in values if view.values[v].producer >= 0
        )
    return Tables(
        view, tuple(tuple(v for v in node.reads()) for node in view.nodes), tuple(makes), tuple(alias),
        tuple(in_place), tuple(optional), repeatable,
        costs.seconds(shapes, machine), table / machine.host_bandwidth, inner, tuple(prior),
        tuple(v in outputs for v in range(len(view.values))),
        tuple(bool(c) for c in view.consumers), tuple(v.producer for v in view.values), prepared.base,
        tuple(movable), table, 8 if provider == "cpu" else 0, provider != "cpu",
    )  # fmt: skip
