"""A certified dominance: a row that never exceeds another row, or a convex combination of several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from onnx_symmem.expr.atom import monomial_order
from onnx_symmem.expr.certificate import Certificate
from onnx_symmem.expr.domain import Domain
from onnx_symmem.expr.exact import IntArray, add, as_integers, matmul, multiply
from onnx_symmem.expr.expression import ZERO, Expr
from onnx_symmem.expr.matrix import PolyMatrix
from onnx_symmem.expr.prover import SHALLOW, TIERS, Evidence, Prover, prover_of
from onnx_symmem.expr.spendable import is_over

__all__ = ["Dominance", "solved_matrix"]


@dataclass(frozen=True, slots=True)
class Dominance:
    """sum(weights) * low <= sum(weight * member), on a domain; indices are into a matrix.

    `alone`: it is proved over the monomials of the difference, without the others of the matrix. `spent`
    are facts of the domain and how often each is taken off the right side, where the claim holds even so.
    """

    low: int
    members: tuple[int, ...]
    weights: tuple[int, ...]
    tier: str
    alone: bool = False
    spent: tuple[tuple[Expr, int], ...] = ()

    def is_about(self, highs: Sequence[int], matrix: PolyMatrix, domain: Domain) -> bool:
        """Whether members are among `highs`, no number is negative, and only facts are spent."""
        numbers = (*self.weights, *(times for _, times in self.spent))
        facts = {fact for fact, _ in self.spent}
        return (
            min(numbers) >= 0
            and sum(self.weights) >= 1
            and set(self.members) <= set(highs)
            and facts <= set(domain.facts())
            and all(is_over(fact, matrix.basis) for fact in facts)
        )

    def certificate(self, matrix: PolyMatrix, domain: Domain) -> Certificate:
        """The certificate, written out."""
        found = self.attempted(matrix, domain)
        assert found is not None  # the search is deterministic
        return found

    def attempted(self, matrix: PolyMatrix, domain: Domain) -> Certificate | None:
        """The certificate, where it is not known whether there is one."""
        prover, row = self._question(matrix, domain)
        found = prover.find(row)
        if not isinstance(found, Evidence):
            return None
        symbols, facts, proof = found.write()
        high = sum((matrix.row(m) * w for m, w in zip(self.members, self.weights, strict=True)), ZERO)
        high -= sum((fact * times for fact, times in self.spent), ZERO)
        low: Expr = matrix.row(self.low) * sum(self.weights)
        return Certificate(low, high, domain, found.tier, symbols, facts, proof)

    def tier_of_maps(self, matrix: PolyMatrix, domain: Domain) -> str | None:
        """The tier of linear maps that proves it, if there is one."""
        prover, row = self._question(matrix, domain)
        code = int(prover.prove(row.reshape(1, -1), SHALLOW)[0])
        return TIERS[code] if code else None

    def _question(self, matrix: PolyMatrix, domain: Domain) -> tuple[Prover, IntArray]:
        """What has to prove which row >= 0."""
        row = _difference(matrix.rows, self.low, self.members, self.weights)
        for fact, times in self.spent:
            row = add(row, multiply(_row_of(fact, matrix), as_integers([-times])))
        if not self.alone:
            return prover_of(matrix.basis, domain), row
        used = np.flatnonzero(row)
        return prover_of(tuple(matrix.basis[k] for k in used), domain), row[used]


def _difference(rows: IntArray, low: int, members: Sequence[int], weights: Sequence[int]) -> IntArray:
    total = multiply(rows[low], as_integers([-sum(weights)]))
    for member, weight in zip(members, weights, strict=True):
        total = add(total, multiply(rows[member], as_integers([weight])))
    return total


def _row_of(expr: Expr, matrix: PolyMatrix) -> IntArray:
    """The expression, whose monomials are all in the basis, as a row of the matrix."""
    row: IntArray = PolyMatrix.from_exprs([expr], matrix.basis).rows[0]
    return row


def solved_matrix(exprs: PolyMatrix | Sequence[Expr], domain: Domain) -> PolyMatrix:
    """Rows over free symbols; monomials that are used, in one order, so that their prover is met again."""
    matrix = exprs if isinstance(exprs, PolyMatrix) else PolyMatrix.from_exprs(exprs)
    eliminated = domain.equalities.keys()
    if any(atom.symbols() & eliminated for mono in matrix.basis for atom, _ in mono):
        solved = PolyMatrix.from_exprs([domain.solved(Expr({mono: 1})) for mono in matrix.basis])
        matrix = PolyMatrix(solved.basis, matmul(matrix.rows, solved.rows))
    matrix = matrix.without_empty_columns()
    places = sorted(range(len(matrix.basis)), key=lambda j: monomial_order((matrix.basis[j], 1)))
    return PolyMatrix(tuple(matrix.basis[j] for j in places), matrix.rows[:, places])
