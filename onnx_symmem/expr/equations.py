"""Equations between expressions, brought to the form `eliminated symbol = expression of free symbols`.

An equation is solved for a symbol that occurs once, linearly, with a constant factor. A factor other
than one makes the other side divisible. An equation that cannot be solved becomes two inequalities.
"""

from __future__ import annotations

from math import gcd, lcm

from onnx_symmem.errors import DomainError
from onnx_symmem.expr.atom import SYMBOL, Atom, Monomial
from onnx_symmem.expr.expression import Expr
from onnx_symmem.expr.ranges import ANY_SIZE, SymbolRange

__all__ = ["Equations", "primitive"]


class Equations:
    """Equations over symbols, brought to the form `eliminated symbol = expression of free symbols`."""

    def __init__(
        self, ranges: dict[str, SymbolRange], inequalities: list[Expr], solved: dict[str, Expr] | None = None
    ) -> None:
        self.ranges = ranges
        self.inequalities = inequalities
        self.solved: dict[str, Expr] = {} if solved is None else solved

    def equate(self, left: Expr, right: Expr, prefer: str | None) -> None:
        """Add left == right; `prefer` is the symbol to eliminate if that is possible."""
        difference = primitive((left - right).substitute(self.solved))
        if not difference.terms:
            return
        if difference.is_const:
            raise DomainError(f"{left} = {right}: contradicts what is known of their symbols")
        difference = self._without_common_factor(difference)
        if not self._eliminate(difference, prefer):
            self.inequalities += [difference, -difference]

    def _eliminate(self, difference: Expr, prefer: str | None) -> bool:
        """Solve difference == 0 for a symbol that occurs once, linearly, with a constant factor."""
        counts: dict[str, int] = {}
        for mono, _ in difference.terms:
            for atom, _ in mono:
                for name in atom.symbols():
                    counts[name] = counts.get(name, 0) + 1
        candidates: list[tuple[bool, bool, int, str, Expr]] = []
        for mono, c in difference.terms:
            if len(mono) != 1 or mono[0][1] != 1 or mono[0][0].kind != SYMBOL:
                continue
            name = mono[0][0].name
            if counts[name] == 1:
                rest = Expr({m: (-k if c > 0 else k) for m, k in difference.terms if m != mono})
                # A sum of positive terms keeps the eliminated symbol positive without a further fact.
                mixed = any(k < 0 for m, k in rest.terms)
                candidates.append((name != prefer, mixed, abs(c), name, rest))
        if not candidates:
            return False
        _, _, factor, name, rest = min(candidates, key=lambda item: item[:4])
        if factor > 1:
            rest = self._divisible(rest, factor)
        self.solved = {n: e.substitute({name: rest}) for n, e in self.solved.items()}
        self.solved[name] = rest
        return True

    def _divisible(self, expr: Expr, factor: int) -> Expr:
        """expr // factor, recording that nothing is left over."""
        if len(expr.terms) == 1:
            mono, c = expr.terms[0]
            if len(mono) == 1 and mono[0][1] == 1 and mono[0][0].kind == SYMBOL:
                name, need = mono[0][0].name, factor // gcd(factor, c)
                old = self.ranges.get(name, ANY_SIZE)
                self.ranges[name] = SymbolRange(old.lo, old.hi, lcm(old.divisor, need))
                return expr // factor
        self.inequalities.append(-(expr % factor))
        return expr // factor

    def _without_common_factor(self, difference: Expr) -> Expr:
        """Cancel symbols that divide every term and are never 0."""
        common: dict[Atom, int] = dict(difference.terms[0][0])
        for mono, _ in difference.terms[1:]:
            powers = dict(mono)
            common = {a: min(p, powers[a]) for a, p in common.items() if a in powers}
        positive: Monomial = tuple(
            (a, p) for a, p in common.items() if a.kind == SYMBOL and self.ranges.get(a.name, ANY_SIZE).lo > 0
        )
        if not positive:
            return difference
        return difference.exact_quotient(Expr({positive: 1})) or difference

    def settled_inequalities(self) -> tuple[Expr, ...]:
        """The inequalities over free symbols, without repetition and without what always holds."""
        settled: dict[Expr, None] = {}
        for inequality in self.inequalities:
            expr = primitive(inequality.substitute(self.solved))
            value = expr.as_int()
            if value is None:
                settled[expr] = None
            elif value < 0:
                raise DomainError(f"no shape is legal: {inequality} >= 0 never holds")
        return tuple(sorted(settled, key=Expr.sort_key))


def primitive(expr: Expr) -> Expr:
    """The expression divided by the common factor of its coefficients; the sign at legal shapes stays."""
    common = gcd(*(c for _, c in expr.terms))
    return Expr({m: c // common for m, c in expr.terms}) if common > 1 else expr
