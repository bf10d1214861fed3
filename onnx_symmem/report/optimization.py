"""An optimised model -> the plain figures that people and pipelines are given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from onnx_symmem.memory.peak import Peak
from onnx_symmem.memory.profile import MemoryProfile
from onnx_symmem.report.results import (
    Candidate,
    Optimization,
    PeakFigures,
    SymbolFigures,
    UnknownDimFigures,
    VerifiedShape,
)
from onnx_symmem.run.pipeline import OptimizedModel
from onnx_symmem.shapes.table import ModelShapes

__all__ = ["optimization_figures", "peak_figures", "symbol_figures", "unknown_figures"]


def optimization_figures(found: OptimizedModel, out: Path | None) -> Optimization:
    """The figures of one `optimize`."""
    shapes, choice = found.shapes, found.choice
    chosen = choice.chosen
    return Optimization(
        model=found.source.label,
        out=None if out is None else str(out),
        files=tuple(map(str, found.files)),
        provider=found.provider,
        ort_level=found.ort_level,
        notices=found.notices,
        nodes_original=len(found.source.proto.graph.node),
        nodes_planned=len(shapes.graph.view.nodes),
        symbols=symbol_figures(shapes),
        samples=found.samples,
        before=peak_figures(choice.before, found.before, found.samples),
        after=peak_figures(choice.after, chosen.profile, found.samples),
        lower_bound=PeakFigures(
            choice_formula(found.bound), tuple((s, found.bound.at(s)) for s in found.samples), "bound"
        ),
        order_before=found.order_before,
        order_after=chosen.name,
        moved_nodes=found.moved_nodes,
        in_place_before=in_place_count(found.before),
        in_place_after=in_place_count(chosen.profile),
        never_worse=choice.never_worse,
        optimal=found.optimal,
        candidates=tuple(Candidate(t.name, t.peaks, t.outcome) for t in choice.tried),
        comparisons=choice.tally.as_dict(),
        unknown_dims=unknown_figures(shapes),
        assumptions=tuple(a.text for a in shapes.assumptions if a.kind != "declared"),
        limits=tuple(limit.text for limit in shapes.limits),
        verified=tuple(VerifiedShape(v.shape, v.outputs) for v in found.verified),
        seconds=found.seconds,
    )


def choice_formula(peak: Peak) -> str:
    """The peak as one expression in Python syntax."""
    members = [str(m) for m in peak.members]
    return members[0] if len(members) == 1 else f"max({', '.join(members)})"


def peak_figures(
    peak: Peak, profile: MemoryProfile, samples: Sequence[Mapping[str, int]]
) -> PeakFigures:
    """Formula and sample values of a profile's peak, with what it leaves out."""
    reasons = tuple(f"{n.name}: {n.reason}" for n in profile.not_counted)
    return PeakFigures(choice_formula(peak), tuple((s, peak.at(s)) for s in samples), profile.label, reasons)


def in_place_count(profile: MemoryProfile) -> int:
    """Node outputs that lie in another value's buffer."""
    return sum(kind == "share" for kind in profile.plan.kind)


def symbol_figures(shapes: ModelShapes) -> tuple[SymbolFigures, ...]:
    """The symbols of the inputs with their ranges."""
    ranges = [(name, shapes.domain.range_of(name)) for name in shapes.input_symbols]
    return tuple(SymbolFigures(name, r.lo, r.hi, r.divisor) for name, r in ranges)


def unknown_figures(shapes: ModelShapes) -> tuple[UnknownDimFigures, ...]:
    """Dims that stayed unknown, with the reasons."""
    return tuple(UnknownDimFigures(u.tensor, u.axis, u.op, u.reason) for u in shapes.unknowns)
