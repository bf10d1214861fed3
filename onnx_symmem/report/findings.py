"""Inferred shapes and peaks -> the figures that several verbs show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onnx_symmem.expr.expression import Expr
from onnx_symmem.memory.profile import MemoryProfile
from onnx_symmem.report.results import (
    AssumptionFigures,
    LimitFigures,
    PeakFigures,
    ShapeFindings,
    SymbolFigures,
    UnknownDimFigures,
)
from onnx_symmem.shapes.table import ModelShapes

__all__ = ["full_shape", "left_out", "peak_values", "shape_findings"]


def shape_findings(shapes: ModelShapes) -> ShapeFindings:
    """Symbols of the inputs with their ranges, unknown dims, assumptions and limits."""
    ranges = [(name, shapes.domain.range_of(name)) for name in shapes.input_symbols]
    return ShapeFindings(
        tuple(SymbolFigures(name, r.lo, r.hi, r.divisor) for name, r in ranges),
        tuple(
            UnknownDimFigures(
                u.tensor, u.axis, u.op, u.node, u.reason, u.symbol, None if u.bound is None else str(u.bound)
            )
            for u in shapes.unknowns
        ),
        tuple(AssumptionFigures(a.text, a.kind, a.node, a.reason) for a in shapes.assumptions),
        tuple(LimitFigures(limit.text, limit.node, limit.reason) for limit in shapes.limits),
    )


def left_out(profile: MemoryProfile) -> tuple[str, ...]:
    """What a profile does not count, one line each."""
    return tuple(f"{n.name}: {n.reason}" for n in profile.not_counted)


def peak_values(
    members: Sequence[Expr],
    at: Sequence[Mapping[str, int]],
    label: str = "exact",
    reasons: Sequence[str] = (),
) -> PeakFigures:
    """The figures of the maximum of `members` at full shapes."""
    values = [(shape, max((m.evaluate(shape) for m in members), default=0)) for shape in at]
    return PeakFigures(tuple(map(str, members)) or ("0",), tuple(values), label, tuple(reasons))


def full_shape(shapes: ModelShapes, at: Mapping[str, int], symbols: Sequence[str]) -> dict[str, int] | None:
    """`at`, a size for every dim of the inputs, completed with the largest legal size of the other `symbols`.

    None where one of them has no upper limit: it depends on data, and nothing bounds it.
    """
    domain = shapes.domain
    for name in symbols:
        if name in at:
            continue
        full = domain.completed(at)
        if name not in full:
            # Tied down one by one, so that later ones are bounded by what was chosen for earlier ones.
            here = domain
            for given, size in full.items():
                if given not in domain.equalities:
                    here = here.with_equality(given, size)
            high = here.bounds(Expr.symbol(name))[1]
            if high is None:
                return None
            full[name] = high
        at = full
    return dict(at)
