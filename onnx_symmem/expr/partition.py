"""The search for parts of a domain on which every expression of P is dominated by members of Q.

An expression of P that no combination of all of Q is found for is tried with the few of Q that the samples
show above it, alone. Where that fails, too, the range of one symbol is cut in two. The samples choose the
cut: on each half they are the columns of a matrix game, whose value says how far above the expression the
best combination of members stays (mixture.py). The best cut leaves the most halves, with the most samples,
that one combination suffices for; of equal ones, the larger margin. Unbounded symbols are cut near their
lower ends, where constants matter. Parts are counted, and so is the work on them, by the numbers of the maps
that proofs are made with: where there are many classes and cases, parts are fewer.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import numpy.typing as npt

from onnx_symmem.expr.ascent import refuting_shape
from onnx_symmem.expr.basis_values import Shape
from onnx_symmem.expr.domain import Domain
from onnx_symmem.expr.dominance import Dominance
from onnx_symmem.expr.dominators import Dominators
from onnx_symmem.expr.exact import BoolArray, FloatArray, IntArray, as_floats
from onnx_symmem.expr.matrix import PolyMatrix
from onnx_symmem.expr.mixture import game_values
from onnx_symmem.expr.parts import Halves, Part, halves_of
from onnx_symmem.expr.prover import SEARCH, TIERS, Prover, prover_of
from onnx_symmem.expr.tally import Kind

__all__ = ["Partition", "places_to_cut"]

_MAX_PARTS = 48
_MAX_DEPTH = 24
_WORK = 8_000_000  # numbers of the maps of all parts
_ALONE = 4_000_000  # numbers of the maps for rows of P with one or two of Q alone
_MAX_CUTS = 12  # per symbol, looked at through samples only
_MAX_PAIR_MEMBERS = 12
_MAX_SEARCHES = 8  # rows of P that are searched with the costliest methods
_MAX_ROWS = 4  # rows of P that choose a cut
_MAX_GAME = 192  # samples of a game
_STARTS = 3  # of a search uphill for a shape that refutes
_NOTHING = 1e-7  # values of games are not known better


class Partition:
    """One search; `witness` is a shape that refutes, `settled` how the comparisons ended."""

    def __init__(self, matrix: PolyMatrix, lows: tuple[int, ...], highs: tuple[int, ...]) -> None:
        self.matrix, self.lows, self.highs = matrix, lows, highs
        self.witness: Shape | None = None
        self.settled: list[tuple[Kind, str]] = []
        self.climbed = False
        self.parts, self.work, self.alone = _MAX_PARTS, _WORK, _ALONE

    @property
    def exhausted(self) -> bool:
        """Whether parts or work ran out."""
        return self.parts <= 1 or self.work <= 0

    def prove(self, domain: Domain, open_lows: Sequence[int], depth: int = 0) -> Part | Halves | None:
        """The proof for some rows of P on a part of the domain; sets the witness when there is one."""
        prover = prover_of(self.matrix.basis, domain)
        shapes, basis_values = prover.at_shapes.points_or_samples()
        values = basis_values.times(self.matrix.rows)
        if values.shape[1]:
            lead = values[list(self.lows)].max(axis=0) - values[list(self.highs)].max(axis=0)
            worst = int(np.argmax(lead))
            if lead[worst] > 0:
                self.witness = domain.completed(shapes[worst])
                self.settled.append(
                    (Kind.INCOMPARABLE, "points" if prover.at_shapes.has_points else "samples")
                )
                return None
        if prover.at_shapes.has_points:
            self.settled += [(Kind.LE, "points")] * len(open_lows)
            return Part(domain, (), by_points=True)
        dominances = self._dominances(domain, open_lows)
        self.settled += [(Kind.LE, d.tier) for d in dominances]
        done = {d.low for d in dominances}
        left = [low for low in open_lows if low not in done]
        if not left:
            return Part(domain, dominances)
        self.witness = self._uphill(domain, left, shapes, values)
        if self.witness is not None:
            self.settled.append((Kind.INCOMPARABLE, "samples"))
            return None
        cut = None
        self.work -= prover.effort
        if depth < _MAX_DEPTH and not self.exhausted:
            cut = self._cut(prover, shapes, values, left)
        if cut is None:
            self.settled += [(Kind.UNKNOWN, TIERS[0])] * len(left)
            return None
        self.parts -= 1
        below, above = halves_of(domain, *cut)
        first = self.prove(below, left, depth + 1)
        if first is None:
            return None
        second = self.prove(above, left, depth + 1)
        return None if second is None else Halves(domain, *cut, first, second, dominances)

    def _dominances(self, domain: Domain, lows: Sequence[int]) -> tuple[Dominance, ...]:
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
        found += search.by_facts(left(), self.highs)
        proofs, spent = search.by_few(left()[:_MAX_SEARCHES].tolist(), self.highs, self.alone)
        found += proofs
        self.alone -= spent
        for high in self.highs:
            for low in left()[:_MAX_SEARCHES]:
                if self.work > 0:
                    before = search.prover.searched
                    found += search.by_one(np.array([low]), high, SEARCH)
                    self.work -= search.prover.searched - before
        return tuple(found)

    def _uphill(
        self, domain: Domain, left: Sequence[int], shapes: Sequence[Shape], values: IntArray
    ) -> Shape | None:
        """A shape that refutes, looked for from the samples where a row of P is nearest to those of Q."""
        if self.climbed or not len(shapes):
            return None
        self.climbed = True
        for low in left:
            lead = as_floats(values[low] - values[list(self.highs)].max(axis=0))
            lead = lead / np.maximum(np.abs(as_floats(values[low])), 1.0)
            for at in np.argsort(-lead, kind="stable")[:_STARTS].tolist():
                found = refuting_shape(self.matrix, low, self.highs, domain, shapes[at])
                if found is not None:
                    return found
        return None

    def _cut(
        self, prover: Prover, shapes: Sequence[Shape], values: IntArray, left: Sequence[int]
    ) -> tuple[str, int] | None:
        """The symbol and size to cut at."""
        domain = prover.domain
        cuts: list[tuple[str, int]] = []
        sides: list[BoolArray] = []
        for name in (n for n in prover.symbols if n not in domain.equalities):
            sizes = np.array([shape[name] for shape in shapes])
            for at in places_to_cut(domain, name, sizes):
                below = sizes < at
                if below.any() and not below.all():  # both halves have a legal shape
                    cuts.append((name, at))
                    sides += [below, ~below]
        if not cuts:
            return None
        chosen = np.stack(sides)
        counts = chosen.sum(axis=1)
        holds, settled = np.zeros((2, len(sides)), dtype=np.int64)
        margin = np.full(len(sides), np.inf)
        for low in left[:_MAX_ROWS]:
            lead = as_floats(values[list(self.highs)] - values[low])
            scale = np.abs(lead).max(axis=0)
            lead = lead / np.where(scale > 0, scale, 1.0)
            kept = _deciding(lead)
            payoffs = np.where(chosen[:, None, kept], lead[None, :, kept], 1.0)
            worth = game_values(payoffs)
            holds += worth >= -_NOTHING
            settled += np.where(worth >= -_NOTHING, counts, 0)
            margin = np.minimum(margin, worth)
        ranks = zip(
            holds[0::2] + holds[1::2],
            settled[0::2] + settled[1::2],
            np.minimum(margin[0::2], margin[1::2]),
            range(0, -len(cuts), -1),
            strict=True,
        )
        return cuts[-max(ranks)[3]]


def _deciding(lead: FloatArray) -> npt.NDArray[np.intp]:
    """Few samples of members x samples: those where all members are near, and some of where one is below."""
    some = np.flatnonzero(lead.min(axis=0) < 0)
    nearest = some[np.argsort(lead[:, some].max(axis=0), kind="stable")]
    if nearest.size <= _MAX_GAME:
        return nearest
    first, rest = nearest[: _MAX_GAME // 2], nearest[_MAX_GAME // 2 :]
    return np.concatenate([first, rest[np.linspace(0, rest.size - 1, _MAX_GAME // 2).astype(np.intp)]])


def places_to_cut(domain: Domain, name: str, sizes: npt.NDArray[np.int64]) -> list[int]:
    """Sizes where a symbol may be cut: 1, 2, 4, ... steps from its lower end, to the middle or far away."""
    allowed = domain.range_of(name)
    last = (int(sizes.max(initial=allowed.lo)) - allowed.lo) // allowed.divisor
    if allowed.hi is not None:
        last = (last + 1) // 2
    powers = range(min(last.bit_length(), _MAX_CUTS))
    return [allowed.lo + (allowed.divisor << power) for power in powers]
