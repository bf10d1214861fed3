"""Monomials of a domain's atoms as polynomials of a region's variables, one number per residue class.

A coefficient is a Python integer where it is the same in all classes, else an array with one per class.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from math import lcm

import numpy as np

from onnx_symmem.expr.atom import SYMBOL, Atom, Monomial
from onnx_symmem.expr.exact import IntArray, add, as_integers, multiply
from onnx_symmem.expr.expression import Expr
from onnx_symmem.expr.scaled import lines_of

__all__ = ["Exponents", "Mapper", "Number", "Opaque", "Poly", "multiplied", "plus", "times"]

Exponents = tuple[int, ...]
Number = int | IntArray
Poly = dict[Exponents, Number]


def times(a: Number, b: Number) -> Number:
    """a * b in every class."""
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    return multiply(_array(a), _array(b))


def plus(a: Number, b: Number) -> Number:
    """a + b in every class."""
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    return add(_array(a), _array(b))


def _array(a: Number) -> IntArray:
    return as_integers([a]) if isinstance(a, int) else a


def multiplied(a: Poly, b: Poly) -> Poly:
    """a * b."""
    result: Poly = {}
    for m, c in a.items():
        for n, d in b.items():
            at = tuple(x + y for x, y in zip(m, n, strict=True))
            part = times(c, d)
            result[at] = plus(result[at], part) if at in result else part
    return result


@dataclass(frozen=True, slots=True)
class Opaque:
    """A floor division or other atom that residues do not resolve, and the variables put in its place."""

    atom: Atom
    step: str  # linked, rounded, free
    names: tuple[str, ...]
    low: int | None = None
    high: int | None = None


class Mapper:
    """A region: variables in 0..`limits` (None is unbounded; one limit per class), and what atoms are there.

    Atoms become `images`, expressions of the variables' names in `widths`; the atoms of those are symbols,
    `opaque`, or floor divisions that the `moduli` make exact.
    """

    def __init__(
        self,
        images: Mapping[Atom, Expr],
        widths: Mapping[str, int | None],
        moduli: Mapping[str, int],
        opaque: Mapping[Atom, Opaque],
    ) -> None:
        self.images = images
        self.names = names = tuple(sorted(widths))
        self.moduli = tuple((name, moduli[name]) for name in sorted(moduli))
        counts = [m if (w := widths[name]) is None else min(m, w + 1) for name, m in self.moduli]
        self.classes = tuple(product(*(range(count) for count in counts)))
        numbers = {
            name: np.array([cls[i] for cls in self.classes], dtype=np.int64)
            for i, (name, _) in enumerate(self.moduli)
        }
        residues = {name: (modulus, numbers[name]) for name, modulus in self.moduli}
        self.limits: dict[str, IntArray | None] = {}
        for name in names:
            width = widths[name]
            if width is None:
                self.limits[name] = None
            elif name in moduli:
                left = [(width - residue) // moduli[name] for residue in numbers[name].tolist()]
                self.limits[name] = as_integers(left)
            else:
                self.limits[name] = as_integers([width] * len(self.classes))
        zero = (0,) * len(names)
        self.zero: Exponents = zero
        self.one: Poly = {zero: 1}
        self.unit = {name: (*zero[:v], 1, *zero[v + 1 :]) for v, name in enumerate(names)}
        self.residues = residues
        self.opaque = opaque
        self.atoms: dict[Atom, tuple[Poly, int]] = {}
        self.monomials: dict[Monomial, tuple[Poly, int]] = {}

    def monomial(self, mono: Monomial) -> tuple[Poly, int]:
        """(polynomial, divisor) of a product of atoms that have images."""
        found = self.monomials.get(mono)
        if found is None:
            poly, bottom = self.one, 1
            for atom, exponent in mono:
                factor, part = self.expr(self.images[atom])
                for _ in range(exponent):
                    poly, bottom = multiplied(poly, factor), bottom * part
            found = self.monomials[mono] = poly, bottom
        return found

    def expr(self, expr: Expr) -> tuple[Poly, int]:
        """(polynomial, divisor) of an expression."""
        parts: list[tuple[Poly, int]] = []
        for mono, c in expr.terms:
            poly: Poly = {self.zero: c}
            bottom = 1
            for atom, exponent in mono:
                factor, part = self.atom(atom)
                for _ in range(exponent):
                    poly, bottom = multiplied(poly, factor), bottom * part
            parts.append((poly, bottom))
        common = lcm(*(bottom for _, bottom in parts)) if parts else 1
        total: Poly = {}
        for poly, bottom in parts:
            total = _sum(total, {e: times(c, common // bottom) for e, c in poly.items()})
        return total, common

    def atom(self, atom: Atom) -> tuple[Poly, int]:
        """(polynomial, divisor) of an atom."""
        found = self.atoms.get(atom)
        if found is None:
            found = self.atoms[atom] = self._image(atom)
        return found

    def _image(self, atom: Atom) -> tuple[Poly, int]:
        if atom.kind == SYMBOL:
            at = self.unit[atom.name]
            if atom.name not in self.residues:
                return {at: 1}, 1
            modulus, residue = self.residues[atom.name]
            return {at: modulus, self.zero: residue}, 1
        opaque = self.opaque.get(atom)
        if opaque is None:
            return self._divided(atom), 1
        variables = [self.unit[name] for name in opaque.names]
        if opaque.step == "free":
            if opaque.low is not None:
                return {variables[0]: 1, self.zero: opaque.low}, 1
            if opaque.high is not None:
                return {variables[0]: -1, self.zero: opaque.high}, 1
            return {variables[0]: 1, variables[1]: -1}, 1
        if opaque.step == "linked":
            top, bottom = self.expr(atom.args[0])
            divisor = atom.args[1].as_int() or 1
            return _sum(top, {variables[0]: -bottom}), bottom * divisor
        lines = lines_of(atom.args)
        assert lines is not None
        top, bottom = self.expr(Expr.lift(lines.size))
        line = multiplied(top, {self.zero: lines.low, variables[0]: lines.high - lines.low})
        return _sum(line, {variables[1]: lines.n * bottom, self.zero: -lines.n * bottom}), lines.n * bottom

    def _divided(self, atom: Atom) -> Poly:
        """A floor division whose numerator is, in every class, a multiple of the divisor plus a number."""
        top, _ = self.expr(atom.args[0])
        divisor = atom.args[1].as_int() or 1
        return {e: c // divisor for e, c in top.items()}


def _sum(a: Poly, b: Poly) -> Poly:
    total = dict(a)
    for e, c in b.items():
        total[e] = plus(total[e], c) if e in total else c
    return total
