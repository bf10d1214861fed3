"""Never worse, whichever branch of an If runs.

The peak of a plan is that of the larger branch, and where the smaller one runs another moment is the peak. So
what is proved of the maximum of all rows is proved here of those that a run goes through: for every branch,
down to the innermost, of its rows and of those around it. A run that takes several Ifs goes through several
such sets, each of which is no worse by itself.

A branch is known by the name of the condition that it hangs on, which a file that was rewritten keeps. Where
a name is not found again, what stands around its If is all that is compared with.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from onnx_symmem.expr.domain import Domain
from onnx_symmem.expr.envelope import plan_le
from onnx_symmem.expr.expression import Expr
from onnx_symmem.memory.peak import peak
from onnx_symmem.memory.profile import MemoryProfile
from onnx_symmem.order.candidates import CandidateOrder, rank
from onnx_symmem.order.planner import PlannedOrder
from onnx_symmem.order.selection import OrderChoice

__all__ = ["BranchRows", "branch_pairs", "branch_rows", "chosen_per_branch", "has_ifs", "never_worse_in"]

_TRIED = 6
_Branch = tuple[str, ...]
BranchRows = Mapping[_Branch, tuple[Expr, ...]]
"""Distinct sizes per branch, () where every run goes through; conditions and branches from outside in."""


def has_ifs(found: MemoryProfile) -> bool:
    """Whether a run goes through some of the rows only."""
    return any(_branch(found, k, None) for k in range(len(found.moments)))


def chosen_per_branch(planned: PlannedOrder, before: MemoryProfile, domain: Domain) -> OrderChoice:
    """The best of the planned orders that is never worse than what would have run, whatever branch is taken.

    Where none of the first few is, the order that would have run is kept.
    """
    choice = planned.choice
    if not has_ifs(before) or choice.never_worse != "proved":
        return choice
    theirs = branch_rows(before)
    others = [c for c in rank(planned.candidates, ()) if c.order != choice.chosen.order]
    limit = [choice.before.at(shape) for shape in planned.shapes if _tells(choice, shape)]
    for candidate in (choice.chosen, *others[:_TRIED], planned.candidates[0]):
        same = candidate is choice.chosen
        if not same and any(p > most for p, most in zip(candidate.peaks, limit, strict=False)):
            continue
        if never_worse_in(branch_rows(candidate.profile), theirs, domain, choice.overhead if same else 0):
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


def never_worse_in(mine: BranchRows, theirs: BranchRows, domain: Domain, more: int = 0) -> bool:
    """Whether a plan is proved to be at most `more` bytes above another, whatever branches run."""
    pairs = branch_pairs(mine, theirs)
    return all(plan_le(rows, [row + more for row in others], domain).proved for rows, others in pairs)


def branch_pairs(mine: BranchRows, theirs: BranchRows) -> Iterator[tuple[list[Expr], list[Expr]]]:
    """For every branch of either plan: the rows of it and around it, of both."""
    for branch in sorted(mine.keys() | theirs.keys()):
        rows = _along(mine, branch)
        if rows:
            yield rows, _along(theirs, branch)


def _along(found: BranchRows, branch: _Branch) -> list[Expr]:
    ways = (branch[:depth] for depth in range(0, len(branch) + 1, 2))
    return list(dict.fromkeys(row for way in ways for row in found.get(way, ())))


def branch_rows(
    found: MemoryProfile, rows: Iterable[int] | None = None, versions: str | None = None
) -> BranchRows:
    """The sizes of a profile per branch, of all rows or some.

    Ifs whose names begin with `versions` are none: which of their branches runs is settled.
    """
    sizes: dict[_Branch, dict[Expr, None]] = {}
    for row in range(len(found.moments)) if rows is None else rows:
        sizes.setdefault(_branch(found, row, versions), {})[found.in_use.row(row)] = None
    return {branch: tuple(distinct) for branch, distinct in sizes.items()}


def _branch(found: MemoryProfile, row: int, versions: str | None) -> _Branch:
    """The branches of Ifs in which a row lies, from outside in; empty where every run goes through it."""
    moment, view = found.moments[row], found.plan.view
    node, branch = view.nodes[moment.node], list[str]()
    for name, inner in moment.path:
        if node.op == "If" and not (versions and node.name.startswith(versions)):
            branch += [view.values[node.inputs[0]].name, name]
        view = node.subgraphs[name]
        if inner < 0:
            break
        node = view.nodes[inner]
    return tuple(branch)
