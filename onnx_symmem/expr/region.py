"""Whether expressions have a negative coefficient on one region, one expression at a time, fast.

The coefficients of every monomial that was met are kept: for each product of powers of the unbounded
variables an array over the residue classes, or over the Bernstein basis of the bounded variables.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb, lcm, prod

from onnx_symmem.expr.atom import Monomial
from onnx_symmem.expr.exact import IntArray, absolute, as_integers, multiply
from onnx_symmem.expr.mapper import Exponents, Mapper

__all__ = ["RegionMap"]

_MAX_BERNSTEIN = 256  # coefficients per product of powers
_INT64 = 1 << 62

Arrays = dict[Exponents, IntArray]


class RegionMap:
    """A mapper's region. Bounded variables stay in powers where there are residue classes."""

    def __init__(self, mapper: Mapper) -> None:
        self.mapper = mapper
        self.bounded: list[int] = []
        self.widths: list[int] = []
        for v, name in enumerate(mapper.names):
            limit = mapper.limits[name]
            if limit is not None and not mapper.moduli:
                self.bounded.append(v)
                self.widths.append(int(limit[0]))
        self._degrees: dict[Monomial, Exponents] = {}
        self._tables: dict[Exponents, dict[Monomial, tuple[int, int, Arrays]]] = {}
        self._bases: dict[tuple[int, int, int], IntArray] = {}

    def holds(self, terms: Sequence[tuple[Monomial, int]]) -> bool:
        """Whether the sum of the terms has no negative coefficient; False also where it is too large."""
        degrees: Exponents = tuple(
            max(column) for column in zip(*(self._degrees_of(mono) for mono, _ in terms), strict=True)
        )
        if prod(degree + 1 for degree in degrees) > _MAX_BERNSTEIN:
            return False
        table = self._tables.setdefault(degrees, {})
        found = [table.get(mono) or self._entered(table, mono, degrees) for mono, _ in terms]
        common = lcm(*(bottom for bottom, _, _ in found))
        factors = [c * (common // bottom) for (_, c), (bottom, _, _) in zip(terms, found, strict=True)]
        small = sum(abs(f) * largest for f, (_, largest, _) in zip(factors, found, strict=True)) < _INT64
        total: Arrays = {}
        for factor, (_, _, arrays) in zip(factors, found, strict=True):
            for powers, array in arrays.items():
                part = (array if small else array.astype(object)) * factor
                total[powers] = total[powers] + part if powers in total else part
        return all(array.min() >= 0 for array in total.values())

    def _degrees_of(self, mono: Monomial) -> Exponents:
        found = self._degrees.get(mono)
        if found is None:
            poly = self.mapper.monomial(mono)[0]
            found = self._degrees[mono] = tuple(max((e[v] for e in poly), default=0) for v in self.bounded)
        return found

    def _entered(
        self, table: dict[Monomial, tuple[int, int, Arrays]], mono: Monomial, degrees: Exponents
    ) -> tuple[int, int, Arrays]:
        """(divisor, largest magnitude, arrays) of a monomial in the basis of the degrees."""
        poly, bottom = self.mapper.monomial(mono)
        arrays: Arrays = {}
        for exponents, c in poly.items():
            part = as_integers([c]) if isinstance(c, int) else c
            for v, degree, width in zip(self.bounded, degrees, self.widths, strict=True):
                basis = self._basis(exponents[v], degree, width)
                part = multiply(part[:, None], basis[None, :]).ravel()
            at = tuple(0 if v in self.bounded else e for v, e in enumerate(exponents))
            arrays[at] = arrays[at] + part if at in arrays else part
        arrays = {at: as_integers(array) for at, array in arrays.items()}
        found = table[mono] = bottom, max(map(absolute, arrays.values()), default=0), arrays
        return found

    def _basis(self, power: int, degree: int, width: int) -> IntArray:
        """A power of a variable in 0..width in its Bernstein basis, times the lcm of the binomials."""
        found = self._bases.get((power, degree, width))
        if found is None:
            scale = lcm(*(comb(degree, q) for q in range(degree + 1)))
            factor = scale // comb(degree, power) * width**power
            numbers = [comb(b, power) * factor for b in range(degree + 1)]
            found = self._bases[power, degree, width] = as_integers(numbers)
        return found
