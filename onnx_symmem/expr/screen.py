"""Comparisons of one pair at a time, fast: what is known of an expression on a domain is kept with it.

Of every expression that was met the screen keeps its values at the sample shapes, with their rounding
errors, and its polynomial in the distances from the lower ends of the ranges. Two expressions are then
incomparable by the signs of differences of values, or ordered if one polynomial has no smaller coefficient
than the other; floor divisions are tried as decide.py's tiers `linked` and `residues` have them, in maps that
are kept per set of atoms. All else - facts, max and min, few points, sectors, boxes - is left to the prover,
which proves whatever is settled here as well, and writes the certificate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from onnx_symmem.errors import ExpressionError
from onnx_symmem.expr.atom import FLOORDIV, SYMBOL, Atom, Monomial, with_inner
from onnx_symmem.expr.basis_values import MAX_POINTS, SAMPLES, Shape
from onnx_symmem.expr.boxes import bernstein
from onnx_symmem.expr.covers import LINKED, RESIDUES, Recipe, map_of
from onnx_symmem.expr.domain import Domain
from onnx_symmem.expr.exact import FloatArray, absolute, as_floats
from onnx_symmem.expr.expression import Expr
from onnx_symmem.expr.grid import Grid
from onnx_symmem.expr.interval import Intervals
from onnx_symmem.expr.mapper import Exponents
from onnx_symmem.expr.region import RegionMap

__all__ = ["Screen", "Screened", "screen_of"]

_KEPT_ROWS = 4096
_MAX_BERNSTEIN = 256  # coefficients
_LARGEST = 1 << 900  # terms beyond are not for float64


@dataclass(frozen=True, slots=True)
class Screened:
    """Whether a < b at a sample, and a > b: both, or one that `tier` proves to be all, or neither: a == b."""

    below: bool
    above: bool
    tier: str
    witnesses: tuple[Shape, ...] = ()


@dataclass(frozen=True, slots=True)
class _Row:
    """Values at the samples lie in low..high; `shift` are coefficients by column."""

    expr: Expr
    low: FloatArray
    high: FloatArray
    shift: Mapping[int, int]


_EQUAL = Screened(False, False, "equal")


class Screen:
    """What is kept of expressions on a domain, at samples that also give sizes to the symbols `names`."""

    def __init__(self, domain: Domain, names: tuple[str, ...]) -> None:
        self.domain = domain
        self.shapes = domain.samples(SAMPLES, 0, names)
        self._grid = Grid(self.shapes)
        self._rows: dict[Expr, _Row | None] = {}
        self._values: dict[Monomial, FloatArray] = {}
        self._largest: dict[Monomial, int] = {}  # magnitude of a monomial's values
        self._columns: dict[Monomial, int] = {}
        self._shifted: dict[Monomial, tuple[tuple[int, int], ...]] = {}
        self._images: dict[Atom, Expr | None] = {}
        self._widths: dict[Atom, int | None] = {}
        self._any_bounded = False
        self._regions: dict[frozenset[Atom], tuple[tuple[Recipe, RegionMap], ...]] = {}

    def settle(self, a: Expr, b: Expr) -> Screened | None:
        """How a and b compare; None where that takes more than the screen has."""
        first, second = self._row(a), self._row(b)
        if first is None or second is None:
            return None
        below = bool((first.high < second.low).any())
        above = bool((first.low > second.high).any())
        if below and above:
            more, less = (second.low - first.high).argmax(), (first.low - second.high).argmax()
            return Screened(True, True, "samples", (self.shapes[more], self.shapes[less]))
        if below == above:
            return _EQUAL if first.expr == second.expr else None
        tier = self._tier(first, second) if below else self._tier(second, first)
        return None if tier is None else Screened(below, above, tier)

    # -- rows --------------------------------------------------------------------------------------
    def _row(self, expr: Expr) -> _Row | None:
        if expr in self._rows:
            return self._rows[expr]
        if len(self._rows) >= _KEPT_ROWS:
            del self._rows[next(iter(self._rows))]
        found = self._rows[expr] = self._made(self.domain.solved(expr))
        return found

    def _made(self, expr: Expr) -> _Row | None:
        low: FloatArray = np.zeros(len(self.shapes))
        error = np.zeros(len(self.shapes))
        shift: dict[int, int] = {}
        for mono, c in expr.terms:
            if not self._known(mono) or abs(c) * self._largest[mono] > _LARGEST:
                return None
            value = self._values[mono] * float(c)
            low, error = low + value, error + np.abs(value)
            for column, k in self._shifted[mono]:
                shift[column] = shift.get(column, 0) + c * k
        error *= (len(expr.terms) + 8) * 2.0**-51
        return _Row(expr, low - error, low + error, shift)

    def _known(self, mono: Monomial) -> bool:
        """Enter a monomial; whether it can be."""
        if mono in self._values:
            return True
        images = [self._image(atom) for atom, _ in mono]
        if any(image is None for image in images):
            return False
        expr = Expr({mono: 1})
        try:
            values = self._grid.expr(expr)
        except ExpressionError:
            return False
        self._values[mono], self._largest[mono] = as_floats(values), max(absolute(values), 1)
        polynomial = expr.map_atoms(lambda atom: self._images[atom] or expr)
        columns = ((self._columns.setdefault(m, len(self._columns)), k) for m, k in polynomial.terms)
        self._shifted[mono] = tuple(columns)
        return True

    def _image(self, atom: Atom) -> Expr | None:
        """An atom in distances from lower ends; a symbol or other atom in it stands for its own distance."""
        if atom not in self._images:
            self._images[atom] = self._distances(atom)
        return self._images[atom]

    def _distances(self, atom: Atom) -> Expr | None:
        if any(a.divisors for a in with_inner([atom])):
            return None  # shapes at which the divisor is zero are none
        ranges = {name: self.domain.range_of(name) for name in sorted(atom.symbols())}
        widths = {n: None if r.hi is None else (r.hi - r.lo) // r.divisor for n, r in ranges.items()}
        moved = Expr.of(atom).substitute({n: r.lo + r.divisor * Expr.symbol(n) for n, r in ranges.items()})
        intervals = Intervals(lambda name: (0, widths[name]))
        images: dict[Atom, Expr] = {}
        for a in sorted(moved.atoms(), key=lambda a: a.key):
            low, high = intervals.of_atom(a)
            if low is None and high is None:
                return None
            images[a] = low + Expr.of(a) if low is not None else (high or 0) - Expr.of(a)
            self._widths[a] = None if low is None or high is None else high - low
            self._any_bounded |= self._widths[a] is not None
        return moved.map_atoms(images.__getitem__)

    # -- proofs ------------------------------------------------------------------------------------
    def _tier(self, low: _Row, high: _Row) -> str | None:
        """The cheapest tier that proves low <= high."""
        less, more = low.shift, high.shift
        if all(c >= less.get(column, 0) for column, c in more.items()) and all(
            c <= 0 for column, c in less.items() if column not in more
        ):
            return "shift"
        if self._any_bounded and self._bounded(less, more):
            return "shift"
        difference = high.expr - low.expr
        for recipe, region in self._regions_of(difference.atoms()):
            if region.holds(difference.terms):
                return recipe.tier
        return None

    def _regions_of(self, atoms: frozenset[Atom]) -> tuple[tuple[Recipe, RegionMap], ...]:
        """The maps that settle differences of these atoms; none where the prover has other means."""
        found = self._regions.get(atoms)
        if found is None:
            inner = with_inner(atoms)
            names = frozenset(atom.name for atom in inner if atom.kind == SYMBOL)
            plain = all(atom.kind in (SYMBOL, FLOORDIV) for atom in inner) and len(inner) > len(names)
            if self._few_points(names) or any(fact.symbols() & names for fact in self.domain.facts()):
                plain = False
            recipes = (LINKED, RESIDUES) if plain else ()
            found = tuple((r, RegionMap(map_of(atoms, self.domain, r))) for r in recipes)
            self._regions[atoms] = found
        return found

    def _bounded(self, less: Mapping[int, int], more: Mapping[int, int]) -> bool:
        """Whether the Bernstein form in the bounded variables has no negative coefficient."""
        gaps = {column: more.get(column, 0) - less.get(column, 0) for column in (*more, *less)}
        monomials = tuple(self._columns)
        terms = [(monomials[column], c) for column, c in gaps.items() if c]
        atoms = sorted({atom for mono, _ in terms for atom, _ in mono}, key=lambda a: a.key)
        widths = [self._widths[atom] for atom in atoms]
        if all(width is None for width in widths):
            return False
        at = {atom: v for v, atom in enumerate(atoms)}
        poly: dict[Exponents, int] = {}
        for mono, c in terms:
            exponents = [0] * len(atoms)
            for atom, power in mono:
                exponents[at[atom]] = power
            poly[tuple(exponents)] = c
        return _bernstein_holds(poly, widths)

    def _few_points(self, names: Iterable[str]) -> bool:
        """Whether so few shapes are legal that the prover looks at all of them."""
        ranges = [self.domain.range_of(name) for name in names]
        if any(r.hi is None for r in ranges):
            return False
        return prod(((r.hi or 0) - r.lo) // r.divisor + 1 for r in ranges) <= MAX_POINTS


def _bernstein_holds(poly: dict[Exponents, int], widths: list[int | None]) -> bool:
    tops = [max(powers) for powers in zip(*poly, strict=True)]
    if prod(top + 1 for top, width in zip(tops, widths, strict=True) if width is not None) > _MAX_BERNSTEIN:
        return False
    return all(c >= 0 for c in bernstein(poly, widths)[0].values())


def screen_of(domain: Domain, a: Expr, b: Expr) -> Screen:
    """The screen for two expressions, kept with the domain: one per set of symbols it says nothing about."""
    screens: dict[frozenset[str], Screen] = domain.memo("screens")
    symbols = a.symbols() | b.symbols()
    found = screens.get(symbols)
    if found is None:
        free = (domain.solved(Expr.symbol(name)).symbols() for name in sorted(symbols))
        names = tuple(sorted(frozenset().union(*free) - set(domain.symbols())))
        by_names: dict[tuple[str, ...], Screen] = domain.memo("screens by names")
        if names not in by_names:
            by_names[names] = Screen(domain, names)
        found = screens[symbols] = by_names[names]
    return found
