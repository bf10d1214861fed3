"""Whether at every shape one of several maxima is at most another: of plans, the best one at the shape.

A domain on which one plan does not suffice everywhere is cut in two, and each part again, until one does on
every part (plan_order.py has that proof) or all legal shapes of a part were looked at. Samples choose the
cuts, and refute.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from onnx_symmem.expr.basis_values import Shape
from onnx_symmem.expr.domain import Domain
from onnx_symmem.expr.dominance import solved_matrix
from onnx_symmem.expr.exact import BoolArray, IntArray
from onnx_symmem.expr.expression import Expr
from onnx_symmem.expr.partition import places_to_cut
from onnx_symmem.expr.parts import halves_of
from onnx_symmem.expr.plan_order import PlanOrder, plan_le
from onnx_symmem.expr.prover import prover_of

__all__ = ["Cut", "LeastOrder", "Suffices", "least_le"]

_MAX_PARTS = 16
_MAX_DEPTH = 12

Plans = tuple[tuple[Expr, ...], ...]


@dataclass(frozen=True, slots=True)
class Suffices:
    """A part of the domain on which one plan is proved to do; `proof` None: all shapes were looked at."""

    domain: Domain
    plan: int
    proof: PlanOrder | None


@dataclass(frozen=True, slots=True)
class Cut:
    """The parts of a domain where a free symbol is < at, and >= at."""

    domain: Domain
    name: str
    at: int
    below: Suffices | Cut
    above: Suffices | Cut


@dataclass(frozen=True, slots=True)
class LeastOrder:
    """Whether the least max(plan) is at most max(q) at every legal shape: by `proof`, or not at `witness`."""

    plans: Plans
    q: tuple[Expr, ...]
    domain: Domain
    proof: Suffices | Cut | None
    witness: Shape | None

    @property
    def proved(self) -> bool:
        """Whether it holds; False where there is no proof, too."""
        return self.proof is not None

    def check(self) -> bool:
        """Whether the proof holds, recomputed exactly."""
        return self.proof is not None and self._holds(self.proof, self.domain)

    def _holds(self, proof: Suffices | Cut, domain: Domain) -> bool:
        if proof.domain != domain:
            return False
        if isinstance(proof, Cut):
            below, above = halves_of(domain, proof.name, proof.at)
            return self._holds(proof.below, below) and self._holds(proof.above, above)
        if proof.proof is None:
            return _by_points(self.plans, self.q, domain)
        found = proof.proof
        sides = (found.lows, self.plans[proof.plan]), (found.highs, self.q)
        told = all(
            {found.matrix.row(i) for i in rows} == {domain.solved(e) for e in exprs} for rows, exprs in sides
        )
        return told and found.domain == domain and found.check()


def least_le(plans: Sequence[Sequence[Expr]], q: Sequence[Expr], domain: Domain) -> LeastOrder:
    """Whether at every legal shape the maximum of one of the plans is at most max(q)."""
    search = _Search(tuple(map(tuple, plans)), tuple(q))
    proof = search.prove(domain, 0)
    return LeastOrder(search.plans, search.q, domain, proof, search.witness)


def _by_points(plans: Plans, q: tuple[Expr, ...], domain: Domain) -> bool:
    search = _Search(plans, q)
    prover = prover_of(solved_matrix(search.exprs, domain).basis, domain)
    if not prover.at_shapes.has_points:
        return False
    return all(
        any(max(e.evaluate(s) for e in plan) <= max(e.evaluate(s) for e in q) for plan in plans)
        for s in prover.at_shapes.points()[0]
    )


class _Search:
    """One search; `parts` is how many more there may be."""

    def __init__(self, plans: Plans, q: tuple[Expr, ...]) -> None:
        self.plans, self.q = plans, q
        self.exprs = [*q, *(e for plan in plans for e in plan)]
        self.witness: Shape | None = None
        self.parts = _MAX_PARTS

    def prove(self, domain: Domain, depth: int) -> Suffices | Cut | None:
        """The proof for a part of the domain; sets the witness where there is one."""
        matrix = solved_matrix(self.exprs, domain)
        prover = prover_of(matrix.basis, domain)
        shapes, table = prover.at_shapes.points_or_samples()
        fits = self._fits(table.times(matrix.rows))
        lost = np.flatnonzero(~fits.any(axis=0))
        if lost.size:
            self.witness = domain.completed(shapes[int(lost[0])])
            return None
        for plan in np.flatnonzero(fits.all(axis=1)).tolist():
            found = plan_le(self.plans[plan], self.q, domain)
            if found.proved:
                return Suffices(domain, plan, found)
        if prover.at_shapes.has_points:
            return Suffices(domain, -1, None)
        cut = self._cut(domain, prover.symbols, shapes, fits) if depth < _MAX_DEPTH else None
        if cut is None or self.parts <= 1:
            return None
        self.parts -= 1
        below, above = halves_of(domain, *cut)
        first = self.prove(below, depth + 1)
        second = None if first is None else self.prove(above, depth + 1)
        return None if first is None or second is None else Cut(domain, *cut, first, second)

    def _fits(self, values: IntArray) -> BoolArray:
        """plans x shapes: where the maximum of a plan is at most that of q."""
        most, start = values[: len(self.q)].max(axis=0), len(self.q)
        rows = []
        for plan in self.plans:
            rows.append(values[start : start + len(plan)].max(axis=0) <= most)
            start += len(plan)
        return np.array(rows, dtype=np.bool_)

    def _cut(
        self, domain: Domain, names: Sequence[str], shapes: Sequence[Shape], fits: BoolArray
    ) -> tuple[str, int] | None:
        """The symbol and size to cut at: most halves, with most samples, on which one plan is enough."""
        best: tuple[int, int, int] | None = None
        chosen = None
        for name in (n for n in names if n not in domain.equalities):
            sizes = np.array([shape[name] for shape in shapes])
            for at in places_to_cut(domain, name, sizes):
                below = sizes < at
                if not below.any() or below.all():
                    continue
                enough = [bool(fits[:, side].all(axis=1).any()) for side in (below, ~below)]
                covered = sum(int(side.sum()) for side, e in zip((below, ~below), enough, strict=True) if e)
                # Else that on whose halves one plan each is enough most often.
                nearest = sum(int(fits[:, side].sum(axis=1).max()) for side in (below, ~below))
                rank = sum(enough), covered, nearest
                if best is None or rank > best:
                    best, chosen = rank, (name, at)
        return chosen
