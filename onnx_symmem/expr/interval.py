"""Integer intervals that contain every value of an expression, from intervals of its symbols.

An interval is (low, high), either end None where there is no bound. The ends are exact for
polynomials whose coefficients have one sign, and outer bounds elsewhere: the best of

    term by term           c*x*y in the product of the intervals
    from the low corner    x = low + x', where every x' >= 0
    without floors         q = p // d lies in [(p - d + 1)/d, p/d], by the sign of its cofactor
    by cases               max(a, b) is a or b, whichever it is
    by what cancels        floor_f32(x, 160/x) is about 160, whatever x is
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

import numpy as np

from onnx_symmem.expr.atom import FLOORDIV, MAX, MIN, SCALED_FLOOR, SYMBOL, Atom, Monomial
from onnx_symmem.expr.expression import ZERO, Expr, rebuild
from onnx_symmem.expr.scaled import LARGEST, lines_of

__all__ = ["Interval", "Intervals", "meet", "told_of"]

Interval = tuple[int | None, int | None]

_EVERYTHING: Interval = (None, None)
_DEPTH = 4  # atoms taken apart on the way to a bound
_EXTREMA = 4  # extrema in one product, which are told apart case by case


def add(a: Interval, b: Interval) -> Interval:
    """Sum of two intervals."""
    low = None if a[0] is None or b[0] is None else a[0] + b[0]
    return low, None if a[1] is None or b[1] is None else a[1] + b[1]


def scale(a: Interval, c: int) -> Interval:
    """An interval times a constant."""
    low, high = (None if end is None else end * c for end in a)
    return (low, high) if c >= 0 else (high, low)


def multiply(a: Interval, b: Interval) -> Interval:
    """Product of two intervals."""
    if a[0] is not None and b[0] is not None and a[0] >= 0 and b[0] >= 0:
        high = None if a[1] is None or b[1] is None else a[1] * b[1]
        if a[1] == 0 or b[1] == 0:
            high = 0
        return a[0] * b[0], high
    if a == (0, 0) or b == (0, 0):
        return 0, 0
    if None in a or None in b:
        signs = {_sign(x) * _sign(y) for x in ((a[0], -1), (a[1], 1)) for y in ((b[0], -1), (b[1], 1))}
        return (0 if min(signs) >= 0 else None), (0 if max(signs) <= 0 else None)
    corners = [x * y for x in a for y in b if x is not None and y is not None]
    return min(corners), max(corners)


def _sign(end: tuple[int | None, int]) -> int:
    value, infinite = end
    return infinite if value is None else (value > 0) - (value < 0)


def floordiv(a: Interval, b: Interval) -> Interval:
    """Floor division by an interval of positive numbers; everything where the divisor may be <= 0."""
    small, large = b
    if small is None or small <= 0:
        return _EVERYTHING
    ends: list[int | None] = []
    for end, away in ((a[0], min), (a[1], max)):
        if end is None:
            ends.append(None)
        else:
            limit = (0 if end >= 0 else -1) if large is None else end // large
            ends.append(away(end // small, limit))
    return ends[0], ends[1]


def hull_max(a: Interval, b: Interval) -> Interval:
    """Interval of max(x, y)."""
    lows = [end for end in (a[0], b[0]) if end is not None]
    return max(lows, default=None), None if a[1] is None or b[1] is None else max(a[1], b[1])


def hull_min(a: Interval, b: Interval) -> Interval:
    """Interval of min(x, y)."""
    return scale(hull_max(scale(a, -1), scale(b, -1)), -1)


def product_interval(parts: Sequence[Interval]) -> Interval:
    """Interval of a floor_f32 from those of tops and bottoms in turn; no bounds where one may be 0."""
    low = high = np.float32(1)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        for (a, b), (small, large) in zip(parts[-2::-2], parts[-1::-2], strict=True):
            if small is None or small <= 0:
                return _EVERYTHING
            # Every rounding is monotone: that of an end is an end.
            bottoms = (_single(small, 1), _single(large, 1))
            tops = (_single(a, -1), _single(b, 1))
            least = tops[0] / bottoms[0 if tops[0] < 0 else 1]
            most = tops[1] / bottoms[1 if tops[1] < 0 else 0]
            corners = [
                np.float32(0) if x == 0 or y == 0 else x * y for x in (low, high) for y in (least, most)
            ]
            low, high = min(corners), max(corners)
    return (
        None if np.isinf(low) else int(np.floor(low)),
        None if np.isinf(high) else int(np.floor(high)),
    )


def _single(end: int | None, infinite: int) -> np.float32:
    if end is None or abs(end) > LARGEST:
        sign = infinite if end is None else _sign((end, 0))
        return np.float32(sign * (LARGEST if sign == -infinite else np.inf))
    return np.float32(end)


def meet(a: Interval, b: Interval) -> Interval:
    """Values in both intervals."""
    highs = [end for end in (a[1], b[1]) if end is not None]
    lows = [end for end in (a[0], b[0]) if end is not None]
    return max(lows, default=None), min(highs, default=None)


@dataclass(slots=True)
class Intervals:
    """Bounds of expressions over symbols whose intervals `symbol` tells; answers are kept.

    `told` are intervals of atoms that are known otherwise.
    """

    symbol: Callable[[str], Interval]
    told: Mapping[Atom, Interval] = field(default_factory=dict)
    _atoms: dict[Atom, Interval] = field(default_factory=dict)
    _known: dict[Expr, Interval] = field(default_factory=dict)
    _lows: dict[tuple[Expr, int], int | None] = field(default_factory=dict)

    def of(self, expr: Expr) -> Interval:
        """The interval of an expression."""
        found = self._known.get(expr)
        if found is None:
            found = self._known[expr] = self._bounds(expr)
        return found

    def of_atom(self, atom: Atom) -> Interval:
        """The interval of an atom, from those of its operands."""
        found = self._atoms.get(atom)
        if found is None:
            found = self._atom_bounds(atom)
            if atom in self.told:
                found = meet(found, self.told[atom])
            self._atoms[atom] = found
        return found

    def _atom_bounds(self, atom: Atom) -> Interval:
        if atom.kind == SYMBOL:
            return self.symbol(atom.name)
        operands = [self.of(a) for a in atom.args]
        if atom.kind == FLOORDIV:
            return floordiv(operands[0], operands[1])
        if atom.kind == SCALED_FLOOR:
            return self._scaled_bounds(atom, operands)
        hull = operands[0]
        for other in operands[1:]:
            hull = hull_max(hull, other) if atom.kind == MAX else hull_min(hull, other)
        return hull

    def _scaled_bounds(self, atom: Atom, operands: list[Interval]) -> Interval:
        """Of a floor_f32: from its factors, by the cases of an extremum in them, and from what cancels."""
        found = product_interval(operands)
        lines = lines_of(atom.args)
        if lines is not None:
            low, high = self.of(Expr.lift(lines.size))
            if low is not None and low >= 0:
                most = None if high is None else high * lines.high // lines.n
                return meet(found, (low * lines.low // lines.n, most))
        extrema = [k for k, part in enumerate(atom.args) if _extremum_of(part) is not None]
        if not extrema or len(extrema) > _EXTREMA or any(low is None or low < 0 for low, _ in operands):
            return found
        k, below = extrema[0], extrema[0] % 2
        extremum = _extremum_of(atom.args[k])
        assert extremum is not None
        if below and any((self.of(case)[0] or 0) < 1 for case in extremum.args):
            return found
        # A quotient is the smaller, the larger its denominator.
        hull = hull_max if (extremum.kind == MAX) != bool(below) else hull_min
        cases = [rebuild(atom, (*atom.args[:k], case, *atom.args[k + 1 :])) for case in extremum.args]
        return meet(found, reduce(hull, map(self.of, cases)))

    def _bounds(self, expr: Expr) -> Interval:
        constant = expr.as_int()
        if constant is not None:
            return constant, constant
        if self._monotone(expr):
            return self._termwise(expr, self.of_atom)
        if all(atom.kind == SYMBOL for atom in expr.atoms()):
            return self._polynomial(expr)
        negated = self.low(-expr, _DEPTH)
        return self.low(expr, _DEPTH), None if negated is None else -negated

    def _monotone(self, expr: Expr) -> bool:
        """Whether the corners of the box are exact bounds: one sign, and independent atoms >= 0."""
        signs = {c > 0 for mono, c in expr.terms if mono}
        if len(signs) != 1:
            return False
        lows = (self.of_atom(atom)[0] for atom in expr.atoms())
        return all(low is not None and low >= 0 for low in lows)

    def low(self, expr: Expr, depth: int) -> int | None:
        """A lower bound of an expression, taking up to `depth` atoms apart."""
        key = expr, depth
        if key not in self._lows:
            self._lows[key] = self._low(expr, depth)
        return self._lows[key]

    def _low(self, expr: Expr, depth: int) -> int | None:
        best = self._polynomial(expr)[0]
        others = [atom for atom in expr.atoms() if atom.kind != SYMBOL]
        if not others or depth == 0:
            return best
        atom = max(others, key=lambda a: (len(a.key[1]), a.key))
        for bound in self._taken_apart(expr, atom, depth - 1):
            if bound is not None and (best is None or bound > best):
                best = bound
        return best

    def _taken_apart(self, expr: Expr, atom: Atom, depth: int) -> list[int | None]:
        if atom.kind in (MAX, MIN):
            cases = [self.low(_replaced(expr, atom, operand), depth) for operand in atom.args]
            if None in cases:
                return []
            return [min(case for case in cases if case is not None)]
        if atom.kind != FLOORDIV or (divisor := atom.args[1].as_int()) is None:
            return []
        cofactor, rest = _linear_in(expr, atom)
        if cofactor is None:
            return []
        low, high = self._polynomial(cofactor)
        numerator = atom.args[0]
        if low is not None and low >= 0:
            numerator = numerator - (divisor - 1)
        elif high is None or high > 0:
            return []
        bound = self.low(cofactor * numerator + rest * divisor, depth)
        return [None if bound is None else -(-bound // divisor)]

    def _polynomial(self, expr: Expr) -> Interval:
        """The interval with all atoms taken as independent."""
        found = self._termwise(expr, self.of_atom)
        if len(expr.terms) < 2 or (None not in found and found[0] == found[1]):
            return found
        lows = {atom: self.of_atom(atom)[0] for atom in expr.atoms()}
        if any(low is None for low in lows.values()) or not any(lows.values()):
            return found
        shifted = expr.map_atoms(lambda atom: Expr.of(atom) + (lows[atom] or 0))
        return meet(found, self._termwise(shifted, self._above_low))

    def _above_low(self, atom: Atom) -> Interval:
        low, high = self.of_atom(atom)
        return 0, None if high is None or low is None else high - low

    def _termwise(self, expr: Expr, of_atom: Callable[[Atom], Interval]) -> Interval:
        total: Interval = (0, 0)
        for mono, c in expr.terms:
            product: Interval = (1, 1)
            for atom, power in mono:
                product = multiply(product, _power(of_atom(atom), power))
            total = add(total, scale(product, c))
            if total == _EVERYTHING:
                break
        return total


def told_of(facts: Iterable[Expr]) -> dict[Atom, Interval]:
    """What facts c*atom + k >= 0 say of sizes scaled in float32, which no other step takes apart."""
    found: dict[Atom, Interval] = {}
    for fact in facts:
        terms = [(mono, c) for mono, c in fact.terms if mono]
        if len(terms) == 1 and len(terms[0][0]) == 1 and terms[0][0][0][1] == 1:
            atom, c, k = terms[0][0][0][0], terms[0][1], fact.constant_term()
            if atom.kind == SCALED_FLOOR:
                side: Interval = (-(k // c), None) if c > 0 else (None, k // -c)
                found[atom] = meet(found.get(atom, (None, None)), side)
    return found


def _extremum_of(expr: Expr) -> Atom | None:
    atom = expr.as_atom()
    return atom if atom is not None and atom.kind in (MAX, MIN) else None


def _power(a: Interval, power: int) -> Interval:
    result = a
    for _ in range(power - 1):
        result = multiply(result, a)
    if power % 2 == 0 and (result[0] is None or result[0] < 0):
        result = (0, result[1])
    return result


def _replaced(expr: Expr, atom: Atom, value: Expr) -> Expr:
    return expr.map_atoms(lambda a: value if a == atom else Expr.of(a))


def _linear_in(expr: Expr, atom: Atom) -> tuple[Expr | None, Expr]:
    """(c, r) with expr == c * atom + r, or (None, expr) where a higher power occurs."""
    cofactor: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for mono, c in expr.terms:
        powers = dict(mono)
        power = powers.pop(atom, 0)
        if power == 0:
            rest[mono] = c
        elif power == 1:
            cofactor[tuple(item for item in mono if item[0] != atom)] = c
        else:
            return None, expr
    return (Expr(cofactor) if cofactor else ZERO), Expr(rest)
