"""Facts that several symbols share, spent in proofs: taken off what has to be shown to be >= 0.

Sizes that add up to at most some total are each bounded by it, but not all at once: what experts find of the
tokens. What stays >= 0 even when a fact, which is never negative, is taken off it, is >= 0 (Farkas 1902).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from onnx_symmem.expr.atom import Monomial
from onnx_symmem.expr.domain import Domain
from onnx_symmem.expr.exact import IntArray, Table, absolute, as_floats, as_integers, matmul
from onnx_symmem.expr.expression import Expr
from onnx_symmem.expr.matrix import PolyMatrix
from onnx_symmem.expr.mixture import games_weights, integer_weights, whole_weights

__all__ = ["SCALES", "SpendableFacts", "is_over", "is_shared", "rounded"]

SCALES = (1 << 10, 1 << 20, 0)  # about the sum of weights; 0 is as exactly as floats tell
_NOTHING = 1e-9
_MOST = 24  # that tie symbols together, and as many bounds of single ones


def is_over(expr: Expr, basis: Sequence[Monomial]) -> bool:
    """Whether all monomials of an expression are in a basis."""
    return {mono for mono, _ in expr.terms} <= set(basis)


def is_shared(fact: Expr) -> bool:
    """Whether several things compete for what a fact says that there is."""
    return sum(c < 0 for _, c in fact.terms) > 1


def rounded(weights: np.ndarray, scale: int) -> IntArray:
    """Rows of weights as integers of about `scale` in all; with 0 as exactly as floats tell."""
    if scale:
        return whole_weights(weights, scale)
    return as_integers(
        [integer_weights([w if w > _NOTHING else 0.0 for w in row]) for row in weights.tolist()]
    )


@dataclass(frozen=True, slots=True)
class SpendableFacts:
    """Facts f >= 0 of a domain as rows over a basis, each times a factor that makes its numbers as large."""

    exprs: tuple[Expr, ...]
    factors: tuple[int, ...]
    rows: IntArray

    @staticmethod
    def of(basis: Sequence[Monomial], rows: IntArray, domain: Domain) -> SpendableFacts:
        """Those over the basis that are shared, and the bounds of their symbols; as large as the rows."""
        facts = [fact for fact in domain.facts() if is_over(fact, basis)]
        chosen = [fact for fact in facts if is_shared(fact)][:_MOST]
        tied = {name for fact in chosen for name in fact.symbols()}
        chosen += [fact for fact in facts if not is_shared(fact) and fact.symbols() <= tied][:_MOST]
        large = max(absolute(rows), 1)
        factors = tuple(max(1, large // max(abs(c) for _, c in fact.terms)) for fact in chosen)
        scaled = [f * k for f, k in zip(chosen, factors, strict=True)]
        return SpendableFacts(tuple(chosen), factors, PolyMatrix.from_exprs(scaled, basis).rows)

    def spent(self, weights: Sequence[int]) -> tuple[tuple[Expr, int], ...]:
        """What weights of the rows come to."""
        used = zip(self.exprs, self.factors, weights, strict=True)
        return tuple((fact, factor * int(weight)) for fact, factor, weight in used if weight)

    def offers(
        self, row: IntArray, tests: Table
    ) -> Iterator[tuple[int, tuple[tuple[Expr, int], ...], IntArray]]:
        """(n, what is spent, n * row less that), which may pass the tests though the row does not."""
        if not self.exprs:
            return
        rows = as_integers(np.vstack([row.astype(object), -self.rows.astype(object)]))
        weights = games_weights(as_floats(tests.times(rows))[None])
        for scale in () if np.isnan(weights).any() else SCALES:
            whole = rounded(weights, scale)
            times = int(whole[0, 0])
            if times > 0:
                yield times, self.spent(whole[0, 1:].tolist()), matmul(whole, rows)[0]
