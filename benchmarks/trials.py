"""One model of a corpus: planned, then measured at three shapes beside ONNX Runtime as it is shipped.

Inputs are made up by onnx-symmem from the model alone. The shapes are two that the corpus names and a larger
one: the largest of them with all dims multiplied by the same factor, so that relations between dims hold.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import onnx

from benchmarks.results import Difference, ModelResult, ShapeResult
from onnx_symmem.api import Optimized, optimize
from onnx_symmem.errors import DomainError, RunFailed, SymmemError, VerificationFailed
from onnx_symmem.graph.load import external_entry, graphs_of, load_model
from onnx_symmem.report.findings import full_shape
from onnx_symmem.report.results import Optimization
from onnx_symmem.run.baseline import baseline_settings
from onnx_symmem.run.inputs import resolve_shape
from onnx_symmem.run.measure import Measurement, measure
from onnx_symmem.run.session import kept_for, shipped, unpacked
from onnx_symmem.run.verify import verify
from onnx_symmem.shapes.engine import infer_shapes

__all__ = ["larger_shapes", "plan_only", "trial"]

Tell = Callable[[str], None]

FACTORS = (16, 8, 4, 2)
MOST_BYTES = 256 << 20  # predicted peak of the larger shape
CASES = 2


def trial(
    name: str, source: str, path: Path, cases: Sequence[Mapping[str, int]], tell: Tell = lambda _: None
) -> ModelResult:
    """Plan the model at `path` and measure it; what fails is said in the result."""
    with tempfile.TemporaryDirectory(prefix="onnx-symmem-") as folder:
        planned = Path(folder, "planned.onnx")
        try:
            tell("optimize")
            found = optimize(path, planned)
        except SymmemError as error:
            return ModelResult(name, source, failed=f"optimize: {error}")
        rows: list[ShapeResult] = []
        failed = ""
        wanted: list[Iterator[Mapping[str, int]]] = [iter([case]) for case in cases[:CASES]]
        wanted.append(larger_shapes(found, cases))
        for candidates in wanted:
            for shape in candidates:
                tell(", ".join(f"{k}={v}" for k, v in shape.items()))
                try:
                    rows.append(_row(path, planned, found, shape))
                except (RunFailed, DomainError) as error:
                    # A larger shape may be more than the model can take, which only running tells.
                    failed = "" if candidates is wanted[-1] else f"run: {error}"
                    continue
                break
        equal = _equal_unpacked(path, planned, found, cases[0])
        return replace(_result(name, source, found, tuple(rows), failed), unpacked_equal=equal)


def _equal_unpacked(path: Path, planned: Path, found: Optimized, shape: Mapping[str, int]) -> bool:
    shapes, level = infer_shapes(load_model(path).view()), found.figures.ort_level
    try:
        return bool(verify(path, planned, shapes, [shape], level=level, packing=False))
    except VerificationFailed:
        return False


def plan_only(name: str, source: str, path: Path, tell: Tell = lambda _: None) -> ModelResult:
    """Plan a model as it is, at level none; its weights may be missing, no number of them is looked at."""
    with tempfile.TemporaryDirectory(prefix="onnx-symmem-") as folder:
        bare = Path(folder, path.name)
        bare.write_bytes(_with_hollow_weights(path, Path(folder)).SerializeToString())
        try:
            tell("optimize, level none")
            found = optimize(bare, Path(folder, "planned.onnx"), ort_level="none", verify=False)
        except SymmemError as error:
            return ModelResult(name, source, failed=f"optimize: {error}")
    return _result(name, source, found, (), "", ("planned only: its weights are not there",))


def _with_hollow_weights(path: Path, folder: Path) -> onnx.ModelProto:
    """The model with all external weights at the start of one sparse file as long as the largest."""
    proto = onnx.load(path, load_external_data=False)
    longest = 0
    for graph in graphs_of(proto.graph):
        for tensor in graph.initializer:
            entry = external_entry(tensor)
            if entry is None:
                continue
            longest = max(longest, entry[2] or 0)
            del tensor.external_data[:]
            for key, value in (("location", "hollow.weights"), ("offset", 0), ("length", entry[2] or 0)):
                tensor.external_data.add(key=key, value=str(value))
    with (folder / "hollow.weights").open("wb") as file:
        file.truncate(longest)
    return proto


# ------------------------------------------------------------------------------------------------ shapes


def _predicted(found: Optimized, shape: Mapping[str, int]) -> tuple[int | None, int | None, int | None]:
    """Peaks before and after, and what no order goes below, at a shape; None where they depend on data."""
    details = found.details
    peaks = (details.choice.before, details.after, details.bound)
    at = details.shapes.domain.completed(shape)
    symbols = {s for peak in peaks for member in peak.members for s in member.symbols()}
    if not symbols <= at.keys():
        return None, None, None
    return peaks[0].at(at), peaks[1].at(at), peaks[2].at(at)


def _bound(found: Optimized, shape: Mapping[str, int]) -> int | None:
    """The peak after at a shape, sizes that depend on data at their largest; None: no limit is known."""
    after, shapes = found.details.after, found.details.shapes
    symbols = sorted({s for member in after.members for s in member.symbols()})
    full = full_shape(shapes, shape, [s for s in symbols if s not in shape])
    return None if full is None else after.at(full)


def larger_shapes(found: Optimized, cases: Sequence[Mapping[str, int]]) -> Iterator[Mapping[str, int]]:
    """Larger shapes, best first: the largest case times a factor, at last only its first dim doubled."""
    shapes = found.details.shapes
    largest = max(cases, key=lambda case: _bound(found, case) or sum(case.values()))
    for factor in FACTORS:
        shape = {name: size * factor for name, size in largest.items()}
        try:
            resolve_shape(shapes, shape)
        except DomainError:
            continue
        peak = _bound(found, shape)
        if peak is not None and peak <= MOST_BYTES:
            yield shape
    first = next(iter(largest))
    yield {**largest, first: 2 * largest[first]}


# ------------------------------------------------------------------------------------------------ rows


def _row(path: Path, planned: Path, found: Optimized, shape: Mapping[str, int]) -> ShapeResult:
    known = infer_shapes(load_model(path).view())
    after = measure(planned, shape, latency_runs=0)
    level = found.figures.ort_level
    before = measure(path, shape, settings=baseline_settings(level), runs=1, latency_runs=0, shapes=known)
    bare = measure(planned, shape, settings=unpacked(kept_for(load_model(planned))), latency_runs=0)
    plain = measure(path, shape, settings=shipped(), latency_runs=0, shapes=known)
    formulas = _predicted(found, shape)
    return ShapeResult(
        shape=dict(shape),
        formula=formulas[1],
        predicted=after.predicted_peak,
        measured=after.runs[0].requested_peak,
        nodes=len(after.nodes),
        nodes_equal=after.nodes_equal,
        scratch=after.scratch,
        static=after.static_bytes,
        in_use=after.runs[-1].in_use_peak,
        held=after.runs[-1].held,
        before_predicted=formulas[0],
        before_measured=before.runs[0].requested_peak,
        shipped_measured=plain.runs[-1].requested_peak,
        shipped_in_use=plain.runs[-1].in_use_peak,
        shipped_held=plain.runs[-1].held,
        why_not=after.prediction.why_not,
        reasons=after.prediction.reasons,
        taken=dict(after.prediction.taken),
        differences=_differences(after),
        least=formulas[2],
        unpacked_in_use=bare.runs[-1].in_use_peak,
        unpacked_held=bare.runs[-1].held,
    )


def _differences(measured: Measurement) -> tuple[Difference, ...]:
    """Mismatches by op, largest first; inherited ones are not counted."""
    changes: dict[str, list[int]] = {}
    for m in measured.mismatches:
        if m.change:
            changes.setdefault(m.op, []).append(m.change)
    found = [Difference(op, len(cs), max(cs, key=abs)) for op, cs in changes.items()]
    return tuple(sorted(found, key=lambda d: (-abs(d.largest), d.op)))


def _result(
    name: str,
    source: str,
    found: Optimized,
    rows: tuple[ShapeResult, ...],
    failed: str,
    notes: tuple[str, ...] = (),
) -> ModelResult:
    figures = found.figures
    peaks = zip(figures.before.at, figures.after.at, figures.lower_bound.at, strict=True)
    return ModelResult(
        name=name,
        source=source,
        nodes=figures.nodes_planned,
        level=figures.ort_level,
        seconds=dict(figures.seconds),
        never_worse=_never_worse(figures),
        optimal=figures.optimal,
        order=figures.order_after,
        moved=figures.moved_nodes,
        in_place=(figures.in_place_before, figures.in_place_after),
        peaks=tuple((dict(shape), before, after, least) for (shape, before), (_, after), (_, least) in peaks),
        unknown_dims=len(figures.findings.unknown_dims),
        verified=tuple(dict(v.shape) for v in figures.verified),
        shapes=rows,
        notes=notes,
        failed=failed,
    )


def _never_worse(figures: Optimization) -> str:
    """What is proved, with the bytes that one order may be above what would have run."""
    above = 0 if figures.versions or figures.levels is not None else figures.overhead_bytes
    return f"{figures.never_worse}, but for {above:,} B" if above else figures.never_worse
