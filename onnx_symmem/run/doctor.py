"""Whether a session keeps a model's plan, and if not, which of its settings breaks it.

A model is planned for one traversal with everything else off. It is run under the settings in question and
compared with that plan: the nodes that ran and their order, the bytes after every node, and the peak of
every run (a memory pattern takes effect from the second on). Then each setting that differs from those that
keep the plan is tried alone. Where a plan does not count all tensors (sequences, texts), what the first run
took under the settings that keep it stands for its peak.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from onnx_symmem.graph.load import load_model
from onnx_symmem.memory.profile import UNKNOWN
from onnx_symmem.order.candidates import Tick
from onnx_symmem.run.inputs import Fill
from onnx_symmem.run.measure import Measurement, domain_at, measure
from onnx_symmem.run.session import ModelSource, SessionSettings, kept_for
from onnx_symmem.shapes.engine import infer_shapes

__all__ = ["OPTIONS", "Diagnosis", "Finding", "OptionFinding", "diagnose"]

OPTIONS = ("optimization", "execution_order", "mem_pattern", "mem_reuse", "arena")
"""Fields of `SessionSettings` that a plan depends on."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What became of a plan under some settings.

    `order` is empty where the planned nodes ran in the planned order, else it says what did not;
    `nodes_equal` is the share of nodes with the planned bytes, None where the order is another. `planned`
    is the planned peak, None where there is none; `first` is the most that tensors took in the first run at
    the shape, `peak` the same over all runs (with a memory pattern later ones hold a block). `in_use` and
    `held` are the largest that the arena gave out and had of the system, in bytes.
    """

    order: str
    nodes_equal: float | None
    planned: int | None
    first: int
    peak: int
    in_use: int
    held: int

    @property
    def keeps_order(self) -> bool:
        """Whether the nodes of the file ran in the planned order."""
        return not self.order

    @property
    def keeps_peak(self) -> bool:
        """Whether no run took more than was planned."""
        return self.planned is not None and self.peak <= self.planned

    @property
    def keeps_first(self) -> bool:
        """Whether order and peak of the first run are as planned."""
        return self.keeps_order and self.planned is not None and self.first <= self.planned

    @property
    def keeps(self) -> bool:
        """Whether order and peak are as planned."""
        return self.keeps_order and self.keeps_peak


@dataclass(frozen=True, slots=True)
class OptionFinding:
    """One setting that differs from `wanted`, which keeps the plan, tried alone."""

    option: str
    wanted: Any
    given: Any
    finding: Finding


@dataclass(frozen=True)
class Diagnosis:
    """The plan as it should run (`kept`), under the given settings, and every differing setting alone.

    `not_counted` says what no plan counts; the planned peak is then a measured one.
    """

    model: str
    shape: Mapping[str, int]
    provider: str
    planned_for: str
    kept: Finding
    given: Finding
    options: tuple[OptionFinding, ...]
    not_counted: tuple[str, ...] = ()

    @property
    def keeps(self) -> bool:
        """Whether the given settings keep the plan."""
        return self.given.keeps

    @property
    def breaking(self) -> tuple[OptionFinding, ...]:
        """Settings that break the plan alone."""
        return tuple(o for o in self.options if not o.finding.keeps)


def diagnose(
    source: ModelSource,
    at: Mapping[str, int],
    settings: SessionSettings,
    overrides: Mapping[str, Fill] | None = None,
    seed: int = 0,
    tick: Tick | None = None,
) -> Diagnosis:
    """Run a model at a shape under `settings` and under those that keep its plan, and compare."""
    tick = tick or (lambda _stage, _done, _total: None)
    tick("inferring shapes", 0, 0)
    model = load_model(source)
    shapes = infer_shapes(model.view(), domain_at(at))
    wanted = kept_for(model, settings.provider)

    differing = [name for name in OPTIONS if getattr(settings, name) != getattr(wanted, name)]
    tries = 1 + (settings != wanted) + (len(differing) if len(differing) > 1 else 0)
    begun = 0

    def tried(under: SessionSettings, words: str) -> Measurement:
        nonlocal begun
        before, begun = begun, begun + 1
        return measure(
            model, at, settings=under, overrides=overrides, seed=seed, shapes=shapes, latency_runs=0,
            plan=wanted, tick=lambda _stage, done, runs: tick(words, before * runs + done, tries * runs),
        )  # fmt: skip

    measured = tried(wanted, "running as planned")
    planned = measured.predicted_peak
    not_counted: tuple[str, ...] = ()
    if planned is not None and measured.prediction.label == UNKNOWN:
        planned, not_counted = measured.runs[0].requested_peak, measured.prediction.reasons
    kept = _finding(measured, planned)
    given = kept
    if settings != wanted:
        given = _finding(tried(settings, "running under the given settings"), planned)
    options = []
    for name in differing:
        value = getattr(settings, name)
        alone = given
        if len(differing) > 1:
            alone = _finding(tried(replace(wanted, **{name: value}), f"trying {name} alone"), planned)
        options.append(OptionFinding(name, getattr(wanted, name), value, alone))
    return Diagnosis(
        model.label, measured.shape, settings.provider, wanted.execution_order, kept, given, tuple(options),
        not_counted,
    )  # fmt: skip


def _finding(found: Measurement, planned: int | None) -> Finding:
    return Finding(
        found.prediction.why_not,
        found.nodes_equal,
        planned,
        found.runs[0].requested_peak,
        max(r.requested_peak for r in found.runs),
        max(r.in_use_peak for r in found.runs),
        max(r.held for r in found.runs),
    )
