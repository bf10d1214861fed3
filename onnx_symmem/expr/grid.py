"""Values of many expressions at many shapes at once, exact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from onnx_symmem.errors import DomainError, ExpressionError
from onnx_symmem.expr.atom import FLOORDIV, MAX, SCALED_FLOOR, SYMBOL, Atom, Monomial
from onnx_symmem.expr.exact import IntArray, absolute, add, as_integers, multiply, power
from onnx_symmem.expr.expression import Expr
from onnx_symmem.expr.scaled import LARGEST

__all__ = ["Grid", "evaluate"]


class Grid:
    """A list of shapes, with the values of atoms and monomials kept once they are asked for."""

    def __init__(self, shapes: Sequence[Mapping[str, int]]) -> None:
        self.shapes = shapes
        self._atoms: dict[Atom, IntArray] = {}
        self._monomials: dict[Monomial, IntArray] = {}

    def atom(self, atom: Atom) -> IntArray:
        """Values of an atom, one per shape."""
        found = self._atoms.get(atom)
        if found is None:
            found = self._atoms[atom] = self._atom_values(atom)
        return found

    def _atom_values(self, atom: Atom) -> IntArray:
        if atom.kind == SYMBOL:
            try:
                return as_integers([shape[atom.name] for shape in self.shapes])
            except KeyError as error:
                raise DomainError(f"a shape does not give the size of {atom.name!r}") from error
        values = [self.expr(a) for a in atom.args]
        if atom.kind == FLOORDIV:
            if not np.all(values[1] != 0):
                raise ExpressionError(f"{atom.text()}: division by zero at a shape")
            return values[0] // values[1]
        if atom.kind == SCALED_FLOOR:
            return _scaled(atom, values)
        result = values[0]
        for other in values[1:]:
            result = np.maximum(result, other) if atom.kind == MAX else np.minimum(result, other)
        return result

    def monomial(self, mono: Monomial) -> IntArray:
        """Values of a monomial, one per shape."""
        found = self._monomials.get(mono)
        if found is None:
            found = np.ones(len(self.shapes), dtype=np.int64)
            for atom, exponent in mono:
                found = multiply(found, power(self.atom(atom), exponent))
            self._monomials[mono] = found
        return found

    def expr(self, expr: Expr) -> IntArray:
        """Values of an expression, one per shape."""
        total: IntArray = np.zeros(len(self.shapes), dtype=np.int64)
        for mono, c in expr.terms:
            total = add(total, multiply(self.monomial(mono), as_integers([c])))
        return total

    def matrix(self, basis: Sequence[Monomial]) -> IntArray:
        """Values of monomials, one row each and one column per shape."""
        if not basis:
            return np.zeros((0, len(self.shapes)), dtype=np.int64)
        rows = [self.monomial(mono) for mono in basis]
        if any(row.dtype == object for row in rows):
            rows = [row.astype(object) for row in rows]
        return np.stack(rows)


def _scaled(atom: Atom, values: Sequence[IntArray]) -> IntArray:
    """Values of a floor_f32 from those of its tops and bottoms in turn; the last factors are joined first."""
    if max(map(absolute, values)) > LARGEST:
        raise ExpressionError(f"{atom.text()}: a size beyond float32")
    if not all(np.all(bottom != 0) for bottom in values[1::2]):
        raise ExpressionError(f"{atom.text()}: division by zero at a shape")
    singles = [value.astype(np.float32) for value in values]
    result = np.ones(len(values[0]), dtype=np.float32)
    with np.errstate(over="ignore", under="ignore"):
        for k in range(len(singles) - 2, -1, -2):
            result = singles[k] / singles[k + 1] * result
    if not np.all(np.isfinite(result)):
        raise ExpressionError(f"{atom.text()}: a product beyond float32")
    return as_integers([int(x) for x in np.floor(result)])


def evaluate(exprs: Sequence[Expr], shapes: Sequence[Mapping[str, int]]) -> IntArray:
    """Exact values, one row per expression and one column per shape."""
    grid = Grid(shapes)
    rows = [grid.expr(expr) for expr in exprs]
    if any(row.dtype == object for row in rows):
        rows = [row.astype(object) for row in rows]
    return np.stack(rows) if rows else np.zeros((0, len(shapes)), dtype=np.int64)
