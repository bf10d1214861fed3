"""Proofs of a row written out: class by class of a cover, as they stand, by boxes, by sectors; less facts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import permutations

import numpy as np

from onnx_symmem.expr.blocks import Block, leaf
from onnx_symmem.expr.covers import Cover, by_classes
from onnx_symmem.expr.domain import Domain
from onnx_symmem.expr.exact import BoolArray, IntArray, any_in_row, none_negative
from onnx_symmem.expr.expression import Expr
from onnx_symmem.expr.proof import Proof, Sectors, Spend

__all__ = ["by_sectors", "found_or_leaf", "write_classes", "write_leaves", "write_spent"]

_MAX_SECTOR_NAMES = 3

Written = tuple[tuple[str, ...], tuple[int, ...], Proof]


def _write(cover: Cover, proofs: Iterable[Proof]) -> Written:
    return cover.symbols, cover.facts, cover.build(iter(proofs))


def write_classes(cover: Cover, of_class: Sequence[Callable[[int], Proof]]) -> Written:
    """The proof (symbols, facts, proof) of a row whose classes are proved, block by block, by functions."""
    return _write(cover, (by_classes(block, f) for block, f in zip(cover.blocks, of_class, strict=True)))


def write_leaves(cover: Cover, row: IntArray) -> Written:
    """The same where no class has a negative coefficient."""
    vectors = [block.vectors(row) for block in cover.blocks]
    return write_classes(cover, [partial(_leaf, b, v) for b, v in zip(cover.blocks, vectors, strict=True)])


def write_spent(
    domain: Domain, times: int, spent: Sequence[tuple[Expr, int]], rest: Callable[[], Written]
) -> Written:
    """The proof of a row from `rest`, that of some multiple of it less what is spent."""
    symbols, facts, proof = rest()
    places = [domain.facts().index(fact) for fact, _ in spent]
    facts = tuple(dict.fromkeys((*facts, *places)))
    names = tuple(sorted({*symbols, *(name for fact, _ in spent for name in fact.symbols())}))
    taken = tuple((facts.index(at), often) for at, (_, often) in zip(places, spent, strict=True))
    return names, facts, Spend(times, taken, proof)


def _leaf(block: Block, vectors: IntArray, cls: int) -> Proof:
    return block.leaf(vectors[cls])


def found_or_leaf(block: Block, vectors: IntArray, found: Mapping[int, Proof], cls: int) -> Proof:
    """The proof found for a class, or that it stands as it is."""
    return found[cls] if cls in found else block.leaf(vectors[cls])


def by_sectors(block: Block, row: IntArray, whole: bool) -> tuple[Callable[[int], Proof], BoolArray] | None:
    """(the proof of a class by sectors, which classes have one); None where sectors do not help.

    Classes without negative coefficients need no sectors. `whole` asks for all classes or nothing.
    """
    vectors = block.vectors(row)
    columns, _, degrees = block.bernstein
    plain = none_negative(vectors)
    if plain.all():
        return partial(_leaf, block, vectors), plain
    unbounded = [v for v, name in enumerate(block.names) if block.limits[name] is None]
    negative = [columns[j] for j in np.flatnonzero(any_in_row(vectors.T < 0))]
    mixed = [v for v in unbounded if any(e[v] for e in negative)]
    if len(mixed) == 1:
        # The other factor of a product like x*(y - x) is in no negative column: take all that occur.
        mixed = [v for v in unbounded if vectors[:, [j for j, e in enumerate(columns) if e[v]]].any()]
    if not 2 <= len(mixed) <= _MAX_SECTOR_NAMES or not block.has_sectors():
        return None
    orders, names = list(permutations(mixed)), tuple(block.names[v] for v in mixed)
    settled = plain.copy()
    left = np.flatnonzero(~plain)
    for order in orders:
        # The first class stands for all: the others cost more and are seldom better.
        if whole and not none_negative(block.sector(vectors[left[:1]], order)[1]).all():
            return None
        left = left[none_negative(block.sector(vectors[left], order)[1])]
        if left.size == 0:
            return None
    settled[left] = True

    def of_class(cls: int) -> Proof:
        if plain[cls]:
            return block.leaf(vectors[cls])
        parts = (block.sector(vectors[cls : cls + 1], order) for order in orders)
        return Sectors(names, tuple(leaf(block.names, c, found[0], degrees) for c, found in parts))

    return of_class, settled
