"""Integer size expressions: canonical polynomials over symbols and non-affine atoms.

An `Expr` is a polynomial with integer coefficients. Its variables are *atoms*: a symbol (the size of
an input dim), a floor division, a maximum, a minimum, or ONNX Resize's float32 floor. Arithmetic
returns canonical forms, so `==` on expressions is sound for equality of functions: equal forms are
equal for every shape (the converse is `decide`'s business).

Only floor division is kept of the division family, with the identities

    ceil(a / b)          = (a + b - 1) // b                 b > 0
    a % b                = a - b * (a // b)
    (k*q + r) // k       = q + r // k
    (x // a + r) // b    = (x + a*r) // (a*b)               a, b > 0 integers
    (g*x + c) // (g*k)   = (x + c // g) // k                g > 0

Division by a symbolic size assumes that the size is not zero, as the program that divides does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import prod

import numpy as np

from onnx_symmem.errors import ExpressionError
from onnx_symmem.expr.atom import (
    FLOORDIV,
    MAX,
    MIN,
    SCALED_FLOOR,
    SYMBOL,
    Atom,
    Monomial,
    monomial_order,
    terms_text,
    terms_times,
)
from onnx_symmem.expr.division import cancelled, exact_quotient, whole_part
from onnx_symmem.expr.scaled import as_ratio, canonical, is_decimal, product_f32, unrounded

__all__ = ["ONE", "ZERO", "Expr", "ceildiv", "maximum", "minimum", "rebuild", "scaled_floor"]

Terms = dict[Monomial, int]


class Expr:
    """An immutable integer expression in canonical form; see the module's docstring.

    `terms` is ((monomial, coefficient != 0), ...) in canonical order; the zero expression has none.
    """

    __slots__ = ("_hash", "_symbols", "_text", "terms")

    terms: tuple[tuple[Monomial, int], ...]

    def __init__(self, terms: Terms) -> None:
        items = [item for item in terms.items() if item[1]]
        if len(items) > 1:
            items.sort(key=monomial_order)
        self.terms = tuple(items)
        self._hash = hash(self.terms)
        self._text: str | None = None
        self._symbols: frozenset[str] | None = None

    # -- construction ------------------------------------------------------------------------------
    @staticmethod
    def const(value: int) -> Expr:
        """The constant expression `value`."""
        small = _SMALL.get(value)
        return small if small is not None else Expr({(): int(value)})

    @staticmethod
    def symbol(name: str) -> Expr:
        """The symbol called `name`; any text is a name."""
        return Expr.of(Atom(SYMBOL, name))

    @staticmethod
    def of(atom: Atom) -> Expr:
        """The expression that is one atom."""
        return Expr({((atom, 1),): 1})

    @staticmethod
    def lift(value: Expr | int) -> Expr:
        """`value` itself, or the constant."""
        return value if isinstance(value, Expr) else Expr.const(int(value))

    # -- questions ---------------------------------------------------------------------------------
    def as_int(self) -> int | None:
        """The value of a constant expression, else None."""
        if not self.terms:
            return 0
        if len(self.terms) == 1 and not self.terms[0][0]:
            return self.terms[0][1]
        return None

    @property
    def is_const(self) -> bool:
        """Whether no symbol is left."""
        return self.as_int() is not None

    @property
    def is_simple(self) -> bool:
        """Whether the text needs no parentheses as an operand of `//`: a constant >= 0, symbol or call."""
        if len(self.terms) > 1:
            return False
        value = self.as_int()
        if value is not None:
            return value >= 0
        mono, coefficient = self.terms[0]
        return coefficient == 1 and len(mono) == 1 and mono[0][1] == 1 and mono[0][0].kind != FLOORDIV

    def as_atom(self) -> Atom | None:
        """The atom, where the expression is exactly one atom."""
        if len(self.terms) == 1 and self.terms[0][1] == 1:
            mono = self.terms[0][0]
            if len(mono) == 1 and mono[0][1] == 1:
                return mono[0][0]
        return None

    def symbols(self) -> frozenset[str]:
        """Names of all symbols the expression depends on."""
        if self._symbols is None:
            self._symbols = frozenset().union(*(atom.symbols() for m, _ in self.terms for atom, _ in m))
        return self._symbols

    def atoms(self) -> frozenset[Atom]:
        """The variables of the polynomial (arguments of non-affine atoms not included)."""
        return frozenset(atom for mono, _ in self.terms for atom, _ in mono)

    def constant_term(self) -> int:
        """Coefficient of the empty monomial."""
        return self.terms[-1][1] if self.terms and not self.terms[-1][0] else 0

    def degree(self) -> int:
        """Total degree in the atoms; 0 for constants."""
        return sum(p for _, p in self.terms[0][0]) if self.terms else 0

    def evaluate(self, shape: Mapping[str, int], known: dict[Atom, int] | None = None) -> int:
        """Value at a shape given as {symbol: size}; KeyError names a missing symbol.

        `known` are values of atoms at this very shape; those that are computed join them.
        """
        known = {} if known is None else known
        return sum(c * prod(atom.evaluate(shape, known) ** p for atom, p in mono) for mono, c in self.terms)

    def substitute(self, replacements: Mapping[str, Expr | int]) -> Expr:
        """The expression with symbols replaced, canonical again."""
        if not self.symbols() & replacements.keys():
            return self
        return self.map_atoms(lambda atom: _substitute_atom(atom, replacements))

    def map_atoms(self, image: Callable[[Atom], Expr]) -> Expr:
        """The polynomial with every atom replaced by `image(atom)`, which is asked once per power."""
        powers: dict[tuple[Atom, int], tuple[tuple[Monomial, int], ...]] = {}
        total: Terms = {}
        for mono, coefficient in self.terms:
            product: Iterable[tuple[Monomial, int]] = (((), coefficient),)
            for item in mono:
                factor = powers.get(item)
                if factor is None:
                    factor = powers[item] = (image(item[0]) ** item[1]).terms
                product = terms_times(product, factor)
            for m, c in product:
                total[m] = total.get(m, 0) + c
        return Expr(total)

    # -- arithmetic --------------------------------------------------------------------------------
    def __add__(self, other: Expr | int) -> Expr:
        other = Expr.lift(other)
        if not other.terms:
            return self
        if not self.terms:
            return other
        a, b = self.as_int(), other.as_int()
        if a is not None and b is not None:
            return Expr.const(a + b)
        terms = dict(self.terms)
        for mono, c in other.terms:
            terms[mono] = terms.get(mono, 0) + c
        return Expr(terms)

    def __neg__(self) -> Expr:
        return Expr({mono: -c for mono, c in self.terms})

    def __sub__(self, other: Expr | int) -> Expr:
        other = Expr.lift(other)
        if not other.terms:
            return self
        terms = dict(self.terms)
        for mono, c in other.terms:
            terms[mono] = terms.get(mono, 0) - c
        return Expr(terms)

    def __mul__(self, other: Expr | int) -> Expr:
        other = Expr.lift(other)
        a, b = self.as_int(), other.as_int()
        if a is not None and b is not None:
            return Expr.const(a * b)
        if a == 1:
            return other
        if b == 1:
            return self
        return Expr(dict(terms_times(self.terms, other.terms)))

    def __pow__(self, power: int) -> Expr:
        if power < 0:
            raise ExpressionError(f"({self})**{power}: a size has no negative powers")
        if power == 1:
            return self
        result = ONE
        for _ in range(power):
            result = result * self
        return result

    __radd__ = __add__
    __rmul__ = __mul__

    def __rsub__(self, other: int) -> Expr:
        return Expr.lift(other) - self

    def __floordiv__(self, other: Expr | int) -> Expr:
        return _floordiv(self, Expr.lift(other))

    def __rfloordiv__(self, other: int) -> Expr:
        return _floordiv(Expr.lift(other), self)

    def __mod__(self, other: Expr | int) -> Expr:
        other = Expr.lift(other)
        return self - other * _floordiv(self, other)

    def __rmod__(self, other: int) -> Expr:
        return Expr.lift(other) % self

    def exact_quotient(self, divisor: Expr) -> Expr | None:
        """q with q * divisor == self as polynomials, or None where there is none."""
        quotient = exact_quotient(self.terms, divisor.terms) if divisor.terms else None
        return None if quotient is None else Expr(quotient)

    # -- identity ----------------------------------------------------------------------------------
    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, int):
            return self.as_int() == other
        return isinstance(other, Expr) and self._hash == other._hash and self.terms == other.terms

    def __reduce__(self) -> tuple[object, ...]:
        return Expr, (dict(self.terms),)

    def __repr__(self) -> str:
        return f"Expr({self})"

    def __str__(self) -> str:
        """The expression in Python syntax, e.g. `4*batch*seq + 8*((height - 1)//8) - 3`."""
        if self._text is None:
            self._text = terms_text(self.terms)
        return self._text

    def sort_key(self) -> tuple[int, str]:
        """A total order that does not depend on hashes (it says nothing about values)."""
        text = str(self)
        return (len(text), text)


def _substitute_atom(atom: Atom, replacements: Mapping[str, Expr | int]) -> Expr:
    if atom.kind == SYMBOL:
        value = replacements.get(atom.name)
        return Expr.of(atom) if value is None else Expr.lift(value)
    if not atom.symbols() & replacements.keys():
        return Expr.of(atom)
    return rebuild(atom, tuple(a.substitute(replacements) for a in atom.args))


def rebuild(atom: Atom, args: tuple[Expr, ...]) -> Expr:
    """The same function as a non-symbol `atom`, of other operands, canonical."""
    if atom.kind == FLOORDIV:
        return args[0] // args[1]
    if atom.kind == SCALED_FLOOR:
        return scaled_floor(*zip(args[::2], args[1::2], strict=True))
    return maximum(*args) if atom.kind == MAX else minimum(*args)


def _floordiv(top: Expr, bottom: Expr) -> Expr:
    divisor = bottom.as_int()
    if divisor == 0:
        raise ExpressionError(f"({top})//0: division by zero")
    if divisor is not None and divisor < 0:
        return _floordiv(-top, Expr.const(-divisor))
    value = top.as_int()
    if value is not None and divisor is not None:
        return Expr.const(value // divisor)
    if value == 0 or divisor == 1:
        return top
    if len(bottom.terms) == 1:
        return _floordiv_by_term(top, bottom)
    exact = top.exact_quotient(bottom)
    return exact if exact is not None else Expr.of(Atom(FLOORDIV, args=(top, bottom)))


def _floordiv_by_term(top: Expr, bottom: Expr) -> Expr:
    """Floor division by c*m, m a monomial: whole multiples go out, common factors cancel."""
    mono, c = bottom.terms[0]
    if c < 0:
        return _floordiv_by_term(-top, -bottom)
    whole, rest = whole_part(top.terms, mono, c)
    quotient, left = Expr(whole), Expr(rest)
    if not left.terms:
        return quotient
    nested = _nested(left, c) if not mono else None
    if nested is not None:
        return quotient + nested
    terms, below, divisor = cancelled(rest, mono, c)
    left = Expr(terms)
    if not below:
        value = left.as_int()
        if divisor == 1 or value is not None:
            return quotient + (left if value is None else value // divisor)
        if divisor != c or mono:
            return quotient + _floordiv(left, Expr.const(divisor))
    return quotient + Expr.of(Atom(FLOORDIV, args=(left, Expr({below: divisor}))))


def _nested(top: Expr, divisor: int) -> Expr | None:
    """(x//a + r)//b = (x + a*r)//(a*b), where exactly one floor division stands alone in `top`."""
    inner = [
        m[0][0]
        for m, c in top.terms
        if c == 1 and len(m) == 1 and m[0][1] == 1 and m[0][0].kind == FLOORDIV and m[0][0].args[1].is_const
    ]
    if len(inner) != 1:
        return None
    numerator, denominator = inner[0].args
    a = denominator.as_int() or 1
    return _floordiv(numerator + (top - Expr.of(inner[0])) * a, Expr.const(a * divisor))


def ceildiv(top: Expr | int, bottom: Expr | int) -> Expr:
    """ceil(top / bottom) for bottom > 0, as a floor division."""
    top, bottom = Expr.lift(top), Expr.lift(bottom)
    exact = top.exact_quotient(bottom)
    return exact if exact is not None else (top + bottom - 1) // bottom


def _extremum(kind: str, values: tuple[Expr | int, ...]) -> Expr:
    pick = max if kind == MAX else min
    flat: list[Expr] = []
    for value in values:
        expr = Expr.lift(value)
        atom = expr.as_atom()
        flat.extend(atom.args if atom is not None and atom.kind == kind else (expr,))
    # Operands that differ by a constant are one operand.
    kept: dict[Expr, int] = {}
    for expr in flat:
        constant = expr.constant_term()
        stem = expr - constant
        kept[stem] = pick(kept[stem], constant) if stem in kept else constant
    operands = sorted((stem + c for stem, c in kept.items()), key=Expr.sort_key)
    if len(operands) == 1:
        return operands[0]
    return Expr.of(Atom(kind, args=tuple(operands)))


def maximum(*values: Expr | int) -> Expr:
    """The largest operand; one or more operands."""
    return _extremum(MAX, values)


def minimum(*values: Expr | int) -> Expr:
    """The smallest operand; one or more operands."""
    return _extremum(MIN, values)


def scaled_floor(*factors: Expr | float | tuple[Expr | int, Expr | int]) -> Expr:
    """The floor of a product in float32, the rule of ONNX Runtime's Resize: see scaled.py.

    A factor is a size, a decimal, or a numerator and a denominator. Where no rounding shows in the floor as
    long as sizes are below 2**24, the result is the exact one.
    """
    parts = (f if isinstance(f, tuple) else as_ratio(f) if isinstance(f, float) else (f, 1) for f in factors)
    product = canonical([(_number(top), _number(bottom)) for top, bottom in parts])
    if all(map(is_decimal, product)):
        return Expr.const(int(np.floor(product_f32(product))) if product else 0)  # type: ignore[arg-type]
    exact = unrounded(product)
    if exact is not None:
        return Expr.lift(exact[0]) // exact[1]
    return Expr.of(Atom(SCALED_FLOOR, args=tuple(Expr.lift(part) for factor in product for part in factor)))


def _number(part: Expr | int) -> Expr | int:
    value = Expr.lift(part).as_int()
    return part if value is None else value


_SMALL: dict[int, Expr] = {}
_SMALL.update({n: Expr({(): n}) for n in range(-8, 4097)})
ZERO, ONE = _SMALL[0], _SMALL[1]
