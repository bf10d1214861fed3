"""Which order is kept: the best candidate that is proved never worse than what would have run.

The peak of a plan is the maximum of a few polynomials (its envelope). A candidate may replace the plan
that would have run only if its peak is proved at most as large at every shape of the domain; where no
candidate is, the order that would have run stays (DESIGN, 7).

Where the best ones fail for next to nothing, as Shape results that a traversal makes early, an order is taken
that is proved to be above by a few bytes at most, and much below at some shape: `overhead` says how many.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from onnx_symmem.expr.decide import Tally
from onnx_symmem.expr.domain import Domain
from onnx_symmem.expr.envelope import PlanOrder, plan_le
from onnx_symmem.memory.peak import Peak, peak
from onnx_symmem.memory.profile import MemoryProfile
from onnx_symmem.order.candidates import CandidateOrder, Tick, rank

__all__ = ["OrderChoice", "Proofs", "TriedOrder", "allowance", "choose_order"]

_PROOFS = 6
_OVERHEAD = 0.001  # of what would have run, at every steering shape: what an order may be above it
_UNIT = 256  # bytes that it may be above in any case: ONNX Runtime's arena rounds each buffer up to as many
_TRIES = 4  # proofs of such orders
_WORTH = 0.02  # by which such an order has to be better than the best proved one, at some shape


@dataclass(frozen=True, slots=True)
class TriedOrder:
    """A candidate's fate. `outcome` is chosen, proved, refuted (larger at some shape), undecided, or passed
    over (its peaks at the steering shapes are not among the best)."""

    name: str
    peaks: tuple[int, ...]
    outcome: str


@dataclass(frozen=True)
class OrderChoice:
    """The order that is kept.

    `never_worse` is proved, or kept (the order that would have run, because nothing better was proved); a
    stage that compares with another graph later may call it unproved. `before` and `after` are the peaks of
    the plan that would have run and of the chosen one, `proof` that the second is never larger. `witnesses`
    are shapes at which better-looking orders are worse than what would have run. `overhead` are bytes by
    which the chosen one may be above after all, at some shape; the proof is about that.
    """

    chosen: CandidateOrder
    never_worse: str
    before: Peak
    after: Peak
    tried: tuple[TriedOrder, ...]
    tally: Tally
    proof: PlanOrder | None = None
    witnesses: tuple[Mapping[str, int], ...] = ()
    overhead: int = 0


@dataclass(slots=True)
class Proofs:
    """Peaks of orders and what was proved of them, of one graph, one `before` and one domain."""

    peaks: dict[tuple[int, ...], Peak] = field(default_factory=dict)
    verdicts: dict[tuple[tuple[int, ...], int], PlanOrder] = field(default_factory=dict)

    def peak_of(self, candidate: CandidateOrder, domain: Domain) -> Peak:
        """The peak of an order over the domain."""
        if candidate.order not in self.peaks:
            self.peaks[candidate.order] = peak(candidate.profile, domain)
        return self.peaks[candidate.order]

    def never_above(self, candidate: CandidateOrder, base: Peak, more: int, domain: Domain) -> PlanOrder:
        """Whether an order is at no shape above `base` by more than some bytes."""
        key = candidate.order, more
        if key not in self.verdicts:
            members = self.peak_of(candidate, domain).members
            self.verdicts[key] = plan_le(members, [m + more for m in base.members], domain)
        return self.verdicts[key]


def choose_order(
    before: MemoryProfile | Peak,
    candidates: Sequence[CandidateOrder],
    domain: Domain,
    tick: Tick | None = None,
    shapes: Sequence[Mapping[str, int]] = (),
    proofs: int = _PROOFS,
    reference: Sequence[float] | np.ndarray = (),
    memo: Proofs | None = None,
) -> OrderChoice:
    """Choose among `candidates`, the first of which is the order that would have run, as it is written now.

    `before` is the profile, or the peak, of the plan that would have run, with the dims that ONNX Runtime
    knew. Candidates that are larger at one of `shapes`, where their peaks were taken, need no proof;
    proofs are attempted for the best `proofs` of the others, by their ratio to `reference` at these shapes.
    `memo` keeps what was proved of an order for another call with the same `before` and `domain`.
    """
    base = before if isinstance(before, Peak) else peak(before, domain)
    tally = base.tally
    outcomes = {c.name: "passed over" for c in candidates}
    memo = Proofs() if memo is None else memo
    chosen, chosen_peak, proof = None, None, None
    witnesses: list[Mapping[str, int]] = []
    limit = [base.at(shape) for shape in shapes]
    order: list[CandidateOrder] = []
    for candidate in rank(candidates, reference):
        if any(p > most for p, most in zip(candidate.peaks, limit, strict=False)):
            outcomes[candidate.name] = "refuted"
        elif len(order) < proofs:
            order.append(candidate)
    if candidates[0] not in order:
        order.append(candidates[0])
    for number, candidate in enumerate(order):
        if tick is not None:
            tick("proving", number, len(order))
        found, verdict = memo.peak_of(candidate, domain), memo.never_above(candidate, base, 0, domain)
        tally = tally + found.tally + verdict.tally
        if not verdict.proved:
            outcomes[candidate.name] = "undecided" if verdict.witness is None else "refuted"
            if verdict.witness is not None and verdict.witness not in witnesses:
                witnesses.append(verdict.witness)
            continue
        outcomes[candidate.name] = "chosen"
        chosen, chosen_peak, proof = candidate, found, verdict
        break
    never_worse = "proved"
    if chosen is None or chosen_peak is None:
        never_worse = "kept"
        chosen = candidates[0]
        chosen_peak = peak(chosen.profile, domain)
        tally = tally + chosen_peak.tally
    overhead = 0
    nearly = None
    if limit:
        nearly = _nearly(base, rank(candidates, reference), chosen, limit, domain, memo, witnesses)
    if nearly is not None:
        outcomes[chosen.name] = "proved" if never_worse == "proved" else outcomes[chosen.name]
        chosen, chosen_peak, verdict, overhead = nearly
        outcomes[chosen.name], never_worse, proof = "chosen", "proved", verdict
        tally = tally + chosen_peak.tally + verdict.tally
    tried = tuple(TriedOrder(c.name, c.peaks, outcomes[c.name]) for c in candidates)
    return OrderChoice(
        chosen, never_worse, base, chosen_peak, tried, tally, proof, tuple(witnesses), overhead
    )  # fmt: skip


def allowance(limit: Sequence[int]) -> int:
    """Bytes by which an order may be above what would have run, which takes `limit` at some shapes."""
    return max(_UNIT, int(min(limit, default=0) * _OVERHEAD))


def _nearly(
    base: Peak,
    candidates: Sequence[CandidateOrder],
    chosen: CandidateOrder,
    limit: Sequence[int],
    domain: Domain,
    memo: Proofs,
    witnesses: Sequence[Mapping[str, int]],
) -> tuple[CandidateOrder, Peak, PlanOrder, int] | None:
    """The first candidate much better than the chosen one and `base`, which it exceeds by next to nothing.

    With the proof that it is above by at most so many bytes. `limit` is what `base` takes at the shapes,
    `witnesses` are others at which orders were above it: no proof is tried where one of these refutes.
    """
    most, tries, known = allowance(limit), _TRIES, list(witnesses)
    for candidate in candidates:
        if candidate is chosen or not tries:
            return None
        above = max(p - b for p, b in zip(candidate.peaks, limit, strict=False))
        best = [min(pair) for pair in zip(chosen.peaks, limit, strict=False)]
        gain = max(1 - p / max(q, 1) for p, q in zip(candidate.peaks, best, strict=False))
        if gain < _WORTH:
            continue
        found = memo.peak_of(candidate, domain)
        needed = {name for member in (*found.members, *base.members) for name in member.symbols()}
        told = [found.at(shape) - base.at(shape) for shape in known if needed <= shape.keys()]
        allowed = max(above, 1, *told)
        while allowed <= most and tries:
            tries -= 1
            verdict = memo.never_above(candidate, base, allowed, domain)
            if verdict.proved:
                return candidate, found, verdict, allowed
            if verdict.witness is None or not needed <= verdict.witness.keys():
                break
            known.append(verdict.witness)
            allowed = max(allowed + 1, found.at(verdict.witness) - base.at(verdict.witness))
    return None
