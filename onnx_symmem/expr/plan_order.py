"""Whether the maximum of some expressions never exceeds the maximum of others.

Every expression of P is proved below one of Q, or below a convex combination of Q, on the whole
domain or on each part of it: parts come from cutting the range of a symbol where the samples say that
another member of Q takes over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np

from onnx_symmem.expr.certificate import Certificate, Images, check
from onnx_symmem.expr.domain import Domain
from onnx_symmem.expr.dominance import Dominance, Dominators, solved_matrix
from onnx_symmem.expr.exact import IntArray
from onnx_symmem.expr.expression import Expr
from onnx_symmem.expr.matrix import PolyMatrix
from onnx_symmem.expr.prover import SEARCH, TIERS, Shape, prover_of
from onnx_symmem.expr.tally import Kind, Tally

__all__ = ["Halves", "Part", "PlanOrder", "plan_le"]

_MAX_PARTS = 24
_MAX_CUTS = 12  # per symbol, looked at through samples only
_MAX_PAIR_MEMBERS = 12
_MAX_SEARCHES = 8  # rows of P that are searched with the costliest methods


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the domain with a dominance by Q for every expression of P, or looked at point by point."""

    domain: Domain
    dominances: tuple[Dominance, ...]
    by_points: bool = False


@dataclass(frozen=True, slots=True)
class Halves:
    """The parts where a free symbol is < at, and >= at."""

    name: str
    at: int
    below: Part | Halves
    above: Part | Halves


@dataclass(frozen=True, slots=True)
class PlanOrder:
    """Whether max(P) <= max(Q) at every legal shape: proved, refuted by `witness`, or neither.

    `lows` and `highs` are the rows of P and Q in `matrix`, equal expressions once.
    """

    proved: bool
    witness: Shape | None
    tally: Tally
    matrix: PolyMatrix = field(repr=False)
    domain: Domain = field(repr=False)
    lows: tuple[int, ...] = field(repr=False)
    highs: tuple[int, ...] = field(repr=False)
    proof: Part | Halves | None = field(repr=False)

    @property
    def certificates(self) -> tuple[Certificate, ...]:
        """The certificates of all parts, written out."""
        return tuple(certificate for part in _parts(self.proof) for certificate in self._written(part))

    def _written(self, part: Part) -> Iterator[Certificate]:
        return (dominance.certificate(self.matrix, part.domain) for dominance in part.dominances)

    def check(self) -> bool:
        """Whether the proof holds, recomputed exactly: parts, dominances and their certificates."""
        return self.proof is not None and self._holds(self.proof, self.domain, {})

    def _holds(self, proof: Part | Halves, domain: Domain, images: Images) -> bool:
        if isinstance(proof, Halves):
            below, above = _halves(domain, proof.name, proof.at)
            return self._holds(proof.below, below, images) and self._holds(proof.above, above, images)
        if proof.domain != domain:
            return False
        if proof.by_points:
            return self._points_hold(domain)
        settled = {d.low for d in proof.dominances} | set(self.highs)
        if not settled.issuperset(self.lows):
            return False
        for dominance in proof.dominances:
            found = dominance.certificate(self.matrix, domain)
            known = min(dominance.weights) >= 0 and set(dominance.members) <= set(self.highs)
            if not known or sum(dominance.weights) < 1 or not check(found, images):
                return False
        return True

    def _points_hold(self, domain: Domain) -> bool:
        lows, highs = ([self.matrix.row(i) for i in side] for side in (self.lows, self.highs))
        shapes = prover_of(self.matrix.basis, domain).points()[0]
        return all(max(e.evaluate(s) for e in lows) <= max(e.evaluate(s) for e in highs) for s in shapes)


def _parts(proof: Part | Halves | None) -> Iterator[Part]:
    if isinstance(proof, Part):
        yield proof
    elif proof is not None:
        yield from _parts(proof.below)
        yield from _parts(proof.above)


def _halves(domain: Domain, name: str, at: int) -> tuple[Domain, Domain]:
    old = domain.range_of(name)
    return (
        domain.with_ranges({name: replace(old, hi=at - 1)}),
        domain.with_ranges({name: replace(old, lo=at)}),
    )


def plan_le(p: Sequence[Expr], q: Sequence[Expr], domain: Domain) -> PlanOrder:
    """Whether max(p) <= max(q) for every legal shape."""
    matrix, like = solved_matrix([*p, *q], domain).unique()
    lows = tuple(sorted({int(i) for i in like[: len(p)]}))
    highs = tuple(sorted({int(i) for i in like[len(p) :]}))
    search = _Search(matrix, lows, highs)
    proof = search.prove(domain, [i for i in lows if i not in highs], _MAX_PARTS)
    same = [(Kind.LE, TIERS[1])] * len([i for i in lows if i in highs])
    tally = Tally.of(same + search.settled)
    return PlanOrder(proof is not None, search.witness, tally, matrix, domain, lows, highs, proof)


class _Search:
    def __init__(self, matrix: PolyMatrix, lows: tuple[int, ...], highs: tuple[int, ...]) -> None:
        self.matrix, self.lows, self.highs = matrix, lows, highs
        self.witness: Shape | None = None
        self.settled: list[tuple[Kind, str]] = []
        self.parts = 0

    def prove(self, domain: Domain, open_lows: Sequence[int], parts: int) -> Part | Halves | None:
        """The proof on a domain with at most `parts` parts; sets the witness when there is one."""
        prover = prover_of(self.matrix.basis, domain)
        shapes, basis_values = prover.points() if prover.has_points else prover.samples(wide=True)[:2]
        values = basis_values.times(self.matrix.rows)
        if values.shape[1]:
            lead = values[list(self.lows)].max(axis=0) - values[list(self.highs)].max(axis=0)
            worst = int(np.argmax(lead))
            if lead[worst] > 0:
                self.witness = domain.completed(shapes[worst])
                self.settled.append((Kind.INCOMPARABLE, "points" if prover.has_points else "samples"))
                return None
        if prover.has_points:
            self.settled += [(Kind.LE, "points")] * len(open_lows)
            return Part(domain, (), by_points=True)
        dominances = self._dominances(domain, open_lows)
        left = [low for low in open_lows if low not in {d.low for d in dominances}]
        if not left:
            self.settled += [(Kind.LE, d.tier) for d in dominances]
            return Part(domain, tuple(dominances))
        cut = self._cut(domain, shapes, values, left) if parts > 1 else None
        if cut is None:
            self.settled += [(Kind.UNKNOWN, TIERS[0])] * len(left)
            return None
        below, above = _halves(domain, *cut)
        first = self.prove(below, open_lows, parts // 2)
        if first is None:
            return None
        second = self.prove(above, open_lows, parts - parts // 2)
        return None if second is None else Halves(*cut, first, second)

    def _dominances(self, domain: Domain, lows: Sequence[int]) -> list[Dominance]:
        search = Dominators(self.matrix, domain)
        found: list[Dominance] = []

        def left() -> IntArray:
            done = {dominance.low for dominance in found}
            return np.array([low for low in lows if low not in done], dtype=np.intp)

        for high in self.highs:
            found += search.by_one(left(), high)
        for pair in combinations(self.highs[:_MAX_PAIR_MEMBERS], 2):
            found += search.by_pair(left(), pair)
        found += search.by_many(left(), self.highs)
        for high in self.highs:
            found += search.by_one(left()[:_MAX_SEARCHES], high, SEARCH)
        return found

    def _cut(
        self, domain: Domain, shapes: Sequence[Shape], values: IntArray, left: Sequence[int]
    ) -> tuple[str, int] | None:
        """The symbol and size where, by the samples, one member of Q suffices on each side most often."""
        best: tuple[int, int, str, int] | None = None
        free = [n for n in prover_of(self.matrix.basis, domain).symbols if n not in domain.equalities]
        above = [np.stack([values[high] >= values[low] for high in self.highs]) for low in left]
        for name in free:
            sizes = np.array([shape[name] for shape in shapes])
            candidates = np.unique(sizes)[1:]
            if candidates.size > _MAX_CUTS:
                candidates = candidates[np.linspace(0, candidates.size - 1, _MAX_CUTS).astype(int)]
            for at in candidates.tolist():
                sides = (sizes < at, sizes >= at)
                covered = sum(bool(a[:, side].all(axis=1).any()) for a in above for side in sides)
                balance = int(min(side.sum() for side in sides))
                if best is None or (covered, balance) > best[:2]:
                    best = covered, balance, name, int(at)
        return None if best is None else best[2:]
