"""Facts that several symbols share, as rows that the search for dominances may take off its right side.

Sizes that add up to at most some total are each bounded by it, but not all at once: what experts find of the
tokens. A sum of members that stays above a row even when a fact, which is never negative, is taken off it, is
above the row (Farkas 1902).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onnx_symmem.expr.domain import Domain
from onnx_symmem.expr.dominance import is_over
from onnx_symmem.expr.exact import IntArray, absolute
from onnx_symmem.expr.expression import Expr
from onnx_symmem.expr.matrix import PolyMatrix

__all__ = ["SpendableFacts"]

_MOST = 24  # that tie symbols together, and as many bounds of single ones


@dataclass(frozen=True, slots=True)
class SpendableFacts:
    """Facts f >= 0 of a domain as rows of a matrix, each times a factor that makes its numbers as large."""

    exprs: tuple[Expr, ...]
    factors: tuple[int, ...]
    rows: IntArray

    @staticmethod
    def of(matrix: PolyMatrix, domain: Domain) -> SpendableFacts:
        """Those over the monomials of the matrix in which several symbols compete for what there is."""
        chosen = [
            fact for fact in domain.facts() if sum(c < 0 for _, c in fact.terms) > 1 and is_over(fact, matrix)
        ][:_MOST]
        # Their single bounds compete with them.
        tied = {name for fact in chosen for name in fact.symbols()}
        chosen += [
            fact
            for fact in domain.facts()
            if fact not in chosen and fact.symbols() <= tied and is_over(fact, matrix)
        ][:_MOST]
        large = max(int(absolute(matrix.rows)), 1)
        factors = tuple(max(1, large // max(abs(c) for _, c in fact.terms)) for fact in chosen)
        rows = PolyMatrix.from_exprs([f * k for f, k in zip(chosen, factors, strict=True)], matrix.basis).rows
        return SpendableFacts(tuple(chosen), factors, rows)

    def spent(self, weights: Sequence[int]) -> tuple[tuple[Expr, int], ...]:
        """What weights of the rows come to."""
        used = zip(self.exprs, self.factors, weights, strict=True)
        return tuple((fact, factor * int(weight)) for fact, factor, weight in used if weight)
