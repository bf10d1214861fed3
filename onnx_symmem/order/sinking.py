"""Move single nodes to where they hold least: growing ones as late, freeing ones as early as can be.

A node that allocates more than it frees does best just before the first node that needs it, one that frees
more than it allocates right after the last node it needs. Whole orders are moved at once, by ranks: a moved
node ranks next to the node it goes to, and an unmoved one keeps its place.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnx_symmem.order.moments import Moments

__all__ = ["run_early", "run_late"]

_NEXT = 1e-7  # ranks between two places; more nodes than it has room for never chain


def run_late(moments: Moments, order: Sequence[int], shape: int) -> tuple[int, ...]:
    """The order with every node that grows memory at a shape just before its first successor."""
    graph, position = moments.graph, moments.positions(order)
    grows = _impact(moments, position, shape) > 0
    rank = position.astype(np.float64)
    for node in reversed(order):
        after = graph.successors[node]
        if after and grows[node]:
            rank[node] = max(rank[node], min(rank[s] for s in after) - _NEXT)
    return _sorted(rank, position)


def run_early(moments: Moments, order: Sequence[int], shape: int) -> tuple[int, ...]:
    """The order with every node that shrinks memory at a shape right after its last predecessor."""
    graph, position = moments.graph, moments.positions(order)
    shrinks = _impact(moments, position, shape) < 0
    rank = position.astype(np.float64)
    for node in order:
        before = graph.predecessors[node]
        if before and shrinks[node]:
            rank[node] = min(rank[node], max(rank[p] for p in before) + _NEXT)
    return _sorted(rank, position)


def _impact(moments: Moments, position: np.ndarray, shape: int) -> np.ndarray:
    """Bytes per node that it allocates minus those that die with it, at one shape."""
    impact = moments.alloc[:, shape].copy()
    order = np.argsort(position)
    np.subtract.at(impact, order[moments.last_use(position)], moments.sizes[moments.dying, shape])
    return impact


def _sorted(rank: np.ndarray, position: np.ndarray) -> tuple[int, ...]:
    return tuple(np.lexsort((position, rank)).tolist())
