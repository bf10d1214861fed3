"""The search for certified dominances among the rows of one matrix."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from onnx_symmem.expr.domain import Domain
from onnx_symmem.expr.dominance import Dominance
from onnx_symmem.expr.exact import (
    BoolArray,
    FloatArray,
    IntArray,
    Table,
    add,
    any_in_row,
    as_floats,
    matmul,
    multiply,
)
from onnx_symmem.expr.matrix import PolyMatrix
from onnx_symmem.expr.mixture import (
    games_weights,
    pair_interval,
    shared_weights,
)
from onnx_symmem.expr.prover import SHALLOW, TIERS, Prover, prover_of
from onnx_symmem.expr.spendable import SCALES, SpendableFacts, rounded

__all__ = ["Dominators"]

_WIDE_ROWS = 8000  # matrices with fewer rows are looked at at more samples
_SCREEN = 192  # tests of a large table that are tried first
_NOTHING = 1e-9
_ATTEMPTS = 4  # single members, and pairs, of one row over their monomials
_LIKELY = 32  # members that are paired for these
_ROUNDS = 8  # of adding tests that were failed
_CHUNK = 1 << 21  # numbers of one product table held at a time
_WORK = 2 * 10**9  # numbers that pairs and games may compute; what is left then has no dominance


def _without(lows: IntArray, found: Iterable[Dominance]) -> IntArray:
    """The rows for which nothing was found."""
    done = np.array([dominance.low for dominance in found], dtype=np.intp)
    return lows[~np.isin(lows, done)]


class Dominators:
    """Searches for dominances among the rows of one matrix on one domain."""

    def __init__(self, matrix: PolyMatrix, domain: Domain) -> None:
        self.matrix, self.rows = matrix, matrix.rows
        self.prover: Prover = prover_of(matrix.basis, domain)
        self.values, self.error = self.prover.at_shapes.sampled(self.rows, wide=len(matrix) <= _WIDE_ROWS)
        self.work = _WORK
        self._pools: dict[int, _Pool] = {}

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
        found = zip(lows.tolist(), codes.tolist(), strict=True)
        return [Dominance(low, (member,), (1,), TIERS[code]) for low, code in found if code]

    def by_pair(self, lows: IntArray, pair: tuple[int, int]) -> list[Dominance]:
        """Dominances of rows by convex combinations of two members."""
        lows = self.below(lows, pair)
        if lows.size == 0 or self.work <= 0:
            return []
        found = self._between(lows, pair)
        lows = _without(lows, found)
        first, second = (self.values[m] - self.values[lows] + self.error[m] + self.error[lows] for m in pair)
        self.work -= 8 * first.size
        lows = lows[pair_interval(first, second)[2]]
        for tests in self.prover.test_tables:
            step = -(-tests.columns // _SCREEN)
            some = lows  # what one table refutes another may prove
            if step > 1:
                some = some[self._pair_payoffs(some, pair, tests.thinned(step))[2]]
            low_ends, high_ends, possible = self._pair_payoffs(some, pair, tests)
            some, low_ends, high_ends = some[possible], low_ends[possible], high_ends[possible]
            tops = np.zeros(len(some), dtype=np.int64)
            bottoms = np.ones(len(some), dtype=np.int64)
            for weight, met in shared_weights(low_ends, high_ends):
                tops[met], bottoms[met] = weight.numerator, weight.denominator
            found += self._confirmed(some, pair, np.stack([tops, bottoms - tops], axis=1))
            lows = _without(lows, found)
        return found

    def _between(self, lows: IntArray, pair: tuple[int, int]) -> list[Dominance]:
        """Rows that are a convex combination of two members, exactly."""
        if self.rows.dtype == object:
            return []
        start, step = self.rows[pair[1]], add(self.rows[pair[0]], -self.rows[pair[1]])
        column = int(np.abs(step).argmax())
        whole = int(step[column])
        if step.dtype == object or whole == 0:
            return []
        way = add(self.rows[lows], -start)
        parts = way[:, column] * (1 if whole > 0 else -1)
        near = np.abs(way - (parts / abs(whole))[:, None] * step) <= 1e-6 * np.abs(step) + 0.5
        chosen = np.flatnonzero((parts >= 0) & (parts <= abs(whole)) & near.all(axis=1))
        parts, way = parts[chosen], way[chosen]
        common = np.gcd(parts, abs(whole))
        tops, bottoms = parts // common, abs(whole) // common
        equal = multiply(way, bottoms[:, None]) == multiply(step[None, :], tops[:, None])
        exact = np.logical_and.reduce(np.asarray(equal, dtype=np.bool_), axis=1)
        return [
            Dominance(int(lows[chosen[i]]), pair, (int(tops[i]), int(bottoms[i] - tops[i])), TIERS[1])
            for i in np.flatnonzero(exact)
        ]

    def _pair_payoffs(
        self, lows: IntArray, pair: tuple[int, int], tests: Table
    ) -> tuple[FloatArray, FloatArray, BoolArray]:
        """`pair_interval` of rows on a table; rows beyond the work that is left are not possible."""
        most = max(0, self.work) // (8 * max(1, tests.columns))
        parts: list[tuple[FloatArray, FloatArray, BoolArray]] = []
        step = max(1, _CHUNK // max(1, tests.columns))
        for start in range(0, min(len(lows), most), step):
            some = lows[start : min(start + step, most)]
            payoffs = [as_floats(tests.times(add(self.rows[m], -self.rows[some]))) for m in pair]
            self.work -= 8 * payoffs[0].size
            parts.append(pair_interval(payoffs[0], payoffs[1]))
        rest = len(lows) - sum(len(part[2]) for part in parts)
        parts.append((np.zeros(rest), np.zeros(rest), np.zeros(rest, dtype=np.bool_)))
        low, high, possible = (np.concatenate(column) for column in zip(*parts, strict=True))
        return low, high, possible

    def by_facts(self, lows: IntArray, members: Sequence[int]) -> list[Dominance]:
        """The same by combinations from which facts are taken off that tie several symbols together."""
        facts = SpendableFacts.of(self.matrix.basis, self.rows, self.prover.domain) if lows.size else None
        return [] if facts is None or not facts.exprs else self.by_many(lows, members, facts)

    def by_many(
        self, lows: IntArray, members: Sequence[int], facts: SpendableFacts | None = None
    ) -> list[Dominance]:
        """Dominances of rows by convex combinations of all the members, as far as they are found."""
        found: list[Dominance] = []
        high = self._offered(members, facts)
        for tests in self.prover.test_tables:
            pool = self._pools.setdefault(id(tests), _Pool(tests))
            some = lows
            for _ in range(_ROUNDS):
                weights = self._weights(some, high, len(members), pool)
                known = ~np.isnan(weights).any(axis=1)
                some, weights = some[known], weights[known]
                proofs = self._by_weights(some, members, weights, facts)
                found += proofs
                open_rows = ~np.isin(some, np.array([d.low for d in proofs], dtype=np.intp))
                some, weights = some[open_rows], weights[open_rows]
                if some.size == 0 or self.work <= 0:
                    break
                parts = weights[:, : len(members)].sum(axis=1, keepdims=True)
                if not pool.grow(weights @ as_floats(high) - parts * as_floats(self.rows[some])):
                    break
            lows = _without(lows, found)
        return found

    def by_few(self, lows: Sequence[int], members: Sequence[int], work: int) -> tuple[list[Dominance], int]:
        """Dominances of rows by one or two members over the monomials of these alone; (they, work spent).

        Where there are fewer variables, more of their upper ends fit into the tables (blocks.py). Work is
        what the provers of some monomials take. The likeliest members of every row come first.
        """
        chosen = {low: self._likely(low, members) for low in lows}
        found: dict[int, Dominance] = {}
        spent = 0
        for turn in range(max(map(len, chosen.values()), default=0)):
            for low in lows:
                if low not in found and turn < len(chosen[low]) and spent < work:
                    some, effort = self._alone(low, chosen[low][turn])
                    found.update((dominance.low, dominance) for dominance in some)
                    spent += effort
        return list(found.values()), spent

    def _alone(self, low: int, members: tuple[int, ...]) -> tuple[list[Dominance], int]:
        """(a dominance of a row by one or two members over their monomials, the effort of their prover)."""
        domain = self.prover.domain
        part = PolyMatrix(self.matrix.basis, self.rows[[low, *members]]).without_empty_columns()
        search = Dominators(part, domain)
        one = np.zeros(1, dtype=np.intp)
        for proof in search.by_one(one, 1) if len(members) == 1 else search.by_pair(one, (1, 2)):
            chosen = tuple(members[m - 1] for m in proof.members)
            found = Dominance(low, chosen, proof.weights, proof.tier, alone=True)
            tier = found.tier_of_maps(self.matrix, domain)
            if tier is not None:
                return [replace(found, tier=tier)], search.prover.effort
        return [], search.prover.effort

    def _likely(self, low: int, members: Sequence[int]) -> list[tuple[int, ...]]:
        """Members, and pairs, of which a combination is above a row at all samples.

        Those that are farthest above it come first, and the pairs of which the most combinations are above.
        A pair with a member that suffices says nothing new.
        """
        at, error = self.values[low], self.error[low]
        lead = self.values[list(members)] - at + self.error[list(members)] + error
        counts = (lead >= 0).sum(axis=1)
        far = (lead / np.maximum(np.abs(at), 1.0)).min(axis=1, initial=np.inf)
        singles = [k for k in np.argsort(-far, kind="stable").tolist() if counts[k] == lead.shape[1]]
        others = [k for k in np.argsort(-counts, kind="stable").tolist() if 0 < counts[k] < lead.shape[1]]
        pairs = list(combinations(sorted(others[:_LIKELY]), 2))
        found: list[tuple[int, ...]] = [(members[k],) for k in singles[:_ATTEMPTS]]
        if pairs:
            first, second = (lead[[pair[side] for pair in pairs]] for side in (0, 1))
            self.work -= 8 * first.size
            low_ends, high_ends, possible = pair_interval(first, second)
            widths = np.where(possible, high_ends - low_ends, -1.0)
            best = np.argsort(-widths, kind="stable")[:_ATTEMPTS].tolist()
            found += [(members[pairs[k][0]], members[pairs[k][1]]) for k in best if possible[k]]
        return found

    def _offered(self, members: Sequence[int], facts: SpendableFacts | None) -> IntArray:
        """Rows of the members, then of what may be taken off them."""
        high: IntArray = self.rows[np.asarray(members, dtype=np.intp)]
        if facts is None:
            return high
        dtype = object if object in (high.dtype, facts.rows.dtype) else np.int64
        return np.concatenate([high.astype(dtype), -facts.rows.astype(dtype)])

    def _weights(self, lows: IntArray, high: IntArray, members: int, pool: _Pool) -> FloatArray:
        """Weights with which the members, the first of `high`, stay above each row in the tests of a pool.

        NaN where none do.
        """
        tests = pool.tests
        own = (np.arange(len(high)) < members).astype(np.int64)[None, :, None]
        size = len(high) * tests.columns
        step = max(1, _CHUNK // max(1, size))
        parts: list[FloatArray] = []
        for start in range(0, len(lows), step):
            some = lows[start : start + step]
            self.work -= 40 * size * len(some)
            if self.work <= 0:
                parts.append(np.full((len(lows) - start, len(high)), np.nan))
                break
            gaps = add(high[None, :, :], -multiply(self.rows[some][:, None, :], own))
            payoffs = as_floats(tests.times(gaps.reshape(-1, gaps.shape[2])))
            parts.append(games_weights(payoffs.reshape(len(some), len(high), -1)))
        return np.concatenate(parts) if parts else np.zeros((0, len(high)))

    def _by_weights(
        self, lows: IntArray, members: Sequence[int], weights: FloatArray, facts: SpendableFacts | None
    ) -> list[Dominance]:
        """The dominances with the given weights, rounded first to short numbers, then to long ones."""
        found: list[Dominance] = []
        for scale in SCALES:
            if lows.size == 0:
                break
            whole = rounded(weights, scale)
            new = self._confirmed(lows, members, whole, facts)
            found += new
            left = ~np.isin(lows, np.array([d.low for d in new], dtype=np.intp))
            lows, weights = lows[left], weights[left]
        return found

    def _confirmed(
        self, lows: IntArray, members: Sequence[int], weights: IntArray, facts: SpendableFacts | None = None
    ) -> list[Dominance]:
        """Those of the dominances of rows by members with weights (rows x members) that are proved.

        Weights of facts come after those of members.
        """
        sums = weights[:, : len(members)].sum(axis=1)
        lows, weights, sums = lows[sums > 0], weights[sums > 0], sums[sums > 0]
        if lows.size == 0:
            return []
        high = matmul(weights, self._offered(members, facts))
        codes = self.prover.prove(add(high, -multiply(self.rows[lows], sums[:, None])), SHALLOW)
        found: list[Dominance] = []
        for i in np.flatnonzero(codes).tolist():
            used = [(m, int(w)) for m, w in zip(members, weights[i].tolist(), strict=False) if w]
            spent = () if facts is None else facts.spent(weights[i, len(members) :].tolist())
            low, tier = int(lows[i]), TIERS[codes[i]]
            chosen = tuple(m for m, _ in used), tuple(w for _, w in used)
            found.append(Dominance(low, *chosen, tier, spent=spent))
        return found


class _Pool:
    """The few columns of a large table of tests that decide: a thin selection, and what it missed before."""

    def __init__(self, whole: Table) -> None:
        self.whole = whole
        self.columns = np.arange(0, whole.columns, max(1, -(-whole.columns // _SCREEN)))
        self.tests = whole.selected(self.columns)

    def grow(self, gaps: FloatArray) -> bool:
        """Add the tests that rows of numbers fail worst; whether there are any."""
        if len(self.columns) == self.whole.columns:
            return False
        table = self.whole.floats
        with np.errstate(divide="ignore", invalid="ignore"):
            fails = np.nan_to_num((gaps @ table) / (np.abs(gaps) @ np.abs(table)))
        worst = np.unique(fails.argmin(axis=1)[fails.min(axis=1, initial=0.0) < -_NOTHING])
        new = np.setdiff1d(worst, self.columns)
        if new.size:
            self.columns = np.concatenate([self.columns, new])
            self.tests = self.whole.selected(self.columns)
        return bool(new.size)
