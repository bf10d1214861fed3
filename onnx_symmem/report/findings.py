"""Inferred shapes and peaks -> the figures that several verbs show."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from onnx_symmem.expr.atom import MIN
from onnx_symmem.expr.expression import Expr, minimum
from onnx_symmem.graph.load import LoadedModel
from onnx_symmem.memory.profile import MemoryProfile
from onnx_symmem.report.results import (
    AssumptionFigures,
    LimitFigures,
    PeakFigures,
    ShapeFindings,
    SymbolFigures,
    UnknownDimFigures,
)
from onnx_symmem.rewrite.reorder import EXECUTION_ORDER
from onnx_symmem.shapes.table import ModelShapes

__all__ = [
    "bound_text",
    "data_symbols",
    "full_shape",
    "left_out",
    "no_bytes",
    "peak_values",
    "settled",
    "shape_findings",
    "unplanned",
]

_LARGEST_DIM = (1 << 63) - 1

_UNPLANNED = (
    "bytes of the file's own nodes; ONNX Runtime may add or replace nodes when it loads a file that "
    "`optimize` did not write (Casts for float16, operators without a kernel, quantised pairs)"
)


def unplanned(model: LoadedModel) -> tuple[str, ...]:
    """What holds for a file that does not say for which order it was planned, as `optimize` writes it."""
    planned = any(entry.key == EXECUTION_ORDER for entry in model.proto.metadata_props)
    return () if planned else (_UNPLANNED,)


def shape_findings(shapes: ModelShapes) -> ShapeFindings:
    """Symbols of the inputs with their ranges, unknown dims, assumptions and limits."""
    ranges = [(name, shapes.domain.range_of(name)) for name in shapes.input_symbols]
    return ShapeFindings(
        tuple(SymbolFigures(name, r.lo, r.hi, r.divisor) for name, r in ranges),
        tuple(
            UnknownDimFigures(u.tensor, u.axis, u.op, u.node, u.reason, u.symbol, bound_text(u.bound))
            for u in shapes.unknowns
        ),
        tuple(AssumptionFigures(a.text, a.kind, a.node, a.reason) for a in shapes.assumptions),
        tuple(LimitFigures(limit.text, limit.node, limit.reason) for limit in shapes.limits),
    )


def bound_text(bound: Expr | None) -> str | None:
    """A bound of a dim, without the numbers inside a minimum that no dim can exceed anyway."""
    atom = None if bound is None else bound.as_atom()
    if atom is not None and atom.kind == MIN:
        numbers = [(arg, arg.as_int()) for arg in atom.args]
        bound = minimum(*(arg for arg, number in numbers if number is None or number < _LARGEST_DIM))
    return None if bound is None else str(bound)


def left_out(profile: MemoryProfile) -> tuple[str, ...]:
    """What a profile does not count, one line each."""
    return tuple(f"{n.name}: {n.reason}" for n in profile.not_counted)


def peak_values(
    members: Sequence[Expr],
    at: Sequence[Mapping[str, int]],
    label: str = "exact",
    reasons: Sequence[str] = (),
) -> PeakFigures:
    """The figures of the maximum of `members` at shapes, None where one lacks a symbol of theirs."""
    symbols = frozenset().union(*(m.symbols() for m in members))
    values = [
        (shape, max((m.evaluate(shape) for m in members), default=0) if symbols <= shape.keys() else None)
        for shape in at
    ]
    return PeakFigures(tuple(map(str, members)) or ("0",), tuple(values), label, tuple(reasons))


def data_symbols(shapes: ModelShapes, used: Collection[str]) -> list[str]:
    """Those of the symbols `used` that no dim of an input gives, in the order in which they were made."""
    unknown = [u.symbol for u in shapes.unknowns if u.symbol in used]
    others = sorted(set(used) - set(unknown) - set(shapes.input_symbols) - shapes.domain.equalities.keys())
    return list(dict.fromkeys((*unknown, *others)))


def settled(shapes: ModelShapes, at: Mapping[str, int], symbols: Sequence[str]) -> dict[str, int]:
    """`at`, a size for every dim of the inputs, with the largest legal size of those `symbols` that have one.

    A symbol without an upper limit depends on data, and nothing bounds it; it is left out.
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
            if high is None or high >= _LARGEST_DIM:
                continue
            full[name] = high
        at = full
    return dict(at)


def full_shape(shapes: ModelShapes, at: Mapping[str, int], symbols: Sequence[str]) -> dict[str, int] | None:
    """The same, or None where one of the symbols has no upper limit."""
    found = settled(shapes, at, symbols)
    return found if all(name in found for name in symbols) else None


def no_bytes(
    wanted: int, given: int, symbols: Sequence[str], shapes: Sequence[Mapping[str, int]]
) -> tuple[str, ...]:
    """What to say where bytes are given at fewer shapes than wanted, for want of a size of `symbols`."""
    if given >= wanted:
        return ()
    missing = [name for name in symbols if any(name not in shape for shape in shapes)]
    what = "depends on data and has" if len(missing) == 1 else "depend on data and have"
    where = f"no bytes at {wanted - given} of {wanted} shapes"
    return (f"{where}: they grow with {', '.join(missing)}, which {what} no known limit",)
