"""Certified dominance: a row that never exceeds another row, or a convex combination of several."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from onnx_symmem.expr.certificate import Certificate
from onnx_symmem.expr.domain import Domain
from onnx_symmem.expr.exact import (
    BoolArray,
    FloatArray,
    IntArray,
    Table,
    add,
    any_in_row,
    as_integers,
    matmul,
    multiply,
)
from onnx_symmem.expr.expression import ZERO, Expr
from onnx_symmem.expr.matrix import PolyMatrix
from onnx_symmem.expr.mixture import game_weights, integer_weights, pair_interval, simplest_between
from onnx_symmem.expr.prover import SHALLOW, TIERS, Evidence, Prover, prover_of

__all__ = ["Dominance", "Dominators", "solved_matrix"]

_WIDE_ROWS = 8000  # matrices with fewer rows are looked at at more samples
_SCREEN = 192  # tests of a large table that are tried first
_CHUNK = 1 << 21  # numbers of one product table held at a time
_WORK = 2 * 10**9  # numbers that pairs and games may compute; what is left then has no dominance


@dataclass(frozen=True, slots=True)
class Dominance:
    """sum(weights) * low <= sum(weight * member), on a domain; indices are into a matrix."""

    low: int
    members: tuple[int, ...]
    weights: tuple[int, ...]
    tier: str

    def certificate(self, matrix: PolyMatrix, domain: Domain) -> Certificate:
        """The certificate, written out."""
        prover = prover_of(matrix.basis, domain)
        found = prover.find(_difference(matrix.rows, self.low, self.members, self.weights))
        assert isinstance(found, Evidence)  # the search is deterministic
        symbols, facts, proof = found.write()
        high = sum((matrix.row(m) * w for m, w in zip(self.members, self.weights, strict=True)), ZERO)
        low: Expr = matrix.row(self.low) * sum(self.weights)
        return Certificate(low, high, domain, found.tier, symbols, facts, proof)


def _difference(rows: IntArray, low: int, members: Sequence[int], weights: Sequence[int]) -> IntArray:
    total = multiply(rows[low], as_integers([-sum(weights)]))
    for member, weight in zip(members, weights, strict=True):
        total = add(total, multiply(rows[member], as_integers([weight])))
    return total


def solved_matrix(exprs: PolyMatrix | Sequence[Expr], domain: Domain) -> PolyMatrix:
    """Rows over free symbols, without columns that are not used."""
    matrix = exprs if isinstance(exprs, PolyMatrix) else PolyMatrix.from_exprs(exprs)
    eliminated = domain.equalities.keys()
    if any(atom.symbols() & eliminated for mono in matrix.basis for atom, _ in mono):
        solved = PolyMatrix.from_exprs([domain.solved(Expr({mono: 1})) for mono in matrix.basis])
        matrix = PolyMatrix(solved.basis, matmul(matrix.rows, solved.rows))
    return matrix.without_empty_columns()


class Dominators:
    """Searches for dominances among the rows of one matrix on one domain."""

    def __init__(self, matrix: PolyMatrix, domain: Domain) -> None:
        self.rows = matrix.rows
        self.prover: Prover = prover_of(matrix.basis, domain)
        self.values, self.error = self.prover.sampled(self.rows, wide=len(matrix) <= _WIDE_ROWS)
        self.work = _WORK

    def below(self, lows: IntArray, members: Sequence[int]) -> IntArray:
        """Which of the rows `lows` no sample shows above all the members."""
        most = np.full(self.values.shape[1], -np.inf)
        for m in members:
            most = np.maximum(most, self.values[m] + self.error[m])
        return lows[~any_in_row(self.values[lows] - self.error[lows] > most)]

    def by_one(self, lows: IntArray, member: int, effort: int = SHALLOW) -> list[Dominance]:
        """Dominances of rows by one member."""
        lows = self.below(lows, [member])
        if lows.size == 0:
            return []
        codes = self.prover.prove(add(self.rows[member], -self.rows[lows]), effort)
        return [
            Dominance(int(low), (member,), (1,), TIERS[code])
            for low, code in zip(lows, codes, strict=True)
            if code
        ]

    def by_pair(self, lows: IntArray, pair: tuple[int, int]) -> list[Dominance]:
        """Dominances of rows by convex combinations of two members."""
        lows = self.below(lows, pair)
        if lows.size == 0 or self.work <= 0:
            return []
        first, second = (self.values[m] - self.values[lows] + self.error[m] + self.error[lows] for m in pair)
        self.work -= 8 * first.size
        lows = lows[pair_interval(first, second)[2]]
        found: list[Dominance] = []
        for tests in self.prover.test_tables:
            step = -(-tests.columns // _SCREEN)
            if step > 1:
                lows = lows[self._pair_payoffs(lows, pair, tests.thinned(step))[2]]
            low_ends, high_ends, possible = self._pair_payoffs(lows, pair, tests)
            chosen: list[tuple[int, tuple[int, ...]]] = []
            for i in np.flatnonzero(possible):
                weight = simplest_between(float(low_ends[i]), float(high_ends[i]))
                chosen.append((int(lows[i]), integer_weights((weight, 1 - weight))))
            found += self._confirmed((low, pair, weights) for low, weights in chosen)
            done = {dominance.low for dominance in found}
            lows = np.array([low for low in lows if int(low) not in done], dtype=np.intp)
        return found

    def _pair_payoffs(
        self, lows: IntArray, pair: tuple[int, int], tests: Table
    ) -> tuple[FloatArray, FloatArray, BoolArray]:
        """`pair_interval` of rows on a table; rows beyond the work that is left are not possible."""
        most = max(0, self.work) // (8 * max(1, tests.columns))
        parts: list[tuple[FloatArray, FloatArray, BoolArray]] = []
        step = max(1, _CHUNK // max(1, tests.columns))
        for start in range(0, min(len(lows), most), step):
            some = lows[start : min(start + step, most)]
            payoffs = [tests.times(add(self.rows[m], -self.rows[some])).astype(np.float64) for m in pair]
            self.work -= 8 * payoffs[0].size
            parts.append(pair_interval(payoffs[0], payoffs[1]))
        rest = len(lows) - sum(len(part[2]) for part in parts)
        parts.append((np.zeros(rest), np.zeros(rest), np.zeros(rest, dtype=np.bool_)))
        low, high, possible = (np.concatenate(column) for column in zip(*parts, strict=True))
        return low, high, possible

    def by_many(self, low: int, members: Sequence[int]) -> Dominance | None:
        """A dominance of one row by a convex combination of all the members, if one is found."""
        for tests in self.prover.test_tables:
            self.work -= 40 * len(members) * tests.columns
            if self.work <= 0:
                return None
            rows = add(self.rows[np.asarray(members, dtype=np.intp)], -self.rows[low])
            weights = game_weights(tests.times(rows).astype(np.float64))
            if weights is None:
                continue
            used = [(m, w) for m, w in zip(members, weights.tolist(), strict=True) if w > 1e-9]
            whole = integer_weights([w for _, w in used])
            found = self._confirmed([(low, tuple(m for m, _ in used), whole)])
            if found:
                return found[0]
        return None

    def _confirmed(self, claims: Iterable[tuple[int, tuple[int, ...], tuple[int, ...]]]) -> list[Dominance]:
        listed = list(claims)
        if not listed:
            return []
        rows = [_difference(self.rows, *claim) for claim in listed]
        if any(row.dtype == object for row in rows):
            rows = [row.astype(object) for row in rows]
        codes = self.prover.prove(np.stack(rows), SHALLOW)
        return [
            Dominance(low, members, weights, TIERS[code])
            for (low, members, weights), code in zip(listed, codes, strict=True)
            if code
        ]
