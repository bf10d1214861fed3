"""How often the expressions of a graph can be ordered: every pair compared, counted by verdict and tier.

A scheduler that compares the memory impacts of steps is only as good as its comparisons are decided. Graphs
have few different impacts, and these have fewer different differences: each of those is settled once, all of
them together first, and what that leaves open one by one, with all tiers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from onnx_symmem.expr.decide import compare, relations
from onnx_symmem.expr.domain import Domain
from onnx_symmem.expr.dominance import solved_matrix
from onnx_symmem.expr.exact import IntArray, add
from onnx_symmem.expr.expression import Expr
from onnx_symmem.expr.matrix import PolyMatrix
from onnx_symmem.expr.prover import TIERS
from onnx_symmem.expr.tally import Kind, Tally

__all__ = ["census"]

_REVERSED = {Kind.LE: Kind.GE, Kind.GE: Kind.LE}


def census(exprs: Sequence[Expr], domain: Domain, deep: bool = True) -> Tally:
    """Verdicts on all pairs i < j: exprs[i] compared with exprs[j] at every shape of the domain.

    Equal expressions are pairs as well. `deep` False leaves out sectors and boxes.
    """
    matrix, like = solved_matrix(exprs, domain).unique()
    if len(like) == 0:
        return Tally()
    times = _pair_counts(like, len(matrix))
    counts: Counter[tuple[str, str]] = Counter()
    counts[str(Kind.EQ), TIERS[1]] = int(np.trace(times))
    differences, forward, backward = _differences(matrix.rows, times)
    settled = _settled(PolyMatrix(matrix.basis, differences), domain, deep)
    for (kind, tier), ahead, behind in zip(settled, forward, backward, strict=True):
        counts[str(kind), tier] += ahead
        counts[str(_REVERSED.get(kind, kind)), tier] += behind
    return Tally({key: n for key, n in sorted(counts.items()) if n})


def _pair_counts(like: IntArray, different: int) -> IntArray:
    """How many pairs i < j there are of each expression (row) with each (column)."""
    times = np.zeros((different, different), dtype=np.int64)
    before = np.zeros(different, dtype=np.int64)
    for at in like.tolist():
        times[:, at] += before
        before[at] += 1
    return times


def _differences(rows: IntArray, times: IntArray) -> tuple[IntArray, list[int], list[int]]:
    """The directions in which rows differ, and how many pairs go along each and against it."""
    seen: dict[tuple[int, ...] | bytes, int] = {}
    found: list[IntArray] = []
    forward: list[int] = []
    backward: list[int] = []
    for i in range(len(rows) - 1):
        steps = add(rows[i + 1 :], -rows[i])
        steps = steps // np.abs(np.gcd.reduce(steps, axis=1))[:, None]
        first = np.asarray(steps != 0, dtype=np.bool_).argmax(axis=1)
        against = np.asarray(steps[np.arange(len(steps)), first] < 0, dtype=np.bool_)
        steps[against] *= -1
        for j, (step, turned) in enumerate(zip(steps, against.tolist(), strict=True), i + 1):
            key = tuple(step.tolist()) if step.dtype == object else step.tobytes()
            at = seen.setdefault(key, len(seen))
            if at == len(found):
                found.append(step)
                forward.append(0)
                backward.append(0)
            ahead, behind = int(times[i, j]), int(times[j, i])
            forward[at] += behind if turned else ahead
            backward[at] += ahead if turned else behind
    if not found:
        return np.zeros((0, rows.shape[1]), dtype=np.int64), [], []
    wide = any(step.dtype == object for step in found)
    return np.stack([step.astype(object) if wide else step for step in found]), forward, backward


def _settled(differences: PolyMatrix, domain: Domain, deep: bool) -> list[tuple[Kind, str]]:
    """The relation of 0 to every difference."""
    together = relations(differences.rows, differences.basis, domain).listed()
    for i, (kind, _) in enumerate(together):
        if kind is Kind.UNKNOWN:
            verdict = compare(0, differences.row(i), domain, deep)
            together[i] = verdict.kind, verdict.tier
    return together
