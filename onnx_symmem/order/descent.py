"""Split an order at its worst step by a minimum cut, then the parts at theirs, until the worst step is fixed.

The least that any order can hold while node v runs is a minimum cut (`order.cut`). Running exactly the nodes
on its near side before v reaches it; what is left to decide is the order of each side alone. The nodes of a
side keep their order among themselves.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np

from onnx_symmem.order.cut import BEFORE, CutFinder
from onnx_symmem.order.moments import Moments

__all__ = ["split_by_cuts"]

_UNITS = 1 << 40  # of a reference peak, for cuts in whole numbers


def split_by_cuts(
    moments: Moments,
    finder: CutFinder,
    order: Sequence[int],
    weights: np.ndarray | None = None,
    early: bool = True,
    work: int = 200_000,
) -> tuple[tuple[int, ...], int]:
    """The least costly order met on the way, and the work it took: nodes of all cut parts together.

    Cost is the largest entry of the live bytes of any step; `work` is not exceeded by more than one split.

    The bytes of `moments` are in units of a reference per shape. Cuts are made at the shape where the worst
    step costs most, or for sums with the given `weights` per shape. `early` prefers the least of several
    minimum cuts that has most nodes before the step.
    """
    current = list(order)
    whole = np.rint(moments.sizes * _UNITS)
    columns: dict[int, list[int]] = {}
    if weights is not None:
        columns[-1] = [int(s) for s in whole @ weights]
    ends = [0, len(current)]
    fixed: set[int] = set()
    best, least = tuple(order), np.inf
    spent = 0
    while True:
        live = moments.along(current)
        cost = live.max(axis=1, initial=0.0)
        step = int(cost.argmax())
        if cost[step] < least:
            best, least = tuple(current), float(cost[step])
        node = current[step]
        if node in fixed or spent > work:
            return best, spent
        shape = -1 if weights is not None else int(live[step].argmax())
        if shape not in columns:
            columns[shape] = [int(s) for s in whole[:, shape]]
        part = bisect_right(ends, step) - 1
        start, end = ends[part], ends[part + 1]
        spent += end - start + len(current) // 8
        roles = finder.roles_within(node, current[:start], current[end:])
        cut = finder.least(roles, columns[shape])
        chosen = set(cut.most if early else cut.fewest)
        inside = [n for n in current[start:end] if n != node]
        before = [n for n in inside if roles[n] == BEFORE or n in chosen]
        after = [n for n in inside if roles[n] != BEFORE and n not in chosen]
        current[start:end] = [*before, node, *after]
        fixed.add(node)
        at = start + len(before)
        ends[part + 1 : part + 1] = [at, at + 1]
        ends = sorted(set(ends))
