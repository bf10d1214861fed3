"""Levels for a memory limit on the way to a file.

Levels are schedules of one model that repeat more and more for a lower peak; the first that fits the limit
runs, the one that takes least where none does. What the limit covers is counted exactly as asked: outputs and
activations always, inputs and weights where they are named, and a reserve for what no formula knows. The
constants of the guard are weights of the file, too; how many there are is seen once it is emitted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import onnx

from onnx_symmem.errors import DomainError, LimitNotMet, UnsupportedModel, UsageError
from onnx_symmem.expr.domain import Domain
from onnx_symmem.expr.envelope import plan_le
from onnx_symmem.expr.expression import ZERO, Expr
from onnx_symmem.expr.samples import legal_near
from onnx_symmem.expr.shape_text import shape_text
from onnx_symmem.graph.load import LoadedModel
from onnx_symmem.memory.capacity import Demand, largest_size
from onnx_symmem.memory.execution_order import priority_order
from onnx_symmem.memory.peak import Peak, peak_of
from onnx_symmem.memory.plan import PlanInput
from onnx_symmem.memory.profile import MemoryProfile
from onnx_symmem.memory.sizes import DimKeys, ValueSizes
from onnx_symmem.order.selection import OrderChoice
from onnx_symmem.remat.cost import node_costs
from onnx_symmem.remat.expansion import expand
from onnx_symmem.remat.expansion_check import check_expansion
from onnx_symmem.remat.floor import AnyFloor, any_floor
from onnx_symmem.remat.levels import Level, LevelOptions, plan_levels
from onnx_symmem.remat.schedule import check_schedule
from onnx_symmem.rewrite.choice import FITS
from onnx_symmem.rewrite.version_record import versions_of
from onnx_symmem.rewrite.versions import Version, emit_versions
from onnx_symmem.run.kept_levels import KeptByFile
from onnx_symmem.run.per_branch import branch_pairs, branch_rows, has_ifs
from onnx_symmem.run.written import added_weights, first_rows, main_peak, most_above, written_peaks
from onnx_symmem.shapes.table import ModelShapes

__all__ = ["SCOPES", "LevelPlan", "LevelWish", "held_against", "levelled_model", "plan_limit"]

SCOPES = ("activations", "inputs", "weights")

_NOT_KNOWN = 1 << 62  # bytes
_EMISSIONS = 4  # until the guard is of the size that it compares with
_PARTS = 64  # steps from a shape at which nothing fits to the least
_Emitted = Callable[..., onnx.ModelProto]  # of versions, and whether their peaks are the file's
_PINS = 3  # tensors that are named where a limit cannot be met


@dataclass(frozen=True, slots=True)
class LevelWish:
    """What is asked of levels: a limit in bytes (None: fed at run time), and what it covers."""

    limit: int | None = None
    counts: tuple[str, ...] = SCOPES
    reserve: int = 0
    options: LevelOptions = field(default_factory=LevelOptions)


@dataclass(frozen=True)
class LevelPlan:
    """Levels of one model; `counted` is what the limit covers besides outputs and activations.

    `written` are the peaks of the levels in the model as it is written, with all that choosing takes; without
    them that is bounded. By at most `overhead` bytes choosing raises the peak of the first level. `floor`
    bounds any schedule, whatever it repeats. `only` is the one level that was written where no shape is
    symbolic, or there is only one. `work` are the operations of level 0. `constants` are bytes of weights
    that the file has more than the model, of the guard; `counted` has them where the limit covers weights. By
    at most `above` bytes a run of the first level is above what would have run; None: not proved.
    """

    wish: LevelWish
    levels: tuple[Level, ...]
    counted: Expr
    domain: Domain
    floor: AnyFloor
    overhead: int = 0
    only: int | None = None
    written: tuple[Peak, ...] = ()
    work: Expr = ZERO
    constants: int = 0
    above: int | None = None

    def peak(self, level: int) -> Peak:
        """The peak of a run of a level, with the guard before it."""
        if self.written:
            return self.written[level]
        return peak_of([m + self.overhead for m in self.levels[level].peak.members], self.domain)

    def needed(self, level: int, shape: Mapping[str, int]) -> int:
        """All that the limit covers, in bytes, where a level runs."""
        peak = self.written[level] if self.written else self.levels[level].peak
        return peak.at(shape) + self.counted.evaluate(shape) + (0 if self.written else self.overhead)

    def level_at(self, shape: Mapping[str, int], limit: int | None = None) -> int:
        """The level that runs at a shape of the domain under a limit (None: the wished one, if any)."""
        limit = self.wish.limit if limit is None else limit
        if self.only is not None or limit is None:
            return self.only or 0
        if not _is_known(self, shape):
            # Only data tells what the last takes; no other level is so.
            fitting = (k for k in range(len(self.levels) - 1) if self.needed(k, shape) <= limit)
            return next(fitting, len(self.levels) - 1)
        needed = [self.needed(k, shape) for k in range(len(self.levels))]
        reach = max(limit, min(needed))
        return next(k for k, size in enumerate(needed) if size <= reach)


# ------------------------------------------------------------------------------------------------ making


def plan_limit(
    wish: LevelWish,
    shapes: ModelShapes,
    keys: DimKeys,
    sizes: ValueSizes,
    prepared: PlanInput,
    choice: OrderChoice,
    samples: Sequence[Mapping[str, int]],
    tick: Callable[[str, int, int], None] | None = None,
) -> tuple[LevelPlan, tuple[str, ...]]:
    """Levels that start with the chosen order, and what the user should know about them."""
    if "activations" not in wish.counts:
        raise UsageError("a memory limit has to count activations: levels change nothing else")
    view, domain, chosen = shapes.graph.view, shapes.domain, choice.chosen
    order = priority_order(view, chosen.order)
    levels = plan_levels(
        shapes.graph, keys, domain, order, samples, wish.options, prepared.options, shapes.view.opsets, tick
    )
    notices: list[str] = []
    if len(levels) == 1:
        notices.append("no repeat lowers the peak within the slowdown allowed: one level is written")
    if any(level.offloaded for level in levels):
        notices.append(
            "levels offload tensors: the model has MemcpyToHost and MemcpyFromHost, which only ONNX Runtime "
            "runs and onnx.checker does not know"
        )
    counted = Expr.const(wish.reserve)
    counted = counted + chosen.profile.inputs if "inputs" in wish.counts else counted
    counted = counted + chosen.profile.weights if "weights" in wish.counts else counted
    work = node_costs(shapes.graph, sizes).total(order)[0]
    plan = LevelPlan(wish, levels, counted, domain, any_floor(prepared, sizes, domain), work=work)
    return plan, tuple(notices)


def levelled_model(
    base: LoadedModel,
    shapes: ModelShapes,
    plan: LevelPlan,
    samples: Sequence[Mapping[str, int]],
    label: str,
    provider: str = "cpu",
    kept: KeptByFile | None = None,
) -> tuple[onnx.ModelProto, LevelPlan]:
    """The model of all levels, checked; LimitNotMet where the limit is below what is possible.

    `kept` makes it a file that keeps its levels by itself.
    """
    view, opsets = shapes.graph.view, shapes.view.opsets
    if len(plan.levels) > 1:
        _check_told(plan, shapes, label)
    versions = []
    for number, level in enumerate(plan.levels):
        check_schedule(view, level.schedule)
        expansion = expand(view, level.schedule, opsets)
        check_expansion(expansion)
        about = {"level": number, "operations": str(level.operations), "moved": str(level.moved)}
        versions.append(Version(expansion, level.peak.members, about))

    def emitted(versions: Sequence[Version], around: Expr, counted: bool = False) -> onnx.ModelProto:
        less = None if kept is None else kept.less
        whole = [replace(v, peaks=tuple(m + around for m in v.peaks)) for v in versions]
        try:
            proto = emit_versions(
                base.proto, shapes, whole, FITS, limit=plan.wish.limit, counted=counted,
                apart=kept is not None, less=less,
            )  # fmt: skip
        except UnsupportedModel as error:
            raise UnsupportedModel(
                f"{label}: {error}; optimize it without a memory limit and levels"
            ) from error
        return proto if kept is None else kept.keeping(proto)

    proto, plan = _with_constants(base, plan, versions, emitted)
    said: Mapping[str, Any] = versions_of(proto) or {}
    plan = replace(plan, overhead=said.get("overhead_bytes", 0), only=said.get("only"))
    if plan.only is None:
        bound = plan.overhead + (0 if kept is None else kept.most_added)
        proto, plan = _counted(base, plan, versions, proto, samples, provider, bound, emitted)
    elif kept is not None:
        proto, plan = _only(base, plan, versions, provider, emitted)
        first, alone = plan.written[0].members, plan.levels[0].peak.members
        most = most_above([first], alone, plan.domain, samples, kept.most_added)
        plan = replace(plan, overhead=most)
    _check_limit(plan, shapes, samples, label)
    return proto, plan


def _with_constants(
    base: LoadedModel, plan: LevelPlan, versions: Sequence[Version], emitted: _Emitted
) -> tuple[onnx.ModelProto, LevelPlan]:
    """A first model, and the plan that counts the constants of its guard where weights are counted."""
    proto = emitted(versions, plan.counted)
    # They are as large whatever they say, but for equal ones, which are one: the size rises to an end.
    while added_weights(base.proto, proto) > plan.constants:
        plan = _recounted(base, plan, proto)
        proto = emitted(versions, plan.counted)
    return proto, plan


def _recounted(base: LoadedModel, plan: LevelPlan, proto: onnx.ModelProto) -> LevelPlan:
    """The plan with as many bytes of constants as a model has."""
    size = added_weights(base.proto, proto)
    more = size - plan.constants if "weights" in plan.wish.counts else 0
    return replace(plan, counted=plan.counted + more, constants=size)


def _check_told(plan: LevelPlan, shapes: ModelShapes, label: str) -> None:
    """UnsupportedModel where shapes do not tell a peak that the guard has to compare."""
    domain = plan.domain
    told = {n for s in shapes.input_symbols for n in domain.solved(Expr.symbol(s)).symbols()}
    peaks = [m for level in plan.levels[:-1] for m in level.peak.members]
    asked = sorted({n for m in peaks for n in domain.solved(m).symbols()} - told)
    if asked:
        unknown = next((u for u in shapes.unknowns if u.symbol == asked[0]), None)
        why = "" if unknown is None else f" ({unknown.op} '{unknown.node}': {unknown.reason})"
        raise UnsupportedModel(
            f"{label}: the peak depends on {asked[0]}{why}, which is not known before the run, so no level "
            "can be chosen; optimize it without a memory limit and levels"
        )


def held_against(
    plan: LevelPlan,
    choice: OrderChoice,
    samples: Sequence[Mapping[str, int]],
    written: LoadedModel,
    before: MemoryProfile,
    provider: str = "cpu",
) -> tuple[LevelPlan, tuple[str, ...]]:
    """The plan with what is proved of its first level, as it is written, and what would have run (`before`).

    In a level shape arithmetic runs first, wherever the chosen order has it. Where a run goes through one
    branch of an If that is proved of each. Also notices for the user.
    """
    pairs = [(list(plan.peak(plan.only or 0).members), list(choice.before.members))]
    if has_ifs(before):
        pairs += branch_pairs(first_rows(written, plan.domain, provider), branch_rows(before))
    usual, above = choice.overhead + plan.overhead, 0
    for mine, theirs in pairs:
        if plan_le(mine, [m + usual for m in theirs], plan.domain).proved:
            above = max(above, usual)
            continue
        members, others = (peak_of(rows, plan.domain).members for rows in (mine, theirs))
        above = max(above, most_above([members], others, plan.domain, samples, _NOT_KNOWN))
    if above < _NOT_KNOWN:
        return replace(plan, above=above), ()
    return plan, ("that level 0 of the file never needs more than what would have run is not proved",)


def _only(
    base: LoadedModel, plan: LevelPlan, versions: Sequence[Version], provider: str, emitted: _Emitted
) -> tuple[onnx.ModelProto, LevelPlan]:
    """The model of one level, chosen by what each takes in a file of its own, which reuses buffers."""
    proto, only, written = onnx.ModelProto(), 0, tuple[Peak, ...]()
    for _ in range(_EMISSIONS):
        alone = [replace(base, proto=emitted([version], plan.counted)) for version in versions]
        plan = max((_recounted(base, plan, model.proto) for model in alone), key=lambda p: p.constants)
        written = tuple(main_peak(model, plan.domain, provider) for model in alone)
        exact = [replace(v, peaks=p.members) for v, p in zip(versions, written, strict=True)]
        proto = emitted(exact, plan.counted, True)
        only = (versions_of(proto) or {})["only"]
        # What one level was found to need is in the files of all afterwards.
        if main_peak(replace(base, proto=proto), plan.domain, provider).members == written[only].members:
            break
    return proto, replace(_recounted(base, plan, proto), written=written, only=only)


def _counted(
    base: LoadedModel,
    plan: LevelPlan,
    versions: Sequence[Version],
    proto: onnx.ModelProto,
    samples: Sequence[Mapping[str, int]],
    provider: str,
    bound: int,
    emitted: _Emitted,
) -> tuple[onnx.ModelProto, LevelPlan]:
    """The model again, with a guard that compares what levels are seen to take in it, guard included.

    As it came, with bounds, where that is not known or does not settle. By at most `bound` bytes a level
    takes more in the file than by itself, the guard aside.
    """
    domain, compared = plan.domain, tuple[tuple[Expr, ...], ...]()
    bounded = proto, plan
    for _ in range(_EMISSIONS):
        found = written_peaks(replace(base, proto=proto), domain, provider)
        if found is None:
            break
        whole = tuple(found.whole(k) for k in range(len(versions)))
        weights = added_weights(base.proto, proto)
        if compared == tuple(p.members for p in whole) and plan.constants == weights:
            alone = plan.levels[0].peak.members
            most = most_above([whole[0].members], alone, domain, samples, max(bound, found.guard))
            return proto, replace(plan, written=whole, overhead=most)
        compared, plan = tuple(p.members for p in whole), _recounted(base, plan, proto)
        exact = [replace(v, peaks=members) for v, members in zip(versions, compared, strict=True)]
        proto = emitted(exact, plan.counted, True)
    return bounded


def _check_limit(
    plan: LevelPlan, shapes: ModelShapes, samples: Sequence[Mapping[str, int]], label: str
) -> None:
    """LimitNotMet where no level fits: at the least shape, or anywhere where the domain has an end."""
    limit = plan.wish.limit
    known = [s for s in samples if _is_known(plan, s)]
    if limit is None or not known:
        return
    ends = all(shapes.domain.range_of(s).hi is not None for s in shapes.input_symbols)
    judged = known if ends else known[:1]
    least = [min(plan.needed(k, shape) for k in range(len(plan.levels))) for shape in judged]
    worst = max(range(len(judged)), key=least.__getitem__)
    if least[worst] <= limit:
        return
    shape = judged[worst]
    at = shape_text({n: shape[n] for n in shapes.input_symbols})
    node = plan.floor.node_at(shape)
    nodes = plan.floor.prepared.view.nodes
    where = nodes[node].label() if node < len(nodes) else "the end"
    values = plan.floor.prepared.view.values
    around = plan.counted.evaluate(shape)
    besides = f", besides {around:,} of weights, inputs and reserve" if around else ""
    pins = plan.floor.pins(shape)[:_PINS]
    held = ", ".join(f"'{values[p.value].name}' ({p.bytes.evaluate(shape):,})" for p in pins)
    raise LimitNotMet(
        f"{label}: at {at or 'its shape'} every level needs {least[worst]:,} bytes or more, above the limit "
        f"of {limit:,}; whatever is repeated, {where} needs {plan.floor.peak.at(shape):,} of activations and "
        f"outputs, the largest {held}{besides}{_room(plan, shapes, shape)}"
    )


def _is_known(plan: LevelPlan, shape: Mapping[str, int]) -> bool:
    symbols = plan.counted.symbols().union(*(m.symbols() for v in plan.levels for m in v.peak.members))
    return symbols <= plan.domain.completed(shape).keys()


def _room(plan: LevelPlan, shapes: ModelShapes, at: Mapping[str, int]) -> str:
    """The largest size of each dim at which some level fits, the others as they are at a shape."""
    found = []
    levels = [tuple(m + plan.counted for m in plan.peak(k).members) for k in range(len(plan.levels))]
    for symbol in shapes.input_symbols:
        if symbol in shapes.domain.equalities:
            continue
        fixed = {n: at[n] for n in shapes.input_symbols if n != symbol}
        sizes = []
        for members in levels:
            try:
                answer = largest_size(Demand(members, plan.domain), symbol, fixed, plan.wish.limit or 0)
            except (DomainError, UnsupportedModel):
                continue
            sizes += [] if answer.size is None else [answer.size]
        if sizes:
            found.append(shape_text({symbol: max(sizes)}))
    if found:
        return f"; a level fits there up to {' or '.join(found)}"
    near = _smaller(plan, shapes, levels, at)
    return f"; a level fits at {near}" if near else ""


def _smaller(
    plan: LevelPlan, shapes: ModelShapes, levels: Sequence[Sequence[Expr]], at: Mapping[str, int]
) -> str:
    """The largest legal shape that fits on the way from a shape to the least of the domain, as text."""
    names = [n for n in shapes.input_symbols if n not in shapes.domain.equalities]
    least = {n: min(shapes.domain.range_of(n).lo, at[n]) for n in names}
    for part in reversed(range(_PARTS)):
        wanted = {n: least[n] + (at[n] - least[n]) * part // _PARTS for n in names}
        shape = legal_near(shapes.domain, wanted)
        if shape is None:
            continue
        if min(max(m.evaluate(shape) for m in members) for members in levels) <= (plan.wish.limit or 0):
            return shape_text({n: shape[n] for n in names})
    return ""
