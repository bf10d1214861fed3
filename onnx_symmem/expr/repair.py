"""From wanted sizes to a legal shape: broken facts are mended one at a time, by moving one symbol each.

A fact g*x + e >= 0 moves x to the nearest size that keeps it. Of several such symbols the one that stands
alone on its side goes first, since the others determine it: `past + seq <= total` moves total. A symbol that
has been moved goes after those that have not, and one whose range ends too early is passed over. An equation,
g*x + e == 0, is solved for x; where that leaves a fraction, another symbol takes near sizes until it fits.
Where no symbol suffices alone, as of sizes that add up to too much, they go to the ends of their ranges one
by one. Facts without such a symbol, as ties of floor divisions are, move one to where their sign changes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnx_symmem.errors import ExpressionError
from onnx_symmem.expr.atom import SYMBOL, Atom
from onnx_symmem.expr.expression import Expr

if TYPE_CHECKING:
    from onnx_symmem.expr.domain import Domain

__all__ = ["Repair"]

_NEAR = 64  # steps in both directions
_DOUBLINGS = 40
_WORK = 30_000  # sizes that are tried step by step, for all shapes together


Shape = Mapping[str, int]
_Move = tuple[str, Expr, Expr]  # (x, g, e): a fact is g*x + e


@dataclass(frozen=True, slots=True)
class _Fact:
    expr: Expr  # >= 0; == 0 if it is a tie
    tie: bool
    symbols: tuple[str, ...]  # the last name first
    moves: tuple[_Move, ...]  # the dependent symbol first

    def holds(self, shape: Shape) -> bool:
        """Whether the shape keeps it."""
        value = self.expr.evaluate(shape)
        return value == 0 if self.tie else value >= 0


class Repair:
    """Mends shapes over `names`, free symbols of a domain; those of `fixed` never move."""

    def __init__(self, domain: Domain, names: Sequence[str], fixed: Collection[str] = ()) -> None:
        self.domain = domain
        self.ranges = {name: domain.range_of(name) for name in names}
        known = self.ranges.keys()
        facts = {fact: None for fact in domain.facts() if fact.symbols() <= known}
        self.facts: list[_Fact] = []
        for expr in list(facts):
            if expr in facts:
                tie = -expr in facts
                facts.pop(-expr, None)
                self.facts.append(_fact(expr, tie, fixed))
        self.fixed = frozenset(fixed)
        self.work = _WORK
        self.of: dict[str, list[int]] = {name: [] for name in names}
        for i, fact in enumerate(self.facts):
            for name in fact.symbols:
                self.of[name].append(i)

    def legal(self, wanted: Shape) -> dict[str, int] | None:
        """The wanted shape, moved until it is legal, and completed; None where that fails."""
        shape = {name: self._within(name, size) for name, size in wanted.items()}
        try:
            return self._complete(shape) if self._mended(shape) else None
        except ExpressionError:  # a size that is divided by is zero
            return None

    def _mended(self, shape: dict[str, int]) -> bool:
        """Move sizes until no fact is broken; whether that came to an end."""
        pending = deque(range(len(self.facts)))
        moved = dict.fromkeys(shape, 0)
        left = 4 * len(self.facts) + 16
        while pending:
            fact = self.facts[pending.popleft()]
            if fact.holds(shape):
                continue
            changes = self._changes(fact, shape, moved)
            if changes is None or left == 0:
                return False
            left -= 1
            for name in changes:
                shape[name] = changes[name]
                moved[name] += 1
                pending.extend(i for i in self.of[name] if i not in pending)
        return True

    def _changes(self, fact: _Fact, shape: Shape, moved: Shape) -> Shape | None:
        """New sizes of one symbol or two that mend a fact."""
        moves = sorted(fact.moves, key=lambda move: moved[move[0]])
        for move in moves:
            size = self._solved(fact, move, shape)
            if size is not None:
                return {move[0]: size}
        names = [n for n in sorted(fact.symbols, key=lambda name: moved[name]) if n not in self.fixed]
        solved = {move[0] for move in moves}
        for name in (n for n in names if n not in solved):
            at = shape[name]
            tried = (self._around(name, centre) for centre in (*self._crossings(fact, name, shape), at))
            kept = [next((s for s in sizes if fact.holds({**shape, name: s})), None) for sizes in tried]
            sizes = [size for size in kept if size is not None]
            if sizes:
                return {name: min(sizes, key=lambda size: (abs(size - at), size))}
        if not fact.tie:
            return self._nearer(moves, shape)
        for name, move in ((name, move) for name in names for move in moves if name != move[0]):
            for near in self._around(name, shape[name]):
                size = self._solved(fact, move, {**shape, name: near})
                if size is not None:
                    return {name: near, move[0]: size}
        return None

    def _nearer(self, moves: Sequence[_Move], shape: Shape) -> Shape | None:
        """The end of a symbol's range that makes the most of a fact that no symbol mends alone."""
        for name, factor, _ in moves:
            c, allowed = factor.evaluate(shape), self.ranges[name]
            end = allowed.lo if c < 0 else shape[name] if allowed.hi is None else allowed.hi
            if c and end != shape[name]:
                return {name: end}
        return None

    def _solved(self, fact: _Fact, move: _Move, shape: Shape) -> int | None:
        """The size of the symbol of a move with which a fact holds, nearest to where it does not."""
        name, factor, rest = move
        c, limit = factor.evaluate(shape), -rest.evaluate(shape)
        if c == 0 or (fact.tie and limit % c):
            return None
        size = self._within(name, -(-limit // c), up=True) if c > 0 else self._within(name, limit // c)
        return size if c * size == limit or (c * size > limit and not fact.tie) else None

    def _crossings(self, fact: _Fact, name: str, shape: Shape) -> Iterator[int]:
        """Sizes of a symbol, above and below, at which the sign of a fact's expression changes."""
        step = self.ranges[name].divisor

        def negative(size: int) -> bool:
            self.work -= 1
            return fact.expr.evaluate({**shape, name: size}) < 0

        start = negative(shape[name])
        for way in (step, -step):
            distance, size = 0, shape[name]
            for k in range(_DOUBLINGS):
                size = self._within(name, shape[name] + (way << k))
                if self.work < 0 or negative(size) != start:
                    break
                distance = abs(size - shape[name]) // step
            far = abs(size - shape[name]) // step
            if far <= distance or self.work < 0:
                continue  # the end of the range
            while far - distance > 1:
                middle = (far + distance) // 2
                if negative(shape[name] + way * middle) == start:
                    distance = middle
                else:
                    far = middle
            yield shape[name] + way * far

    def _around(self, name: str, size: int) -> Iterator[int]:
        """Sizes in range near one, nearest first, as long as there is work left."""
        step = self.ranges[name].divisor
        for distance in range(_NEAR):
            for other in (size + distance * step, size - distance * step):
                if other in self.ranges[name]:
                    self.work -= 1
                    if self.work < 0:
                        return
                    yield other

    def _within(self, name: str, size: int, up: bool = False) -> int:
        """The nearest size in range that is not larger, or with `up` not smaller, as far as there is one."""
        allowed = self.ranges[name]
        rest = (size - allowed.lo) % allowed.divisor
        size += (allowed.divisor - rest if up else -rest) if rest else 0
        size = max(size, allowed.lo)
        return size if allowed.hi is None else min(size, allowed.hi)

    def _complete(self, shape: dict[str, int]) -> dict[str, int] | None:
        """The shape with eliminated symbols; None where these have sizes that they must not have."""
        domain = self.domain
        shape = domain.completed(shape)
        given = shape.keys()
        if any(shape[name] not in domain.range_of(name) for name in domain.equalities.keys() & given):
            return None
        facts = (fact for fact in domain.inequalities if fact.symbols() <= given)
        return None if any(fact.evaluate(shape) < 0 for fact in facts) else shape


def _fact(expr: Expr, tie: bool, fixed: Collection[str]) -> _Fact:
    moves: list[_Move] = []
    for name in sorted(expr.symbols() - set(fixed), reverse=True):
        one = (Atom(SYMBOL, name), 1)
        factor = Expr({tuple(part for part in m if part != one): c for m, c in expr.terms if one in m})
        rest = Expr({m: c for m, c in expr.terms if one not in m})
        if factor.terms and name not in factor.symbols() | rest.symbols():
            moves.append((name, factor, rest))
    up = {name: all(c > 0 for _, c in factor.terms) for name, factor, _ in moves}
    on_side = list(up.values())
    moves.sort(key=lambda move: (not move[1].is_const, on_side.count(up[move[0]])))
    return _Fact(expr, tie, tuple(sorted(expr.symbols(), reverse=True)), tuple(moves))
