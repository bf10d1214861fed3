"""Expressions -> a compact table that the page evaluates in exact integers, every distinct part once.

    symbols    names
    atoms      [0, symbol]  [1, top, bottom]  [2, operand, ...]  [3, operand, ...]  [4, factor, ...]
               symbol; floor division, maximum, minimum and floor_f32 of expressions. A factor is the text
               of a decimal, an expression, or [top, bottom]
    monomials  [atom, power, atom, power, ...]
    exprs      [coefficient, monomial, coefficient, monomial, ...]; [] is zero

Parts refer to each other by index. Coefficients beyond 2**53 are texts, as JSON's readers round numbers.
"""

from __future__ import annotations

from typing import Any

from onnx_symmem.expr.atom import FLOORDIV, MAX, MIN, SCALED_FLOOR, SYMBOL, Atom, Monomial
from onnx_symmem.expr.expression import Expr
from onnx_symmem.expr.scaled import factor_text

__all__ = ["FormulaTable"]

_CODES = {SYMBOL: 0, FLOORDIV: 1, MAX: 2, MIN: 3, SCALED_FLOOR: 4}
_SAFE = 1 << 53


class FormulaTable:
    """Collects expressions and numbers them; `to_json` is what the page reads."""

    def __init__(self) -> None:
        self._symbols: dict[str, int] = {}
        self._atoms: dict[Atom, int] = {}
        self._monomials: dict[Monomial, int] = {}
        self._exprs: dict[Expr, int] = {}
        self._atom_codes: list[list[Any]] = []
        self._monomial_codes: list[list[int]] = []
        self._expr_codes: list[list[Any]] = []

    def symbol(self, name: str) -> int:
        """The number of a symbol."""
        return self._symbols.setdefault(name, len(self._symbols))

    def add(self, expr: Expr) -> int:
        """The number of an expression."""
        found = self._exprs.get(expr)
        if found is None:
            code: list[Any] = []
            for mono, c in expr.terms:
                code += [c if abs(c) < _SAFE else str(c), self._monomial(mono)]
            found = self._exprs[expr] = len(self._expr_codes)
            self._expr_codes.append(code)
        return found

    def _monomial(self, mono: Monomial) -> int:
        found = self._monomials.get(mono)
        if found is None:
            code = [number for atom, power in mono for number in (self._atom(atom), power)]
            found = self._monomials[mono] = len(self._monomial_codes)
            self._monomial_codes.append(code)
        return found

    def _atom(self, atom: Atom) -> int:
        found = self._atoms.get(atom)
        if found is None:
            if atom.kind == SYMBOL:
                args: list[Any] = [self.symbol(atom.name)]
            elif atom.kind == SCALED_FLOOR:
                args = [self._factor(*factor) for factor in atom.factors]
            else:
                args = [self.add(arg) for arg in atom.args]
            found = self._atoms[atom] = len(self._atom_codes)
            self._atom_codes.append([_CODES[atom.kind], *args])
        return found

    def _factor(self, top: Expr, bottom: Expr) -> Any:
        if top.is_const and bottom.is_const:
            return factor_text(top, bottom)
        return self.add(top) if bottom == 1 else [self.add(top), self.add(bottom)]

    def to_json(self) -> dict[str, Any]:
        """The table; parts are in the order in which they were met."""
        return {
            "symbols": list(self._symbols),
            "atoms": self._atom_codes,
            "monomials": self._monomial_codes,
            "exprs": self._expr_codes,
        }
