"""Models and a budget -> the figures of `fit` and `check`: the largest dims that fit, and whether all do.

Counted are, by default, activations, outputs, inputs and weights; what ONNX Runtime's kernels take for
themselves, and the gaps of its arena, are not: `reserve` is room for these. Dims that depend on data are
taken as large as they can be.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from onnx_symmem.errors import DomainError, UnsupportedModel, UsageError
from onnx_symmem.expr.decide import Kind, compare
from onnx_symmem.expr.domain import Domain
from onnx_symmem.expr.expression import Expr
from onnx_symmem.expr.plan_order import plan_le
from onnx_symmem.expr.shares import shared_bounds
from onnx_symmem.graph.load import load_model
from onnx_symmem.memory.capacity import Capacity, Demand, largest_size
from onnx_symmem.memory.execution_order import default_order, priority_order
from onnx_symmem.memory.peak import peak, peak_of
from onnx_symmem.memory.plan import PlanOptions, prepare
from onnx_symmem.memory.profile import BOUND, EXACT, profile
from onnx_symmem.memory.sizes import value_sizes
from onnx_symmem.order.candidates import Tick
from onnx_symmem.report.findings import left_out, unplanned
from onnx_symmem.report.results import SCHEMA_VERSION
from onnx_symmem.rewrite.reorder import delivery_of, execution_order_of
from onnx_symmem.run.at_load import keys_at_load
from onnx_symmem.run.branches import branches_of
from onnx_symmem.run.inputs import resolve_shape
from onnx_symmem.run.stated_domain import DomainSpec, domain_of
from onnx_symmem.shapes.engine import infer_shapes
from onnx_symmem.shapes.table import ModelShapes

__all__ = [
    "SCOPES",
    "BudgetCheck",
    "BudgetChecks",
    "Fit",
    "FitRow",
    "ModelDemand",
    "check_budget",
    "check_limit",
    "fit_models",
    "model_demand",
]

SCOPES = ("activations", "inputs", "weights")
"""What a budget may count; activations include outputs."""

_SAMPLES = 64  # shapes tried for one that needs too much, of a model of several versions
_LADDER = 40  # rows of a frontier at most
_NO_LIMIT = (
    "the file sets no memory limit, so its first level runs; --memory-limit is for runs that are given one"
)


@dataclass(frozen=True)
class ModelDemand:
    """What one model needs, in bytes: the scopes in `counts` and `reserve`.

    `label` is exact, or bound (where sizes depend on data or a subgraph is counted by its largest way).
    `notices` say what these bytes are not, where the file may not be what runs. Where the model
    `takes_limit`, `limit` is the memory limit that chose its levels, given or the file's own, None where
    there is none.
    """

    model: str
    shapes: ModelShapes
    demand: Demand
    counts: tuple[str, ...]
    reserve: int
    label: str
    notices: tuple[str, ...] = ()
    takes_limit: bool = False
    limit: int | None = None


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


def model_demand(
    source: Any,
    domain: DomainSpec = None,
    provider: str = "cpu",
    counts: Sequence[str] = SCOPES,
    reserve: int = 0,
    *,
    limit: int | None = None,
    tick: Tick | None = None,
) -> ModelDemand:
    """The bytes that a model needs, as `create_session` runs it; no weights are read.

    `limit` is the memory limit that a model of several levels is given; None: the one in the file. Raises
    UnsupportedModel where something that takes memory has no known size.
    """
    unknown = [scope for scope in counts if scope not in SCOPES]
    if unknown or not counts:
        raise UsageError(f"scope '{''.join(unknown[:1])}' is not known; expected {', '.join(SCOPES)}")
    tick = tick or (lambda _stage, _done, _total: None)
    tick("inferring shapes", 0, 0)
    model = load_model(source)
    view = model.view()
    shapes = infer_shapes(view, domain_of(view, domain))
    tick("planning", 0, 0)
    rule = default_order if execution_order_of(model.proto) == "default" else priority_order
    options = PlanOptions(provider, mem_reuse=delivery_of(model.proto) == "anchors")
    prepared = prepare(view.graph, keys_at_load(model, shapes.graph), options, rule)
    found = profile(prepared.plan(rule(view.graph)), value_sizes(shapes.graph))
    missing = left_out(found)
    if missing:
        raise UnsupportedModel(f"{model.label}: its bytes are not known: {missing[0]}")
    tick("finding the peak", 0, 0)
    branches = branches_of(model, shapes)
    versions = [tuple(peak(found, shapes.domain).members if "activations" in counts else (Expr.const(0),))]
    label = found.label
    if branches is not None and "activations" in counts:
        own = [branches.members(found, k) for k in range(branches.count)]
        versions = [peak_of(members, shapes.domain).members for members in own]
        labels = {branches.label(found, k) for k in range(branches.count)}
        label = EXACT if labels == {EXACT} else BOUND
    fixed = Expr.const(reserve)
    for scope, size in (("inputs", found.inputs), ("weights", found.weights)):
        if scope in counts:
            fixed = fixed + size
    whole = [tuple(m + fixed for m in members) for members in versions]
    settled = [tuple(_without_data(m, shapes, model.label) for m in members) for members in whole]
    label = BOUND if settled != whole else label
    demand = Demand(tuple(dict.fromkeys(m for members in settled for m in members)), shapes.domain)
    if branches is not None and "activations" in counts:
        demand = replace(demand, versions=tuple(settled), choice=partial(branches.version_at, limit=limit))
    takes = branches is not None and branches.has_limit
    if takes and limit is None and branches is not None:
        limit = branches.limit
    notices = (*unplanned(model), *((_NO_LIMIT,) if takes and limit is None else ()))
    return ModelDemand(
        model.label, shapes, demand, tuple(counts), reserve, label, notices, takes, limit if takes else None
    )


def _without_data(member: Expr, shapes: ModelShapes, label: str) -> Expr:
    """A member with every data-dependent dim as large as it can be, where that makes the member largest.

    Dims that share a total, as experts share the tokens, are not all as large at once.
    """
    domain, least = shapes.domain, _all_largest(member, shapes, label)
    data = {unknown.symbol for unknown in shapes.unknowns if unknown.symbol}
    for fact in domain.facts() if data & member.symbols() else ():
        for other in shared_bounds(member, fact, domain) if data & fact.symbols() else ():
            bound = _all_largest(other, shapes, label)
            if compare(bound, least, domain).kind in (Kind.LE, Kind.EQ):
                member, least = other, bound
    return least


def _all_largest(member: Expr, shapes: ModelShapes, label: str) -> Expr:
    for unknown in reversed(shapes.unknowns):
        name = unknown.symbol
        if not name or name not in member.symbols():
            continue
        if unknown.bound is None:
            raise UnsupportedModel(
                f"{label}: its bytes grow with {name}, a dim of '{unknown.tensor}' that nothing bounds "
                f"({unknown.reason})"
            )
        largest = member.substitute({name: unknown.bound})
        if compare(member, largest, shapes.domain).kind not in (Kind.LE, Kind.EQ):
            raise UnsupportedModel(f"{label}: whether its bytes grow with {name} is not decided")
        member = largest
    return member


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
    rows: tuple[FitRow, ...]
    if len(solve) == 1:
        rows = (FitRow(at, tuple(largest_size(m.demand, solve[0], _own(m, at), budget) for m in models)),)
    else:
        rows = tuple(_frontier(models, budget, solve[0], solve[1], at))
    shown = models[0]
    return Fit(
        tuple(m.model for m in models), tuple(m.label for m in models), provider, budget, shown.counts,
        shown.reserve, tuple(solve), rows, tuple(f"{m.model}: {each}" for m in models for each in m.notices),
        tuple(m.limit for m in models),
    )  # fmt: skip


def _own(model: ModelDemand, at: Mapping[str, int]) -> dict[str, int]:
    """The sizes of the dims that a model has."""
    known = (*model.shapes.input_symbols, *model.shapes.domain.equalities)
    return {name: size for name, size in at.items() if name in known}


def _frontier(
    models: Sequence[ModelDemand], budget: int, symbol: str, other: str, at: Mapping[str, int]
) -> Iterator[FitRow]:
    """Rows at sizes of `other` that double, until nothing fits."""
    for size in _ladder(models[0].shapes.domain, other):
        fixed = {**at, other: size}
        found = tuple(largest_size(m.demand, symbol, _own(m, fixed), budget) for m in models)
        yield FitRow(fixed, found)
        if all(c.size is None for c in found) or all(c.unlimited for c in found):
            return


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
