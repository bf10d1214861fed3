"""The least that orders take which are nowhere above what would have run: searched and refuted in turns.

The bounds of `order.shape_bound` are of all orders, and what is least at one shape may be above what would
have run at another. Here every order is searched exactly (`order.valleys`) below what would have run at all
shapes that were met so far. One that is found is proved to stay below it everywhere, or there is a shape
where it is above, which is met from then on. When none is left, no order that is never worse takes less.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from onnx_symmem.expr.domain import Domain
from onnx_symmem.expr.plan_order import plan_le
from onnx_symmem.memory.peak import Peak, peak
from onnx_symmem.memory.plan import PlanInput
from onnx_symmem.memory.profile import profile
from onnx_symmem.memory.sizes import ValueSizes
from onnx_symmem.order.buffers import BIT_SET_NODES, BufferGraph, buffer_bytes
from onnx_symmem.order.moments import Moments
from onnx_symmem.order.planner import whole_shape
from onnx_symmem.order.problem import OrderProblem, restriction, window
from onnx_symmem.order.selection import allowance
from onnx_symmem.order.valleys import ValleySearch

__all__ = ["LeastNeverWorse", "least_never_worse"]

_NEAR = 2.0**-8  # of a ratio: nearer it is not looked for
_ROUNDS = 24
_WORK = 20_000_000  # looks of one search


@dataclass(frozen=True, slots=True)
class LeastNeverWorse:
    """A ratio to the floor that no order stays below at all steering shapes and never worse at `shapes`.

    Never worse is above by at most `allowed` bytes. `order` is one that reaches about the ratio and is
    proved, where the search met one.
    """

    ratio: float
    shapes: tuple[Mapping[str, int], ...]
    allowed: int
    order: tuple[int, ...] | None = None


def least_never_worse(
    graph: BufferGraph,
    prepared: PlanInput,
    sizes: ValueSizes,
    domain: Domain,
    base: Peak,
    order: Sequence[int],
    shapes: Sequence[Mapping[str, int]],
    floor: Sequence[float] | np.ndarray,
    met: Sequence[Mapping[str, int]] = (),
) -> LeastNeverWorse:
    """Bound the largest ratio to `floor`, bytes at `shapes`, of orders that are never worse than `base`.

    `order` is the best one known, `met` are further shapes at which others were above `base`.
    """
    search = _Search(graph, prepared, sizes, domain, base, tuple(order), shapes, np.asarray(floor), met)
    found = None
    for _ in range(_ROUNDS if 0 < graph.size <= BIT_SET_NODES else 0):
        search.raise_bound()
        if search.low * (1 + _NEAR) >= search.high:
            break
        found = search.proved_order()
        if found is not None or not search.refuted:
            break
    return LeastNeverWorse(search.low, tuple(search.shapes), search.allowed, found)


class _Search:
    """What is known of the ratio: orders are not below `low`, and ours is at `high`."""

    def __init__(
        self,
        graph: BufferGraph,
        prepared: PlanInput,
        sizes: ValueSizes,
        domain: Domain,
        base: Peak,
        order: tuple[int, ...],
        shapes: Sequence[Mapping[str, int]],
        floor: np.ndarray,
        met: Sequence[Mapping[str, int]],
    ) -> None:
        self.graph, self.prepared, self.sizes, self.domain, self.base = graph, prepared, sizes, domain, base
        self.order, self.given, self.floor = order, tuple(shapes), floor
        self.shapes = [*shapes, *(shape for shape in met if shape not in shapes)]
        self.allowed = allowance([base.at(shape) for shape in shapes])
        ours = Moments(graph, self._table()).along(order).max(axis=0)[: len(floor)]
        self.low, self.high = 1.0, float((ours / floor).max(initial=1.0))
        self.refuted = False

    def _table(self) -> np.ndarray:
        return buffer_bytes(self.graph, self.sizes, self.shapes)

    def _below(self, problem: OrderProblem, ratio: float) -> tuple[tuple[int, ...] | None, bool]:
        """(nodes of an order of the problem that stays below the ratio and never worse, whether exact)."""
        caps = np.array([self.base.at(shape) + self.allowed + 1 for shape in self.shapes], dtype=np.float64)
        count = len(self.floor)
        caps[:count] = np.minimum(caps[:count], np.floor(self.floor * ratio) + 1)
        found = ValleySearch(problem).below_caps(caps, _WORK)
        nodes = None if found.order is None else tuple(problem.nodes[k] for k in found.order)
        return nodes, found.exact

    def raise_bound(self) -> None:
        """The largest ratio below which there is no order at all, whatever works in place."""
        problem = restriction(self.graph, self._table(), range(self.graph.size))
        top = self.high
        while self.low * (1 + _NEAR) < top:
            ratio = (self.low + top) / 2
            nodes, exact = self._below(problem, ratio)
            if nodes is None and exact:
                self.low = ratio
            else:
                top = ratio

    def proved_order(self) -> tuple[int, ...] | None:
        """An order that is nearer than ours and proved; where it is above `base` somewhere, that is met."""
        moments = Moments(self.graph, self._table())
        problem = window(moments, self.order, moments.along(self.order), 0, len(self.order))
        low, high, best = self.low, self.high, None
        while low * (1 + _NEAR) < high:
            ratio = (low + high) / 2
            nodes, _ = self._below(problem, ratio)
            low, high, best = (ratio, high, best) if nodes is None else (low, ratio, nodes)
        self.refuted = False
        if best is None:
            return None
        after = peak(profile(self.prepared.plan(best), self.sizes), self.domain)
        verdict = plan_le(after.members, [m + self.allowed for m in self.base.members], self.domain)
        if verdict.proved:
            return best
        shape = None if verdict.witness is None else whole_shape(self.domain, verdict.witness, self.given)
        if shape is not None and shape not in self.shapes:
            self.shapes.append(shape)
            self.refuted = True
        return None
