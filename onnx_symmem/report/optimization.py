"""An optimised model -> the plain figures that people and pipelines are given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from onnx_symmem.expr.decide import Kind, Tally
from onnx_symmem.expr.expression import Expr
from onnx_symmem.memory.profile import UNKNOWN, MemoryProfile
from onnx_symmem.order.dispatch import Dispatch
from onnx_symmem.report.findings import (
    data_symbols,
    left_out,
    no_bytes,
    peak_values,
    settled,
    shape_findings,
)
from onnx_symmem.report.results import (
    Candidate,
    DeliveryFigures,
    LevelFigures,
    LevelsFigures,
    Optimization,
    VerifiedShape,
    VersionFigures,
)
from onnx_symmem.rewrite.choice import LIMIT
from onnx_symmem.run.optimized import OptimizedModel
from onnx_symmem.run.several import LevelPlan

__all__ = ["comparison_counts", "in_place_count", "optimization_figures"]


def optimization_figures(found: OptimizedModel, out: Path | None) -> Optimization:
    """The figures of one `optimize`."""
    shapes, choice = found.shapes, found.choice
    chosen = choice.chosen
    members = (*choice.before.members, *found.after.members, *found.bound.members)
    symbols = data_symbols(shapes, frozenset().union(*(m.symbols() for m in members)))
    samples = tuple(
        settled(shapes, {name: shape[name] for name in shapes.input_symbols}, symbols)
        for shape in found.samples
    )
    before = peak_values(choice.before.members, samples, found.before.label, left_out(found.before))
    after = peak_values(found.after.members, samples, chosen.profile.label, left_out(chosen.profile))
    known = [a is not None and b is not None for (_, b), (_, a) in zip(before.at, after.at, strict=True)]
    # Orders do not bound the one level of a model without symbolic dims where that repeats operators.
    repeats = None if found.levels is None or not found.levels.only else found.levels.floor.peak
    least_known = peak_values((repeats or found.bound).members, samples, "bound")
    return Optimization(
        model=found.source.label,
        out=None if out is None else str(out),
        files=tuple(map(str, found.files)),
        provider=found.provider,
        ort_level=found.ort_level,
        notices=(*found.notices, *no_bytes(len(samples), sum(known), symbols, samples)),
        nodes_original=len(found.source.proto.graph.node),
        nodes_planned=len(shapes.graph.view.nodes),
        findings=shape_findings(shapes),
        samples=samples,
        before=before,
        after=after,
        lower_bound=least_known,
        floor=tuple(
            None if least is None else least if repeats else max(floor, least)
            for floor, (_, least) in zip(found.floor, least_known.at, strict=True)
        ),
        explanation=found.explanation,
        order_before=found.order_before,
        order_after=chosen.name if found.dispatch is None else _names(found.dispatch),
        moved_nodes=found.moved_nodes,
        in_place_before=in_place_count(found.before),
        in_place_after=in_place_count(chosen.profile),
        never_worse=found.never_worse,
        # What is not counted may depend on the order.
        optimal=found.optimal and chosen.profile.label != UNKNOWN and repeats is None,
        candidates=tuple(
            Candidate(
                t.name, tuple(p if k else None for p, k in zip(t.peaks, known, strict=False)), t.outcome
            )
            for t in choice.tried
        ),
        comparisons=comparison_counts(choice.tally),
        verified=tuple(VerifiedShape(v.shape, v.outputs, v.packed) for v in found.verified),
        seconds=found.seconds,
        versions=() if found.dispatch is None else _versions(found.dispatch, samples),
        overhead_bytes=_overhead(found),
        added_weights=found.added_weights,
        levels=None if found.levels is None else _levels(found.levels, samples),
        delivery=_delivery(found),
    )


def _overhead(found: OptimizedModel) -> int:
    """Bytes by which what is written is at most above what would have run."""
    if found.dispatch is not None:
        return found.dispatch.overhead
    if found.levels is not None and found.levels.above is not None:
        return found.levels.above
    return found.choice.overhead + (0 if found.levels is None else found.levels.overhead)


def _delivery(found: OptimizedModel) -> DeliveryFigures:
    made = found.delivered
    if made is None:
        return DeliveryFigures()
    return DeliveryFigures("anchors", made.anchors, made.separated, made.changed_at_load)


def _levels(plan: LevelPlan, samples: Sequence[Mapping[str, int]]) -> LevelsFigures:
    """What each level takes and adds, and at which of the samples it runs under the limit."""
    symbols = plan.counted.symbols().union(*(m.symbols() for v in plan.levels for m in v.peak.members))
    full = [plan.domain.completed(shape) for shape in samples]
    known = [symbols <= shape.keys() for shape in full]
    runs = [plan.level_at(shape) if ok else None for shape, ok in zip(full, known, strict=True)]
    names = [v.name for v in plan.floor.prepared.view.values]
    levels = tuple(
        LevelFigures(
            peak_values(
                level.peak.members, full, level.peak.profile.label if level.peak.profile else "exact"
            ),
            tuple(plan.needed(k, s) if ok else None for s, ok in zip(full, known, strict=True)),
            str(level.operations),
            str(level.moved),
            tuple(names[v] for v in level.recomputed),
            tuple(names[v] for v in level.offloaded),
            level.never_above,
            tuple(at for at, run in enumerate(runs) if run == k),
            tuple(_share(level.operations, plan.work, shape) for shape in full),
        )
        for k, level in enumerate(plan.levels)
    )
    wish = plan.wish
    floor = peak_values(plan.floor.peak.members, full, "bound")
    return LevelsFigures(wish.limit, LIMIT, wish.counts, wish.reserve, floor, levels)


def _share(part: Expr, whole: Expr, shape: Mapping[str, int]) -> float | None:
    if not part.symbols() | whole.symbols() <= shape.keys():
        return None
    return round(part.evaluate(shape) / max(whole.evaluate(shape), 1), 4)


def _names(dispatch: Dispatch) -> str:
    return " | ".join(v.candidate.name for v in dispatch.versions)


def _versions(dispatch: Dispatch, samples: Sequence[Mapping[str, int]]) -> tuple[VersionFigures, ...]:
    """What a run of each version takes, and at which of the samples it is the one that runs."""
    full = [dispatch.domain.completed(shape) for shape in samples]
    runs = [dispatch.version_at(shape) for shape in full]
    return tuple(
        VersionFigures(
            v.candidate.name,
            peak_values(dispatch.whole(k).members, samples, v.candidate.profile.label),
            tuple(at for at, run in enumerate(runs) if run == k),
        )
        for k, v in enumerate(dispatch.versions)
    )


def comparison_counts(tally: Tally) -> dict[str, dict[str, int]]:
    """Per verdict, all five of them: how many comparisons each tier settled that way."""
    counts: dict[str, dict[str, int]] = {str(kind): {} for kind in Kind}
    for (kind, tier), n in tally.counts.items():
        counts[kind][tier] = n
    return counts


def in_place_count(profile: MemoryProfile) -> int:
    """Node outputs that lie in another value's buffer."""
    return sum(kind == "share" for kind in profile.plan.kind)
