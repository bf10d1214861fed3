"""One region of a domain as a linear map: monomials of a basis to polynomials of the region's variables.

A block covers all residue classes of its variables at once: coefficients are arrays with one number
per class (or Python integers, for a single class). A difference of two expressions, as a row over the
basis, is >= 0 on the region if the row times the block's Bernstein table has no negative number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import comb, gcd, lcm

import numpy as np

from onnx_symmem.expr.atom import Monomial
from onnx_symmem.expr.exact import (
    BoolArray,
    IntArray,
    Table,
    absolute,
    add,
    as_integers,
    matmul,
    multiply,
    power,
)
from onnx_symmem.expr.mapper import Exponents, Mapper, Number, Poly, multiplied, times
from onnx_symmem.expr.proof import Leaf, Powers

__all__ = ["Block", "build_block", "leaf"]

_MAX_COLUMNS = 8192  # of a class; Bernstein columns double with every bounded variable
_MAX_NUMBERS = 1 << 16  # columns of all classes
_MAX_SECTOR_COLUMNS = 512


@dataclass(frozen=True)
class Block:
    """The map of one region. `residues` are (variable, modulus); a class is one residue of each."""

    names: tuple[str, ...]
    reals: frozenset[str]
    residues: tuple[tuple[str, int], ...]
    classes: tuple[tuple[int, ...], ...]
    limits: Mapping[str, IntArray | None]  # widths of the variables, one per class
    columns: tuple[Exponents, ...]
    table: IntArray  # classes x monomials x columns, power basis
    _orders: dict[tuple[int, ...], tuple[list[Exponents], Table]] = field(default_factory=dict)

    @cached_property
    def bernstein(self) -> tuple[tuple[Exponents, ...], IntArray, Powers]:
        """(columns, table, degrees) in the Bernstein basis of the bounded variables.

        Variables with a small range come first, since their upper ends matter most; those that would
        make too many columns stay in the power basis, which is >= 0 as well.
        """
        columns, table, degrees = self.columns, self.table, []
        most = max(16, min(_MAX_COLUMNS, _MAX_NUMBERS // len(self.classes)))
        bounded = [
            (absolute(limit), v) for v, n in enumerate(self.names) if (limit := self.limits[n]) is not None
        ]
        for _, v in sorted(bounded):
            name = self.names[v]
            limit = self.limits[name]
            degree = max((e[v] for e in columns), default=0)
            if limit is None or degree == 0:
                continue
            if len({(*e[:v], *e[v + 1 :]) for e in columns}) * (degree + 1) <= most:
                columns, table = _to_bernstein(columns, table, v, degree, limit)
                degrees.append((name, degree))
        return columns, table, tuple(degrees)

    @cached_property
    def tests(self) -> Table:
        """monomials x tests: a row is proved if row @ tests has no negative number."""
        _, table, _ = self.bernstein
        unique: dict[bytes | tuple[int, ...], IntArray] = {}
        for part in table:
            for column in part.T:
                key = tuple(column.tolist()) if column.dtype == object else column.tobytes()
                if key not in unique and column.any():
                    unique[key] = column
        if not unique:
            return Table(np.zeros((table.shape[1], 0), dtype=np.int64))
        return Table(np.ascontiguousarray(np.stack(list(unique.values()), axis=1)))

    def holds(self, rows: IntArray) -> BoolArray:
        """Which rows are >= 0 on the region by their Bernstein coefficients."""
        return self.tests.none_negative(rows)

    def vectors(self, row: IntArray) -> IntArray:
        """classes x columns of the Bernstein basis, for one row."""
        return self._flat.times(row.reshape(1, -1)).reshape(len(self.classes), -1)

    @cached_property
    def _flat(self) -> Table:
        """monomials x (classes x columns), Bernstein."""
        _, table, _ = self.bernstein
        return Table(np.ascontiguousarray(np.moveaxis(table, 1, 0)).reshape(table.shape[1], -1))

    def powers(self, row: IntArray, cls: int) -> dict[Exponents, int]:
        """One row as a polynomial of the variables, in one class."""
        values = matmul(row.reshape(1, -1), self.table[cls])[0]
        return {e: int(c) for e, c in zip(self.columns, values, strict=True) if c}

    def widths(self, cls: int) -> dict[str, int | None]:
        """Widths of the variables in one class."""
        return {
            name: None if (limit := self.limits[name]) is None else int(limit[cls]) for name in self.names
        }

    def leaf(self, vector: IntArray) -> Leaf:
        """The proof that one class's Bernstein coefficients are."""
        columns, _, degrees = self.bernstein
        return leaf(self.names, columns, vector, degrees)

    def has_sectors(self) -> bool:
        """Whether the change of columns for a sector is small enough."""
        return len(self.bernstein[0]) <= _MAX_SECTOR_COLUMNS

    def sector(self, vectors: IntArray, order: tuple[int, ...]) -> tuple[list[Exponents], IntArray]:
        """Bernstein vectors where each variable of `order` is the one before it plus an excess."""
        found = self._orders.get(order)
        if found is None:
            found = self._orders[order] = _sector_map(self.bernstein[0], order)
        columns, change = found
        return columns, change.times(vectors)


def leaf(names: Sequence[str], columns: Sequence[Exponents], vector: IntArray, degrees: Powers) -> Leaf:
    """Non-zero coefficients by named powers, without their common factor."""
    terms: dict[Powers, int] = {}
    for exponents, c in zip(columns, vector, strict=True):
        if c:
            terms[tuple((n, e) for n, e in sorted(zip(names, exponents, strict=True)) if e)] = int(c)
    common = gcd(*terms.values()) or 1
    return Leaf(degrees, tuple(sorted((p, c // common) for p, c in terms.items())))


def _to_bernstein(
    columns: tuple[Exponents, ...], table: IntArray, v: int, degree: int, limit: IntArray
) -> tuple[tuple[Exponents, ...], IntArray]:
    """Power basis of variable `v` in 0..limit to Bernstein, times the lcm of the binomials."""
    scale = lcm(*(comb(degree, q) for q in range(degree + 1)))
    groups: dict[Exponents, int] = {}
    group = np.array([groups.setdefault((*e[:v], *e[v + 1 :]), len(groups)) for e in columns], dtype=np.intp)
    powers = np.array([e[v] for e in columns], dtype=np.intp)
    parts: list[IntArray] = []  # of every power: classes x monomials x groups, times limit**power
    for q in range(degree + 1):
        at = np.flatnonzero(powers == q)
        part: IntArray = np.zeros((*table.shape[:2], len(groups)), dtype=table.dtype)
        part[:, :, group[at]] = table[:, :, at]
        parts.append(multiply(part, power(limit, q)[:, None, None]))
    sums: list[IntArray] = []
    for b in range(degree + 1):
        total = parts[0] if scale == 1 else multiply(parts[0], as_integers([scale]))
        for q in range(1, b + 1):
            factor = comb(b, q) * (scale // comb(degree, q))
            total = add(total, parts[q] if factor == 1 else multiply(parts[q], as_integers([factor])))
        sums.append(total)
    if any(part.dtype == object for part in sums):
        sums = [part.astype(object) for part in sums]
    new_columns = tuple((*rest[:v], b, *rest[v:]) for rest in groups for b in range(degree + 1))
    return new_columns, np.stack(sums, axis=3).reshape(*table.shape[:2], -1)


def _sector_map(columns: Sequence[Exponents], order: tuple[int, ...]) -> tuple[list[Exponents], Table]:
    """The change of columns when x_order[k] becomes x_order[0] + ... + x_order[k]."""
    new: dict[Exponents, int] = {}
    entries: list[tuple[int, int, Number]] = []
    for j, exponents in enumerate(columns):
        zero = (0,) * len(exponents)
        poly: Poly = {tuple(0 if v in order else e for v, e in enumerate(exponents)): 1}
        for k, v in enumerate(order):
            total: Poly = {(*zero[:u], 1, *zero[u + 1 :]): 1 for u in order[: k + 1]}
            for _ in range(exponents[v]):
                poly = multiplied(poly, total)
        entries += [(j, new.setdefault(at, len(new)), c) for at, c in poly.items()]
    change = np.zeros((len(columns), len(new)), dtype=object)
    for j, k, c in entries:
        change[j, k] = c
    return list(new), Table(as_integers(change))


# -- building -----------------------------------------------------------------------------------------
def build_block(basis: Sequence[Monomial], mapper: Mapper, reals: frozenset[str]) -> Block:
    """The block of a basis on the mapper's region."""
    polys, bottoms = zip(*(mapper.monomial(mono) for mono in basis), strict=True) if basis else ((), ())
    common = lcm(*bottoms) if bottoms else 1
    columns: dict[Exponents, int] = {}
    for poly in polys:
        for exponents in poly:
            columns.setdefault(exponents, len(columns))
    scaled = [
        {e: times(c, common // b) for e, c in poly.items()} for poly, b in zip(polys, bottoms, strict=True)
    ]
    wide = any(_magnitude(c) >= 1 << 62 for poly in scaled for c in poly.values())
    shape = len(mapper.classes), len(basis), len(columns)
    table: IntArray = np.zeros(shape, dtype=object if wide else np.int64)
    for i, poly in enumerate(scaled):
        for exponents, c in poly.items():
            table[:, i, columns[exponents]] = c
    return Block(mapper.names, reals, mapper.moduli, mapper.classes, mapper.limits, tuple(columns), table)


def _magnitude(c: Number) -> int:
    return abs(c) if isinstance(c, int) else absolute(c)
