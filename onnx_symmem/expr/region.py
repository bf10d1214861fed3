"""Whether expressions have a negative coefficient on one region, one expression at a time, fast.

The coefficients of every monomial that was met are kept: for each product of powers of the unbounded
variables an array over the residue classes, or over the Bernstein basis of the bounded variables. So are the
tables that they make for the sums of the same monomials.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb, lcm, prod

import numpy as np

from onnx_symmem.expr.atom import Monomial
from onnx_symmem.expr.exact import IntArray, Table, as_integers, multiply
from onnx_symmem.expr.mapper import Exponents, Mapper

__all__ = ["RegionMap"]

_MAX_BERNSTEIN = 256  # coefficients per product of powers
_KEPT_NUMBERS = 1 << 22

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
        self._tables: dict[Exponents, dict[Monomial, tuple[int, Arrays]]] = {}
        self._joined: dict[tuple[Monomial, ...], tuple[list[int], Table] | None] = {}
        self._numbers = 0  # in the tables of those
        self._bases: dict[tuple[int, int, int], IntArray] = {}

    def holds(self, terms: Sequence[tuple[Monomial, int]]) -> bool:
        """Whether the sum of the terms has no negative coefficient; False also where it is too large."""
        monomials = tuple(mono for mono, _ in terms)
        if monomials not in self._joined:
            self._joined[monomials] = self._join(monomials)
        found = self._joined[monomials]
        if found is None:
            return False
        factors, table = found
        row = as_integers([[c * factor for (_, c), factor in zip(terms, factors, strict=True)]])
        return bool(table.none_negative(row)[0])

    def _join(self, monomials: tuple[Monomial, ...]) -> tuple[list[int], Table] | None:
        """Factors and a table: of every sum of these monomials, times its factors, all coefficients."""
        degrees: Exponents = tuple(
            max(column) for column in zip(*(self._degrees_of(mono) for mono in monomials), strict=True)
        )
        if prod(degree + 1 for degree in degrees) > _MAX_BERNSTEIN:
            return None
        known = self._tables.setdefault(degrees, {})
        found = [known.get(mono) or self._entered(known, mono, degrees) for mono in monomials]
        common = lcm(*(bottom for bottom, _ in found))
        powers = dict.fromkeys(at for _, arrays in found for at in arrays)
        width = max((len(array) for _, arrays in found for array in arrays.values()), default=1)
        nothing = np.zeros(1, dtype=np.int64)
        rows = [
            np.concatenate([nothing, *(np.broadcast_to(arrays.get(at, nothing), width) for at in powers)])
            for _, arrays in found
        ]
        table = Table(np.stack([row.astype(object) for row in rows] if _wide(rows) else rows))
        self._numbers += table.array.size
        if self._numbers > _KEPT_NUMBERS:
            self._joined.clear()
            self._numbers = table.array.size
        return [common // bottom for bottom, _ in found], table

    def _degrees_of(self, mono: Monomial) -> Exponents:
        found = self._degrees.get(mono)
        if found is None:
            poly = self.mapper.monomial(mono)[0]
            found = self._degrees[mono] = tuple(max((e[v] for e in poly), default=0) for v in self.bounded)
        return found

    def _entered(
        self, table: dict[Monomial, tuple[int, Arrays]], mono: Monomial, degrees: Exponents
    ) -> tuple[int, Arrays]:
        """(divisor, arrays) of a monomial in the basis of the degrees."""
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
        found = table[mono] = bottom, arrays
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


def _wide(rows: Sequence[IntArray]) -> bool:
    return any(row.dtype == object for row in rows)
