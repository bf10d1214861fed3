"""Lower bound of every order's peak from minimum cuts, as polynomials that hold at all shapes.

While node v runs, an order holds what is live across the down-set D of nodes that ran before, and what v
makes. Sizes are written as sums of generators g >= 0 with factors >= 0 (`order.cone`), so at any shape

    min over D of sum_g live_g(D) * g  >=  sum_g (min over D of live_g(D)) * g

since every D on the left has live_g(D) at least the minimum for each g alone. So one minimum cut per
generator, on that generator's factors, adds up to an expression that no order's peak is below at any shape.
The nodes v are those at which all known orders hold much: no bound at v is above what an order holds there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from onnx_symmem.expr.domain import Domain
from onnx_symmem.expr.expression import Expr
from onnx_symmem.expr.grid import evaluate
from onnx_symmem.order.buffers import BufferGraph
from onnx_symmem.order.cone import SizeCone, size_cone
from onnx_symmem.order.cut import BEFORE, FREE, CutFinder, FreeNetwork
from onnx_symmem.order.moments import live_bytes

__all__ = ["CutLimits", "PeakFloor", "cut_bound", "peak_floor"]

_KEPT = 16  # cuts that are tried again
_TICKS = 100  # parts of the limits that progress is counted in


@dataclass(frozen=True, slots=True)
class CutLimits:
    """Nodes looked at, and the work of their flows in vertices and arcs of all networks together."""

    nodes: int = 160
    work: int = 2_000_000
    network: int = 150_000


@dataclass(frozen=True, slots=True)
class PeakFloor:
    """Bytes per shape that no order's peak is below there, the node that tells, and the nodes by merit."""

    bytes: np.ndarray
    nodes: tuple[int, ...]
    looked_at: tuple[int, ...]


class _Cuts:
    """Networks of the nodes that were looked at, and the work they took."""

    def __init__(self, graph: BufferGraph, limits: CutLimits) -> None:
        self.graph, self.limits = graph, limits
        self.finder = CutFinder(graph)
        self.work = 0
        self.networks: dict[int, tuple[FreeNetwork, np.ndarray, np.ndarray] | None] = {}
        # Nodes that ran by the cuts that were found, as flags; the one that told something last comes first.
        self.ran: list[np.ndarray] = []
        self.shared: dict[int, list[int]] = {}
        for node, made, _ in graph.optional_share:
            self.shared.setdefault(node, []).append(made)

    def fixed(self, node: int) -> list[tuple[int, int]]:
        """(buffer, sign) of what a node adds itself: some results may overwrite an operand."""
        return [(b, 1) for b in self.graph.makes[node]] + [(b, -1) for b in self.shared.get(node, ())]

    def at(self, node: int) -> tuple[FreeNetwork, np.ndarray, np.ndarray] | None:
        """Network, buffers live anyway and roles of all nodes; None where the network is too large."""
        if node not in self.networks:
            roles = self.finder.roles(node)
            self.work += self.graph.size // 2
            found = None
            if roles.count(0) <= self.limits.network:
                role = np.frombuffer(roles, dtype=np.uint8)
                found = self.finder.network(roles), self.finder.live_anyway(roles), role
            self.networks[node] = found
        return self.networks[node]

    def least(self, node: int, sizes: Sequence[int], floor: float = -np.inf) -> int | None:
        """Least bytes while the node runs, at one shape or in one generator.

        Where these are not above `floor`, any number between: cuts that were made elsewhere mostly tell.
        """
        found = self.at(node)
        if found is None:
            return None
        network, always, role = found
        self.work += network.effort
        own = sum(sizes[b] * sign for b, sign in self.fixed(node))
        for k, before in enumerate(self.ran if floor > -np.inf else ()):
            # With what the node needs, and without what needs it, it is a down-set before which it may run.
            across = self.finder.across(np.where(role == FREE, before, role == BEFORE))
            most = own + sum([sizes[b] for b in across.tolist()])
            if most <= floor:
                self.ran.insert(0, self.ran.pop(k))
                return most
        value, free, _ = network.solve(sizes, sets=floor > -np.inf)
        if free:
            ran = role == BEFORE
            ran[list(free)] = True
            self.ran = [ran, *self.ran[: _KEPT - 1]]
        return value + own + sum(sizes[b] for b in always.tolist())


def peak_floor(
    graph: BufferGraph,
    table: np.ndarray,
    orders: Sequence[Sequence[int]],
    start: np.ndarray | None = None,
    limits: CutLimits | None = None,
) -> PeakFloor:
    """The bound at some shapes, in numbers; `table` is bytes (buffers, shapes), `start` a bound known before.

    For every shape, nodes are looked at from the one at which the least greedy of `orders` holds most.
    """
    return _floor(_Cuts(graph, limits or CutLimits()), table, orders, start, None)


def cut_bound(
    graph: BufferGraph,
    sizes: Sequence[Expr],
    domain: Domain,
    shapes: Sequence[Mapping[str, int]],
    orders: Sequence[Sequence[int]],
    start: Sequence[Expr] = (),
    limits: CutLimits | None = None,
    tick: Callable[[int, int], None] | None = None,
) -> tuple[Expr, ...]:
    """Expressions that no order's peak is below at any shape; `start` are such that are known already.

    `shapes` and `orders` only choose the nodes that are looked at. `tick` is told how much of the limits is
    used up, and of how much; most often the end comes before.
    """
    if not shapes or not graph.size:
        return ()
    cuts = _Cuts(graph, limits or CutLimits())
    table = np.maximum(evaluate(sizes, shapes), 0)
    cone = size_cone(sizes, domain)
    known = np.zeros(len(shapes))
    if start:
        known = np.maximum(known, evaluate(start, shapes).max(axis=0).astype(np.float64))
    found: list[Expr] = []

    def written(node: int) -> np.ndarray | None:
        expr = _expression(cuts, cone, node)
        if expr is None:
            return None
        found.append(expr)
        return np.asarray(evaluate([expr], shapes)[0], dtype=np.float64)

    _floor(cuts, table, orders, known, written, tick)
    return tuple(dict.fromkeys(found))


def _floor(
    cuts: _Cuts,
    table: np.ndarray,
    orders: Sequence[Sequence[int]],
    start: np.ndarray | None,
    written: Callable[[int], np.ndarray | None] | None,
    tick: Callable[[int, int], None] | None = None,
) -> PeakFloor:
    """Raise a floor at every shape, node by node; `written` gives what an expression for a node is worth."""
    limits, shapes = cuts.limits, table.shape[1]
    floor = np.zeros(shapes) if start is None else np.array(start, dtype=np.float64)
    best = [-1] * shapes
    # No bound at a node is above what an order holds while the node runs.
    ceiling = np.full((cuts.graph.size, shapes), np.inf)
    for order in orders:
        live = live_bytes(cuts.graph, table, order)
        at = np.asarray(order, dtype=np.int64)
        ceiling[at] = np.minimum(ceiling[at], live)
    columns = [[int(size) for size in column] for column in table.T]
    looked_at: list[int] = []
    while ceiling.size and len(looked_at) < limits.nodes and cuts.work < limits.work:
        hope = ceiling / np.maximum(floor, 1.0)
        node, k = np.unravel_index(int(hope.argmax()), hope.shape)
        if hope[node, k] <= 1.0 + 1e-9:
            break
        if tick is not None:
            used = max(len(looked_at) / limits.nodes, cuts.work / limits.work)
            tick(int(used * _TICKS), _TICKS)
        value = cuts.least(int(node), columns[int(k)], float(floor[k]))
        looked_at.append(int(node))
        if value is None:
            ceiling[node] = 0.0
            continue
        ceiling[node, k] = min(ceiling[node, k], value)
        if value <= floor[k]:
            continue
        if written is None:
            floor[k], best[int(k)] = value, int(node)
            continue
        worth = written(int(node))
        ceiling[node] = 0.0
        if worth is not None:
            for other in np.flatnonzero(worth > floor):
                floor[other], best[int(other)] = worth[other], int(node)
    return PeakFloor(floor, tuple(best), tuple(looked_at))


def _expression(cuts: _Cuts, cone: SizeCone, node: int) -> Expr | None:
    """The bound at a node, a minimum cut per generator."""
    factors = []
    for column in cone.table.T:
        value = cuts.least(node, column.tolist())
        if value is None:
            return None
        factors.append(value)
    return cone.expression(factors)
