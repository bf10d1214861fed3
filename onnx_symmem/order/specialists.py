"""Orders for single shapes that are unlike those a plan was steered at: what versions are chosen from.

Orders differ where sizes compare otherwise, as sizes that are rounded up do one beyond a power of two. So of
shapes as they are run those are taken that have sizes in other proportions than all that were searched, the
most different one first; at each the best order known is searched for that shape alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from onnx_symmem.order.buffers import BufferGraph
from onnx_symmem.order.moments import Moments
from onnx_symmem.order.window import Spent, WindowLimits, improve_order

__all__ = ["apart", "shares", "specialists", "unlike"]

_MET = 1 + 1e-3  # ratio to the floor from which on nothing is tried
_ALIKE = 0.02  # of all bytes: shapes whose proportions differ less are alike


def shares(table: np.ndarray) -> np.ndarray:
    """Each buffer's share of all bytes at a shape, (buffers, shapes), from bytes."""
    return np.asarray(table / np.maximum(table.sum(axis=0), 1.0))


def unlike(share: np.ndarray, first: int, most: int) -> list[int]:
    """At most so many columns, each unlike the `first` ones and those before it, the most different first.

    Two shapes are as unlike as the sum of what each buffer's share differs by.
    """
    return apart(share, list(range(first)), first + most)[first:]


def apart(share: np.ndarray, chosen: list[int], most: int) -> list[int]:
    """Those chosen and further columns, each the most unlike all before it, `most` in all."""
    if not chosen:
        return []
    found = list(chosen)
    distance = np.min([np.abs(share - share[:, [k]]).sum(axis=0) for k in found], axis=0)
    while len(found) < most:
        k = int(distance.argmax())
        if distance[k] <= _ALIKE:
            break
        found.append(k)
        distance = np.minimum(distance, np.abs(share - share[:, [k]]).sum(axis=0))
    return found


def specialists(
    graph: BufferGraph,
    table: np.ndarray,
    orders: Sequence[tuple[int, ...]],
    floor: np.ndarray,
    limits: WindowLimits,
    seed: int = 0,
    tick: Callable[[int, int], None] | None = None,
) -> tuple[tuple[int, ...], ...]:
    """The best order known at each shape, searched for that shape alone.

    `table` are bytes (buffers, shapes), `floor` bytes per shape that no order is below. All searches together
    take at most the limits, each at most an equal share of what is left.
    """
    moments = Moments(graph, table)
    peaks = np.array([moments.along(order).max(axis=0, initial=0.0) for order in orders])
    found: list[tuple[int, ...]] = []
    spent, count = Spent(), table.shape[1]
    for k in range(count):
        if tick is not None:
            tick(k, count)
        best = orders[int(peaks[:, k].argmin())]
        if peaks[:, k].min() > floor[k] * _MET:
            share = limits.left(spent, count - k)
            best = improve_order(graph, table[:, [k]], best, floor[[k]], share, seed=seed, spent=spent)
        found.append(best)
    return tuple(found)
