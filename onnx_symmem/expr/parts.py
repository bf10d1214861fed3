"""A proof that max(P) <= max(Q) on a domain, as data: the parts of the domain, and what holds on them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from onnx_symmem.expr.domain import Domain
from onnx_symmem.expr.dominance import Dominance

__all__ = ["Halves", "Part", "dominances_of", "halves_of", "parts_of"]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the domain with a dominance by Q for every expression of P, or looked at point by point.

    Expressions that have a dominance on a larger part, which was cut later, need none here.
    """

    domain: Domain
    dominances: tuple[Dominance, ...]
    by_points: bool = False


@dataclass(frozen=True, slots=True)
class Halves:
    """The parts where a free symbol is < at, and >= at; `dominances` hold on both."""

    domain: Domain
    name: str
    at: int
    below: Part | Halves
    above: Part | Halves
    dominances: tuple[Dominance, ...] = ()


def halves_of(domain: Domain, name: str, at: int) -> tuple[Domain, Domain]:
    """The domains below and above a cut."""
    old = domain.range_of(name)
    return (
        domain.with_ranges({name: replace(old, hi=at - 1)}),
        domain.with_ranges({name: replace(old, lo=at)}),
    )


def parts_of(proof: Part | Halves | None) -> Iterator[Part]:
    """The parts that are not cut, the lower ones first."""
    if isinstance(proof, Part):
        yield proof
    elif proof is not None:
        yield from parts_of(proof.below)
        yield from parts_of(proof.above)


def dominances_of(proof: Part | Halves | None) -> Iterator[tuple[Domain, Dominance]]:
    """All dominances with the domains on which they hold."""
    if proof is None:
        return
    for dominance in proof.dominances:
        yield proof.domain, dominance
    if isinstance(proof, Halves):
        yield from dominances_of(proof.below)
        yield from dominances_of(proof.above)
