"""Expressions as sympy's, for formulas in documents and for whoever goes on computing with them.

sympy is imported when it is first needed: it takes longer than all the rest, and planning never uses it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from onnx_symmem.expr.atom import FLOORDIV, MAX, SCALED_FLOOR, SYMBOL, Atom
from onnx_symmem.expr.domain import Domain
from onnx_symmem.expr.expression import Expr, scaled_floor
from onnx_symmem.expr.scaled import factor_text

if TYPE_CHECKING:
    import sympy

__all__ = ["to_sympy"]


def to_sympy(expr: Expr | int, domain: Domain | None = None) -> sympy.Expr:
    """The expression in sympy: integer symbols, floor, Max, Min, and `floor_f32` of two factors or more.

    Symbols are positive, or non-negative where the domain lets them be 0; an eliminated symbol stays one.
    The function floor_f32 evaluates once its factors are numbers.
    """
    import sympy

    sizes = Domain() if domain is None else domain

    def of_atom(atom: Atom) -> Any:
        if atom.kind == SYMBOL:
            above = "positive" if sizes.range_of(atom.name).lo > 0 else "nonnegative"
            return sympy.Symbol(atom.name, integer=True, **{above: True})
        operands = [of_expr(operand) for operand in atom.args]
        if atom.kind == FLOORDIV:
            return sympy.floor(operands[0] / operands[1])
        if atom.kind == SCALED_FLOOR:
            decimals = [top.is_const and bottom.is_const for top, bottom in atom.factors]
            factors = [
                sympy.Rational(factor_text(top, bottom)) if decimal else operands[2 * k] / operands[2 * k + 1]
                for k, ((top, bottom), decimal) in enumerate(zip(atom.factors, decimals, strict=True))
            ]
            return _floor_f32()(*factors)
        return sympy.Max(*operands) if atom.kind == MAX else sympy.Min(*operands)

    def of_expr(value: Expr) -> Any:
        terms = (
            sympy.Mul(sympy.Integer(c), *(of_atom(atom) ** power for atom, power in mono))
            for mono, c in value.terms
        )
        return sympy.Add(*terms)

    return of_expr(Expr.lift(expr))


@lru_cache(maxsize=1)
def _floor_f32() -> Any:
    """The class of sympy's functions for the float32 floor of Resize."""
    import sympy

    def evaluated(_cls: Any, *factors: Any) -> Any:
        if not all(isinstance(factor, sympy.Rational) for factor in factors):
            return None
        value = scaled_floor(*((int(factor.p), int(factor.q)) for factor in factors))
        return sympy.Integer(value.as_int())

    methods = {"is_integer": True, "eval": classmethod(evaluated)}
    return type("floor_f32", (sympy.Function,), methods)
