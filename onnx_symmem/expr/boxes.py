"""Proof or refutation by cutting the range of a variable in two, again and again.

A box is proved by its Bernstein coefficients, refuted by a negative value at a corner, and cut along
the variable whose halves have the fewest negative coefficients left. An unbounded variable is cut at
1, 2, 4, ... from its start, so that a polynomial with a positive leading term is soon left with
positive coefficients beyond the cut.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import comb, lcm, prod

import numpy as np

from onnx_symmem.expr.blocks import leaf
from onnx_symmem.expr.mapper import Exponents
from onnx_symmem.expr.proof import Powers, Proof, Split

__all__ = ["Budget", "Negative", "bernstein", "search"]

_MAX_DEPTH = 48
_MAX_COEFFICIENTS = 1024

Poly = dict[Exponents, int]
_Form = tuple[Poly, list[tuple[int, int]]]  # coefficients, and (variable, degree) of those in Bernstein form


@dataclass(slots=True)
class Budget:
    """Coefficients that may still be computed."""

    left: int


@dataclass(frozen=True, slots=True)
class Negative:
    """A point of the region where the polynomial is negative."""

    point: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Box:
    poly: Poly  # in the distance from `start`
    start: tuple[int, ...]
    widths: tuple[int | None, ...]
    cuts: tuple[int, ...]  # how often each variable was cut


@dataclass(slots=True)
class _Search:
    names: Sequence[str]
    reals: frozenset[str]
    budget: Budget

    def solve(self, box: _Box, depth: int, form: _Form | None = None) -> Proof | Negative | None:
        coefficients, degrees = self.bernstein(box) if form is None else form
        negative = [e for e, c in coefficients.items() if c < 0]
        if not negative:
            named: Powers = tuple((self.names[v], d) for v, d in degrees)
            return leaf(self.names, list(coefficients), np.array(list(coefficients.values()), object), named)
        tops = dict(degrees)
        for exponents in negative:
            if all(e == 0 or (v in tops and e == tops[v]) for v, e in enumerate(exponents)):
                point = (
                    a + ((w or 0) if e else 0)
                    for a, w, e in zip(box.start, box.widths, exponents, strict=True)
                )
                return Negative(dict(zip(self.names, point, strict=True)))
        if depth == 0 or self.budget.left <= 0:
            return None
        best: tuple[int, int, int, tuple[_Box, _Box], tuple[_Form, _Form]] | None = None
        for v, name in enumerate(self.names):
            width = box.widths[v]
            if name in self.reals or width == 0 or all(e[v] == 0 for e in box.poly):
                continue
            at = 1 << box.cuts[v] if width is None else (width + 1) // 2
            halves = _cut(box, v, at)
            forms = self.bernstein(halves[0]), self.bernstein(halves[1])
            left = sum(c < 0 for form, _ in forms for c in form.values())
            if best is None or (left, box.cuts[v]) < best[:2]:
                best = left, box.cuts[v], v, halves, forms
        if best is None:
            return None
        _, _, v, (below, above), (form_below, form_above) = best
        lower = self.solve(below, depth - 1, form_below)
        if lower is None or isinstance(lower, Negative):
            return lower
        upper = self.solve(above, depth - 1, form_above)
        if upper is None or isinstance(upper, Negative):
            return upper
        return Split(self.names[v], above.start[v] - box.start[v], lower, upper)

    def bernstein(self, box: _Box) -> _Form:
        """(coefficients, [(variable, degree)]), Bernstein in the bounded variables."""
        found = bernstein(box.poly, box.widths)
        self.budget.left -= len(found[0])
        return found


def search(
    names: Sequence[str],
    reals: frozenset[str],
    poly: Poly,
    widths: Mapping[str, int | None],
    budget: Budget,
) -> Proof | Negative | None:
    """A proof that the polynomial is >= 0 on the box, a point where it is not, or None when out of budget."""
    tops = [max((e[v] for e in poly), default=0) for v in range(len(names))]
    if (
        prod(top + 1 for top, name in zip(tops, names, strict=True) if widths[name] is not None)
        > _MAX_COEFFICIENTS
    ):
        return None
    none = (0,) * len(names)
    box = _Box(poly, none, tuple(widths[name] for name in names), none)
    return _Search(names, reals, budget).solve(box, _MAX_DEPTH)


def _cut(box: _Box, v: int, at: int) -> tuple[_Box, _Box]:
    width = box.widths[v]
    cuts = (*box.cuts[:v], box.cuts[v] + 1, *box.cuts[v + 1 :])
    below = _Box(box.poly, box.start, (*box.widths[:v], at - 1, *box.widths[v + 1 :]), cuts)
    shifted: Poly = {}
    for e, c in box.poly.items():
        for q in range(e[v] + 1):
            to = (*e[:v], q, *e[v + 1 :])
            shifted[to] = shifted.get(to, 0) + c * comb(e[v], q) * at ** (e[v] - q)
    above = _Box(
        {e: c for e, c in shifted.items() if c},
        (*box.start[:v], box.start[v] + at, *box.start[v + 1 :]),
        (*box.widths[:v], None if width is None else width - at, *box.widths[v + 1 :]),
        cuts,
    )
    return below, above


def bernstein(poly: Poly, widths: Sequence[int | None]) -> _Form:
    """(coefficients, [(variable, degree)]) in the Bernstein basis of the variables that have a width."""
    degrees: list[tuple[int, int]] = []
    for v, width in enumerate(widths):
        degree = max([e[v] for e in poly], default=0)
        if width is None or degree == 0:
            continue
        degrees.append((v, degree))
        factors = [[(b, f * width**q) for b, f in row] for q, row in enumerate(_conversion(degree))]
        result: Poly = {}
        for e, c in poly.items():
            before, after = e[:v], e[v + 1 :]
            for b, factor in factors[e[v]]:
                to = (*before, b, *after)
                result[to] = result.get(to, 0) + c * factor
        poly = {e: c for e, c in result.items() if c}
    return poly, degrees


@lru_cache(maxsize=64)
def _conversion(degree: int) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Per power: (index, factor) in the Bernstein basis of 0..1, times the lcm of the binomials."""
    scale = lcm(*(comb(degree, q) for q in range(degree + 1)))
    return tuple(
        tuple((b, comb(b, q) * (scale // comb(degree, q))) for b in range(q, degree + 1))
        for q in range(degree + 1)
    )
