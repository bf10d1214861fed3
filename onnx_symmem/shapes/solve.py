"""Small exact solvers: what an equality or an inequality between sizes says about single symbols.

Only steps that keep equivalence are taken (for sizes that satisfy the stated side conditions); where no
step applies the answer is None and the fact stays a fact about expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import gcd, lcm

from onnx_symmem.expr.atom import FLOORDIV, MAX, MIN, SYMBOL
from onnx_symmem.expr.expression import Expr

__all__ = ["divisor_of", "elimination", "never_zero", "symbol_bound", "undivided", "without_common_factor"]

MAX_RESIDUES = 512
_K = "\0k"  # a symbol that no model can name


Bound = tuple[str, int | None, int | None]  # a symbol, the least and the most it may be


def symbol_bound(expr: Expr) -> Bound | None:
    """(symbol, lo, hi) equivalent to expr >= 0, where expr is monotone in one symbol by a chain of steps.

    k*atom + c >= 0 with k > 0 says atom >= ceil(-c/k); with k < 0, atom <= floor(c/-k); a floor division
    x//d (d > 0) is at least m where x >= d*m, and at most m where x <= d*m + d - 1. A maximum is at least m
    where one operand is, a minimum where all are.
    """
    found = _decided(expr)
    return None if isinstance(found, bool) else found


def _decided(expr: Expr) -> Bound | bool | None:
    """The bound that says expr >= 0, or whether that holds at every shape; None where neither is seen."""
    constant = expr.constant_term()
    rest = [(mono, c) for mono, c in expr.terms if mono]
    if not rest:
        return constant >= 0
    if len(rest) != 1 or len(rest[0][0]) != 1 or rest[0][0][0][1] != 1:
        return None
    atom, factor = rest[0][0][0][0], rest[0][1]
    least = factor > 0
    limit = -(constant // factor) if least else constant // -factor  # of the atom
    if atom.kind == SYMBOL:
        return (atom.name, limit, None) if least else (atom.name, None, limit)
    if atom.kind in (MAX, MIN):
        parts = [_decided(operand - limit if least else limit - operand) for operand in atom.args]
        return _any_bound(parts) if (atom.kind == MAX) == least else _all_bounds(parts)
    divisor = atom.args[1].as_int() if atom.kind == FLOORDIV else None
    if divisor is None or divisor <= 0:
        return None
    inner = atom.args[0]
    return _decided(inner - divisor * limit if least else divisor * limit + divisor - 1 - inner)


def _any_bound(parts: Sequence[Bound | bool | None]) -> Bound | bool | None:
    """What says that one of the parts holds."""
    if True in parts or None in parts:
        return True if True in parts else None
    return _merged([part for part in parts if not isinstance(part, bool)], min, max, otherwise=False)


def _all_bounds(parts: Sequence[Bound | bool | None]) -> Bound | bool | None:
    """What says that all parts hold."""
    if False in parts or None in parts:
        return False if False in parts else None
    return _merged([part for part in parts if not isinstance(part, bool)], max, min, otherwise=True)


def _merged(
    bounds: Sequence[Bound | None],
    low: Callable[[Iterable[int]], int],
    high: Callable[[Iterable[int]], int],
    otherwise: bool,
) -> Bound | bool | None:
    """Bounds of one symbol, all from below or all from above, as one."""
    if not bounds:
        return otherwise
    known = [bound for bound in bounds if bound is not None]
    names = {name for name, _, _ in known}
    lows = [lo for _, lo, _ in known if lo is not None]
    highs = [hi for _, _, hi in known if hi is not None]
    if len(names) != 1 or (lows and highs):
        return None
    return (known[0][0], low(lows), None) if lows else (known[0][0], None, high(highs))


def undivided(expr: Expr) -> list[Expr]:
    """Expressions that are all >= 0 exactly where expr is, without floors and extrema around them."""
    constant = expr.constant_term()
    rest = [(mono, c) for mono, c in expr.terms if mono]
    if len(rest) != 1 or len(rest[0][0]) != 1 or rest[0][0][0][1] != 1:
        return [expr]
    atom, factor = rest[0][0][0][0], rest[0][1]
    sign, extremum = (1, "min") if factor > 0 else (-1, "max")
    limit = -(constant // factor) if factor > 0 else constant // -factor  # what the atom may reach
    divisor = atom.args[1].as_int() if atom.kind == "floordiv" else None
    if divisor is not None and divisor > 0:
        within = divisor * limit if factor > 0 else divisor * limit + divisor - 1
        return undivided((atom.args[0] - within) * sign)
    if atom.kind == extremum:
        return [part for operand in atom.args for part in undivided((operand - limit) * sign)]
    return [(Expr.of(atom) - limit) * sign]


def without_common_factor(expr: Expr, positive: Callable[[Expr], bool]) -> Expr:
    """`expr` divided by all factors common to its terms that are never zero: equal to zero likewise."""
    if len(expr.terms) < 2:
        return expr
    common = dict(expr.terms[0][0])
    factor = 0
    for mono, c in expr.terms:
        powers = dict(mono)
        common = {a: min(p, powers[a]) for a, p in common.items() if a in powers}
        factor = gcd(factor, c)
    divisor = Expr.const(factor)
    for atom in sorted(common, key=lambda a: a.key):
        if positive(Expr.of(atom)):
            divisor = divisor * Expr.of(atom) ** common[atom]
    quotient = expr.exact_quotient(divisor)
    return expr if quotient is None else quotient


def never_zero(expr: Expr, nonneg: Callable[[Expr], bool]) -> bool:
    """Whether a size is proved not to be 0 at any shape: always above, always below, or by divisibility."""
    factor = 0
    for mono, c in expr.terms:
        factor = gcd(factor, c) if mono else factor
    if factor > 1 and expr.constant_term() % factor:
        return True
    return nonneg(expr - 1) or nonneg(-expr - 1)


def elimination(
    zero: Expr, fresh: Sequence[str], inputs: Sequence[str], positive: Callable[[Expr], bool]
) -> tuple[str, Expr] | None:
    """(symbol, expr) with symbol == expr wherever zero == 0, the symbol not occurring in expr.

    A fresh symbol s is solved from any single term c*s*m with m > 0, as an exact quotient. An input
    symbol has to stand alone with coefficient 1 or -1, and is never explained by fresh symbols; preferred
    is a solution without negative terms (a size plus a size, not a difference), then the later symbol.
    """
    counts: dict[str, int] = {}
    for mono, _ in zero.terms:
        for atom, _ in mono:
            for name in atom.symbols():
                counts[name] = counts.get(name, 0) + 1
    for name in reversed(fresh):
        if counts.get(name) == 1:
            solution = _from_term(zero, name, positive)
            if solution is not None:
                return name, solution
    rank = {name: k for k, name in enumerate(inputs)}
    found: list[tuple[bool, int, str, Expr]] = []
    for mono, c in zero.terms:
        if len(mono) != 1 or mono[0][1] != 1 or abs(c) != 1 or mono[0][0].name not in rank:
            continue
        name = mono[0][0].name
        solution = Expr.symbol(name) - zero * c
        if counts[name] == 1 and not solution.symbols() & frozenset(fresh):
            found.append((any(k < 0 for _, k in solution.terms), -rank[name], name, solution))
    if not found:
        return None
    _, _, name, solution = min(found, key=lambda item: item[:3])
    return name, solution


def _from_term(zero: Expr, name: str, positive: Callable[[Expr], bool]) -> Expr | None:
    """The symbol's value from the one term c*symbol*m of zero == 0."""
    for mono, c in zero.terms:
        powers = {atom.name: power for atom, power in mono if atom.kind == "symbol"}
        if powers.get(name) != 1:
            continue
        others = tuple((atom, power) for atom, power in mono if atom.kind != "symbol" or atom.name != name)
        cofactor = Expr({others: abs(c)})
        rest = zero - Expr({mono: c})
        if others and not positive(cofactor):
            return None
        return (rest if c < 0 else -rest) // cofactor
    return None


def divisor_of(zero: Expr) -> tuple[str, int] | None:
    """(symbol, d) where zero == 0 holds exactly for the multiples of d; `zero` has one symbol.

    With m the common multiple of all divisors, every floor division is linear on each residue class
    mod m, so the equation holds on all of a class, on none of it, or (then no answer) at single points.
    """
    names = sorted(zero.symbols())
    if len(names) != 1:
        return None
    period = _period(zero)
    if period is None or period > MAX_RESIDUES:
        return None
    k = Expr.symbol(_K)
    holds: list[int] = []
    for residue in range(period):
        value = zero.substitute({names[0]: k * period + residue})
        if not value.terms:
            holds.append(residue)
        elif value.as_int() is None:
            return None
    if not holds or len(holds) == period or period % len(holds):
        return None
    step = period // len(holds)
    return (names[0], step) if holds == list(range(0, period, step)) else None


def _period(expr: Expr) -> int | None:
    """Common multiple of the divisors of nested floor divisions; None where another atom occurs."""
    period = 1
    for mono, _ in expr.terms:
        for atom, power in mono:
            if power != 1 or len(mono) != 1:
                return None
            if atom.kind == "symbol":
                continue
            divisor = atom.args[1].as_int() if atom.kind == "floordiv" else None
            if divisor is None:
                return None
            inner = _period(atom.args[0])
            if inner is None:
                return None
            period = lcm(period, divisor * inner)
            if period > MAX_RESIDUES:
                return None
    return period
