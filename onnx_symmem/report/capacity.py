"""Models and a budget -> the figures of `fit` and `check`: the largest dims that fit, and whether all do.

What a model needs is in `demand`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnx_symmem.errors import DomainError, UsageError
from onnx_symmem.expr.domain import Domain
from onnx_symmem.expr.expression import Expr
from onnx_symmem.expr.plan_order import plan_le
from onnx_symmem.memory.capacity import Capacity
from onnx_symmem.memory.profile import BOUND
from onnx_symmem.report.demand import ModelDemand
from onnx_symmem.report.results import SCHEMA_VERSION
from onnx_symmem.run.inputs import resolve_shape

__all__ = [
    "BudgetCheck",
    "BudgetChecks",
    "Fit",
    "FitRow",
    "check_budget",
    "check_limit",
    "fit_models",
]

_SAMPLES = 64  # shapes tried for one that needs too much, of a model of several versions
_LADDER = 40  # rows of a frontier at most


@dataclass(frozen=True, slots=True)
class FitRow:
    """The largest size at one size of the other dims, per model (in the order of `Fit.models`)."""

    fixed: Mapping[str, int]
    found: tuple[Capacity, ...]

    def to_json(self) -> dict[str, Any]:
        return {"fixed": dict(self.fixed), "found": [_capacity_json(c) for c in self.found]}


@dataclass(frozen=True, slots=True)
class Fit:
    """Result of `fit`: one row, or a row per size of the second dim of a frontier.

    `limits` are the memory limits that chose the levels of each model, None of models without.
    """

    models: tuple[str, ...]
    labels: tuple[str, ...]
    provider: str
    budget: int
    counts: tuple[str, ...]
    reserve: int
    solve: tuple[str, ...]
    rows: tuple[FitRow, ...]
    notices: tuple[str, ...] = ()
    limits: tuple[int | None, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The documented JSON form."""
        return {
            "schema": "onnx-symmem/fit",
            "version": SCHEMA_VERSION,
            "models": [
                {"model": m, "label": label, "memory_limit": limit}
                for m, label, limit in zip(self.models, self.labels, self.limits, strict=True)
            ],
            "notices": list(self.notices),
            "provider": self.provider,
            "budget": self.budget,
            "counts": list(self.counts),
            "reserve": self.reserve,
            "solve": list(self.solve),
            "rows": [row.to_json() for row in self.rows],
        }


@dataclass(frozen=True, slots=True)
class BudgetCheck:
    """Result of `check`: whether a model stays within a budget.

    With shapes, `needed` are the bytes at each. Without, `proved` says that no shape of the domain needs
    more; else `witness` is one that does, None where neither was found out.
    """

    model: str
    provider: str
    budget: int
    counts: tuple[str, ...]
    reserve: int
    label: str
    needed: tuple[tuple[Mapping[str, int], int], ...]
    proved: bool
    witness: Mapping[str, int] | None = None
    witness_needed: int | None = None
    notices: tuple[str, ...] = ()
    limit: int | None = None

    @property
    def holds(self) -> bool:
        """Whether the budget is kept, at all shapes that were asked for."""
        return all(n <= self.budget for _, n in self.needed) if self.needed else self.proved

    def to_json(self) -> dict[str, Any]:
        """The documented JSON form."""
        return {
            "schema": "onnx-symmem/check",
            "version": SCHEMA_VERSION,
            "model": self.model,
            "provider": self.provider,
            "budget": self.budget,
            "counts": list(self.counts),
            "reserve": self.reserve,
            "label": self.label,
            "holds": self.holds,
            "shapes": [{"shape": dict(s), "needed": n} for s, n in self.needed],
            "proved": self.proved,
            "witness": None if self.witness is None else dict(self.witness),
            "witness_needed": self.witness_needed,
            "notices": list(self.notices),
            "memory_limit": self.limit,
        }


@dataclass(frozen=True, slots=True)
class BudgetChecks:
    """Result of `check` for one model or more."""

    checks: tuple[BudgetCheck, ...]

    @property
    def holds(self) -> bool:
        """Whether all models keep the budget."""
        return all(check.holds for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        """The documented JSON form: of one model its own."""
        if len(self.checks) == 1:
            return self.checks[0].to_json()
        return {
            "schema": "onnx-symmem/checks",
            "version": SCHEMA_VERSION,
            "holds": self.holds,
            "models": [check.to_json() for check in self.checks],
        }


def check_limit(models: Sequence[ModelDemand], limit: int | None) -> None:
    """Raise UsageError where a memory limit is given to models of which none takes one."""
    if limit is None or any(m.takes_limit for m in models):
        return
    names = " and ".join(m.model for m in models)
    raise UsageError(
        f"{names}: no level is chosen by a memory limit; write levels with `optimize --memory-limit`, or "
        "leave out the limit"
    )


def fit_models(
    models: Sequence[ModelDemand],
    budget: int,
    solve: Sequence[str],
    at: Mapping[str, int] | None = None,
    provider: str = "cpu",
) -> Fit:
    """The largest size of `solve[0]` within `budget` bytes, per size of `solve[1]` where two are named.

    `at` has the other dims; what a further model lacks is left out for it. Raises DomainError for a dim that
    is not known or left open, or a size that is not in its range.
    """
    at = dict(at or {})
    first = models[0]
    names = first.shapes.input_symbols
    for name in (*solve, *at):
        if name not in names and name not in first.shapes.domain.equalities:
            legal = ", ".join(names) or "none"
            raise DomainError(f"dim '{name}' is not a dim of the inputs; they have {legal}")
    if not 1 <= len(solve) <= 2 or len(set(solve)) < len(solve) or set(solve) & at.keys():
        raise UsageError("solve for one dim, or for two different ones, that are not given by --at")
    for model in models:
        model.shapes.domain.check(_own(model, at))
    fixed = [at] if len(solve) == 1 else [{**at, solve[1]: n} for n in _ladder(first.shapes.domain, solve[1])]
    labels = [m.label for m in models]
    rows: list[FitRow] = []
    for here in fixed:
        found = [m.largest(solve[0], _own(m, here), budget) for m in models]
        rows.append(FitRow(here, tuple(c for c, _ in found)))
        labels = [
            BOUND if BOUND in pair else pair[0] for pair in zip(labels, (x for _, x in found), strict=True)
        ]
        if all(c.size is None for c, _ in found) or all(c.unlimited for c, _ in found):
            break  # nor at larger ones
    shown, notices = models[0], (f"{m.model}: {each}" for m in models for each in m.notices)
    return Fit(
        tuple(m.model for m in models), tuple(labels), provider, budget, shown.counts, shown.reserve,
        tuple(solve), tuple(rows), tuple(notices), tuple(m.limit for m in models),
    )  # fmt: skip


def _own(model: ModelDemand, at: Mapping[str, int]) -> dict[str, int]:
    """The sizes of the dims that a model has."""
    known = (*model.shapes.input_symbols, *model.shapes.domain.equalities)
    return {name: size for name, size in at.items() if name in known}


def _ladder(domain: Domain, name: str) -> Iterator[int]:
    span = domain.range_of(name)
    step, size, last = span.divisor, -1, span.hi
    wanted = max(span.lo, 1)
    for _ in range(_LADDER):
        at = -(-wanted // step) * step
        if last is not None and at > last:
            break
        if at > size:
            size = at
            yield size
        wanted = max(wanted * 2, 1)
    if last is not None and size < last // step * step:
        yield last // step * step


def check_budget(
    model: ModelDemand, budget: int, at: Sequence[Mapping[str, int]] = (), provider: str = "cpu"
) -> BudgetCheck:
    """Whether a model stays within `budget` bytes: at the shapes given, or proved on its whole domain."""
    needed: tuple[tuple[Mapping[str, int], int], ...] = ()
    proved, witness, witness_needed = False, None, None
    if at:
        shapes = [resolve_shape(model.shapes, shape) for shape in at]
        needed = tuple((shape, model.demand.at(shape)) for shape in shapes)
    else:
        found = plan_le(model.demand.members, [Expr.const(budget)], model.shapes.domain)
        proved, witness = found.proved, found.witness
        if model.demand.choice is not None and not proved:
            witness = _over(model, budget, witness)
        if witness is not None:
            witness_needed = model.demand.at(witness)
            witness = {n: witness[n] for n in model.shapes.input_symbols if n in witness} or witness
    return BudgetCheck(
        model.model, provider, budget, model.counts, model.reserve, model.label, needed, proved, witness,
        witness_needed, model.notices, model.limit,
    )  # fmt: skip


def _over(model: ModelDemand, budget: int, bound: Mapping[str, int] | None) -> dict[str, int] | None:
    """A shape at which the version that runs needs more: where the bound does, or else a sample."""
    domain, names = model.shapes.domain, model.shapes.input_symbols
    shapes: list[Mapping[str, int]] = list(domain.samples(_SAMPLES, symbols=names))
    if bound is not None and bound.keys() >= set(names):
        shapes.insert(0, bound)
    return next((dict(shape) for shape in shapes if model.demand.at(shape) > budget), None)


def _capacity_json(c: Capacity) -> dict[str, Any]:
    return {
        "size": c.size,
        "needed": c.needed,
        "next_size": c.next_size,
        "next_needed": c.next_needed,
        "unlimited": c.unlimited,
        "shape": dict(c.shape),
    }
