"""The largest of many expressions, as few expressions.

The envelope of a set of rows is a subset whose maximum is the maximum of all at every legal shape. A
row is left out only with a certificate: it is <= another, or <= a convex combination of others. Rows
that no certificate was found for stay, so the result is exact in any case, only larger.

Rows that follow each other often differ by what was added or taken away alone, as the moments of a run do:
the smaller of two neighbours is left out before anything else is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

import numpy as np

from onnx_symmem.expr.atom import Atom
from onnx_symmem.expr.certificate import Certificate
from onnx_symmem.expr.domain import Domain
from onnx_symmem.expr.dominance import Dominance, solved_matrix
from onnx_symmem.expr.dominators import Dominators
from onnx_symmem.expr.exact import IntArray, add
from onnx_symmem.expr.expression import Expr
from onnx_symmem.expr.matrix import PolyMatrix
from onnx_symmem.expr.plan_order import PlanOrder, plan_le
from onnx_symmem.expr.prover import SECTORS, SHALLOW, TIERS, Prover, prover_of
from onnx_symmem.expr.tally import Kind, Tally

__all__ = ["Envelope", "PlanOrder", "envelope", "plan_le"]

_MAX_PAIR_MEMBERS = 12  # beyond, pairs are left to the game
_FIRST_BATCH = 4  # rows that are tried first against all members together
_MAX_SECTORS = 32  # pairs of rows that are tried with sectors
_KEPT = 32  # reductions that are kept with a domain


@dataclass(frozen=True, slots=True)
class Envelope:
    """The members' maximum is the maximum of all expressions at every shape of the domain.

    `member_rows` are the members' indices among the given expressions (of equal ones the first);
    `drops` are certified dominances of the others, as indices into `matrix`, which holds the different
    expressions; on a domain of few points `drops` is empty, since all points were looked at.
    """

    members: tuple[Expr, ...]
    member_rows: tuple[int, ...]
    matrix: PolyMatrix = field(repr=False)
    domain: Domain = field(repr=False)
    drops: tuple[Dominance, ...] = field(repr=False)
    tally: Tally

    @property
    def certified(self) -> int:
        """How many different expressions were left out with a certificate."""
        return len(self.drops)

    def certificates(self) -> Iterable[Certificate]:
        """The certificates of the drops, written out one after another."""
        return (drop.certificate(self.matrix, self.domain) for drop in self.drops)

    def at(self, shape: Mapping[str, int]) -> int:
        """The maximum at one shape."""
        known: dict[Atom, int] = {}
        return max(member.evaluate(shape, known) for member in self.members)


def envelope(exprs: PolyMatrix | Sequence[Expr], domain: Domain) -> Envelope:
    """The envelope of one or more expressions on a domain."""
    given = solved_matrix(exprs, domain)
    if len(given) == 0:
        raise ValueError("an envelope needs one expression or more")
    matrix, like = given.unique()
    first = np.full(len(matrix), len(given))
    np.minimum.at(first, like, np.arange(len(given)))
    prover = prover_of(matrix.basis, domain)
    drops: list[Dominance] = []
    failed = 0
    if len(matrix) == 1:
        chosen = [0]
    elif prover.at_shapes.has_points:
        chosen = _by_points(matrix, prover)
    else:
        chosen, drops, failed = _reduced(matrix, like, domain)
    chosen.sort(key=lambda i: int(first[i]))
    settled = [(Kind.LE, drop.tier) for drop in drops] + [(Kind.UNKNOWN, TIERS[0])] * failed
    if not drops and len(chosen) < len(matrix):
        settled += [(Kind.LE, "points")] * (len(matrix) - len(chosen))
    members = tuple(matrix.row(i) for i in chosen)
    rows = tuple(int(first[i]) for i in chosen)
    return Envelope(members, rows, matrix, domain, tuple(drops), Tally.of(settled))


def _by_points(matrix: PolyMatrix, prover: Prover) -> list[int]:
    """Few rows that reach the maximum at every legal point, those that do so at most points first."""
    values = prover.at_shapes.points()[1].times(matrix.rows)
    reaches = np.asarray(values == values.max(axis=0), dtype=np.bool_)
    left = np.ones(reaches.shape[1], dtype=np.bool_)
    chosen: list[int] = []
    while left.any() or not chosen:
        best = int(np.argmax(reaches[:, left].sum(axis=1)))
        chosen.append(best)
        left &= ~reaches[best]
    return chosen


@dataclass(frozen=True, slots=True)
class _Reduced:
    """What was found for a matrix whose rows stood in an order: see `_Reduction.run`."""

    matrix: PolyMatrix
    like: IntArray
    members: tuple[int, ...]
    drops: tuple[Dominance, ...]
    failed: int


def _reduced(matrix: PolyMatrix, like: IntArray, domain: Domain) -> tuple[list[int], list[Dominance], int]:
    """`_Reduction.run`, once for rows that are met again on the same domain."""
    kept: dict[tuple[object, ...], _Reduced] = domain.memo("envelopes")
    large = matrix.rows.dtype == object
    content = repr(matrix.rows.tolist()).encode() if large else matrix.rows.tobytes()
    key = matrix.basis, len(like), sha256(content).digest()
    found = kept.get(key)
    if found is None or not (
        np.array_equal(found.matrix.rows, matrix.rows) and np.array_equal(found.like, like)
    ):
        members, drops, failed = _Reduction(matrix, like, domain).run()
        if len(kept) >= _KEPT:
            kept.pop(next(iter(kept)))
        found = kept[key] = _Reduced(matrix, like, tuple(members), tuple(drops), failed)
    return list(found.members), list(found.drops), found.failed


class _Reduction:
    """The search for an envelope: members are the rows that are largest at some sample, then what is left.

    `like` are the rows of the matrix in the order in which they were given.
    """

    def __init__(self, matrix: PolyMatrix, like: IntArray, domain: Domain) -> None:
        self.search = Dominators(matrix, domain)
        self.drops: list[Dominance] = []
        self.alive = np.arange(len(matrix))
        self._drop(self._by_neighbours(like))
        winners = self.alive[self.search.values[self.alive].argmax(axis=0)]
        rows, wins = np.unique(winners, return_counts=True)
        self.members = [int(row) for row in rows[np.argsort(-wins, kind="stable")]] or [int(self.alive[0])]
        self.alive = np.setdiff1d(self.alive, self.members)
        self.sectors = _MAX_SECTORS

    def _by_neighbours(self, like: IntArray) -> list[Dominance]:
        """Dominances of rows by the row before or behind them."""
        lows, highs = np.concatenate([like[:-1], like[1:]]), np.concatenate([like[1:], like[:-1]])
        # Less in sum over the samples: no row is left out, in the end, because of itself.
        sums = self.search.values.sum(axis=1)
        less = sums[lows] < sums[highs]
        rows, prover = self.search.rows, self.search.prover
        lows, highs = np.divmod(np.unique(lows[less] * len(rows) + highs[less]), len(rows))
        if not lows.size:
            return []
        codes = prover.prove(add(rows[highs], -rows[lows]), SHALLOW)
        proved = np.flatnonzero(codes)
        _, first = np.unique(lows[proved], return_index=True)
        some = proved[first]
        found = zip(lows[some].tolist(), highs[some].tolist(), codes[some].tolist(), strict=True)
        return [Dominance(low, (high,), (1,), TIERS[code]) for low, high, code in found]

    def run(self) -> tuple[list[int], list[Dominance], int]:
        """(members, dominances of all other rows, members that no sample asks for)."""
        wanted = set(self.members)
        self._cheaply(self.members, [])
        while self.alive.size:
            new = self._by_all_members()
            if new is not None:
                before = list(self.members)
                self.members.append(new)
                self.alive = self.alive[self.alive != new]
                self._cheaply([new], before)
        self._prune()
        return self.members, self.drops, len([m for m in self.members if m not in wanted])

    def _by_all_members(self) -> int | None:
        """Drop rows that combinations of all members dominate, until one is met that none does.

        Rows come by how near they are to the maximum of the members at some sample: those above it, where
        the next member is, come first, and the more the longer all go well.
        """
        order = self._by_urgency()
        start, count = 0, _FIRST_BATCH
        while start < len(order):
            some = order[start : start + count]
            found = self.search.by_many(some, self.members)
            self._drop(found)
            done = {dominance.low for dominance in found}
            for low in some.tolist():
                if low not in done:
                    alone = self._by_sectors(low)
                    if alone is None:
                        return int(low)
                    self._drop([alone])
            start, count = start + count, 4 * count
        return None

    def _drop(self, found: list[Dominance]) -> None:
        if found:
            self.drops += found
            gone = np.array([dominance.low for dominance in found], dtype=np.intp)
            self.alive = self.alive[~np.isin(self.alive, gone)]

    def _cheaply(self, new: Sequence[int], old: Sequence[int]) -> None:
        """Drop what single new members, and pairs with a new member, dominate."""
        for member in new:
            self._drop(self.search.by_one(self.alive, member))
        for k, b in enumerate(new[:_MAX_PAIR_MEMBERS]):
            for a in (*old, *new[:k])[:_MAX_PAIR_MEMBERS]:
                self._drop(self.search.by_pair(self.alive, (a, b)))

    def _by_urgency(self) -> IntArray:
        """The rows that are left, nearest to the maximum of the members at some sample first."""
        values = self.search.values
        most = values[self.members].max(axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.where(most > 0, values[self.alive] / most, -np.inf)
        return self.alive[np.argsort(-ratios.max(axis=1, initial=-np.inf), kind="stable")]

    def _by_sectors(self, low: int) -> Dominance | None:
        """A dominance of one row by one member that orders of unbounded variables prove."""
        one = np.array([low], dtype=np.intp)
        for member in self.members:
            if self.sectors > 0 and self.search.below(one, [member]).size:
                self.sectors -= 1
                proofs = self.search.by_one(one, member, SECTORS)
                if proofs:
                    return proofs[0]
        return None

    def _prune(self) -> None:
        """Drop members that the others dominate; what rested on them rests on those."""
        for member in reversed(list(self.members)):
            others = [m for m in self.members if m != member]
            one = np.array([member], dtype=np.intp)
            if others and self.search.below(one, others).size:
                found = self.search.by_many(one, others)
                if found:
                    self.members.remove(member)
                    self.drops += found
