"""From wanted sizes to a legal shape: broken facts are mended one at a time, by moving one symbol each.

A fact c*x + e >= 0 moves x to the nearest size that keeps it. Of several such symbols the one that stands
alone on its side goes first, since the others determine it: `past + seq <= total` moves total. A symbol that
has been moved goes after those that have not, and one whose range ends too early is passed over. Facts
without such a symbol, as ties of floor divisions are, move a symbol by small steps, then by doubled ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnx_symmem.errors import ExpressionError
from onnx_symmem.expr.atom import SYMBOL
from onnx_symmem.expr.expression import Expr

if TYPE_CHECKING:
    from onnx_symmem.expr.domain import Domain

__all__ = ["Repair"]

_NEAR = 64  # steps in both directions
_DOUBLINGS = 40


@dataclass(frozen=True, slots=True)
class _Fact:
    expr: Expr  # >= 0
    symbols: tuple[str, ...]  # the last name first
    moves: tuple[tuple[str, int, Expr], ...]  # (x, c, e) with expr == c*x + e, the dependent symbol first


class Repair:
    """Mends shapes over `names`, free symbols of a domain; those of `fixed` never move."""

    def __init__(self, domain: Domain, names: Sequence[str], fixed: Collection[str] = ()) -> None:
        self.domain = domain
        self.ranges = {name: domain.range_of(name) for name in names}
        known = self.ranges.keys()
        self.facts = [_fact(f, fixed) for f in domain.facts() if f.symbols() <= known]
        self.of: dict[str, list[int]] = {name: [] for name in names}
        self.fixed = frozenset(fixed)
        for i, fact in enumerate(self.facts):
            for name in fact.symbols:
                self.of[name].append(i)

    def legal(self, wanted: Mapping[str, int]) -> dict[str, int] | None:
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
            if fact.expr.evaluate(shape) >= 0:
                continue
            found = self._move(fact, shape, moved)
            if found is None or left == 0:
                return False
            name, shape[name] = found
            moved[name] += 1
            left -= 1
            pending.extend(i for i in self.of[name] if i not in pending)
        return True

    def _move(
        self, fact: _Fact, shape: Mapping[str, int], moved: Mapping[str, int]
    ) -> tuple[str, int] | None:
        """A symbol and the size that mends a fact."""
        for name, c, rest in sorted(fact.moves, key=lambda move: moved[move[0]]):
            limit = -rest.evaluate(shape)
            size = self._within(name, -(-limit // c), up=True) if c > 0 else self._within(name, limit // c)
            if c * size >= limit:
                return name, size
        for name in sorted(fact.symbols, key=lambda name: moved[name]):
            if name in self.fixed:
                continue
            for size in self._around(name, shape[name]):
                if fact.expr.evaluate({**shape, name: size}) >= 0:
                    return name, size
        return None

    def _around(self, name: str, size: int) -> Iterator[int]:
        """Sizes in range, near ones first."""
        step = self.ranges[name].divisor
        distances = [*range(1, _NEAR + 1), *(_NEAR << k for k in range(1, _DOUBLINGS))]
        for distance in distances:
            yield from (s for s in (size + distance * step, size - distance * step) if s in self.ranges[name])

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


def _fact(expr: Expr, fixed: Collection[str]) -> _Fact:
    moves: list[tuple[str, int, Expr]] = []
    for mono, c in expr.terms:
        if len(mono) == 1 and mono[0][1] == 1 and mono[0][0].kind == SYMBOL:
            name, rest = mono[0][0].name, Expr({m: k for m, k in expr.terms if m != mono})
            if name not in rest.symbols() and name not in fixed:
                moves.append((name, c, rest))
    sides = [c > 0 for _, c in expr.terms]
    moves.sort(key=lambda move: move[0], reverse=True)
    moves.sort(key=lambda move: sides.count(move[1] > 0))
    return _Fact(expr, tuple(sorted(expr.symbols(), reverse=True)), tuple(moves))
