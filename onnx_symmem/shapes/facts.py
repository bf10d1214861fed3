"""What inference knows while it runs: the caller's domain, narrowed by what every run entails."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import islice

from onnx_symmem.errors import DomainError
from onnx_symmem.expr.atom import MAX, SYMBOL
from onnx_symmem.expr.domain import Domain, SymbolRange
from onnx_symmem.expr.expression import ZERO, Expr
from onnx_symmem.shapes.forms import as_ceilings, as_extremum, with_divisors, without_presence
from onnx_symmem.shapes.growth import is_grown
from onnx_symmem.shapes.solve import (
    divisor_of,
    elimination,
    never_zero,
    symbol_bound,
    undivided,
    without_common_factor,
)
from onnx_symmem.shapes.table import Limit

__all__ = ["Facts", "FactsMark", "strongest"]

FEW = 64  # sizes below a floor that are looked at one by one
TREATABLE = (28, 4)  # (terms, depth) of an expression up to which questions about it are worth their time

FactsMark = tuple[Domain, int, tuple[str, ...], int, dict[object, tuple[Expr, tuple[str, ...]]]]
"""A point of `Facts`: its domain, how many symbols and which ones wait, limits, sizes that are apart."""


class Facts:
    """A domain that grows: fresh symbols, limits and equalities are added, questions are answered.

    Answers stay valid when facts are added (facts only narrow); cached simplifications are dropped when
    a symbol in use becomes narrower, because better ones may then exist. Fresh symbols join the domain
    when more than their own bound is known of them; until then a question about some of them is asked of
    a domain with just these, so that a model may have thousands.
    """

    def __init__(self, domain: Domain, input_symbols: tuple[str, ...] = ()) -> None:
        self._given = domain
        self._domain = domain
        self._inputs = input_symbols
        self._fresh: dict[str, tuple[SymbolRange, Expr | None]] = {}
        self._waiting: dict[str, None] = {}
        self._apart: dict[object, tuple[Expr, tuple[str, ...]]] = {}
        self._group: dict[str, object] = {}  # symbol: its key in there
        self._views: dict[frozenset[str], Domain] = {}
        self._simplified: dict[Expr, Expr] = {}
        self._bounds: dict[Expr, tuple[int | None, int | None]] = {}
        self._divisors = _divisors_of(domain)
        self.limits: list[Limit] = []

    def has_grown(self) -> bool:
        """Whether anything about the caller's symbols was learnt."""
        return self.about_inputs()[0] != self._given

    @property
    def domain(self) -> Domain:
        """The domain with everything added so far."""
        if self._waiting:
            self._join(tuple(self._waiting))
        return self._domain

    def _with(self, names: Collection[str]) -> Domain:
        """The domain and what is known of some fresh symbols that have not joined it."""
        ranges, bounds = dict(self._domain.ranges), list(self._domain.inequalities)
        for name in names:
            allowed, bound = self._fresh[name]
            ranges[name] = allowed
            if bound is not None and not bound.is_const:
                bounds.append(bound - Expr.symbol(name))
        for key in dict.fromkeys(self._group[name] for name in names if name in self._group):
            most, members = self._apart[key]
            before = [n for n in members if n in self._domain.ranges]
            now = [n for n in members if n in ranges]
            if len(before) > 1 and len(now) > len(before):
                bounds = [b for b in bounds if b != _rest(most, before)]
            if len(now) > 1:
                bounds.append(_rest(most, now))
        return Domain(ranges, self._domain.equalities, tuple(bounds))

    def _join(self, names: Iterable[str]) -> None:
        names = [name for name in names if name in self._waiting]
        if names:
            self._domain = self._with(names)
            for name in names:
                del self._waiting[name]
            self._views.clear()

    def _closure(self, expr: Expr) -> tuple[str, ...]:
        """Waiting symbols of an expression, of their bounds, and so on; in order of their making."""
        found: set[str] = set()
        stack = [name for name in expr.symbols() if name in self._waiting]
        while stack:
            name = stack.pop()
            if name not in found:
                found.add(name)
                bound = self._fresh[name][1]
                stack.extend(n for n in (bound.symbols() if bound is not None else ()) if n in self._waiting)
        return tuple(name for name in self._waiting if name in found) if found else ()

    def _for(self, expr: Expr) -> Domain:
        if not self._waiting or not expr.symbols() & self._waiting.keys():
            return self._domain
        names = self._closure(expr)
        key = frozenset(names)
        found = self._views.get(key)
        if found is None:
            found = self._views[key] = self._with(names)
        return found

    def mark(self) -> FactsMark:
        """A point to return to with `reset`."""
        return self._domain, len(self._fresh), tuple(self._waiting), len(self.limits), dict(self._apart)

    def reset(self, mark: FactsMark) -> None:
        """Forget what was added since the mark."""
        self._domain, count, waiting, limits, apart = mark
        self._apart = dict(apart)
        self._group = {name: key for key, (_, names) in apart.items() for name in names}
        self._fresh = dict(islice(self._fresh.items(), count))
        self._waiting = dict.fromkeys(waiting)
        del self.limits[limits:]
        self._forget()

    def _forget(self) -> None:
        self._divisors = _divisors_of(self._domain)
        self._views.clear()
        self._simplified.clear()
        self._bounds.clear()

    # -- questions ---------------------------------------------------------------------------------
    def simplify(self, expr: Expr) -> Expr:
        """The expression with equalities applied and decided extrema resolved."""
        if expr.is_const:
            return expr
        found = self._simplified.get(expr)
        if found is None:
            if is_grown(expr, *TREATABLE):
                return expr
            found = self._form(self._for(expr).simplify(expr))
            self._simplified[expr] = self._simplified[found] = found
        return found

    def _form(self, expr: Expr) -> Expr:
        """The one form of an expression that could be written in several."""
        if all(atom.kind == SYMBOL for mono, _ in expr.terms for atom, _ in mono):
            return expr
        if self._divisors:
            divisors = {n: d for n, d in self._divisors.items() if n in expr.symbols()}
            if divisors:
                expr = with_divisors(expr, divisors)
        return as_extremum(as_ceilings(without_presence(expr, lambda e: self.at_least(e, 0))))

    def bounds(self, expr: Expr) -> tuple[int | None, int | None]:
        """An interval that holds all values, None where unbounded."""
        value = expr.as_int()
        if value is not None:
            return value, value
        found = self._bounds.get(expr)
        if found is None:
            if is_grown(expr, *TREATABLE):
                return None, None
            found = self._bounds[expr] = self._for(expr).bounds(expr)
        return found

    def at_least(self, expr: Expr, least: int) -> bool:
        """Whether expr >= least is proved."""
        lo, _ = self.bounds(expr)
        if lo is not None and lo >= least:
            return True
        if expr.is_const or is_grown(expr, *TREATABLE):
            return False
        return self._for(expr).nonneg(expr - least) or self._at_least_an_operand(expr, least)

    def differ(self, left: Expr, right: Expr) -> bool:
        """Whether two sizes are proved to differ at every shape."""
        return never_zero(self.simplify(left - right), lambda e: self.at_least(e, 0))

    def is_asked_for(self, expr: Expr, size: int) -> bool:
        """Whether the expression may reach a size by the caller's own domain, or by what is in the data."""
        if expr.symbols() & self._fresh.keys():
            return True
        _, hi = self._given.bounds(self._given.simplify(expr))
        return hi is not None and hi >= size

    def _at_least_an_operand(self, expr: Expr, least: int) -> bool:
        """c*max(a, ..) >= c*a and -c*min(a, ..) >= -c*a: one operand may prove it."""
        for mono, c in expr.terms:
            if len(mono) != 1 or mono[0][1] != 1 or mono[0][0].kind != ("max" if c > 0 else "min"):
                continue
            atom = mono[0][0]
            rest = expr - Expr.of(atom) * c
            return any(self.at_least(rest + operand * c, least) for operand in atom.args)
        return False

    # -- additions ---------------------------------------------------------------------------------
    def declare(self, name: str, lo: int, bound: Expr | None) -> None:
        """Add a fresh symbol of values from `lo` to `bound`."""
        constant = bound.as_int() if bound is not None else None
        self._fresh[name] = SymbolRange(lo, None if constant is None else max(constant, lo)), bound
        self._waiting[name] = None

    def apart(self, key: object, size: Expr, most: Expr) -> None:
        """Sizes with one key add up to at most `most`; of interest where they are fresh symbols."""
        atom = size.as_atom()
        if atom is None or atom.name not in self._waiting or atom.name in self._group:
            return
        self._group[atom.name] = key
        self._apart[key] = most, (*self._apart.get(key, (most, ()))[1], atom.name)
        self._views.clear()

    def require_nonneg(self, expr: Expr, node: str, reason: str) -> None:
        """expr >= 0 in every run: note the limit and narrow the domain, unless it was known already."""
        expr = self.simplify(expr)
        if expr.is_const or expr in self._domain.inequalities or self.at_least(expr, 0):
            return
        self._join(self._closure(expr))
        single = symbol_bound(expr)
        parts = undivided(expr) if single is None else [expr]
        if parts != [expr]:
            for part in parts:
                self.require_nonneg(part, node, reason)
            return
        try:
            if single is None:
                self._domain = self._domain.with_inequality(expr)
                self.limits.append(Limit(expr, node, reason))
            else:
                name, lo, hi = single
                self._narrow(name, self._domain.range_of(name).meet(lo, hi))
                self.limits.append(Limit(expr, node, reason, name, lo, hi))
        except DomainError:
            # No shape of the caller's domain gets through the node; the result holds for all of none.
            self.limits.append(Limit(expr, node, f"{reason} (never met in the given domain)"))
            return
        self._forget()

    def _narrow(self, name: str, to: SymbolRange) -> None:
        self._domain = self._domain.with_ranges({name: to})

    def require_equal(self, left: Expr, right: Expr, node: str, reason: str) -> bool:
        """left == right in every run; whether that came to limits of single symbols, which are then noted."""
        zero = without_common_factor(self.simplify(left - right), lambda e: self.at_least(e, 1))
        if zero.is_const:
            return False
        self._join(self._closure(zero))
        zero = self._above_floors(zero, node, reason)
        if zero.is_const:
            return False
        for a, b in ((left, right), (right, left)):
            atom = b.as_atom()
            if atom is not None and atom.kind == "min" and a in atom.args:
                for other in atom.args:
                    self.require_nonneg(other - a, node, reason)
                return True
        solved = elimination(zero, tuple(self._fresh), self._inputs, lambda e: self.at_least(e, 1))
        multiple = self._multiple(zero) if solved is None else None
        try:
            if solved is not None:
                self._domain = self._domain.with_equality(*solved)
            elif multiple is not None:
                name, divisor = multiple
                self._narrow(name, replace(self._domain.range_of(name), divisor=divisor))
                self.limits.append(Limit(zero, node, reason, name, divisor=divisor))
            else:
                self._domain = self._domain.with_equal(zero, 0)
        except DomainError:
            self.limits.append(Limit(-zero, node, f"{reason} (never met in the given domain)"))
        self._forget()
        return multiple is not None

    def _above_floors(self, zero: Expr, node: str, reason: str) -> Expr:
        """zero == 0 with max(c, x) as x, where no size at which x < c makes it 0: those are excluded.

        2*max(1, s//2) == s holds for no s < 2, so it says that s is at least 2, and even.
        """
        for atom in sorted(zero.atoms(), key=lambda a: a.key):
            if atom.kind != MAX or len(atom.args) != 2:
                continue
            for x, floor in (atom.args, atom.args[::-1]):
                least = self.bounds(floor)[1]
                below = None if least is None else symbol_bound(Expr.const(least - 1) - x)
                if least is None or below is None or below[2] is None:
                    continue
                allowed = self._domain.range_of(below[0])
                sizes = range(allowed.lo, below[2] + 1, allowed.divisor)
                if len(sizes) <= FEW and all(self._never_zero(zero, below[0], k) for k in sizes):
                    self.require_nonneg(x - least, node, reason)
                    zero = without_common_factor(self.simplify(zero), lambda e: self.at_least(e, 1))
                    break
        return zero

    def _never_zero(self, zero: Expr, name: str, size: int) -> bool:
        return self.differ(zero.substitute({name: size}), ZERO)

    def _multiple(self, zero: Expr) -> tuple[str, int] | None:
        """(symbol, d) where zero == 0 makes the symbol a multiple of d, given the divisor known before."""
        parts = {n: Expr.symbol(n) * d for n, d in self._divisors.items() if n in zero.symbols()}
        found = divisor_of(zero.substitute(parts))
        return None if found is None else (found[0], found[1] * self._divisors.get(found[0], 1))

    def about_inputs(self) -> tuple[Domain, list[Limit]]:
        """The domain and the limits without what concerns fresh symbols."""
        fresh = frozenset(self._fresh)
        domain = self._domain
        kept = Domain(
            {name: r for name, r in domain.ranges.items() if name not in fresh},
            {n: e for n, e in domain.equalities.items() if n not in fresh and not e.symbols() & fresh},
            tuple(i for i in domain.inequalities if not i.symbols() & fresh),
        )
        return kept, [limit for limit in self.limits if not limit.expr.symbols() & fresh]


def _divisors_of(domain: Domain) -> dict[str, int]:
    """Symbols that are known to be multiples of more than 1."""
    return {
        name: r.divisor
        for name, r in domain.ranges.items()
        if r.divisor > 1 and name not in domain.equalities
    }


def _rest(most: Expr, names: Iterable[str]) -> Expr:
    """What is left of `most` without the sizes of some symbols."""
    return most - sum((Expr.symbol(name) for name in names), ZERO)


def strongest(limits: Sequence[Limit]) -> tuple[Limit, ...]:
    """Limits without those of a single symbol that a later one of the same kind implies."""
    kept: dict[object, Limit] = {}
    for limit in limits:
        if not limit.symbol:
            kept[limit.expr] = limit
            continue
        kind = "divisor" if limit.divisor != 1 else "hi" if limit.lo is None else "lo"
        kept[limit.symbol, kind] = limit
    return tuple(kept.values())
