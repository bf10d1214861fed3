"""Never worse, whichever branch of an If runs.

The peak of a plan is that of the larger branch, and where the smaller one runs another moment is the peak. So
what is proved of the maximum of all rows is proved here of those that a run goes through: for every branch,
down to the innermost, of its rows and of those around it. A run that takes several Ifs goes through several
such sets, each of which is no worse by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from onnx_symmem.expr.domain import Domain
from onnx_symmem.expr.envelope import plan_le
from onnx_symmem.expr.expression import Expr
from onnx_symmem.memory.peak import peak
from onnx_symmem.memory.profile import MemoryProfile
from onnx_symmem.order.candidates import CandidateOrder, rank
from onnx_symmem.order.planner import PlannedOrder
from onnx_symmem.order.selection import OrderChoice

__all__ = ["NOT_PER_BRANCH", "chosen_per_branch", "has_ifs"]

NOT_PER_BRANCH = (
    "that it never needs more than what would have run is proved of the larger branches of Ifs only"
)

_TRIED = 6
_Place = tuple[str | int, ...]


def has_ifs(found: MemoryProfile) -> bool:
    """Whether a run goes through some of the rows only."""
    return any(_place(found, k) for k in range(len(found.moments)))


def chosen_per_branch(planned: PlannedOrder, before: MemoryProfile, domain: Domain) -> OrderChoice:
    """The best of the planned orders that is never worse than what would have run, whatever branch is taken.

    Where none of the first few is, the order that would have run is kept.
    """
    choice = planned.choice
    if not has_ifs(before) or choice.never_worse != "proved":
        return choice
    others = [c for c in rank(planned.candidates, ()) if c.order != choice.chosen.order]
    limit = [choice.before.at(shape) for shape in planned.shapes if _tells(choice, shape)]
    for candidate in (choice.chosen, *others[:_TRIED], planned.candidates[0]):
        same = candidate is choice.chosen
        if not same and any(p > most for p, most in zip(candidate.peaks, limit, strict=False)):
            continue
        if _never_worse(candidate, before, domain, choice.overhead if same else 0):
            return choice if same else _with(choice, candidate, "proved", domain)
    return _with(choice, planned.candidates[0], "kept", domain)


def _tells(choice: OrderChoice, shape: Iterable[str]) -> bool:
    names = frozenset(shape)
    return all(member.symbols() <= names for member in choice.before.members)


def _with(choice: OrderChoice, candidate: CandidateOrder, outcome: str, domain: Domain) -> OrderChoice:
    after = peak(candidate.profile, domain)
    proof = plan_le(after.members, choice.before.members, domain) if outcome == "proved" else None
    tried = tuple(
        replace(t, outcome="chosen")
        if t.name == candidate.name
        else replace(t, outcome="refuted" if t.outcome == "chosen" else t.outcome)
        for t in choice.tried
    )
    return replace(
        choice, chosen=candidate, never_worse=outcome, after=after, tried=tried, proof=proof, overhead=0
    )


def _never_worse(candidate: CandidateOrder, before: MemoryProfile, domain: Domain, overhead: int) -> bool:
    after = candidate.profile
    places = {_place(found, k) for found in (before, after) for k in range(len(found.moments))}
    for place in sorted(places, key=str):
        mine = _rows(after, place)
        theirs = [row + overhead for row in _rows(before, place)]
        if mine and not plan_le(mine, theirs, domain).proved:
            return False
    return True


def _rows(found: MemoryProfile, place: _Place) -> list[Expr]:
    """Distinct sizes at a place and around it."""
    rows = (k for k in range(len(found.moments)) if place[: len(at := _place(found, k))] == at)
    return list(dict.fromkeys(found.in_use.row(k) for k in rows))


def _place(found: MemoryProfile, row: int) -> _Place:
    """The branches of Ifs in which a row lies, from outside in; empty where every run goes through it."""
    moment, view = found.moments[row], found.plan.view
    node, place = moment.node, list[str | int]()
    for name, inner in moment.path:
        if view.nodes[node].op == "If":
            place += [node, name]
        view, node = view.nodes[node].subgraphs[name], inner
    return tuple(place)
