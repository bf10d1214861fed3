"""Sizes that share a total, as experts share the tokens, and what an expression of them comes to at most."""

from __future__ import annotations

from collections.abc import Collection

from onnx_symmem.expr.atom import SYMBOL
from onnx_symmem.expr.domain import Domain
from onnx_symmem.expr.expression import ZERO, Expr

__all__ = ["competing", "shared_bounds"]


def competing(fact: Expr, names: Collection[str]) -> dict[str, int]:
    """Symbols x, and c, of which a fact takes c*x away and that it does not name elsewhere.

    None where the fact is about symbols that are not among `names`.
    """
    found = {}
    for mono, c in fact.terms if fact.symbols() <= set(names) else ():
        if c < 0 and len(mono) == 1 and mono[0][1] == 1 and mono[0][0].kind == SYMBOL:
            found[mono[0][0].name] = -c
    others = [mono for mono, _ in fact.terms if not (len(mono) == 1 and mono[0][0].name in found)]
    elsewhere = {name for mono in others for atom, _ in mono for name in atom.symbols()}
    return {name: c for name, c in found.items() if name not in elsewhere}


def shared_bounds(expr: Expr, fact: Expr, domain: Domain) -> tuple[Expr, ...]:
    """Expressions that `expr` is never above, by a fact total - x - y - .. >= 0 about symbols from 0 on.

    Of a*x + b*y at most p*(x + y) is paid out of the total, at a price p for all; what a symbol costs more
    stays. The best price is that of one of them (duality of linear programs).
    """
    shared = competing(fact, fact.symbols())
    costs: dict[str, int] = {}
    for mono, c in expr.terms:
        if len(mono) == 1 and mono[0][1] == 1 and mono[0][0].kind == SYMBOL and mono[0][0].name in shared:
            costs[mono[0][0].name] = c
    rest = expr - sum((Expr.symbol(name) * c for name, c in costs.items()), ZERO)
    alone = {n: c for n, c in costs.items() if c > 0 and n not in rest.symbols() and shared[n] == 1}
    if len(alone) < 2 or any(domain.range_of(name).lo < 0 for name in shared):
        return ()
    total = fact + sum((Expr.symbol(name) * c for name, c in shared.items()), ZERO)
    rest = expr - sum((Expr.symbol(name) * c for name, c in alone.items()), ZERO)
    return tuple(
        rest
        + total * price
        + sum((Expr.symbol(n) * (c - price) for n, c in alone.items() if c > price), ZERO)
        for price in sorted(set(alone.values()))
    )
