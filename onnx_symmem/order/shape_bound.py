"""Lower bound of every order's peak at single shapes, by exact search: what no minimum cut can tell.

A minimum cut lets every node run at its own best moment; an order has to get from one to the next. Nodes are
kept (`order.problem`) and all their orders are searched (`order.valleys`): where none is below a cap, no
order of the graph is. Kept are the nodes of all results that may be made at any time, with what makes their
operands, as where such results come last decides in training; then more and more nodes around the worst step
of the best order known. Buffers that are small beside the peak count as nothing, which bounds no less often
and leaves far fewer orders. A bound holds at its shape only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from onnx_symmem.order.buffers import BIT_SET_NODES, BufferGraph
from onnx_symmem.order.kept_search import KeptSearch, result_nodes
from onnx_symmem.order.moments import Moments
from onnx_symmem.order.problem import OrderProblem

__all__ = ["SMALL", "ShapeBound", "ShapeLimits", "shape_bound"]

SMALL = 2.0**-10  # of the peak: smaller buffers count as nothing
_SMALLER = 2.0**-15  # the same among results that may be made at any time, of which there are many
# A part of an order ends where less than this of its peak is live.
_VALLEYS = (0.8, 0.65, 0.5, 0.3, 0.15, 0.05, 0.0)
_ABSORBABLE = 2  # times the limit of nodes: so many results may have, before nodes become part of others
_CLOSE = 1 + 2.0**-7  # a bound that is so near is not worked on
_TRIES = 10  # caps per set of nodes
_ATTEMPT = 2 / 3  # of the work for a shape that one of them may take


@dataclass(frozen=True, slots=True)
class ShapeLimits:
    """Work (`order.valleys`) for all shapes together, nodes kept at most."""

    work: int = 2_000_000
    nodes: int = 800


@dataclass(frozen=True, slots=True)
class ShapeBound:
    """Bytes per shape that no order is below there, and the nodes whose orders were searched for it."""

    bytes: np.ndarray
    nodes: tuple[tuple[int, ...], ...]
    work: int


def shape_bound(
    graph: BufferGraph,
    table: np.ndarray,
    orders: Sequence[Sequence[int]],
    floor: np.ndarray,
    limits: ShapeLimits | None = None,
    tick: Callable[[int, int], None] | None = None,
) -> ShapeBound:
    """Raise `floor`, a bound known in bytes per shape; `table` is bytes (buffers, shapes).

    The least of `orders` at a shape tells which nodes count there. Shapes at which all sizes are in
    proportion are looked at once, those first where the gap is largest: each may take half of the work that
    is left, the last one all of it.
    """
    limits = limits or ShapeLimits()
    bound = np.array(floor, dtype=np.float64)
    nodes: list[tuple[int, ...]] = [()] * len(bound)
    if not orders or not 0 < graph.size <= BIT_SET_NODES:
        return ShapeBound(bound, tuple(nodes), 0)
    moments = Moments(graph, table)
    lives = [moments.along(order) for order in orders]
    peaks = np.array([live.max(axis=0, initial=0.0) for live in lives])
    alike: dict[bytes, list[int]] = {}
    for k in np.flatnonzero(peaks.min(axis=0) > bound * _CLOSE).tolist():
        alike.setdefault((table[:, k] / table[:, k].max(initial=1.0)).tobytes(), []).append(k)
    spent = 0
    gap = peaks.min(axis=0) / np.maximum(bound, 1.0)
    for done, group in enumerate(sorted(alike.values(), key=lambda group: (-gap[group[0]], group[0]))):
        if tick is not None:
            tick(done, len(alike))
        k = group[0]
        best = int(peaks[:, k].argmin())
        share = (limits.work - spent) // min(2, len(alike) - done)
        found = _Shape(graph, table[:, k], orders[best], lives[best][:, k], limits, share)
        found.search(float(bound[k]))
        spent += found.work
        for other in group:
            scale = table[:, other].max(initial=1.0) / table[:, k].max(initial=1.0)
            raised = found.bound if other == k else np.floor(found.bound * scale * (1 - 2.0**-40))
            if raised > bound[other]:
                bound[other], nodes[other] = raised, found.nodes
    return ShapeBound(bound, tuple(nodes), spent)


class _Shape:
    """The search at one shape."""

    def __init__(
        self,
        graph: BufferGraph,
        sizes: np.ndarray,
        order: Sequence[int],
        live: np.ndarray,
        limits: ShapeLimits,
        share: int,
    ) -> None:
        self.graph, self.order, self.live, self.limits, self.share = graph, order, live, limits, share
        self.peak = float(live.max())
        self.sizes = sizes[:, None]
        self.work = 0
        self.bound = 0.0
        self.nodes: tuple[int, ...] = ()

    def search(self, floor: float) -> None:
        """Keep the results that may wait, then more and more nodes around the worst step, until the bound is
        near the peak."""
        self.bound, peak = floor, np.array([self.peak])
        results = result_nodes(self.graph)
        if len(results) <= _ABSORBABLE * self.limits.nodes:
            self._raise(KeptSearch(self.graph, self.sizes, peak, results, _SMALLER), results)
        at = int(self.live.argmax())
        seen: set[tuple[int, int]] = set()
        for part in _VALLEYS:
            low = np.flatnonzero(self.live < part * self.peak)
            start = max((int(s) + 1 for s in low[low < at]), default=0)
            end = min((int(s) for s in low[low > at]), default=len(self.order))
            if (start, end) in seen or self.bound * _CLOSE >= self.peak or self.work >= self.share:
                continue
            seen.add((start, end))
            kept = self._kept(start, end)
            if len(kept) <= self.limits.nodes:
                self._raise(KeptSearch(self.graph, self.sizes, peak, kept, SMALL, fewer=False), kept)

    def _kept(self, start: int, end: int) -> list[int]:
        """The nodes of some steps that touch buffers, and those that made what they find."""
        graph, place = self.graph, {node: k for k, node in enumerate(self.order)}
        counted = self.sizes[:, 0] > self.peak * SMALL
        kept = {
            node
            for node in self.order[start:end]
            if any(counted[b] for b in (*graph.makes[node], *graph.reads[node]))
        }
        for buffer in np.flatnonzero(counted).tolist():
            made = place[graph.producer[buffer]]
            if made < start and (
                graph.pinned[buffer] or any(place[r] >= start for r in graph.readers[buffer])
            ):
                kept.add(graph.producer[buffer])
        return sorted(kept)

    def _raise(self, search: KeptSearch, kept: Sequence[int]) -> None:
        """The highest cap found below which the kept nodes have no order."""
        if len(search.problem.nodes) > self.limits.nodes:
            return
        slack = float(search.slack[0])
        cap, low = self.peak, self.bound
        truncated = False
        for _ in range(_TRIES):
            if cap <= low or self.work >= self.share:
                return
            tried = (low + cap) // 2 if truncated else cap
            work = min(self.share - self.work, int(self.share * _ATTEMPT))
            found = search.below(np.array([tried]), work)
            self.work += found.work
            if found.order is not None:
                cap = min(cap, _peak(search.problem, found.order) - slack)
                continue
            if not found.exact:
                if truncated and tried <= low * _CLOSE:
                    return
                truncated, cap = True, tried
                continue
            if tried > self.bound:
                self.bound, self.nodes = tried, tuple(kept)
            low = tried


def _peak(problem: OrderProblem, order: Sequence[int]) -> float:
    live, most = float(problem.live[0]), 0.0
    left = [len(r) for r in problem.readers]
    for node in order:
        most = max(most, live + float(problem.needs[node, 0]))
        live += float(problem.makes[node, 0])
        for buffer in problem.reads[node]:
            left[buffer] -= 1
            if not left[buffer]:
                live -= float(problem.sizes[buffer, 0])
    return most
