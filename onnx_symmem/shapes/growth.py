"""How large an expression has grown: beyond some point a symbol with bounds says more, and faster."""

from __future__ import annotations

from functools import lru_cache

from onnx_symmem.expr.atom import Atom
from onnx_symmem.expr.expression import Expr

__all__ = ["MAX_DEPTH", "MAX_TERMS", "extent", "is_grown"]

MAX_TERMS = 48  # terms of an expression and of everything inside its atoms
EXTREMUM = 4  # what a maximum or minimum counts for
MAX_DEPTH = 8  # floor divisions, maxima ... inside one another
MAX_DEGREE = 64  # of a term; evaluating n**(2**40), which forty squarings make, would not end
MAX_BITS = 256  # of a coefficient; sizes that run have 63


@lru_cache(maxsize=1 << 16)
def extent(expr: Expr) -> tuple[int, int]:
    """(terms, depth) of an expression with everything inside it."""
    terms, depth = len(expr.terms), 0
    for mono, _ in expr.terms:
        for atom, _ in mono:
            if _is_scaled(atom):
                continue  # as good as a symbol: its bounds are all that is used of it
            # Reasoning about an extremum tries its operands one by one.
            terms += EXTREMUM if atom.kind in ("max", "min") else 0
            for inner in atom.args:
                more, deeper = extent(inner)
                terms, depth = terms + more, max(depth, deeper + 1)
    return terms, depth


def _is_scaled(atom: Atom) -> bool:
    """Whether the atom is a size scaled in float32, or the smallest or largest of several."""
    if atom.kind in ("max", "min"):
        operands = [operand.as_atom() for operand in atom.args]
        return all(operand is not None and operand.kind == "floor_f32" for operand in operands)
    return atom.kind == "floor_f32"


def is_grown(expr: Expr, max_terms: int = MAX_TERMS, max_depth: int = MAX_DEPTH) -> bool:
    """Whether the expression exceeds a limit."""
    terms, depth = extent(expr)
    return terms > max_terms or depth > max_depth or _is_huge(expr)


def _is_huge(expr: Expr) -> bool:
    """Whether a term has a power or a coefficient that no size has."""
    return any(
        c.bit_length() > MAX_BITS or sum(power for _, power in mono) > MAX_DEGREE for mono, c in expr.terms
    )
