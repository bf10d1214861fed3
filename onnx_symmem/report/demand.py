"""One model -> the bytes that it needs, as a function of its dims: what `fit` and `check` ask about.

Counted are, by default, activations, outputs, inputs and weights; what ONNX Runtime's kernels take for
themselves, and the gaps of its arena, are not: `reserve` is room for these. Dims that depend on data are
taken as large as they can be. Where shapes decide which version or which branch runs, that one counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from onnx_symmem.errors import UnsupportedModel, UsageError
from onnx_symmem.expr.decide import Kind, compare
from onnx_symmem.expr.expression import Expr
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
from onnx_symmem.rewrite.reorder import delivery_of, execution_order_of
from onnx_symmem.run.at_load import keys_at_load
from onnx_symmem.run.branches import branches_of
from onnx_symmem.run.decided import decided_ifs
from onnx_symmem.run.stated_domain import DomainSpec, domain_of
from onnx_symmem.shapes.engine import infer_shapes
from onnx_symmem.shapes.table import ModelShapes

__all__ = ["SCOPES", "ModelDemand", "model_demand"]

SCOPES = ("activations", "inputs", "weights")
"""What a budget may count; activations include outputs."""

_MOST_IFS = 4  # whose branches are told apart; of more the larger branch is counted
_NO_LIMIT = (
    "the file sets no memory limit, so its first level runs; --memory-limit is for runs that are given one"
)


@dataclass(frozen=True)
class ModelDemand:
    """What one model needs, in bytes: the scopes in `counts` and `reserve`.

    `label` is exact, or bound (where sizes depend on data or a subgraph is counted by its largest way).
    `notices` say what these bytes are not, where the file may not be what runs. Where the model
    `takes_limit`, `limit` is the memory limit that chose its levels, given or the file's own, None where
    there is none. `has_ifs`: the versions of `demand` are branches of the model's own that shapes decide.
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
    has_ifs: bool = False

    def largest(self, symbol: str, at: Mapping[str, int], budget: int) -> tuple[Capacity, str]:
        """The largest size of a dim within a budget, and how to read it."""
        try:
            return largest_size(self.demand, symbol, at, budget), self.label
        except UnsupportedModel:
            if not self.has_ifs:
                raise
        # What is sure to fit, whatever branch runs.
        return largest_size(Demand(self.demand.members, self.demand.domain), symbol, at, budget), BOUND


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
    decided = None
    if branches is None and "activations" in counts and found.label == BOUND:
        decided = decided_ifs(model, shapes, _MOST_IFS)
        ways = decided.ways()
        rows = [decided.rows(found, way) for way in ways]
        versions = [peak_of(found.in_use.take(r), shapes.domain).members for r in rows]
        label = EXACT if {decided.label(found, r) for r in rows} == {EXACT} else BOUND
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
    elif decided is not None and len(settled) > 1:
        demand = replace(demand, versions=tuple(settled), choice=lambda at: ways.index(decided.taken(at)))
    takes = branches is not None and branches.has_limit
    if takes and limit is None and branches is not None:
        limit = branches.limit
    notices = (*unplanned(model), *((_NO_LIMIT,) if takes and limit is None else ()))
    return ModelDemand(
        model.label, shapes, demand, tuple(counts), reserve, label, notices, takes, limit if takes else None,
        has_ifs=decided is not None,
    )  # fmt: skip


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
