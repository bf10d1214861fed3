"""A region on the way to a polynomial: its variables, what atoms are in them, and facts by substitution.

A fact x - e >= 0 makes x = e + x' with a new x' >= 0; e - x >= 0 makes x = x' * e with a real x' in 0..1; a
fact about one variable alone shrinks its range.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from onnx_symmem.expr.atom import SYMBOL, Atom, with_inner
from onnx_symmem.expr.expression import Expr
from onnx_symmem.expr.interval import Interval, Intervals, told_of
from onnx_symmem.expr.proof import Between, Empty, Lower, Proof, Tighten

__all__ = ["RegionState", "Step", "use_fact"]

_KEPT_WIDTHS = 256  # widths of variables whose bounds are kept
_KEPT_IMAGES = 4096

Step = Callable[[Proof], Proof]


@dataclass(frozen=True, slots=True)
class RegionState:
    """Variables in 0..width, None without end; `used` are indices of facts that are spent."""

    images: Mapping[Atom, Expr]  # atoms of the basis, in variables
    values: Mapping[str, Expr]  # symbols, in variables
    widths: Mapping[str, int | None]
    reals: frozenset[str]
    facts: tuple[Expr, ...]
    used: frozenset[int] = frozenset()

    def put(self, name: str, value: Expr, width: int | None, real: bool = False) -> RegionState:
        """The state with a variable replaced by an expression of variables."""
        return replace(
            self,
            images={a: _put(e, name, value) for a, e in self.images.items()},
            values={n: _put(e, name, value) for n, e in self.values.items()},
            widths={**self.widths, name: width},
            reals=self.reals | {name} if real else self.reals,
            facts=tuple(_put(fact, name, value) for fact in self.facts),
        )

    def intervals(self) -> Intervals:
        """Bounds of expressions of the variables."""
        return _intervals_within(frozenset(self.widths.items()), tuple(told_of(self.facts).items()))

    def others(self) -> list[Atom]:
        """Atoms that are not symbols, those inside of others included, in a fixed order."""
        inside = with_inner(atom for image in self.images.values() for atom in image.atoms())
        found = [atom for atom in inside if atom.kind != SYMBOL]
        return sorted(found, key=lambda a: (-len(a.key[1]), a.key))


# Sets of atoms that share symbols take the same facts to the same expressions and widths.
@lru_cache(maxsize=_KEPT_IMAGES)
def _put(expr: Expr, name: str, value: Expr) -> Expr:
    return expr.substitute({name: value})


@lru_cache(maxsize=_KEPT_WIDTHS)
def _intervals_within(
    items: frozenset[tuple[str, int | None]], told: tuple[tuple[Atom, Interval], ...]
) -> Intervals:
    """Bounds by the widths of variables, and by what facts tell of atoms."""
    widths = dict(items)
    return Intervals(lambda name: (0, widths[name]), dict(told))


def use_fact(state: RegionState, prefer_integers: bool) -> tuple[Step, RegionState | None] | None:
    """A step that uses one more fact and the state after it (None: no point is legal), if any does."""
    intervals = state.intervals()
    for i, fact in enumerate(state.facts):
        if i in state.used or fact.symbols() & state.reals:
            continue
        low, high = intervals.of(fact)
        if high is not None and high < 0:
            return partial(_nowhere, i), None
        if low is not None and low >= 0:
            continue
        found = _best_use(state, i, intervals, prefer_integers)
        if found is not None:
            return found
    return None


def _nowhere(fact: int, _: Proof) -> Proof:
    return Empty(fact)


def _best_use(
    state: RegionState, i: int, intervals: Intervals, prefer_integers: bool
) -> tuple[Step, RegionState | None] | None:
    fact = state.facts[i]
    uses: list[tuple[int, str, bool, Expr, int | None]] = []
    for mono, c in fact.terms:
        if len(mono) != 1 or mono[0][1] != 1 or mono[0][0].kind != SYMBOL:
            continue
        name = mono[0][0].name
        rest = fact - c * Expr.symbol(name)
        if name in rest.symbols():
            continue
        if (k := rest.as_int()) is not None:
            return _tightened(state, i, name, c, k)
        width = state.widths[name]
        least = intervals.of(-rest)[0]
        if c == 1 and (width is None or least is not None):
            rank = 0 if width is None else 2
            if least is None or least < 0:
                rank = 1 if prefer_integers and width is None else 5  # x >= 0 is lost
            new_width = None if width is None or least is None else max(0, width - least)
            uses.append((rank, name, True, -rest, new_width))
        if c == -1 and not _inside(state, name):
            uses.append((3 if width is None else 4, name, False, rest, 1))
    if not uses:
        return None
    _, name, is_lower, limit, new_width = min(uses, key=lambda use: use[:2])
    variable = Expr.symbol(name)
    if is_lower:
        following = state.put(name, limit + variable, new_width)
        return (lambda child: Lower(i, name, child)), replace(following, used=state.used | {i})
    following = state.put(name, limit * variable, 1, real=True)
    return (lambda child: Between(i, name, child)), replace(following, used=state.used | {i})


def _tightened(state: RegionState, i: int, name: str, c: int, k: int) -> tuple[Step, RegionState | None]:
    width = state.widths[name]
    low, high = (max(0, -(k // c)), width) if c > 0 else (0, k // -c)
    if width is not None and high is not None:
        high = min(high, width)
    empty = high is not None and high < low
    following = state.put(name, Expr.symbol(name) + low, None if high is None else high - low)
    following = replace(following, used=state.used | {i})
    return (lambda child: Tighten(i, name, child)), None if empty else following


def _inside(state: RegionState, name: str) -> bool:
    """Whether a variable occurs inside of an atom that is no symbol."""
    exprs = (*state.images.values(), *state.facts)
    return any(name in a.symbols() for expr in exprs for a in expr.atoms() if a.kind != SYMBOL)
