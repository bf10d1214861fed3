"""Certificates that one expression never exceeds another, and their exact re-check.

`check` walks the proof (proof.py) from the two expressions, recomputes every vector with Python
integers, and shares no code with the search for proofs (covers.py), which works on numpy tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise, permutations, product
from math import comb, gcd, lcm

from onnx_symmem.errors import ExpressionError
from onnx_symmem.expr.atom import FLOORDIV, MAX, MIN, SCALED_FLOOR, SYMBOL, Atom
from onnx_symmem.expr.domain import Domain
from onnx_symmem.expr.expression import ZERO, Expr, rebuild
from onnx_symmem.expr.interval import Interval, Intervals, told_of
from onnx_symmem.expr.proof import (
    Between,
    Cases,
    Empty,
    Free,
    Leaf,
    Linked,
    Lower,
    Points,
    Powers,
    Proof,
    Residues,
    Rounded,
    Sectors,
    Spend,
    Split,
    Tighten,
    Widen,
)
from onnx_symmem.expr.scaled import lines_of

__all__ = ["Certificate", "Images", "Region", "check", "replace_deep"]

_KEPT = 4096  # replacements: those inside of facts come again in every case

Images = dict[tuple[Atom, str, Expr], Expr]
"""(atom, name, value) to the atom with the symbol replaced by the value."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """A proof that `low <= high` at every shape of `domain`.

    `symbols` are the variables that the proof starts with, `facts` the indices into `domain.facts()`
    of those that it uses, `tier` the name of the method that found it.
    """

    low: Expr
    high: Expr
    domain: Domain
    tier: str
    symbols: tuple[str, ...]
    facts: tuple[int, ...]
    proof: Proof


@dataclass(frozen=True, slots=True)
class Region:
    """Where a node's polynomial has to be >= 0. `images` keeps what became of atoms, for speed only."""

    poly: Expr
    widths: Mapping[str, int | None]
    reals: frozenset[str]
    facts: tuple[Expr, ...]
    images: Images

    @staticmethod
    def of(
        poly: Expr, domain: Domain, symbols: tuple[str, ...], known: tuple[Expr, ...], images: Images
    ) -> Region:
        """The whole domain, with every symbol s = lo + divisor * s'."""
        ranges = {name: domain.range_of(name) for name in symbols}
        widths = {n: None if r.hi is None else (r.hi - r.lo) // r.divisor for n, r in ranges.items()}
        shift = {name: r.lo + r.divisor * Expr.symbol(name) for name, r in ranges.items()}
        facts = tuple(fact.substitute(shift) for fact in known)
        return Region(poly.substitute(shift), widths, frozenset(), facts, images)

    def put(self, name: str, value: Expr, width: int | None, real: bool = False) -> Region:
        """The region with a variable replaced by an expression of variables."""

        def image(atom: Atom) -> Expr:
            key = atom, name, value
            found = self.images.get(key)
            if found is None:
                found = self.images[key] = Expr.of(atom).substitute({name: value})
            return found

        poly, *facts = (expr.map_atoms(image) for expr in (self.poly, *self.facts))
        reals = self.reals | {name} if real else self.reals
        return Region(poly, {**self.widths, name: width}, reals, tuple(facts), self.images)

    def intervals(self) -> Intervals:
        """Bounds of expressions of the variables."""
        return Intervals(lambda name: (0, self.widths[name]), told_of(self.facts))


def check(certificate: Certificate, images: Images | None = None) -> bool:
    """Whether the certificate proves its claim, recomputed exactly.

    Checks of many certificates are faster with one dictionary of `images` for all.
    """
    domain, symbols = certificate.domain, certificate.symbols
    poly = domain.solved(certificate.high - certificate.low)
    try:
        facts = tuple(domain.facts()[i] for i in certificate.facts)
        if (
            not all(e.symbols() <= set(symbols) for e in (poly, *facts))
            or set(symbols) & domain.equalities.keys()
        ):
            return False
        start = Region.of(poly, domain, symbols, facts, {} if images is None else images)
        return _holds(start, certificate.proof)
    except (ExpressionError, IndexError, KeyError, TypeError, ValueError):  # not a well-formed proof
        return False


def _holds(at: Region, proof: Proof) -> bool:
    match proof:
        case Leaf(degrees, vector):
            return _leaf_holds(at, dict(degrees), dict(vector))
        case Points(values):
            return _points_hold(at, values)
        case Empty(fact):
            high = at.intervals().of(at.facts[fact])[1]
            return high is not None and high < 0
        case Cases(atom, children):
            return (
                atom.kind in (MAX, MIN)
                and len(children) == len(atom.args)
                and all(_holds(_case(at, atom, i), child) for i, child in enumerate(children))
            )
        case Lower() | Between() | Tighten():
            return _fact_step_holds(at, proof)
        case Widen(name, by, child):
            width = at.widths[name]
            wider = at.put(name, Expr.symbol(name) - by, None if width is None else width + by)
            return by >= 0 and name not in at.reals and _holds(wider, child)
        case Linked() | Rounded() | Free():
            return _atom_step_holds(at, proof)
        case Residues(name, modulus, parts):
            return _residues_hold(at, name, modulus, parts)
        case Sectors(names, children):
            orders = list(permutations(names))
            if len(children) != len(orders) or any(at.widths[n] is not None for n in names):
                return False
            return all(
                _holds(_sector(at, order), child) for order, child in zip(orders, children, strict=True)
            )
        case Spend(times, spent, child):
            rest = at.poly * times - sum((at.facts[fact] * often for fact, often in spent), ZERO)
            allowed = times >= 1 and all(often >= 0 for _, often in spent)
            return allowed and _holds(replace(at, poly=rest), child)
        case Split(name, cut, below, above):
            width = at.widths[name]
            if name in at.reals or cut < 1 or (width is not None and cut > width):
                return False
            lower = replace(at, widths={**at.widths, name: cut - 1})
            upper = at.put(name, Expr.symbol(name) + cut, None if width is None else width - cut)
            return _holds(lower, below) and _holds(upper, above)


def _leaf_holds(at: Region, degrees: dict[str, int], vector: dict[Powers, int]) -> bool:
    terms: dict[Powers, int] = {}
    for mono, c in at.poly.terms:
        if any(atom.kind != SYMBOL for atom, _ in mono):
            return False
        terms[tuple((atom.name, power) for atom, power in mono)] = c
    for name, degree in sorted(degrees.items()):
        width = at.widths[name]
        if width is None or degree < max((dict(p).get(name, 0) for p in terms), default=0):
            return False
        terms = _bernstein(terms, name, degree, width)
    common = gcd(*terms.values()) or 1
    return vector == {p: c // common for p, c in terms.items() if c} and all(c >= 0 for c in vector.values())


def _bernstein(terms: dict[Powers, int], name: str, degree: int, width: int) -> dict[Powers, int]:
    """Power basis of one variable in 0..width to its Bernstein basis, times lcm of the binomials."""
    scale = lcm(*(comb(degree, q) for q in range(degree + 1)))
    result: dict[Powers, int] = {}
    for powers, c in terms.items():
        q = dict(powers).get(name, 0)
        rest = {n: p for n, p in powers if n != name}
        for b in range(q, degree + 1):
            at = tuple(sorted({**rest, name: b}.items())) if b else tuple(sorted(rest.items()))
            part = c * comb(b, q) * (scale // comb(degree, q)) * width**q
            result[at] = result.get(at, 0) + part
    return {powers: c for powers, c in result.items() if c}


def _points_hold(at: Region, values: tuple[int, ...]) -> bool:
    names = sorted(at.widths)
    widths = [at.widths[name] for name in names]
    if at.reals or any(width is None for width in widths):
        return False
    given = iter(values)
    for point in product(*(range((width or 0) + 1) for width in widths)):
        shape = dict(zip(names, point, strict=True))
        try:
            legal = all(fact.evaluate(shape) >= 0 for fact in at.facts)
            value = at.poly.evaluate(shape)
        except ExpressionError:
            continue  # a size that is divided by is zero: no shape
        if not legal:
            continue
        if value < 0 or value != next(given, None):
            return False
    return next(given, None) is None


@lru_cache(maxsize=_KEPT)
def replace_deep(expr: Expr, atom: Atom, value: Expr) -> Expr:
    """The expression with an atom replaced, inside other atoms too."""
    if not atom.symbols() <= expr.symbols():
        return expr

    def image(a: Atom) -> Expr:
        if a == atom:
            return value
        if a.kind == SYMBOL:
            return Expr.of(a)
        return rebuild(a, tuple(replace_deep(operand, atom, value) for operand in a.args))

    return expr.map_atoms(image)


def _case(at: Region, atom: Atom, chosen: int) -> Region:
    value = atom.args[chosen]
    sign = 1 if atom.kind == MAX else -1
    larger = [(value - other) * sign for other in atom.args if other != value]
    facts = [replace_deep(fact, atom, value) for fact in at.facts]
    return replace(at, poly=replace_deep(at.poly, atom, value), facts=(*facts, *larger))


def _isolated(fact: Expr, name: str) -> tuple[int, Expr] | None:
    """(c, e) with fact == c * name + e, where e is free of the name; None if there is no such form."""
    variable = Expr.symbol(name).terms[0][0]
    c = dict(fact.terms).get(variable, 0)
    rest = fact - c * Expr.symbol(name)
    return (c, rest) if c and name not in rest.symbols() else None


def _fact_step_holds(at: Region, proof: Lower | Between | Tighten) -> bool:
    name, width = proof.name, at.widths[proof.name]
    form = _isolated(at.facts[proof.fact], name)
    if form is None or name in at.reals:
        return False
    c, rest = form
    variable = Expr.symbol(name)
    if isinstance(proof, Tighten):
        k = rest.as_int()
        if k is None:
            return False
        low, high = (max(0, -(k // c)), width) if c > 0 else (0, k // -c)
        if width is not None and high is not None:
            high = min(high, width)
        if high is not None and high < low:
            return True  # no point is legal
        return _holds(at.put(name, variable + low, None if high is None else high - low), proof.child)
    if isinstance(proof, Lower):
        if c != 1:
            return False
        least = at.intervals().of(-rest)[0]
        if width is not None and least is None:
            return False
        width = None if width is None else max(0, width - (least or 0))
        return not rest.symbols() & at.reals and _holds(at.put(name, variable - rest, width), proof.child)
    # Inside a floor division the product of a real and a size could be taken for a multiple.
    inside = [a for expr in (at.poly, *at.facts) for a in expr.atoms() if a.kind != SYMBOL]
    if c != -1 or any(name in a.symbols() for a in inside):
        return False
    return _holds(at.put(name, variable * rest, 1, real=True), proof.child)


def _atom_step_holds(at: Region, proof: Linked | Rounded | Free) -> bool:
    atom = proof.atom
    new = (
        (proof.name, proof.name + "'")
        if isinstance(proof, Free)
        else ((proof.name,) if isinstance(proof, Linked) else proof.names)
    )
    if any(name in at.widths for name in new) or len(set(new)) != len(new):
        return False
    widths: dict[str, int | None]
    if isinstance(proof, Linked):
        divisor = atom.args[1].as_int() if atom.kind == FLOORDIV else None
        if divisor is None or divisor < 1:
            return False
        top, bottom = atom.args[0] - Expr.symbol(proof.name), divisor
        widths = {proof.name: divisor - 1}
        reals = at.reals
    elif isinstance(proof, Rounded):
        lines = lines_of(atom.args) if atom.kind == SCALED_FLOOR else None
        least = at.intervals().of(Expr.lift(lines.size))[0] if lines is not None else None
        if lines is None or least is None or least < 0:
            return False
        bottom = lines.n
        slope, offset = (Expr.symbol(name) for name in proof.names)
        top = (lines.low + (lines.high - lines.low) * slope) * lines.size + (offset - 1) * bottom
        widths = dict.fromkeys(proof.names, 1)
        reals = at.reals | set(proof.names)
    else:
        top, bottom, widths = _free(at.intervals().of_atom(atom), proof)
        reals = at.reals
        if not widths:
            return False
    poly = _scaled_replacement(at.poly, atom, top, bottom)
    return _holds(replace(at, poly=poly, widths={**at.widths, **widths}, reals=reals), proof.child)


def _free(known: Interval, proof: Free) -> tuple[Expr, int, dict[str, int | None]]:
    """The atom's replacement; no widths where the claimed bounds are not those known."""
    low, high, variable = proof.low, proof.high, Expr.symbol(proof.name)
    if low is not None and (known[0] is None or known[0] < low):
        return ZERO, 1, {}
    if high is not None and (known[1] is None or known[1] > high):
        return ZERO, 1, {}
    if low is not None:
        return low + variable, 1, {proof.name: None if high is None else high - low}
    if high is not None:
        return high - variable, 1, {proof.name: None}
    return variable - Expr.symbol(proof.name + "'"), 1, {proof.name: None, proof.name + "'": None}


def _scaled_replacement(poly: Expr, atom: Atom, top: Expr, bottom: int) -> Expr:
    """bottom**degree * poly with the atom replaced by top / bottom."""
    degree = max((dict(mono).get(atom, 0) for mono, _ in poly.terms), default=0)
    total = ZERO
    for mono, c in poly.terms:
        power = dict(mono).get(atom, 0)
        rest = tuple(item for item in mono if item[0] != atom)
        total = total + Expr({rest: c * bottom ** (degree - power)}) * top**power
    return total


def _residues_hold(at: Region, name: str, modulus: int, parts: tuple[Proof | None, ...]) -> bool:
    width = at.widths[name]
    if name in at.reals or modulus < 1 or len(parts) != modulus:
        return False
    for j, child in enumerate(parts):
        if width is not None and j > width:
            continue  # no such x is in range
        part = at.put(
            name, modulus * Expr.symbol(name) + j, None if width is None else (width - j) // modulus
        )
        if child is None or not _holds(part, child):
            return False
    return True


def _sector(at: Region, order: tuple[str, ...]) -> Region:
    for before, name in reversed(list(pairwise(order))):
        at = at.put(name, Expr.symbol(before) + Expr.symbol(name), None)
    return at
