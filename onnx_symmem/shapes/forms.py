"""One form for a size that can be written in several, so that equal dims also look equal.

ONNX Runtime takes two dims for equal only where their texts are, and so do readers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from onnx_symmem.expr.atom import FLOORDIV, MAX, MIN, SYMBOL, Atom, Monomial
from onnx_symmem.expr.expression import Expr, maximum, minimum

__all__ = ["as_ceilings", "as_extremum", "with_divisors", "without_presence"]


def as_ceilings(expr: Expr) -> Expr:
    """Floor divisions that stand for rounding up, written as such.

    (a*x + r)//d = x - ((d-a)*x - r + d - 1)//d: of the two the one with the smaller coefficient is kept, so
    7*x - 7*((6*x)//7), what Mod leads to, becomes 7*((x + 6)//7); and then the other one wherever that
    shortens the expression: (3*x)//5 is not x - (2*x + 4)//5. Likewise n - n//2 becomes (n + 1)//2.
    """
    atoms = expr.atoms()
    if all(atom.kind != FLOORDIV for atom in atoms):
        return expr
    if any(_flips(atom) for atom in atoms):
        expr = expr.map_atoms(lambda atom: _flipped(atom) if _flips(atom) else Expr.of(atom))
    for atom in _in_order(expr):
        if _flips(atom, back=True):
            changed = _replaced(expr, atom, _flipped(atom))
            if len(changed.terms) < len(expr.terms):
                expr = changed
    for atom in _in_order(expr):
        if atom.kind == FLOORDIV and atom.args[1] == 2:
            changed = _replaced(expr, atom, atom.args[0] - (atom.args[0] + 1) // 2)
            if len(changed.terms) < len(expr.terms):
                expr = changed
    return expr


def without_presence(expr: Expr, nonneg: Callable[[Expr], bool]) -> Expr:
    """x*min(1, x)**k as x, for x >= 0: what broadcasts say of a dim that may be 0, said once."""
    found = {a: _present(a) for a in expr.atoms() if a.kind == MIN}
    found = {atom: x for atom, x in found.items() if x is not None and nonneg(x)}
    if not found:
        return expr
    total = Expr.const(0)
    for mono, c in expr.terms:
        here = {Expr.of(atom) for atom, _ in mono}
        kept = ((a, 1 if a in found else power) for a, power in mono if found.get(a) not in here)
        total = total + Expr({tuple(kept): c})
    return total


def _present(atom: Atom) -> Expr | None:
    """x of min(1, x)."""
    if len(atom.args) != 2 or 1 not in (atom.args[0], atom.args[1]):
        return None
    return atom.args[1] if atom.args[0] == 1 else atom.args[0]


def as_extremum(expr: Expr) -> Expr:
    """x - max(0, x - n) as min(x, n), and the like: a sum goes into its extremum where that is shorter."""
    for atom in _in_order(expr):
        if atom.kind not in (MAX, MIN):
            continue
        rest = expr - Expr.of(atom)
        if len(rest.terms) < len(expr.terms):
            operands = [rest + operand for operand in atom.args]
            pick = maximum if atom.kind == MAX else minimum
        else:
            rest = expr + Expr.of(atom)
            if len(rest.terms) >= len(expr.terms):
                continue
            operands = [rest - operand for operand in atom.args]
            pick = minimum if atom.kind == MAX else maximum
        before = len(rest.terms) + sum(len(a.terms) for a in atom.args)
        if rest.terms and sum(len(o.terms) for o in operands) < before:
            return pick(*operands)
    return expr


def _in_order(expr: Expr) -> list[Atom]:
    return sorted(expr.atoms(), key=lambda a: a.key)


def _replaced(expr: Expr, atom: Atom, value: Expr) -> Expr:
    return expr.map_atoms(lambda a: value if a == atom else Expr.of(a))


def _flips(atom: Atom, back: bool = False) -> bool:
    divisor = atom.args[1].as_int() if atom.kind == FLOORDIV else None
    if divisor is None:
        return False
    terms = [(mono, c) for mono, c in atom.args[0].terms if mono]
    if len(terms) != 1 or not 0 < terms[0][1] < divisor:
        return False
    return 2 * terms[0][1] < divisor if back else 2 * terms[0][1] > divisor


def _flipped(atom: Atom) -> Expr:
    divisor = atom.args[1].as_int() or 1
    ((mono, c),) = [(mono, c) for mono, c in atom.args[0].terms if mono]
    whole = Expr({mono: 1})
    rest = atom.args[0].constant_term()
    return whole - (whole * (divisor - c) - rest + divisor - 1) // divisor


def with_divisors(expr: Expr, divisors: Mapping[str, int]) -> Expr:
    """The form of an expression whose symbols s are multiples of given d: 2*(s//8), (s + 3)//4 -> s//4.

    With s = d*t every size is an expression of t in one form. Written back, the integer factors of a term
    are dealt out to its symbols in turn: 4*t*u, for d = 8 both, is (s//4)*(v//4).
    """
    parts = {name: Expr.symbol(name) * d for name, d in divisors.items()}
    return _written_back(expr.substitute(parts), divisors)


def _written_back(scaled: Expr, divisors: Mapping[str, int]) -> Expr:
    total = Expr.const(0)
    for mono, c in scaled.terms:
        total = total + _term(mono, c, divisors)
    return total


def _term(mono: Monomial, c: int, divisors: Mapping[str, int]) -> Expr:
    powers = [(atom, power) for atom, power in mono if atom.kind == SYMBOL and atom.name in divisors]
    left, sign = abs(c), 1 if c > 0 else -1
    below = [divisors[atom.name] for atom, _ in powers]  # what is still divided by
    for prime in _primes(below):
        moved = True
        while moved:
            moved = False
            for k, (_, power) in enumerate(powers):
                if below[k] % prime == 0 and left % prime**power == 0:
                    below[k] //= prime
                    left //= prime**power
                    moved = True
    result = Expr.const(sign * left)
    for (atom, power), divisor in zip(powers, below, strict=True):
        result = result * (Expr.of(atom) // divisor) ** power
    for atom, power in mono:
        if atom.kind != SYMBOL:
            back = {n: Expr.symbol(n) // d for n, d in divisors.items()}
            result = result * Expr.of(atom).substitute(back) ** power
        elif atom.name not in divisors:
            result = result * Expr.of(atom) ** power
    return result


def _primes(numbers: list[int]) -> list[int]:
    found: list[int] = []
    for number in numbers:
        factor = 2
        while factor * factor <= number:
            while number % factor == 0:
                found.append(factor)
                number //= factor
            factor += 1
        if number > 1:
            found.append(number)
    return sorted(set(found))
