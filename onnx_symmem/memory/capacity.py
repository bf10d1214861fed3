"""The largest size of one dim at which a model stays within a budget, exactly.

A peak is the maximum of a few expressions; with all other dims given, of expressions of one symbol. Where
every one of these is proved never to fall, the answer is found by halving. Else an end is looked for beyond
which one expression is proved to stay above the budget, and below it sizes are tried one by one, from the
top. Either way the answer is checked by putting it in: it fits, and the next legal size does not.

Of a model with several versions one runs at each shape, and its bytes count. No size fits above the largest
that fits for any version; from there downwards the choice is asked where some versions fit and some do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from onnx_symmem.errors import DomainError, UnsupportedModel
from onnx_symmem.expr.decide import Kind, compare
from onnx_symmem.expr.domain import Domain, SymbolRange
from onnx_symmem.expr.expression import Expr
from onnx_symmem.expr.grid import evaluate

__all__ = ["Capacity", "Demand", "largest_size"]

_LARGEST_DIM = (1 << 63) - 1
_CHUNK = 4096  # sizes tried at a time
_MOST_TRIED = 1 << 24
_MOST_CHOICES = 1 << 15  # sizes at which it is asked which version runs


@dataclass(frozen=True, slots=True)
class Demand:
    """Bytes that a model needs: the maximum of `members`, each of the symbols of `domain`.

    Of a model of several `versions`, each a maximum of its own, `members` are those of all and thus a bound;
    `choice` says which one runs at a full shape.
    """

    members: tuple[Expr, ...]
    domain: Domain
    versions: tuple[tuple[Expr, ...], ...] = ()
    choice: Callable[[Mapping[str, int]], int] | None = None

    def at(self, shape: Mapping[str, int]) -> int:
        """Bytes at a shape that gives every free symbol."""
        full = self.domain.completed(shape)
        members = self.members if self.choice is None else self.versions[self.choice(full)]
        return max(member.evaluate(full) for member in members)


@dataclass(frozen=True, slots=True)
class Capacity:
    """The answer for one dim.

    `size` is the largest legal one that fits, None where none does; `needed` the bytes there (where none
    fits: at the smallest legal size). `next_size` is the smallest legal size above it that does not fit,
    with `next_needed` bytes; None where the domain ends at `size`, or where nothing grows with the dim
    (`unlimited`). `shape` are all dims at the answer.
    """

    symbol: str
    size: int | None
    needed: int
    next_size: int | None
    next_needed: int | None
    shape: Mapping[str, int]
    unlimited: bool = False


def largest_size(demand: Demand, symbol: str, fixed: Mapping[str, int], budget: int) -> Capacity:
    """The largest size of `symbol` at which the demand is at most `budget` bytes, other dims as `fixed`.

    Raises DomainError where dims besides `symbol` are left open, or no size is legal.
    """
    line = _Line(demand, symbol, fixed) if demand.choice is None else _Choosing(demand, symbol, fixed)
    least = next(line.legal(line.first, 1), None)
    if least is None:
        raise DomainError(f"no size of '{symbol}' is legal at {dict(fixed)}")
    top = line.top(budget)
    if top is None:
        return Capacity(symbol, None, line.needed(least), least, line.needed(least), line.shape(least))
    beyond = None if top.unlimited else next(line.legal(top.size + 1, 1), None)
    return Capacity(
        symbol, top.size, line.needed(top.size), beyond, None if beyond is None else line.needed(beyond),
        line.shape(top.size), top.unlimited,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Top:
    size: int
    unlimited: bool = False


class _Line:
    """A demand along one symbol, everything else fixed."""

    def __init__(self, demand: Demand, symbol: str, fixed: Mapping[str, int]) -> None:
        domain = demand.domain
        for name, size in fixed.items():
            domain = domain.with_equality(name, size)
        members = tuple(dict.fromkeys(domain.simplify(m) for m in demand.members))
        used = frozenset().union(Expr.symbol(symbol).symbols(), *(m.symbols() for m in members))
        open_ = sorted(name for name in used if name != symbol and name not in domain.equalities)
        if symbol in domain.equalities:
            known = domain.equalities[symbol]
            instead = f"; solve for {min(known.symbols())} instead" if known.symbols() else ""
            raise DomainError(f"dim '{symbol}' is given by {symbol} = {known}{instead}")
        if open_:
            raise DomainError(f"dim '{open_[0]}' is open: give its size with --at {open_[0]}=SIZE")
        self.domain, self.symbol, self.members = domain, symbol, members
        self.range = domain.range_of(symbol)
        self.step = self.range.divisor
        self.first = -(-self.range.lo // self.step) * self.step

    def shape(self, size: int) -> dict[str, int]:
        return self.domain.completed({self.symbol: size})

    def needed(self, size: int) -> int:
        return max(m.evaluate({self.symbol: size}) for m in self.members)

    def top(self, budget: int) -> _Top | None:
        return _by_halving(self, budget) if self.rises() else _by_trying(self, budget)

    def is_legal(self, size: int) -> bool:
        return self.domain.contains({self.symbol: size})

    def legal(self, start: int, direction: int) -> Iterator[int]:
        """Legal sizes from `start` upwards (1) or downwards (-1)."""
        size = (-(-start // self.step) if direction > 0 else start // self.step) * self.step
        last = min(self.range.hi or _LARGEST_DIM, _LARGEST_DIM)
        for _ in range(_MOST_TRIED):
            if size < self.first or size > last:
                return
            if self.is_legal(size):
                yield size
            size += direction * self.step

    def rises(self) -> bool:
        """Whether every member is proved not to fall from one multiple of the divisor to the next."""
        later = {self.symbol: Expr.symbol(self.symbol) + self.step}
        return all(
            compare(m, m.substitute(later), self.domain).kind in (Kind.LE, Kind.EQ) for m in self.members
        )

    def stays_above(self, start: int, budget: int) -> bool:
        """Whether one member is proved above the budget at every legal size from `start`."""
        if self.range.hi is not None and start > self.range.hi:
            return True
        beyond = self.domain.with_ranges({self.symbol: SymbolRange(start, self.range.hi, self.step)})
        return any(
            compare(Expr.const(budget + 1), m, beyond).kind in (Kind.LE, Kind.EQ) for m in self.members
        )

    def stays_below(self, budget: int) -> bool:
        """Whether every member is proved to fit at every legal size."""
        return all(
            compare(m, Expr.const(budget), self.domain).kind in (Kind.LE, Kind.EQ) for m in self.members
        )


class _Choosing(_Line):
    """The same of a model of several versions, of which one runs at each size."""

    def __init__(self, demand: Demand, symbol: str, fixed: Mapping[str, int]) -> None:
        super().__init__(demand, symbol, fixed)
        self.demand = demand
        self.lines = [_Line(Demand(v, demand.domain), symbol, fixed) for v in demand.versions]

    def needed(self, size: int) -> int:
        return self.demand.at(self.shape(size))

    def top(self, budget: int) -> _Top | None:
        tops = [top for line in self.lines if (top := line.top(budget)) is not None]
        if not tops:
            return None
        if all(top.unlimited for top in tops) and len(tops) == len(self.lines):
            return tops[0]
        if any(top.unlimited for top in tops):
            raise UnsupportedModel(
                f"one version fits at any '{self.symbol}': give its largest size with --dim"
            )
        asked = 0
        sizes = self.legal(max(top.size for top in tops), -1)
        while chunk := [size for size, _ in zip(sizes, range(_CHUNK), strict=False)]:
            at = [{self.symbol: size} for size in chunk]
            fits = np.stack([evaluate(line.members, at).max(axis=0) <= budget for line in self.lines])
            for size, one in zip(chunk, fits.T, strict=True):
                if one.all():
                    return _Top(size)
                if one.any():
                    asked += 1
                    if asked > _MOST_CHOICES:
                        raise UnsupportedModel(
                            f"versions were asked for at {_MOST_CHOICES:,} sizes of '{self.symbol}' and none "
                            "fits; give a range or a multiple of it with --dim"
                        )
                    if self.needed(size) <= budget:
                        return _Top(size)
        return None


def _by_halving(line: _Line, budget: int) -> _Top | None:
    """The largest fitting size of a demand that never falls."""
    if line.needed(line.first) > budget:
        return None
    last = min(line.range.hi or _LARGEST_DIM, _LARGEST_DIM) // line.step
    low = line.first // line.step
    if line.needed(last * line.step) <= budget:
        if line.range.hi is None:
            return _Top(line.first, unlimited=True)
        low = last
    else:
        high = last
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if line.needed(middle * line.step) <= budget else (low, middle)
    size = next(line.legal(low * line.step, -1), None)
    return None if size is None else _Top(size)


def _by_trying(line: _Line, budget: int) -> _Top | None:
    """The largest fitting size of any demand: from a proved end downwards."""
    end = line.first
    while not line.stays_above(end, budget):
        if line.range.hi is not None and end >= line.range.hi:
            break
        if end > _LARGEST_DIM // 4:
            if line.stays_below(budget):
                return _Top(line.first, unlimited=True)
            raise UnsupportedModel(f"no size of '{line.symbol}' is proved to be the end of what fits")
        end = max(end * 2, end + line.step)
    low = end // 2
    while end - low > max(line.step, _CHUNK):  # a nearer end saves trying
        middle = (low + end) // 2
        low, end = (low, middle) if line.stays_above(middle, budget) else (middle, end)
    if line.range.hi is not None:
        end = min(end, line.range.hi)
    sizes = line.legal(end, -1)
    while chunk := [size for size, _ in zip(sizes, range(_CHUNK), strict=False)]:
        values = evaluate(line.members, [{line.symbol: size} for size in chunk])
        for size, needed in zip(chunk, values.max(axis=0), strict=True):
            if needed <= budget:
                return _Top(size)
    return None
