"""Legal shapes at which expressions are above others, from near misses on: shared sizes change hands.

What experts find of the tokens varies in many symbols at once, and samples miss the few splits at which a
plan is worse. With all other sizes fixed, members are mostly linear in those that are shared, so one of P
above the maximum of Q is concave, and ever smaller steps uphill lead near its highest point.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import numpy as np

from onnx_symmem.expr.basis_values import Shape
from onnx_symmem.expr.domain import Domain
from onnx_symmem.expr.matrix import PolyMatrix
from onnx_symmem.expr.shares import competing

__all__ = ["refuting_shape"]

_STEPS = 200


def refuting_shape(
    matrix: PolyMatrix, low: int, highs: Sequence[int], domain: Domain, start: Shape
) -> Shape | None:
    """A legal shape, uphill from `start`, at which row `low` is above all rows `highs`."""
    shared = {fact: competing(fact, list(start)) for fact in domain.facts()}
    shared = {fact: group for fact, group in shared.items() if len(group) > 1}
    moves: list[dict[str, int]] = []
    for group in shared.values():
        moves += [{name: way} for name in group for way in (1, -1)]
        moves += [{a: 1, b: -1} for a, b in permutations(group, 2)]
    rows = matrix.take([low, *highs])
    at = {name: size for name, size in start.items() if name not in domain.equalities}
    best = int(_lead(rows, [at])[0])
    # All that there is to share, in a power of two.
    length = max(
        (fact.evaluate(start) + sum(start[n] for n in group) for fact, group in shared.items()), default=0
    )
    length = 1 << max(length, 2).bit_length() - 1
    for _ in range(_STEPS if moves else 0):
        tried = [{**at, **{n: at[n] + way * length for n, way in move.items()}} for move in moves]
        tried = [shape for shape in tried if domain.contains(domain.completed(shape))]
        leads = _lead(rows, tried) if tried else np.zeros(0)
        if leads.size and leads.max() > best:
            at, best = tried[int(leads.argmax())], int(leads.max())
            if best > 0:
                return domain.completed(at)
        elif length == 1:
            break
        else:
            length >>= 1
    return None


def _lead(rows: PolyMatrix, shapes: Sequence[Shape]) -> np.ndarray:
    """Bytes by which the first row is above the others at shapes."""
    values = rows.evaluate(shapes)
    lead: np.ndarray = values[0] - values[1:].max(axis=0)
    return lead
