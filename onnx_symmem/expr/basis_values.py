"""Values of a basis of monomials at shapes of a domain: at samples, and at every shape of a small finite one.

A shape at which a size that is divided by is zero is no shape, and left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import product
from math import prod

import numpy as np

from onnx_symmem.errors import ExpressionError
from onnx_symmem.expr.atom import Monomial
from onnx_symmem.expr.domain import Domain
from onnx_symmem.expr.exact import BoolArray, FloatArray, IntArray, Table, any_in_row, as_floats, rounding
from onnx_symmem.expr.expression import Expr
from onnx_symmem.expr.grid import Grid

__all__ = ["MAX_POINTS", "SAMPLES", "BasisValues", "Shape", "nonzero"]

MAX_POINTS = 4096
SAMPLES = 96  # shapes at which every comparison looks
_WIDE_SAMPLES = 512
_SIGNS_AT_ONCE = 1024  # rows whose values stay in the cache

Shape = dict[str, int]


class BasisValues:
    """The values of one basis, which is of `symbols` and divides by `divisors`; computed once and kept."""

    def __init__(
        self, basis: tuple[Monomial, ...], domain: Domain, symbols: tuple[str, ...], divisors: Sequence[Expr]
    ) -> None:
        self.basis, self.domain, self.symbols, self.divisors = basis, domain, symbols, divisors
        self._samples: dict[bool, tuple[tuple[Shape, ...], Table, FloatArray]] = {}
        self._points: tuple[tuple[Shape, ...], Table] | None = None
        self.has_points = _count_points(domain, self.all_symbols) <= MAX_POINTS

    @cached_property
    def all_symbols(self) -> tuple[str, ...]:
        """The symbols, with those of the facts that are connected with them."""
        known, facts = set(self.symbols), self.domain.facts()
        while True:
            new = {n for fact in facts if fact.symbols() & known for n in fact.symbols()}
            if new <= known:
                return tuple(sorted(known))
            known |= new

    @cached_property
    def fact_indices(self) -> tuple[int, ...]:
        """Which facts of the domain are about these only."""
        known = set(self.all_symbols)
        return tuple(i for i, fact in enumerate(self.domain.facts()) if fact.symbols() <= known)

    def samples(self, wide: bool = False) -> tuple[tuple[Shape, ...], Table, FloatArray]:
        """(legal shapes, exact values of the basis there, the same in float64); `wide` takes more shapes."""
        found = self._samples.get(wide)
        if found is None:
            count, seed = (_WIDE_SAMPLES, 1) if wide else (SAMPLES, 0)
            shapes, values = self._values(self.domain.samples(count, seed, self.symbols))
            table = Table(values)
            found = self._samples[wide] = shapes, table, table.floats
        return found

    def _values(self, shapes: tuple[Shape, ...]) -> tuple[tuple[Shape, ...], IntArray]:
        """The shapes at which no divisor is zero, and the basis there."""
        for divisor in self.divisors:
            shapes = tuple(shape for shape in shapes if nonzero(divisor, shape))
        return shapes, Grid(shapes).matrix(self.basis)

    def negative_at(self, row: IntArray) -> Shape | None:
        """A shape, of many, where a row is negative."""
        shapes, basis_values, _ = self.samples(wide=True)
        values = basis_values.times(row.reshape(1, -1))[0]
        if values.size == 0 or values.min() >= 0:
            return None
        return shapes[int(np.argmin(values))]

    def sampled(self, rows: IntArray, wide: bool = False) -> tuple[FloatArray, FloatArray]:
        """(values, bounds of their rounding errors) of rows at the sample shapes."""
        _, table, values = self.samples(wide)
        if table.fits_floats(rows):
            floats = rows.astype(np.float64)
            return floats @ values, rounding(floats, values)
        found = as_floats(table.times(rows))
        return found, np.abs(found) * 2.0**-51

    def signs(self, rows: IntArray, few: bool = False) -> tuple[BoolArray, BoolArray]:
        """Which rows are > 0, and < 0, at some sample; `few` looks at every eighth only."""
        _, table, values = self.samples()
        if few:
            values = np.ascontiguousarray(values[:, ::8])
        if not table.fits_floats(rows):
            exact = table.times(rows)
            return any_in_row(exact > 0), any_in_row(exact < 0)
        floats = rows.astype(np.float64)
        positive, negative = np.zeros((2, len(rows)), dtype=np.bool_)
        for start in range(0, len(rows), _SIGNS_AT_ONCE):
            some = slice(start, start + _SIGNS_AT_ONCE)
            at, error = floats[some] @ values, rounding(floats[some], values)
            positive[some], negative[some] = any_in_row(at > error), any_in_row(at < -error)
        return positive, negative

    def points(self) -> tuple[tuple[Shape, ...], Table]:
        """(every legal shape, values of the basis there), of a small finite domain."""
        if self._points is None:
            names = self.all_symbols
            ranges = [self.domain.range_of(name) for name in names]
            facts = [self.domain.facts()[i] for i in self.fact_indices]
            axes = (range(r.lo, (r.hi or 0) + 1, r.divisor) for r in ranges)
            every = (dict(zip(names, point, strict=True)) for point in product(*axes))
            legal = tuple(
                self.domain.completed(shape)
                for shape in every
                if all(fact.evaluate(shape) >= 0 for fact in facts)
            )
            shapes, values = self._values(legal)
            self._points = shapes, Table(values)
        return self._points

    def points_or_samples(self) -> tuple[tuple[Shape, ...], Table]:
        """(every legal shape of a small finite domain, else many of them; values of the basis there)."""
        return self.points() if self.has_points else self.samples(wide=True)[:2]


def nonzero(divisor: Expr, shape: Shape) -> bool:
    """Whether a size that is divided by is something else than zero at a shape."""
    try:
        return divisor.evaluate(shape) != 0
    except ExpressionError:  # a division by zero inside of the divisor
        return False


def _count_points(domain: Domain, names: Sequence[str]) -> float:
    ranges = [domain.range_of(name) for name in names]
    if any(r.hi is None for r in ranges):
        return float("inf")
    return prod(((r.hi or 0) - r.lo) // r.divisor + 1 for r in ranges)
