"""Whether one expression never exceeds another on a domain, with a proof or two witness shapes.

The methods, cheapest first; each is a tier, counted in every result:

    equal      the difference is the zero polynomial
    samples    values of both signs at legal shapes: the expressions cannot be ordered
    shift      symbols from their lower bounds, Bernstein form in bounded ones, other atoms as
               independent bounded variables: no negative coefficient
    points     every point of a small finite domain
    linked     floor divisions tied to their numerators, or within bounds that facts tell; max and min
               by cases, facts substituted
    residues   S = m*k + r, in which floor divisions are exact, for all r
    sectors    every order of up to three unbounded variables
    boxes      ranges cut in two, on a budget; also finds small witnesses

A verdict is never wrong: LE and GE have a certificate, INCOMPARABLE has witnesses, and what no tier
settles is UNKNOWN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from onnx_symmem.expr.atom import Monomial
from onnx_symmem.expr.basis_values import Shape
from onnx_symmem.expr.certificate import Certificate
from onnx_symmem.expr.covers import SHIFT
from onnx_symmem.expr.domain import Domain
from onnx_symmem.expr.exact import BoolArray, FloatArray, IntArray, add, any_in_row, as_integers
from onnx_symmem.expr.expression import Expr
from onnx_symmem.expr.matrix import PolyMatrix
from onnx_symmem.expr.prover import SHALLOW, TIERS, Evidence, Prover, prover_of
from onnx_symmem.expr.screen import screen_of
from onnx_symmem.expr.tally import KINDS, Kind, Tally

__all__ = ["KINDS", "Claim", "Kind", "Relations", "Tally", "Verdict", "compare", "compare_rows", "relations"]


_NO_CODES = np.zeros(0, dtype=np.int8)
_CHUNK = 1 << 14  # rows that are compared at a time
_KEPT = 4096  # verdicts of the prover that are kept with a domain


@dataclass(frozen=True, slots=True)
class Claim:
    """low <= high, proved; written out as a certificate when that is asked for."""

    ends: Callable[[], tuple[Expr, Expr]] = field(repr=False)
    domain: Domain = field(repr=False)
    proved: tuple[Prover, IntArray] | None = field(default=None, repr=False)  # by whom, of which row

    def certificate(self) -> Certificate:
        """The certificate of the claim."""
        low, high = self.ends()
        prover, row = self.proved or _row_of(low, high, self.domain)
        found = prover.find(row)
        assert isinstance(found, Evidence)  # the search is deterministic
        symbols, facts, proof = found.write()
        return Certificate(low, high, self.domain, found.tier, symbols, facts, proof)


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a and b compare; `witnesses` are a shape with a < b and a shape with a > b."""

    kind: Kind
    tier: str
    witnesses: tuple[Shape, ...] = ()
    claims: tuple[Claim, ...] = field(default=(), repr=False)

    @property
    def certificates(self) -> tuple[Certificate, ...]:
        """Proofs of LE or GE (one), or EQ (two: a <= b and b <= a)."""
        return tuple(claim.certificate() for claim in self.claims)

    @property
    def certificate(self) -> Certificate | None:
        """The proof of LE or GE; of EQ, that a <= b."""
        return self.claims[0].certificate() if self.claims else None


@dataclass(frozen=True, slots=True, eq=False)
class Relations:
    """Verdicts of many comparisons as arrays of codes: `kinds` into KINDS, `tiers` into prover.TIERS."""

    kinds: npt.NDArray[np.int8]
    tiers: npt.NDArray[np.int8]

    def listed(self) -> list[tuple[Kind, str]]:
        """(kind, tier) of every comparison."""
        pairs = zip(self.kinds.tolist(), self.tiers.tolist(), strict=True)
        return [(KINDS[kind], TIERS[tier]) for kind, tier in pairs]

    @property
    def tally(self) -> Tally:
        """How many comparisons were settled how."""
        codes, counts = np.unique(self.kinds * np.int64(len(TIERS)) + self.tiers, return_counts=True)
        found = zip(codes.tolist(), counts.tolist(), strict=True)
        named = {(str(KINDS[c // len(TIERS)]), TIERS[c % len(TIERS)]): n for c, n in found}
        return Tally(dict(sorted(named.items())))


def relations(rows: IntArray, basis: tuple[Monomial, ...], domain: Domain) -> Relations:
    """The relation of 0 to `row @ basis` for every row, by samples and linear maps: fast, for many rows.

    What these tiers do not settle is UNKNOWN here; `compare` goes on with sectors and boxes.
    """
    prover = prover_of(basis, domain)
    parts = [_related(prover, rows[at : at + _CHUNK]) for at in range(0, len(rows), _CHUNK)]
    kinds, tiers = zip(*parts, strict=True) if parts else ([_NO_CODES], [_NO_CODES])
    return Relations(np.concatenate(kinds), np.concatenate(tiers))


def _related(prover: Prover, rows: IntArray) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.int8]]:
    kinds = np.full(len(rows), KINDS.index(Kind.UNKNOWN), dtype=np.int8)
    tiers = np.zeros(len(rows), dtype=np.int8)
    # A few samples tell most rows of both signs, and which side is left to prove of most others.
    positive, negative = prover.at_shapes.signs(rows, few=True)
    both = positive & negative
    shift = prover.cover(SHIFT)
    for kind, one, sign in ((Kind.LE, positive, 1), (Kind.GE, negative, -1)):
        which = np.flatnonzero(one & ~both)
        if which.size and shift is not None:
            proved = which[shift.holds(rows[which] * sign)]
            kinds[proved], tiers[proved] = KINDS.index(kind), TIERS.index(SHIFT.tier)
    rest = np.flatnonzero(~both & (tiers == 0))
    if rest.size:
        one, other = prover.at_shapes.signs(rows[rest])
        both[rest] = one & other
        codes = _proved(prover, rows[rest], one, other)
        le, ge = codes > 0
        tiers[rest] = np.maximum(codes[0], codes[1])
        for kind, those in ((Kind.LE, le), (Kind.GE, ge), (Kind.EQ, le & ge)):
            kinds[rest[those]] = KINDS.index(kind)
    kinds[both], tiers[both] = KINDS.index(Kind.INCOMPARABLE), TIERS.index("samples")
    return kinds, tiers


def compare(a: Expr | int, b: Expr | int, domain: Domain, deep: bool = True) -> Verdict:
    """The relation of a to b at all shapes of the domain; `deep` False leaves out sectors and boxes."""
    a, b = Expr.lift(a), Expr.lift(b)
    kept: dict[tuple[Expr, Expr, bool], Verdict] = domain.memo("verdicts")
    known = kept.get((a, b, deep))
    if known is not None:
        return known
    found = screen_of(domain, a, b).settle(a, b)
    if found is None:
        prover, row = _row_of(a, b, domain)
        verdict = _verdicts(prover, row.reshape(1, -1), [lambda: (a, b)], deep)[0]
        if len(kept) >= _KEPT:
            kept.pop(next(iter(kept)))
        # What takes the prover is slow to be asked again; without the prover itself, whose tables are large.
        verdict = replace(verdict, claims=tuple(Claim(claim.ends, domain) for claim in verdict.claims))
        kept[a, b, deep] = verdict
        return verdict
    if found.below and found.above:
        return Verdict(Kind.INCOMPARABLE, found.tier, found.witnesses)
    le, ge = Claim(lambda: (a, b), domain), Claim(lambda: (b, a), domain)
    if found.below:
        return Verdict(Kind.LE, found.tier, (), (le,))
    return (
        Verdict(Kind.GE, found.tier, (), (ge,)) if found.above else Verdict(Kind.EQ, found.tier, (), (le, ge))
    )


def _row_of(low: Expr, high: Expr, domain: Domain) -> tuple[Prover, IntArray]:
    """The prover of the difference, and the difference as a row."""
    difference = domain.solved(high - low)
    prover = prover_of(tuple(mono for mono, _ in difference.terms), domain)
    return prover, as_integers([c for _, c in difference.terms])


def compare_rows(
    matrix: PolyMatrix, pairs: Sequence[tuple[int, int]], domain: Domain, deep: bool = True
) -> list[Verdict]:
    """`compare` of rows i and j of a matrix, for every pair (i, j)."""
    if not pairs:
        return []
    left, right = (np.array(side, dtype=np.intp) for side in zip(*pairs, strict=True))
    rows = add(matrix.rows[right], -matrix.rows[left])
    ends = [partial(_two_rows, matrix, i, j) for i, j in pairs]
    return _verdicts(prover_of(matrix.basis, domain), rows, ends, deep)


def _two_rows(matrix: PolyMatrix, i: int, j: int) -> tuple[Expr, Expr]:
    return matrix.row(i), matrix.row(j)


def _verdicts(
    prover: Prover, rows: IntArray, ends: Sequence[Callable[[], tuple[Expr, Expr]]], deep: bool
) -> list[Verdict]:
    """Verdicts for b - a given as rows."""
    values, error = prover.at_shapes.sampled(rows)
    positive, negative = any_in_row(values > error), any_in_row(values < -error)
    codes = _proved(prover, rows, positive, negative)
    result: list[Verdict] = []
    for i, row in enumerate(rows):
        if positive[i] and negative[i]:
            shapes = prover.at_shapes.samples()[0]
            witnesses = (
                shapes[int((values[i] - error[i]).argmax())],
                shapes[int((values[i] + error[i]).argmin())],
            )
            result.append(Verdict(Kind.INCOMPARABLE, "samples", witnesses))
            continue
        result.append(
            _verdict(prover, row, ends[i], (int(codes[0, i]), int(codes[1, i])), (values[i], error[i]), deep)
        )
    return result


def _proved(prover: Prover, rows: IntArray, positive: BoolArray, negative: BoolArray) -> npt.NDArray[np.int8]:
    """Codes of the tiers that prove rows >= 0, and <= 0, where no sample is known to be < 0, > 0."""
    codes = np.zeros((2, len(rows)), dtype=np.int8)
    for side, (refuted, sign) in enumerate(((negative, 1), (positive, -1))):
        which = np.flatnonzero(~refuted)
        if which.size:
            codes[side, which] = prover.prove(rows[which] * sign, SHALLOW)
    return codes


def _verdict(
    prover: Prover,
    row: IntArray,
    ends: Callable[[], tuple[Expr, Expr]],
    codes: tuple[int, int],
    sampled: tuple[FloatArray, FloatArray],
    deep: bool,
) -> Verdict:
    """The verdict for one row that the samples do not refute both ways."""
    tiers = [TIERS[code] for code in codes]
    against: list[Shape | None] = [None, None]  # shapes with b - a < 0, > 0
    values, error = sampled
    shapes = prover.at_shapes.samples()[0]
    for side, sign in enumerate((1, -1)):
        if (values * sign < -error).any():
            against[side] = shapes[int((values * sign + error).argmin())]
        elif deep and tiers[side] == TIERS[0]:
            found = prover.find(row * sign)
            if isinstance(found, Evidence):
                tiers[side] = found.tier
            elif found is not None:
                against[side] = found
    le, ge = (tier != TIERS[0] for tier in tiers)
    domain = prover.domain
    claims = (Claim(ends, domain, (prover, row)),) * le
    claims += (Claim(lambda: ends()[::-1], domain, (prover, -row)),) * ge
    if le and ge:
        return Verdict(Kind.EQ, max(tiers, key=TIERS.index), (), claims)
    if le or ge:
        return Verdict(Kind.LE if le else Kind.GE, tiers[0 if le else 1], (), claims)
    if against[0] is not None and against[1] is not None:
        return Verdict(Kind.INCOMPARABLE, "boxes", (against[1], against[0]))
    return Verdict(Kind.UNKNOWN, TIERS[0], tuple(shape for shape in reversed(against) if shape is not None))
