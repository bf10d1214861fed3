"""The best parts of several orders in one: where two have run the same nodes, each may go on as the other.

What is live at such a point depends on the set of nodes that ran, not on their order. So between two common
points either order's part can be taken, and the one with the lower moments is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnx_symmem.order.moments import Moments

__all__ = ["splice"]


def splice(moments: Moments, orders: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """An order whose peak is at no shape above that of the first; bytes are in units of a reference."""
    best = tuple(orders[0])
    live = moments.along(best)
    for other in orders[1:]:
        ends = _common_points(best, other)
        if len(ends) <= 1:
            continue
        theirs = moments.along(other)
        peaks = live.max(axis=0)
        parts: list[int] = []
        start = 0
        for end in ends:
            mine, new = live[start:end].max(axis=0), theirs[start:end].max(axis=0)
            fits = bool((new <= peaks).all())
            take = fits and sorted(new.tolist(), reverse=True) < sorted(mine.tolist(), reverse=True)
            parts += (other if take else best)[start:end]
            start = end
        best = tuple(parts)
        live = moments.along(best)
    return best


def _common_points(first: Sequence[int], second: Sequence[int]) -> list[int]:
    """Steps after which both orders have run the same nodes, the end included."""
    ahead = np.zeros(len(first), dtype=np.int8)  # +1: only the first has run it, -1: only the second
    apart = 0
    found: list[int] = []
    for step, (a, b) in enumerate(zip(first, second, strict=True)):
        for node, sign in ((a, 1), (b, -1)):
            apart += 1 if ahead[node] == 0 else -1
            ahead[node] += sign
        if not apart:
            found.append(step + 1)
    return found
