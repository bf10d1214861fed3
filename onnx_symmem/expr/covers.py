"""Covers of a domain by regions on which every expression of a basis is a polynomial.

A recipe says how: atoms as independent bounded variables (cheap), floor divisions tied to their
numerators, or residue classes S = m*k + r, in which floor divisions are exact; max and min by cases;
facts of the domain by substitution. Each cover comes with the skeleton of the proofs it gives rise
to: a function from proofs for its blocks, in order, to the proof for the whole domain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import lcm

import numpy as np

from onnx_symmem.expr.atom import FLOORDIV, MAX, MIN, SCALED_FLOOR, SYMBOL, Atom, Monomial, with_inner
from onnx_symmem.expr.blocks import Block, build_block
from onnx_symmem.expr.certificate import replace_deep
from onnx_symmem.expr.domain import Domain
from onnx_symmem.expr.exact import BoolArray, IntArray
from onnx_symmem.expr.expression import Expr
from onnx_symmem.expr.interval import Intervals, told_of
from onnx_symmem.expr.mapper import Mapper, Opaque
from onnx_symmem.expr.proof import (
    Cases,
    Empty,
    Free,
    Linked,
    Proof,
    Residues,
    Rounded,
    Widen,
)
from onnx_symmem.expr.region_state import RegionState, Step, use_fact
from onnx_symmem.expr.residues import MAX_CLASSES, class_count, residue_moduli
from onnx_symmem.expr.scaled import lines_of
from onnx_symmem.expr.sieve import Sieve

__all__ = ["LINKED", "RAW", "RESIDUES", "SHIFT", "TOLD",
           "Cover", "Recipe", "build_cover", "by_classes", "map_of"]  # fmt: skip

_MAX_FACTS = 24
_KEPT_REGIONS = 512
_FIRST_ROWS = 512  # that the sieve learns by before it meets more

Builder = Callable[[Iterator[Proof]], Proof]


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a cover is made. `tier` names proofs by it.

    At most `cases` cases of max and min are told apart; `even` takes one modulus for all variables,
    `widen` one lower end for all unbounded ones.
    """

    tier: str
    cases: int = 16
    facts: bool = True
    linked: bool = True
    residues: bool = False
    even: bool = False
    widen: bool = False


SHIFT = Recipe("shift", cases=1, facts=False, linked=False)
LINKED = Recipe("linked")
TOLD = Recipe("linked", linked=False)  # what is linked to its operand loses bounds that facts tell of it
RESIDUES = Recipe("residues", cases=4, residues=True)
RAW = Recipe(
    "residues", cases=4, facts=False, residues=True
)  # facts cost integrality and upper bounds of symbols


@dataclass(frozen=True, slots=True)
class Cover:
    """Blocks whose regions cover the domain."""

    recipe: Recipe
    symbols: tuple[str, ...]
    facts: tuple[int, ...]
    blocks: tuple[Block, ...]
    values: tuple[Mapping[str, Expr], ...]  # symbols as expressions of a block's variables before residues
    build: Builder
    sieve: Sieve = field(default_factory=Sieve, repr=False, compare=False)

    def holds(self, rows: IntArray) -> BoolArray:
        """Which rows are >= 0 by the coefficients of every block."""
        result = np.zeros(len(rows), dtype=bool)
        start, count = 0, _FIRST_ROWS
        while start < len(rows):
            some = rows[start : start + count]
            alive = self.sieve.passed(some)
            for block in self.blocks:
                if alive.size == 0:
                    break
                held = block.holds(some[alive])
                self.sieve.learn(some[alive[~held]], block.tests)
                alive = alive[held]
            result[start + alive] = True
            start, count = start + count, 4 * count
        return result

    def shape(self, index: int, cls: int, point: Mapping[str, int]) -> dict[str, int]:
        """The symbols' sizes at a point of a block's class."""
        block = self.blocks[index]
        whole = dict(point)
        for (name, modulus), residue in zip(block.residues, block.classes[cls], strict=True):
            whole[name] = modulus * whole[name] + residue
        return {name: expr.evaluate(whole) for name, expr in self.values[index].items()}


def by_classes(block: Block, of_class: Callable[[int], Proof]) -> Proof:
    """The proof for a block from the proofs for its classes."""
    index = {cls: i for i, cls in enumerate(block.classes)}

    def nest(prefix: tuple[int, ...]) -> Proof | None:
        if len(prefix) == len(block.residues):
            return of_class(index[prefix])
        name, modulus = block.residues[len(prefix)]
        known = {cls[len(prefix)] for cls in block.classes}
        parts = tuple(nest((*prefix, j)) if j in known else None for j in range(modulus))
        return Residues(name, modulus, parts)

    proof = nest(())
    assert proof is not None
    return proof


def build_cover(basis: Sequence[Monomial], domain: Domain, recipe: Recipe) -> Cover | None:
    """The cover by a recipe; None where the recipe does not apply."""
    atoms = tuple(sorted({atom for mono in basis for atom, _ in mono}, key=lambda a: a.key))
    kept: dict[tuple[tuple[Atom, ...], Recipe], _Regions | None] = domain.memo("regions")
    if (atoms, recipe) not in kept:
        if len(kept) >= _KEPT_REGIONS:
            kept.pop(next(iter(kept)))
        kept[atoms, recipe] = _regions_of(atoms, domain, recipe)
    found = kept[atoms, recipe]
    if found is None:
        return None
    blocks = tuple(build_block(basis, region.mapper, region.reals) for region in found.regions)
    values = tuple(region.values for region in found.regions)
    return Cover(recipe, found.symbols, found.facts, blocks, values, found.build)


@dataclass(frozen=True, slots=True)
class _Region:
    """A part of a domain with its map; `values` are symbols as expressions of its variables."""

    mapper: Mapper
    reals: frozenset[str]
    values: Mapping[str, Expr]


@dataclass(frozen=True, slots=True)
class _Regions:
    """The parts on which all monomials of some atoms are polynomials: a cover but for its blocks."""

    symbols: tuple[str, ...]
    facts: tuple[int, ...]
    regions: tuple[_Region, ...]
    build: Builder


def _regions_of(atoms: Sequence[Atom], domain: Domain, recipe: Recipe) -> _Regions | None:
    state, symbols, facts = _start(atoms, domain, recipe)
    widened: list[tuple[str, int]] = []
    if recipe.widen:
        ranges = {name: domain.range_of(name) for name in symbols}
        starts = {n: r.lo for n, r in ranges.items() if r.hi is None and r.divisor == 1}
        least = min(starts.values(), default=0)
        widened = [(name, lo - least) for name, lo in starts.items() if lo > least]
        if not widened:
            return None
        for name, by in widened:
            state = state.put(name, Expr.symbol(name) - by, None)
    regions, build = _expand(state, recipe, recipe.cases)
    for name, by in reversed(widened):
        build = _wrapped(build, partial(Widen, name, by))
    return _Regions(symbols, facts, tuple(regions), build)


def _start(
    given: Iterable[Atom], domain: Domain, recipe: Recipe
) -> tuple[RegionState, tuple[str, ...], tuple[int, ...]]:
    """Symbols counted from their lower ends, with (the symbols, the facts that are used)."""
    atoms = sorted(set(given), key=lambda a: a.key)
    images = {atom: domain.solved(Expr.of(atom)) for atom in atoms}
    names = {name for image in images.values() for name in image.symbols()}
    facts = _related(domain, names) if recipe.facts else _telling(domain, images.values())
    names.update(*(domain.facts()[i].symbols() for i in facts))
    symbols = tuple(sorted(names))
    ranges = {name: domain.range_of(name) for name in symbols}
    shift = {name: r.lo + r.divisor * Expr.symbol(name) for name, r in ranges.items()}
    state = RegionState(
        {atom: image.substitute(shift) for atom, image in images.items()},
        shift,
        {n: None if r.hi is None else (r.hi - r.lo) // r.divisor for n, r in ranges.items()},
        frozenset(),
        tuple(_shifted(domain, i) for i in facts),
    )
    return state, symbols, facts


def _telling(domain: Domain, images: Iterable[Expr]) -> tuple[int, ...]:
    """Indices of the facts that bound one of the atoms, or one inside of them."""
    inside = with_inner(atom for image in images for atom in image.atoms())
    return tuple(i for i, fact in enumerate(domain.facts()) if not inside.isdisjoint(told_of([fact])))


def _shifted(domain: Domain, fact: int) -> Expr:
    """A fact whose symbols are counted from their lower ends."""
    kept: dict[int, Expr] = domain.memo("shifted facts")
    if fact not in kept:
        expr = domain.facts()[fact]
        ranges = {name: domain.range_of(name) for name in expr.symbols()}
        kept[fact] = expr.substitute({n: r.lo + r.divisor * Expr.symbol(n) for n, r in ranges.items()})
    return kept[fact]


def _related(domain: Domain, names: set[str]) -> tuple[int, ...]:
    """Indices of the facts that are connected with the names, the nearest first."""
    known = set(names)
    chosen: list[int] = []
    grew = True
    while grew and len(chosen) < _MAX_FACTS:
        grew = False
        reached = set(known)
        for i, fact in enumerate(domain.facts()):
            if i not in chosen and fact.symbols() & known and len(chosen) < _MAX_FACTS:
                chosen.append(i)
                reached |= fact.symbols()
                grew = True
        known = reached
    return tuple(chosen)


def _wrapped(build: Builder, step: Callable[[Proof], Proof]) -> Builder:
    return lambda proofs: step(build(proofs))


def _expand(state: RegionState, recipe: Recipe, cases: int) -> tuple[list[_Region], Builder]:
    if cases > 1:
        # The innermost max or min is first: the last in the order of lengths.
        extrema = _told_apart(state)
        if extrema and len(extrema[-1].args) <= cases:
            return _by_cases(state, extrema[-1], recipe, cases // len(extrema[-1].args))
    if recipe.facts:
        found = use_fact(state, prefer_integers=recipe.residues)
        if found is not None:
            step, following = found
            if following is None:
                return [], lambda _: step(Empty(0))
            regions, build = _expand(following, recipe, cases)
            return regions, _wrapped(build, step)
    return _finish(state, recipe)


def _told_apart(state: RegionState) -> list[Atom]:
    """Extrema whose cases may show more than their bounds: none of scaled sizes, nor inside of such."""
    reached: dict[Atom, None] = {}
    stack = [atom for image in state.images.values() for atom in image.atoms()]
    while stack:
        atom = stack.pop()
        if atom not in reached:
            reached[atom] = None
            if atom.kind != SCALED_FLOOR and not _is_of_scaled(atom):
                stack += [a for operand in atom.args for a in operand.atoms()]
    extrema = [atom for atom in state.others() if atom.kind in (MAX, MIN) and atom in reached]
    # Beside one of its operands it may be the larger or the smaller.
    return [a for a in extrema if not _is_of_scaled(a) or any(o.as_atom() in reached for o in a.args)]


def _is_of_scaled(atom: Atom) -> bool:
    """Whether all operands of an extremum are sizes scaled in float32."""
    operands = [operand.as_atom() for operand in atom.args if atom.kind in (MAX, MIN)]
    return bool(operands) and all(a is not None and a.kind == SCALED_FLOOR for a in operands)


def _by_cases(state: RegionState, atom: Atom, recipe: Recipe, cases: int) -> tuple[list[_Region], Builder]:
    regions: list[_Region] = []
    builders: list[Builder] = []
    sign = 1 if atom.kind == MAX else -1
    for value in atom.args:
        larger = tuple((value - other) * sign for other in atom.args if other != value)
        case = replace(
            state,
            images={a: replace_deep(e, atom, value) for a, e in state.images.items()},
            facts=(*(replace_deep(fact, atom, value) for fact in state.facts), *larger),
        )
        found, build = _expand(case, recipe, cases)
        regions += found
        builders.append(build)
    return regions, lambda proofs: Cases(atom, tuple(build(proofs) for build in builders))


# -- the rest of the atoms ----------------------------------------------------------------------------
def _finish(state: RegionState, recipe: Recipe) -> tuple[list[_Region], Builder]:
    mapper, reals, opaque = _mapped(state, recipe)
    build: Builder = next
    for o in reversed(opaque):
        build = _wrapped(build, _opaque_step(o))
    return [_Region(mapper, reals, state.values)], build


def _mapped(state: RegionState, recipe: Recipe) -> tuple[Mapper, frozenset[str], list[Opaque]]:
    """The region's map, its real variables, and the atoms that variables stand for."""
    moduli: dict[str, int] = {}
    exact: frozenset[Atom] = frozenset()
    if recipe.residues:
        whole = {name: w for name, w in state.widths.items() if name not in state.reals}
        floors = [atom for atom in state.others() if atom.kind == FLOORDIV]
        moduli, exact = residue_moduli(floors, whole, MAX_CLASSES)
        if recipe.even:
            moduli = _evened(state, moduli)
    opaque = _opaque(state, exact, recipe.linked)
    widths = {**state.widths, **{name: w for o in opaque for name, w in _new_widths(o).items()}}
    reals = state.reals | {name for o in opaque if o.step == "rounded" for name in o.names}
    return Mapper(state.images, widths, moduli, {o.atom: o for o in opaque}), reals, opaque


def map_of(atoms: Iterable[Atom], domain: Domain, recipe: Recipe) -> Mapper:
    """The map that a recipe without facts and cases makes of all monomials of the atoms."""
    state, _, _ = _start(atoms, domain, replace(recipe, facts=False))
    return _mapped(state, recipe)[0]


def _evened(state: RegionState, moduli: Mapping[str, int]) -> dict[str, int]:
    """One modulus for all unbounded variables, where the number of classes allows it."""
    unbounded = [n for n, w in state.widths.items() if w is None]
    modulus = lcm(*moduli.values())
    even = {**moduli, **dict.fromkeys(unbounded, modulus)}
    fits = modulus > 1 and class_count(even, state.widths) <= MAX_CLASSES
    return even if fits else dict(moduli)


def _opaque(state: RegionState, exact: frozenset[Atom], linked: bool) -> list[Opaque]:
    """The atoms to replace, each before those inside of it."""
    intervals = state.intervals()
    pending = {atom: None for image in state.images.values() for atom in image.atoms()}
    done: dict[Atom, Opaque] = {}
    prefix = "_"
    while any(name.startswith(prefix) for name in state.widths):
        prefix += "_"
    while pending:
        atom = max(pending, key=lambda a: (len(a.key[1]), a.key))
        del pending[atom]
        if atom.kind == SYMBOL or atom in exact or atom in done:
            continue
        name = f"{prefix}{len(done)}"
        made = _linked(atom, name, intervals) if linked else None
        if made is None:
            low, high = intervals.of_atom(atom)
            names = (name,) if low is not None or high is not None else (name, name + "'")
            made = Opaque(atom, "free", names, low, high)
        else:
            pending.update(dict.fromkeys(_tied_to(atom).atoms()))
        done[atom] = made
    return list(done.values())


def _linked(atom: Atom, name: str, intervals: Intervals) -> Opaque | None:
    """An atom tied to its operand, where that is possible."""
    if atom.kind == FLOORDIV and atom.args[1].is_const:
        return Opaque(atom, "linked", (name,))
    lines = lines_of(atom.args) if atom.kind == SCALED_FLOOR else None
    if lines is not None:
        least = intervals.of(Expr.lift(lines.size))[0]
        if least is not None and least >= 0:
            return Opaque(atom, "rounded", (name, name + "'"))
    return None


def _tied_to(atom: Atom) -> Expr:
    """The operand that a linked or rounded atom follows."""
    lines = lines_of(atom.args) if atom.kind == SCALED_FLOOR else None
    return atom.args[0] if lines is None else Expr.lift(lines.size)


def _new_widths(o: Opaque) -> dict[str, int | None]:
    if o.step == "linked":
        return {o.names[0]: (o.atom.args[1].as_int() or 1) - 1}
    if o.step == "rounded":
        return dict.fromkeys(o.names, 1)
    width = None if o.low is None or o.high is None else o.high - o.low
    return dict.fromkeys(o.names, width)


def _opaque_step(o: Opaque) -> Step:
    if o.step == "linked":
        return lambda child: Linked(o.atom, o.names[0], child)
    if o.step == "rounded":
        return lambda child: Rounded(o.atom, (o.names[0], o.names[1]), child)
    return lambda child: Free(o.atom, o.names[0], o.low, o.high, child)
