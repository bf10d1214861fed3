"""Whether the maximum of some expressions never exceeds the maximum of others.

Every expression of P is proved below one of Q, or below a convex combination of Q, on the whole
domain or on each part of it. Parts come from cutting the range of a symbol in two: what is proved on a
part holds on both of its halves, so that only the rest is looked at again there. partition.py finds the
cuts; here is what a proof is, and its re-check.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from onnx_symmem.expr.basis_values import Shape
from onnx_symmem.expr.certificate import Certificate, Images, check
from onnx_symmem.expr.domain import Domain
from onnx_symmem.expr.dominance import solved_matrix
from onnx_symmem.expr.expression import Expr
from onnx_symmem.expr.matrix import PolyMatrix
from onnx_symmem.expr.partition import Partition
from onnx_symmem.expr.parts import Halves, Part, dominances_of, halves_of
from onnx_symmem.expr.prover import TIERS, prover_of
from onnx_symmem.expr.tally import Kind, Tally

__all__ = ["PlanOrder", "plan_le"]


@dataclass(frozen=True, slots=True)
class PlanOrder:
    """Whether max(P) <= max(Q) at every legal shape: proved, refuted by `witness`, or neither.

    `lows` and `highs` are the rows of P and Q in `matrix`, equal expressions once. `exhausted`: there is no
    answer because the work that a search may take, which is counted, was spent.
    """

    proved: bool
    witness: Shape | None
    tally: Tally
    matrix: PolyMatrix = field(repr=False)
    domain: Domain = field(repr=False)
    lows: tuple[int, ...] = field(repr=False)
    highs: tuple[int, ...] = field(repr=False)
    proof: Part | Halves | None = field(repr=False)
    exhausted: bool = False

    @property
    def certificates(self) -> tuple[Certificate, ...]:
        """The certificates of all parts, written out."""
        return tuple(found.certificate(self.matrix, domain) for domain, found in dominances_of(self.proof))

    def check(self) -> bool:
        """Whether the proof holds, recomputed exactly: parts, dominances and their certificates."""
        return self.proof is not None and self._holds(self.proof, self.domain, frozenset(self.highs), {})

    def _holds(self, proof: Part | Halves, domain: Domain, settled: frozenset[int], images: Images) -> bool:
        if proof.domain != domain:
            return False
        for dominance in proof.dominances:
            known = dominance.is_about(self.highs, self.matrix, domain)
            found = dominance.attempted(self.matrix, domain) if known else None
            if found is None or not check(found, images):
                return False
        settled |= {dominance.low for dominance in proof.dominances}
        if isinstance(proof, Part):
            return self._points_hold(domain) if proof.by_points else settled.issuperset(self.lows)
        below, above = halves_of(domain, proof.name, proof.at)
        return self._holds(proof.below, below, settled, images) and self._holds(
            proof.above, above, settled, images
        )

    def _points_hold(self, domain: Domain) -> bool:
        lows, highs = ([self.matrix.row(i) for i in side] for side in (self.lows, self.highs))
        prover = prover_of(self.matrix.basis, domain)
        if not prover.at_shapes.has_points:
            return False
        shapes = prover.at_shapes.points()[0]
        return all(max(e.evaluate(s) for e in lows) <= max(e.evaluate(s) for e in highs) for s in shapes)


def plan_le(p: Sequence[Expr], q: Sequence[Expr], domain: Domain) -> PlanOrder:
    """Whether max(p) <= max(q) for every legal shape."""
    matrix, like = solved_matrix([*p, *q], domain).unique()
    lows = tuple(sorted({int(i) for i in like[: len(p)]}))
    highs = tuple(sorted({int(i) for i in like[len(p) :]}))
    search = Partition(matrix, lows, highs)
    proof = search.prove(domain, [i for i in lows if i not in highs])
    same = [(Kind.LE, TIERS[1])] * len([i for i in lows if i in highs])
    tally = Tally.of(same + search.settled)
    exhausted = proof is None and search.witness is None and search.exhausted
    return PlanOrder(proof is not None, search.witness, tally, matrix, domain, lows, highs, proof, exhausted)
