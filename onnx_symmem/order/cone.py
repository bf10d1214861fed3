"""Sizes as sums of non-negative expressions with non-negative integer factors: what bounds may add up.

Every variable of a polynomial is measured from its lower bound: x = lo + y with y >= 0. Floor divisions of
one symbol are measured from a coarser one: H//2 = 2*(H//4) + e with e >= 0, where that is proved, so that
tensors of different resolutions meet in the same monomials. A size that keeps a negative coefficient is a
generator of its own. All generators are >= 0 at every shape of the domain; sizes themselves are taken to be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

import numpy as np

from onnx_symmem.expr.atom import SYMBOL, Atom, Monomial
from onnx_symmem.expr.decide import Kind, compare
from onnx_symmem.expr.domain import Domain
from onnx_symmem.expr.exact import IntArray, as_integers
from onnx_symmem.expr.expression import ZERO, Expr

__all__ = ["SizeCone", "size_cone"]

_SAMPLES = 48
_MOST_TERMS = 4000  # terms of one size after substitution, beyond which it is its own generator


@dataclass(frozen=True, slots=True, eq=False)
class SizeCone:
    """`table @ generators` are the sizes, (buffers, generators); no factor is negative.

    Columns that are multiples of one another are one: its generator is their sum, by content.
    """

    table: IntArray
    generators: tuple[Expr, ...]

    def expression(self, factors: Sequence[int] | IntArray) -> Expr:
        """The sum of the generators with the given factors."""
        return sum((g * int(f) for g, f in zip(self.generators, factors, strict=True) if f), ZERO)


def size_cone(sizes: Sequence[Expr], domain: Domain) -> SizeCone:
    """The sizes of some buffers on a domain, each >= 0 there."""
    solved = {size: domain.solved(size) for size in dict.fromkeys(sizes)}
    atoms = {atom for size in solved.values() for mono, _ in size.terms for atom, _ in mono}
    origin = _origins(sorted(atoms, key=lambda a: a.key), domain)
    shifted: dict[Atom, Expr] = {}
    for atom, (below, factor, constant) in origin.items():
        shifted[atom] = Expr.of(atom) + constant
        if below is not None:
            shifted[atom] = shifted[atom] + shifted[below] * factor
    own: dict[Monomial | Expr, int] = {}
    rows: dict[Expr, list[tuple[int, int]]] = {}
    for size, expr in solved.items():
        terms: Sequence[tuple[Monomial | Expr, int]] = ()
        if all(atom in shifted for mono, _ in expr.terms for atom, _ in mono):
            terms = expr.map_atoms(shifted.__getitem__).terms
        if not terms or len(terms) > _MOST_TERMS or any(c < 0 for _, c in terms):
            content = gcd(*(c for _, c in expr.terms)) or 1
            terms = ((Expr({m: c // content for m, c in expr.terms}), content),) if expr.terms else ()
        rows[size] = [(own.setdefault(key, len(own)), c) for key, c in terms]
    table = np.zeros((len(sizes), len(own)), dtype=object)
    for row, size in enumerate(sizes):
        for column, c in rows[size]:
            table[row, column] = c
    return _merged(table, [_written(key, origin) for key in own])


def _merged(table: IntArray, generators: Sequence[Expr]) -> SizeCone:
    """Columns that are proportional as one."""
    columns: dict[tuple[int, ...], Expr] = {}
    for column, generator in zip(table.T, generators, strict=True):
        content = gcd(*(int(c) for c in column)) or 1
        key = tuple(int(c) // content for c in column)
        columns[key] = columns.get(key, ZERO) + generator * content
    merged = as_integers(list(columns)).T if columns else np.zeros((len(table), 0), dtype=np.int64)
    return SizeCone(merged.reshape(len(table), len(columns)), tuple(columns.values()))


def _written(key: Monomial | Expr, origin: dict[Atom, tuple[Atom | None, int, int]]) -> Expr:
    """A generator in terms of the symbols."""
    if isinstance(key, Expr):
        return key

    def back(atom: Atom) -> Expr:
        below, factor, constant = origin[atom]
        expr = Expr.of(atom) - constant
        return expr if below is None else expr - Expr.of(below) * factor

    return Expr({key: 1}).map_atoms(back)


def _origins(atoms: Sequence[Atom], domain: Domain) -> dict[Atom, tuple[Atom | None, int, int]]:
    """Per atom (below, k, c) with atom - k*below - c >= 0 proved (without `below`: atom >= c).

    An atom stands after the one it is measured from; atoms without a lower bound are left out.
    """
    found: dict[Atom, tuple[Atom | None, int, int]] = {}
    groups: dict[frozenset[str], list[Atom]] = {}
    for atom in atoms:
        groups.setdefault(atom.symbols(), []).append(atom)
    for names, group in sorted(groups.items(), key=lambda item: sorted(item[0])):
        if len(names) == 1 and len(group) > 1:
            _chain(min(names), group, domain, found)
            continue
        for atom in group:
            low = domain.bounds(Expr.of(atom))[0]
            if low is not None:
                found[atom] = (None, 0, low)
    return found


def _chain(
    name: str, group: Sequence[Atom], domain: Domain, found: dict[Atom, tuple[Atom | None, int, int]]
) -> None:
    """Measure atoms of one symbol from one another, the slowest-growing first."""
    shapes = domain.samples(_SAMPLES, symbols=(name,))
    if not shapes:
        return
    shapes = tuple(sorted(shapes, key=lambda shape: shape[name]))
    values = {atom: [atom.evaluate(shape) for shape in shapes] for atom in group}
    ranked = sorted(group, key=lambda atom: (values[atom][-1], atom.kind == SYMBOL, atom.key))
    below: Atom | None = None
    for atom in ranked:
        lows: list[tuple[Atom | None, int, int]] = []
        if below is not None and values[below][-1] > 0:
            factor = (values[atom][-1] + 1) // values[below][-1]
            least = min(a - factor * b for a, b in zip(values[atom], values[below], strict=True))
            high = Expr.of(atom) - Expr.of(below) * factor
            if factor > 0 and compare(least, high, domain, deep=False).kind in (Kind.LE, Kind.EQ):
                lows.append((below, factor, least))
        if not lows:
            low = domain.bounds(Expr.of(atom))[0]
            if low is None:
                continue
            lows.append((None, 0, low))
        found[atom] = lows[0]
        below = atom
