"""Proofs of `row @ basis >= 0` on a domain, for one row or many, cheapest method first.

A shape at which a size that is divided by is zero is no shape: proofs and witnesses leave it out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt

from onnx_symmem.expr.atom import FLOORDIV, SYMBOL, Atom, Monomial, with_inner
from onnx_symmem.expr.basis_values import BasisValues, Shape, nonzero
from onnx_symmem.expr.boxes import Budget, Negative, search
from onnx_symmem.expr.class_proofs import by_sectors, found_or_leaf, write_classes, write_leaves, write_spent
from onnx_symmem.expr.covers import LINKED, RAW, RESIDUES, SHIFT, TOLD, Cover, Recipe, build_cover
from onnx_symmem.expr.domain import Domain
from onnx_symmem.expr.exact import BoolArray, IntArray, Table, any_in_row, none_negative
from onnx_symmem.expr.expression import Expr
from onnx_symmem.expr.interval import told_of
from onnx_symmem.expr.proof import Leaf, Points, Proof
from onnx_symmem.expr.samples import legal_near
from onnx_symmem.expr.spendable import SpendableFacts, is_shared

__all__ = ["SEARCH", "SECTORS", "SHALLOW", "TIERS", "Evidence", "Prover", "prover_of"]

SHALLOW, SECTORS, SEARCH = range(3)  # efforts: linear maps only, also sectors, also samples and boxes

TIERS = ("unknown", "equal", "samples", "shift", "points", "linked", "residues", "sectors", "boxes", "shared")
_TIER = {tier: code for code, tier in enumerate(TIERS)}
_MAX_TESTS = 20_000
_BOX_COEFFICIENTS = 30_000  # beyond, no box is cut
_ROOT_COEFFICIENTS = 300_000  # beyond, no class is looked at
_BLOCK = 80_000  # numbers that take as long as making a block
_SEARCHED, _COEFFICIENT = 400_000, 20  # ... as a search by boxes, and as each coefficient in it
_KEPT_PROVERS = 512


@dataclass(frozen=True, slots=True)
class Evidence:
    """A found proof: its tier, and a function that writes it out as (symbols, facts, proof)."""

    tier: str
    write: Callable[[], tuple[tuple[str, ...], tuple[int, ...], Proof]]


class Prover:
    """One basis of monomials on one domain; tables are built when they are first needed and kept."""

    def __init__(self, basis: Sequence[Monomial], domain: Domain) -> None:
        self.basis = tuple(basis)
        self.domain = domain
        images = [domain.solved(Expr.of(atom)) for mono in basis for atom, _ in mono]
        self.symbols = tuple(sorted(frozenset().union(*(image.symbols() for image in images))))
        others = _others(images)
        facts = any(fact.symbols() & set(self.symbols) for fact in domain.facts())
        floors = any(atom.kind == FLOORDIV for atom in others)
        divisors = sorted({d for a in others for d in a.divisors}, key=Expr.sort_key)
        self.at_shapes = BasisValues(self.basis, domain, self.symbols, divisors)
        self._recipes: list[Recipe] = [SHIFT]
        if others or facts:
            self._recipes.append(LINKED)
        if not others.isdisjoint(told_of(domain.facts())):
            self._recipes.append(TOLD)
        if floors:
            self._recipes.append(RESIDUES)
        if facts and others:
            self._recipes.append(RAW)
        self._covers: dict[Recipe, Cover | None] = {}
        self.searched = 0  # effort that went into boxes so far

    # -- many rows ---------------------------------------------------------------------------------
    def prove(self, rows: IntArray, effort: int = SEARCH) -> npt.NDArray[np.int8]:
        """For every row the code of the tier that proves it >= 0 (see TIERS), 0 where none does."""
        codes = np.zeros(len(rows), dtype=np.int8)
        codes[~any_in_row(rows != 0)] = _TIER["equal"]
        for tier, holds in self._shallow():
            left = np.flatnonzero(codes == 0)
            if left.size == 0:
                return codes
            codes[left[holds(rows[left])]] = _TIER[tier]
            if tier == "points":
                return codes  # nothing else can prove what a point refutes
        if effort > SHALLOW:
            for i in np.flatnonzero(codes == 0):
                found = self._find_deep(rows[i], effort)
                if isinstance(found, Evidence):
                    codes[i] = _TIER[found.tier]
        return codes

    def _shallow(self) -> Iterator[tuple[str, Callable[[IntArray], BoolArray]]]:
        for recipe in self._recipes:
            cover = self.cover(recipe)
            if cover is not None:
                yield recipe.tier, cover.holds
            if recipe is SHIFT and self.at_shapes.has_points:
                yield "points", self._points_hold

    def cover(self, recipe: Recipe) -> Cover | None:
        """The cover by a recipe, built once."""
        if recipe not in self._covers:
            self._covers[recipe] = build_cover(self.basis, self.domain, recipe)
        return self._covers[recipe]

    @cached_property
    def test_tables(self) -> tuple[Table, ...]:
        """monomials x tests, cheapest table first: a row is >= 0 if row @ table has no negative number."""
        best = RESIDUES if RESIDUES in self._recipes else self._recipes[-1]
        found: list[Table] = []
        for recipe in (recipe for recipe in self._recipes if recipe in (SHIFT, TOLD, best)):
            cover = self.cover(recipe)
            tables = [] if cover is None else [block.tests for block in cover.blocks]
            if len(tables) == 1 and tables[0].columns <= _MAX_TESTS:
                found += tables
            elif 0 < sum(table.columns for table in tables) <= _MAX_TESTS:
                wide = any(table.array.dtype == object for table in tables)
                arrays = [table.array.astype(object) if wide else table.array for table in tables]
                found.append(Table(np.concatenate(arrays, axis=1)))
        return tuple(found)

    @cached_property
    def effort(self) -> int:
        """What an attempt at many rows takes, in numbers of the maps that any attempt is made with."""
        best = RESIDUES if RESIDUES in self._recipes else self._recipes[-1]
        covers = [self.cover(recipe) for recipe in dict.fromkeys((SHIFT, best))]
        blocks = [block for cover in covers if cover is not None for block in cover.blocks]
        return sum(_BLOCK + block.table.size for block in blocks)

    # -- one row -----------------------------------------------------------------------------------
    def find(self, row: IntArray, effort: int = SEARCH) -> Evidence | Shape | None:
        """The proof that a row is >= 0, a legal shape where it is negative, or None."""
        if not row.any():
            return Evidence("equal", lambda: ((), (), Leaf((), ())))
        one = row.reshape(1, -1)
        for recipe in self._recipes:
            cover = self.cover(recipe)
            if cover is not None and cover.holds(one)[0]:
                return Evidence(recipe.tier, partial(write_leaves, cover, row))
            if recipe is SHIFT and self.at_shapes.has_points:
                return self._find_points(row)
        return self._find_deep(row, effort) if effort > SHALLOW else None

    def _find_deep(self, row: IntArray, effort: int) -> Evidence | Shape | None:
        if self.at_shapes.has_points:
            return None
        if effort == SEARCH:
            negative = self.at_shapes.negative_at(row)
            if negative is not None:
                return negative
        shared = self._by_facts(row)
        if shared is not None:
            return shared
        last = self._recipes[-1]
        best = RESIDUES if RESIDUES in self._recipes else last
        variants = [best]
        if last is not best:
            variants.append(last)
        for recipe in list(variants):
            if recipe.residues:
                variants.append(replace(recipe, even=True))
        variants.append(replace(best, even=True, widen=True))
        for recipe in variants:
            cover = self.cover(recipe)
            if cover is None:
                continue
            proofs: list[Callable[[int], Proof]] = []
            for block in cover.blocks:
                found = by_sectors(block, row, whole=True)
                if found is None or not found[1].all():
                    break
                proofs.append(found[0])
            if len(proofs) == len(cover.blocks):
                return Evidence("sectors", partial(write_classes, cover, proofs))
        for recipe in dict.fromkeys((best, last)) if effort == SEARCH else ():
            cover = self.cover(recipe)
            searched = None if cover is None else self._boxes(cover, row)
            if searched is not None:
                return searched
        return None

    def _by_facts(self, row: IntArray) -> Evidence | None:
        """The proof that a row is >= 0 even less facts that several symbols share."""
        used = {atom.name for k in np.flatnonzero(row) for atom, _ in self.basis[k] if atom.kind == SYMBOL}
        facts = [f for f in self.domain.facts() if is_shared(f) and len(f.symbols() & used) > 1]
        if not facts:
            return None
        wider = dict.fromkeys((*self.basis, *(mono for fact in facts for mono, _ in fact.terms)))
        prover = prover_of(tuple(wider), self.domain)
        padded = np.zeros(len(wider), dtype=row.dtype)
        padded[: len(row)] = row
        spendable = SpendableFacts.of(prover.basis, padded, self.domain)
        for tests in prover.test_tables:
            for times, spent, rest in spendable.offers(padded, tests):
                found = prover.find(rest, SHALLOW)
                if isinstance(found, Evidence):
                    return Evidence("shared", partial(write_spent, self.domain, times, spent, found.write))
        return None

    def _boxes(self, cover: Cover, row: IntArray) -> Evidence | Shape | None:
        budget = Budget(_BOX_COEFFICIENTS)
        self.searched += _SEARCHED
        proofs: list[Callable[[int], Proof]] = []
        for index, block in enumerate(cover.blocks):
            found: dict[int, Proof] = {}
            vectors = block.vectors(row)
            sectors = by_sectors(block, row, whole=False)
            for cls in np.flatnonzero(~none_negative(vectors)).tolist():
                if sectors is not None and sectors[1][cls]:
                    found[cls] = sectors[0](cls)
                    continue
                before = budget.left
                result = search(block.names, block.reals, block.powers(row, cls), block.widths(cls), budget)
                self.searched += _COEFFICIENT * (before - budget.left)
                if budget.left < -_ROOT_COEFFICIENTS:  # classes that need no cut spend, too
                    return None
                if isinstance(result, Negative):
                    return self._confirmed(cover.shape(index, cls, result.point), row)
                if result is None:
                    return None
                found[cls] = result
            proofs.append(partial(found_or_leaf, block, vectors, found))
        return Evidence("boxes", partial(write_classes, cover, proofs))

    def _confirmed(self, shape: Shape, row: IntArray) -> Shape | None:
        """The shape, completed, if it is legal and the row is negative there."""
        domain = self.domain
        free = {name: domain.range_of(name).lo for name in domain.symbols() if name not in domain.equalities}
        given = {name: size for name, size in shape.items() if name not in domain.equalities}
        whole = legal_near(domain, {**free, **given}, fixed=given)
        if whole is None or not all(nonzero(divisor, whole) for divisor in self.at_shapes.divisors):
            return None
        return whole if self.value(row, whole) < 0 else None

    def value(self, row: IntArray, shape: Mapping[str, int]) -> int:
        """The exact value of a row at a shape."""
        expr = Expr({mono: int(c) for mono, c in zip(self.basis, row, strict=True) if c})
        return expr.evaluate(shape)

    # -- points ------------------------------------------------------------------------------------
    def _points_hold(self, rows: IntArray) -> BoolArray:
        if self.at_shapes.divisors:
            return np.array([isinstance(self._find_points(row), Evidence) for row in rows], dtype=bool)
        return none_negative(self.at_shapes.points()[1].times(rows))

    def _find_points(self, row: IntArray) -> Evidence | Shape | None:
        if self.at_shapes.divisors:
            # Where the row divides by nothing, a divisor of other rows may well be zero.
            used = np.flatnonzero(row)
            own = tuple(self.basis[k] for k in used)
            if own != self.basis:
                return prover_of(own, self.domain)._find_points(row[used])
        shapes, values = self.at_shapes.points()
        at = values.times(row.reshape(1, -1))[0]
        if (at >= 0).all():
            proof = Points(tuple(int(v) for v in at))
            return Evidence(
                "points", lambda: (self.at_shapes.all_symbols, self.at_shapes.fact_indices, proof)
            )
        return self._confirmed(shapes[int(np.argmin(at))], row)


def _others(images: Sequence[Expr]) -> set[Atom]:
    inside = with_inner(atom for image in images for atom in image.atoms())
    return {atom for atom in inside if atom.kind != SYMBOL}


def prover_of(basis: tuple[Monomial, ...], domain: Domain) -> Prover:
    """The prover of a basis, kept with the domain."""
    kept: dict[tuple[Monomial, ...], Prover] = domain.memo("provers")
    found = kept.get(basis)
    if found is None:
        if len(kept) >= _KEPT_PROVERS:
            kept.pop(next(iter(kept)))
        found = kept[basis] = Prover(basis, domain)
    return found
