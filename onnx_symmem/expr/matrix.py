"""Many expressions as the rows of one integer matrix over a shared basis of monomials."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from onnx_symmem.expr.atom import Monomial
from onnx_symmem.expr.exact import IntArray, absolute, as_integers, matmul
from onnx_symmem.expr.expression import Expr
from onnx_symmem.expr.grid import Grid

__all__ = ["PolyMatrix"]


@dataclass(frozen=True, slots=True, eq=False)
class PolyMatrix:
    """Expressions `rows @ basis`; rows are int64, or Python integers where int64 could overflow."""

    basis: tuple[Monomial, ...]
    rows: IntArray

    @staticmethod
    def from_exprs(exprs: Iterable[Expr], basis: Iterable[Monomial] = ()) -> PolyMatrix:
        """One row per expression; the basis starts with the given monomials, then by first use."""
        column: dict[Monomial, int] = {}
        for mono in basis:
            column.setdefault(mono, len(column))
        places: dict[Expr, tuple[list[int], list[int]]] = {}  # equal expressions are read once
        sparse: list[tuple[list[int], list[int]]] = []
        for expr in exprs:
            found = places.get(expr)
            if found is None:
                at = [column.setdefault(mono, len(column)) for mono, _ in expr.terms]
                found = places[expr] = (at, [c for _, c in expr.terms])
            sparse.append(found)
        wide = any(abs(c) >= 1 << 62 for _, values in places.values() for c in values)
        rows: IntArray = np.zeros((len(sparse), len(column)), dtype=object if wide else np.int64)
        for row, (at, values) in zip(rows, sparse, strict=True):
            row[at] = values
        return PolyMatrix(tuple(column), rows)

    def __len__(self) -> int:
        return len(self.rows)

    def row(self, index: int) -> Expr:
        """One row as an expression."""
        return Expr({mono: int(c) for mono, c in zip(self.basis, self.rows[index], strict=True) if c})

    def exprs(self) -> list[Expr]:
        """All rows as expressions."""
        return [self.row(index) for index in range(len(self.rows))]

    def take(self, indices: Sequence[int] | IntArray) -> PolyMatrix:
        """The rows at the given indices."""
        return PolyMatrix(self.basis, self.rows[np.asarray(indices, dtype=np.intp)])

    def cumsum(self) -> PolyMatrix:
        """Row i is the sum of the rows 0..i."""
        rows = self.rows
        if rows.dtype != object and absolute(rows) * max(len(rows), 1) >= 1 << 62:
            rows = rows.astype(object)
        return PolyMatrix(self.basis, np.cumsum(rows, axis=0, dtype=rows.dtype))

    def joined(self, other: PolyMatrix) -> PolyMatrix:
        """The rows of both, over a basis that starts with this one's."""
        column = {mono: j for j, mono in enumerate(self.basis)}
        at = [column.setdefault(mono, len(column)) for mono in other.basis]
        dtype = object if object in (self.rows.dtype, other.rows.dtype) else np.int64
        rows: IntArray = np.zeros((len(self) + len(other), len(column)), dtype=dtype)
        rows[: len(self), : len(self.basis)] = self.rows
        rows[len(self) :, at] = other.rows
        return PolyMatrix(tuple(column), rows)

    def unique(self) -> tuple[PolyMatrix, IntArray]:
        """The different rows in order of first appearance, and for every row the index of its like."""
        seen: dict[tuple[int, ...] | bytes, int] = {}
        like = np.empty(len(self), dtype=np.intp)
        first: list[int] = []
        contiguous = np.ascontiguousarray(self.rows)
        for i, row in enumerate(contiguous):
            key = tuple(int(c) for c in row) if row.dtype == object else row.tobytes()
            at = seen.setdefault(key, len(seen))
            if at == len(first):
                first.append(i)
            like[i] = at
        return self.take(first), like

    def without_empty_columns(self) -> PolyMatrix:
        """The same expressions over the monomials that occur."""
        used = np.flatnonzero((self.rows != 0).any(axis=0))
        return PolyMatrix(tuple(self.basis[j] for j in used), self.rows[:, used])

    def evaluate(self, shapes: Sequence[Mapping[str, int]]) -> IntArray:
        """Exact values, one row per expression and one column per shape."""
        return self.on(Grid(shapes))

    def on(self, grid: Grid) -> IntArray:
        """Exact values at the shapes of a grid."""
        return as_int64_if_small(matmul(self.rows, grid.matrix(self.basis)))


def as_int64_if_small(array: IntArray) -> IntArray:
    """An object array as int64, where its values fit."""
    return as_integers(array) if array.dtype == object else array
