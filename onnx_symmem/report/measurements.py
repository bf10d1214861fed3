"""What was measured -> the figures of `run` and `compare`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from onnx_symmem.report.results import SCHEMA_VERSION
from onnx_symmem.run.baseline import baseline_settings
from onnx_symmem.run.measure import Measurement, RunFigures
from onnx_symmem.run.session import SessionSettings, kept, shipped

__all__ = ["Comparison", "MeasuredRun", "OutputsCompared", "measured_run"]


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """A model at one shape: what the plan predicts beside what was measured.

    `settings` is kept (in `execution_order`, priority or default), baseline (ONNX Runtime's own graph at the
    level `optimization`, and its order, with the memory settings of kept), shipped, or custom. The prediction
    is for the first run. `predicted_peak` and `nodes_equal` are None where nothing is predicted, for the
    reason `why_not`; `taken` are data-dependent dims that were read off the run. Of a model with several
    `versions`, `chosen_version` is the one that runs.
    """

    model: str
    shape: Mapping[str, int]
    provider: str
    settings: str
    optimization: str
    execution_order: str
    predicted_peak: int | None
    label: str
    why_not: str
    reasons: tuple[str, ...]
    taken: Mapping[str, int]
    runs: tuple[RunFigures, ...]
    static_bytes: int
    scratch: int
    device_bytes: int | None
    nodes: int
    nodes_compared: int
    nodes_equal: float | None
    mismatches: tuple[Mapping[str, Any], ...]
    wrong_dims: tuple[Mapping[str, Any], ...]
    first_ms: float | None
    latency_ms: float | None
    chosen_version: int | None = None
    versions: int = 0

    @property
    def first(self) -> RunFigures:
        """The run that the prediction is for."""
        return self.runs[0]

    def figures(self) -> dict[str, Any]:
        """The JSON form without its heading, as it also stands inside a comparison."""
        return {
            "model": self.model,
            "shape": dict(self.shape),
            "provider": self.provider,
            "settings": self.settings,
            "optimization": self.optimization,
            "execution_order": self.execution_order,
            "chosen_version": self.chosen_version,
            "versions": self.versions,
            "label": self.label,
            "predicted_peak": self.predicted_peak,
            "measured_peak": self.first.requested_peak,
            "in_use_peak": self.first.in_use_peak,
            "held": self.first.held,
            "static_bytes": self.static_bytes,
            "scratch": self.scratch,
            "device_bytes": self.device_bytes,
            "runs": [
                {"measured_peak": r.requested_peak, "in_use_peak": r.in_use_peak, "held": r.held}
                for r in self.runs
            ],
            "nodes": self.nodes,
            "nodes_compared": self.nodes_compared,
            "nodes_equal": self.nodes_equal,
            "mismatches": [dict(m) for m in self.mismatches],
            "wrong_dims": [dict(w) for w in self.wrong_dims],
            "taken": dict(self.taken),
            "why_not": self.why_not,
            "reasons": list(self.reasons),
            "first_ms": _milliseconds(self.first_ms),
            "latency_ms": _milliseconds(self.latency_ms),
        }

    def to_json(self) -> dict[str, Any]:
        """The documented JSON form."""
        return {"schema": "onnx-symmem/run", "version": SCHEMA_VERSION, **self.figures()}


@dataclass(frozen=True, slots=True)
class OutputsCompared:
    """Whether two models give the same outputs on the same inputs.

    `equal`: no number differs by more than `tolerance`, relative to the largest number of its output;
    `bit_equal`: none differs at all. `level`: graph optimisations under which the first model ran; the second
    ran as it is. Where outputs are not equal `reason` says which; the differences are the largest of all
    outputs, None where one is infinite or the outputs are not numbers of equal shapes.
    """

    equal: bool
    bit_equal: bool
    outputs: int
    level: str
    tolerance: float
    worst_absolute: float | None
    worst_relative: float | None
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "equal": self.equal,
            "bit_equal": self.bit_equal,
            "count": self.outputs,
            "level": self.level,
            "tolerance": self.tolerance,
            "worst_absolute": self.worst_absolute,
            "worst_relative": self.worst_relative,
            "reason": self.reason,
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two models at one shape.

    `shipped` is the first as ONNX Runtime is shipped; `before` the same as ONNX Runtime would run it at
    `ort_level`, its graph in its order, in a session that keeps the plan; `after` the second in such a one.
    """

    shape: Mapping[str, int]
    provider: str
    ort_level: str
    shipped: MeasuredRun
    before: MeasuredRun
    after: MeasuredRun
    outputs: OutputsCompared

    @property
    def measured(self) -> tuple[MeasuredRun, MeasuredRun, MeasuredRun]:
        """All three, in the order in which they are shown."""
        return self.shipped, self.before, self.after

    def to_json(self) -> dict[str, Any]:
        """The documented JSON form."""
        return {
            "schema": "onnx-symmem/compare",
            "version": SCHEMA_VERSION,
            "shape": dict(self.shape),
            "provider": self.provider,
            "ort_level": self.ort_level,
            "shipped": self.shipped.figures(),
            "before": self.before.figures(),
            "after": self.after.figures(),
            "outputs": self.outputs.to_json(),
        }


def measured_run(m: Measurement) -> MeasuredRun:
    """The figures of one measurement."""
    prediction = m.prediction
    return MeasuredRun(
        model=m.model,
        shape=m.shape,
        provider=m.provider,
        settings=_settings_name(m.settings),
        optimization=m.settings.optimization,
        execution_order=m.settings.execution_order,
        predicted_peak=m.predicted_peak,
        label=prediction.label or "unknown",
        why_not=prediction.why_not,
        reasons=prediction.reasons,
        taken=prediction.taken,
        runs=m.runs,
        static_bytes=m.static_bytes,
        scratch=m.scratch,
        device_bytes=m.device_bytes,
        nodes=len(m.nodes),
        nodes_compared=prediction.compared,
        nodes_equal=m.nodes_equal,
        mismatches=tuple(
            {
                "node": x.node,
                "op": x.op,
                "predicted": x.predicted,
                "measured": x.measured,
                "change": x.change,
            }
            for x in m.mismatches
        ),
        wrong_dims=tuple(
            {"tensor": w.tensor, "node": w.node, "inferred": w.inferred, "measured": list(w.measured)}
            for w in m.wrong_dims
        ),
        first_ms=m.first_ms,
        latency_ms=m.latency_ms,
        chosen_version=m.version,
        versions=m.versions,
    )


def _settings_name(settings: SessionSettings) -> str:
    keeping = kept(settings.provider)
    anchored = replace(keeping, execution_order="default", mem_reuse=True)
    if replace(settings, execution_order="priority") == keeping or settings == anchored:
        return "kept"
    if settings == baseline_settings(settings.optimization, settings.provider, settings.mem_reuse):
        return "baseline"
    return "shipped" if settings == shipped(settings.provider) else "custom"


def _milliseconds(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
