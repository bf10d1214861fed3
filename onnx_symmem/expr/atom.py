"""Atoms, monomials and terms: the variables of size polynomials, products of their powers, and sums of these.

A monomial is ((atom, power >= 1), ...) sorted by atom key; () is the constant. Orders go by names and texts,
never by hashes, so that every printed form is the same in every process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from keyword import iskeyword
from typing import TYPE_CHECKING

import numpy as np

from onnx_symmem.errors import ExpressionError
from onnx_symmem.expr.scaled import factor_text, product_f32

if TYPE_CHECKING:
    from onnx_symmem.expr.expression import Expr

__all__ = [
    "FLOORDIV",
    "MAX",
    "MIN",
    "SCALED_FLOOR",
    "SYMBOL",
    "Atom",
    "Monomial",
    "Term",
    "common_monomial",
    "monomial_order",
    "monomial_over",
    "monomial_times",
    "terms_text",
    "terms_times",
    "with_inner",
]

SYMBOL, FLOORDIV, MAX, MIN, SCALED_FLOOR = "symbol", "floordiv", "max", "min", "floor_f32"


RESERVED = frozenset((MAX, MIN, SCALED_FLOOR, "sym"))
"""Names that mean functions in the printed form."""


class Atom:
    """A variable of the polynomial ring: a symbol, or an integer function of expressions.

    `kind` is one of symbol, floordiv, max, min, floor_f32; `name` is set for symbols; `args` for the
    rest (floordiv: numerator, denominator; max and min: two or more operands; floor_f32: numerator and
    denominator of one factor after the other).
    """

    __slots__ = ("_hash", "args", "key", "kind", "name")

    kind: str
    name: str
    args: tuple[Expr, ...]
    key: tuple[int, str]

    def __init__(self, kind: str, name: str = "", args: tuple[Expr, ...] = ()) -> None:
        self.kind, self.name, self.args = kind, name, args
        self._hash = hash((kind, name, args))
        # Symbols sort before the rest and by name: the order of terms must not depend on hashes.
        self.key = (0, name) if kind == SYMBOL else (1, self.text())

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, Atom)
            and self._hash == other._hash
            and self.kind == other.kind
            and self.name == other.name
            and self.args == other.args
        )

    def __reduce__(self) -> tuple[object, ...]:
        # Rebuilt, not copied: the stored hash holds within one process only.
        return Atom, (self.kind, self.name, self.args)

    def __repr__(self) -> str:
        return f"Atom({self.text()})"

    def text(self) -> str:
        """The atom in Python syntax, not parenthesised."""
        if self.kind == SYMBOL:
            plain = self.name.isidentifier() and self.name.replace("_", "a").isalnum()
            plain = plain and self.name not in RESERVED and not iskeyword(self.name)
            return self.name if plain else f"sym({self.name!r})"
        if self.kind == FLOORDIV:
            top, bottom = (str(a) if a.is_simple else f"({a})" for a in self.args)
            return f"{top}//{bottom}"
        if self.kind == SCALED_FLOOR:
            return f"floor_f32({', '.join(factor_text(*factor) for factor in self.factors)})"
        return f"{self.kind}({', '.join(str(a) for a in self.args)})"

    @property
    def factors(self) -> tuple[tuple[Expr, Expr], ...]:
        """The factors of a floor_f32, each as numerator and denominator."""
        return tuple(zip(self.args[::2], self.args[1::2], strict=True))

    @property
    def divisors(self) -> tuple[Expr, ...]:
        """The sizes that the atom divides by: at a shape where one is 0 it has no value."""
        if self.kind == FLOORDIV:
            found = self.args[1:]
        else:
            found = self.args[1::2] if self.kind == SCALED_FLOOR else ()
        return tuple(divisor for divisor in found if not divisor.is_const)

    def symbols(self) -> frozenset[str]:
        """Names of all symbols the atom depends on."""
        if self.kind == SYMBOL:
            return frozenset((self.name,))
        return frozenset().union(*(a.symbols() for a in self.args))

    def evaluate(self, shape: Mapping[str, int], known: dict[Atom, int] | None = None) -> int:
        """Value at a shape given as {symbol: size}; KeyError names a missing symbol.

        `known` are values of other atoms at this very shape; this one joins them.
        """
        if self.kind == SYMBOL:
            return shape[self.name]
        known = {} if known is None else known
        found = known.get(self)
        if found is None:
            found = known[self] = self._value([a.evaluate(shape, known) for a in self.args], shape)
        return found

    def _value(self, values: list[int], shape: Mapping[str, int]) -> int:
        """Value of one that is no symbol, given those of its arguments."""
        if self.kind == FLOORDIV:
            if values[1] == 0:
                raise ExpressionError(f"{self.text()}: division by zero at {dict(shape)}")
            return values[0] // values[1]
        if self.kind == SCALED_FLOOR:
            return int(np.floor(product_f32(zip(values[::2], values[1::2], strict=True))))
        return max(values) if self.kind == MAX else min(values)


Monomial = tuple[tuple[Atom, int], ...]  # ((atom, power >= 1), ...) by atom.key; () is the constant
Term = tuple[Monomial, int]


def monomial_order(item: tuple[Monomial, int]) -> tuple[object, ...]:
    """Graded order, highest degree first, then by atoms: an admissible monomial order up to ties."""
    mono = item[0]
    return (-sum(p for _, p in mono), [(a.key, -p) for a, p in mono])


def monomial_times(a: Monomial, b: Monomial) -> Monomial:
    """a * b."""
    if not a:
        return b
    if not b:
        return a
    if a[-1][0].key < b[0][0].key:
        return a + b
    if b[-1][0].key < a[0][0].key:
        return b + a
    powers = dict(a)
    for atom, power in b:
        powers[atom] = powers.get(atom, 0) + power
    return tuple(sorted(powers.items(), key=_atom_key))


def _atom_key(item: tuple[Atom, int]) -> tuple[int, str]:
    return item[0].key


def monomial_over(a: Monomial, b: Monomial) -> Monomial | None:
    """a / b, or None where b does not divide a."""
    if not b:
        return a
    powers = dict(a)
    for atom, power in b:
        left = powers.get(atom, 0) - power
        if left < 0:
            return None
        if left:
            powers[atom] = left
        else:
            del powers[atom]
    return tuple(sorted(powers.items(), key=_atom_key))


def with_inner(atoms: Iterable[Atom]) -> set[Atom]:
    """The atoms and all atoms inside of them."""
    found: set[Atom] = set()
    stack = list(atoms)
    while stack:
        atom = stack.pop()
        if atom not in found:
            found.add(atom)
            stack += [a for operand in atom.args for a in operand.atoms()]
    return found


def terms_times(left: Iterable[Term], right: Sequence[Term]) -> Iterable[Term]:
    """The product of two sums of terms, like terms joined; some may be 0."""
    if len(right) == 1:
        ((n, d),) = right
        return [(monomial_times(m, n), c * d) for m, c in left]
    terms: dict[Monomial, int] = {}
    for m, c in left:
        for n, d in right:
            mono = monomial_times(m, n)
            terms[mono] = terms.get(mono, 0) + c * d
    return terms.items()


def terms_text(terms: Iterable[Term]) -> str:
    """A sum of terms in Python syntax."""
    return "".join(_term_texts(terms)) or "0"


def _term_texts(terms: Iterable[Term]) -> Iterator[str]:
    for k, (mono, c) in enumerate(terms):
        sign = ("-" if c < 0 else "") if k == 0 else (" - " if c < 0 else " + ")
        factors = [str(abs(c))] if abs(c) != 1 or not mono else []
        alone = len(mono) == 1 and not factors and mono[0][1] == 1 and sign != "-"
        for atom, power in mono:
            text = atom.text()
            if atom.kind == FLOORDIV and not alone:
                text = f"({text})"
            factors.append(text if power == 1 else f"{text}**{power}")
        yield sign + "*".join(factors)


def common_monomial(monos: Sequence[Monomial]) -> Monomial:
    """The largest monomial that divides all of one or more."""
    common = dict(monos[0])
    for mono in monos[1:]:
        powers = dict(mono)
        common = {a: min(p, powers[a]) for a, p in common.items() if a in powers}
    return tuple(sorted(common.items(), key=_atom_key))
