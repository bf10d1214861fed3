"""Several orders instead of one, where none is good at all shapes: which runs is decided from the shapes.

The version with the least peak runs, the first of equals, and outside the planned shapes version 0. It is
proved that at every shape the least of them is at most what would have run: of all together, or of version 0
alone, then the order that was chosen by itself. Of all sets of versions it is the smallest that is nowhere
more than 0.2 % above the best order known at a sample shape, at most four, or else the one that is least
above; and several only where that gains enough at a usual one (facts/ALGORITHMS, 8.8).

Deciding takes a few hundred bytes before a version starts, and leaves a few in memory while it runs. By how
much that can exceed what would have run is proved; where it is more than next to nothing, or where one order
is nearer its bound at the worst steering shape, one order is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from onnx_symmem.errors import VerificationFailed
from onnx_symmem.expr.domain import Domain
from onnx_symmem.expr.expression import Expr, maximum, minimum
from onnx_symmem.expr.grid import Grid
from onnx_symmem.expr.least_order import least_le
from onnx_symmem.expr.samples import legal_near
from onnx_symmem.graph.view import GraphView
from onnx_symmem.memory.execution_order import file_for_default, priority_order
from onnx_symmem.memory.peak import Peak, peak, peak_of
from onnx_symmem.order.candidates import CandidateOrder, peaks_at
from onnx_symmem.order.check import check_plan
from onnx_symmem.order.cover import CoverLimits, cover
from onnx_symmem.order.steering import usual_shapes

__all__ = [
    "Dispatch", "DispatchLimits", "OrderVersion", "check_dispatch", "check_written", "choose_versions",
    "no_worse_than_one",
]  # fmt: skip

_USUAL = 512  # shapes as they are run at which orders are compared
_SAMPLES = 48  # shapes at the edges of the domain, besides


@dataclass(frozen=True, slots=True)
class DispatchLimits(CoverLimits):
    """When several orders are worth it.

    All together have at most `nodes` nodes. What deciding can add to what would have run is at most
    `overhead` of that, at every steering shape.
    """

    nodes: int = 20_000
    overhead: float = 0.001


@dataclass(frozen=True)
class OrderVersion:
    """One of the orders, with its peak over the domain."""

    candidate: CandidateOrder
    peak: Peak


@dataclass(frozen=True)
class Dispatch:
    """Orders of which the one with the least peak runs; the first is version 0.

    `rule` is the traversal under which all run as planned. Once the model is written, peaks are those of its
    versions there, `guard` bytes are the most that deciding takes before any starts (0 where that is never
    the peak), and at no shape of the domain the peak is more than `overhead` bytes above what would have run.
    """

    versions: tuple[OrderVersion, ...]
    rule: str
    domain: Domain
    guard: int = 0
    overhead: int = 0

    def version_at(self, shape: Mapping[str, int]) -> int:
        """Which version runs at a shape of the domain: the guard compares what each takes by itself."""
        peaks = [v.peak.at(shape) for v in self.versions]
        return peaks.index(min(peaks))

    def whole(self, version: int) -> Peak:
        """The peak of a run of a version, with the guard before it."""
        own = self.versions[version].peak
        return peak_of([*own.members, Expr.const(self.guard)], self.domain) if self.guard else own

    @property
    def formula(self) -> Expr:
        """The peak of a run, in bytes: of the version that runs, or of the guard."""
        least = minimum(*(maximum(*v.peak.members) for v in self.versions))
        return maximum(least, Expr.const(self.guard)) if self.guard else least

    @property
    def peak(self) -> Peak:
        """The same as a peak: one expression, that of no single moment."""
        return peak_of([self.formula], self.domain)


def choose_versions(
    first: CandidateOrder,
    others: Sequence[CandidateOrder],
    domain: Domain,
    symbols: Sequence[str],
    shapes: Sequence[Mapping[str, int]],
    limits: DispatchLimits | None = None,
    before: Peak | None = None,
    above: int = 0,
) -> Dispatch | None:
    """Versions for `domain`; None where one order, `first`, is good enough.

    With `before`, the peak of what would have run, `first` may be missing where the least of the others is
    proved never worse; else it is version 0. `first` may be above it by `above` bytes, and where it is
    version 0 so may all together, as `overhead` says.

    Only sizes of `symbols`, the dims of the inputs, can decide at run time. `shapes` are those at which
    orders were searched for.
    """
    limits = limits or DispatchLimits()
    view = first.profile.plan.view
    most = min(limits.versions, limits.nodes // max(1, len(view.nodes)))
    told = frozenset(symbols) | domain.equalities.keys()
    if most < 2 or not symbols or not _depends_on(first, told):
        return None
    orders = {c.order: c for c in (first, *others)}
    candidates = [c for c in orders.values() if _depends_on(c, told)]
    allowed = CoverLimits(most, limits.regret, limits.gain)
    usual = usual_shapes(domain, symbols, _USUAL)
    samples = _samples(domain, symbols, (*usual, *shapes))
    grid = Grid(samples)
    peaks = np.array([c.profile.peaks(grid) for c in candidates], dtype=np.float64)
    for rule in ("priority", "default"):
        usable = [k for k, c in enumerate(candidates) if _runs_under(view, c, rule)]
        if 0 not in usable:
            continue
        known = [candidates[k] for k in usable]
        picked = cover(peaks[usable], allowed, len(usual), free=before is not None)
        proved: tuple[int, ...] = ()
        if before is not None and picked[0]:
            proved = _never_worse(known, picked, before, samples, domain)
            picked = proved or cover(peaks[usable], allowed, len(usual))
        if len(picked) > 1:
            versions = tuple(OrderVersion(known[k], peak(known[k].profile, domain)) for k in picked)
            return Dispatch(versions, rule, domain, overhead=0 if proved else above)
        return None
    return None


def _never_worse(
    candidates: Sequence[CandidateOrder],
    picked: Sequence[int],
    before: Peak,
    samples: Sequence[Mapping[str, int]],
    domain: Domain,
) -> tuple[int, ...]:
    """The picked ones, the one that is above what would have run at the fewest samples first.

    None where it is not proved that at every shape the least of them is at most that.
    """
    peaks = {k: peak(candidates[k].profile, domain) for k in picked}
    if not least_le([p.members for p in peaks.values()], before.members, domain).proved:
        return ()
    needed = frozenset().union(*(m.symbols() for p in (before, *peaks.values()) for m in p.members))
    told = [shape for shape in samples if needed <= shape.keys()]
    above = {k: sum(p.at(shape) > before.at(shape) for shape in told) for k, p in peaks.items()}
    return tuple(sorted(picked, key=lambda k: above[k]))


def _samples(
    domain: Domain, symbols: Sequence[str], shapes: Sequence[Mapping[str, int]]
) -> list[Mapping[str, int]]:
    """The shapes given, and others spread over the domain; each is completed by sizes that others give."""
    found: dict[tuple[tuple[str, int], ...], Mapping[str, int]] = {}
    for shape in (*shapes, *domain.samples(_SAMPLES, symbols=symbols)):
        legal = legal_near(domain, shape)
        if legal is not None:
            full = domain.completed({**shape, **legal})
            found.setdefault(tuple(sorted(full.items())), full)
    return list(found.values())


def _depends_on(candidate: CandidateOrder, told: frozenset[str]) -> bool:
    """Whether the bytes of an order are told by these sizes alone, and all are known."""
    basis = candidate.profile.in_use.basis
    names = frozenset().union(*(atom.symbols() for mono in basis for atom, _ in mono))
    return names <= told and not candidate.profile.not_counted


def _runs_under(view: GraphView, candidate: CandidateOrder, rule: str) -> bool:
    """Whether a file makes this order run under the traversal, with the bytes that were planned."""
    if candidate.rule != rule and any(node.subgraphs for node in view.nodes):
        return False  # subgraphs were planned under the other one
    if rule == "priority":
        return priority_order(view, candidate.order) == candidate.order
    return candidate.rule == rule or file_for_default(view, candidate.order) is not None


def no_worse_than_one(
    written: Dispatch, one: Peak, shapes: Sequence[Mapping[str, int]], floor: Sequence[int]
) -> bool:
    """Whether several orders as written, which were chosen for what they gain, cost nothing at the worst of
    `shapes`.

    By ratios to `floor`, bytes per shape that no order is below; what deciding may take in any case is
    nothing.
    """
    whole = [written.whole(k) for k in range(len(written.versions))]
    unit = [max(1, size) for size in floor]
    several = max(min(p.at(at) for p in whole) / size for at, size in zip(shapes, unit, strict=True))
    single = max(one.at(at) / size for at, size in zip(shapes, unit, strict=True))
    return several <= single * (1 + DispatchLimits().overhead)


def check_dispatch(found: Dispatch, shapes: Sequence[Mapping[str, int]]) -> None:
    """Raise VerificationFailed unless every version is a plan that can be followed, of one graph.

    At `shapes` the peak of every version is the largest row of its profile, and none is below the formula.
    It is about versions that are not yet written.
    """
    view = found.versions[0].candidate.profile.plan.view
    for version in found.versions:
        plan = version.candidate.profile.plan
        if plan.view is not view or plan.order != version.candidate.order:
            raise VerificationFailed("plan check: the versions are not of one graph; nothing was written")
        check_plan(plan)
        for shape, most in zip(shapes, peaks_at(version.candidate.profile, shapes), strict=True):
            if version.peak.at(shape) != most or found.peak.at(shape) > most:
                raise VerificationFailed(f"plan check: wrong peak of a version at {dict(shape)}")


def check_written(
    found: Dispatch, planned: Dispatch, before: Peak, shapes: Sequence[Mapping[str, int]]
) -> None:
    """Raise VerificationFailed unless versions as `found` written take what was planned, or little more.

    At `shapes` none takes less than planned by itself, and the one that runs is never above what would have
    run by more than is said.
    """
    for shape in shapes:
        pairs = zip(found.versions, planned.versions, strict=True)
        least = min(found.whole(k).at(shape) for k in range(len(found.versions)))
        if any(new.peak.at(shape) < own.peak.at(shape) for new, own in pairs):
            raise VerificationFailed(f"plan check: a version takes less than planned at {dict(shape)}")
        if least != found.formula.evaluate(shape) or least > before.at(shape) + found.overhead:
            raise VerificationFailed(f"plan check: the written model takes too much at {dict(shape)}")
