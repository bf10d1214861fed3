"""A model as it is -> the figures of `report`: its peak as a formula, and what is in memory at the peak.

The model is taken as `create_session` runs it: in the order it was planned for (the file's where it does not
say), with nothing changed at load.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnx_symmem.memory.peak import Peak, peak_of
from onnx_symmem.memory.profile import EXACT, MemoryProfile
from onnx_symmem.report.analysis import Analysis, analyse
from onnx_symmem.report.findings import left_out, no_bytes, peak_values, shape_findings
from onnx_symmem.report.growth import Growth
from onnx_symmem.report.optimization import in_place_count
from onnx_symmem.report.results import SCHEMA_VERSION, PeakFigures, ShapeFindings, VersionFigures
from onnx_symmem.run.branches import Branches
from onnx_symmem.run.stated_domain import DomainSpec

__all__ = ["LiveTensor", "MemoryReport", "PeakMember", "PeakMoment", "memory_report", "report_of"]

_LARGEST = 50  # tensors listed one by one per shape; the rest is summed up


@dataclass(frozen=True, slots=True)
class PeakMember:
    """One of the formulas whose maximum is the peak, and the first moment of the run that it stands for."""

    formula: str
    step: int
    moment: str

    def to_json(self) -> dict[str, Any]:
        return {"formula": self.formula, "step": self.step, "moment": self.moment}


@dataclass(frozen=True, slots=True)
class LiveTensor:
    """A tensor in memory at the peak; `scope` is output or activation."""

    name: str
    scope: str
    bytes: int
    formula: str

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "scope": self.scope, "bytes": self.bytes, "formula": self.formula}


@dataclass(frozen=True, slots=True)
class PeakMoment:
    """The peak at one shape: when it is, and what is in memory then.

    `peak` is outputs plus activations; inputs and weights come on top. `tensors` are the largest, `others`
    and `other_bytes` sum up the rest. `timeline` is the most that is in use during each step. Of a model with
    several versions all is about the `version` that runs at the shape, and of an If whose branch the shape
    decides about that branch. `label` says how to read it.
    """

    shape: Mapping[str, int]
    peak: int
    step: int
    moment: str
    inputs: int
    weights: int
    outputs: int
    activations: int
    lower_bound: int
    tensors: tuple[LiveTensor, ...]
    others: int
    other_bytes: int
    timeline: tuple[int, ...]
    version: int | None = None
    label: str = EXACT

    def to_json(self) -> dict[str, Any]:
        return {
            "shape": dict(self.shape),
            "chosen_version": self.version,
            "bytes": self.peak,
            "label": self.label,
            "step": self.step,
            "moment": self.moment,
            "scopes": {
                "inputs": self.inputs,
                "weights": self.weights,
                "outputs": self.outputs,
                "activations": self.activations,
            },
            "lower_bound": self.lower_bound,
            "tensors": [t.to_json() for t in self.tensors],
            "others": {"count": self.others, "bytes": self.other_bytes},
            "timeline": list(self.timeline),
        }


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """Result of `report`.

    `execution_order` is priority (the file's, shape arithmetic hoisted) or default (ONNX Runtime's own);
    `against` is what grew since another model, where one was named; `asked`: the shapes were asked for.
    `versions` are the schedules that a model holds, where there are several: `peak` is then a bound over all.
    """

    model: str
    provider: str
    execution_order: str
    nodes: int
    in_place: int
    findings: ShapeFindings
    peak: PeakFigures
    members: tuple[PeakMember, ...]
    lower_bound: PeakFigures
    inputs: PeakFigures
    weights: PeakFigures
    moments: tuple[PeakMoment, ...]
    notices: tuple[str, ...]
    seconds: Mapping[str, float]
    against: Growth | None = None
    asked: bool = False
    versions: tuple[VersionFigures, ...] = ()

    @property
    def shown(self) -> int:
        """The number of the moment to look at closely: the first that was asked for, else the middle one."""
        return 0 if self.asked else min(1, len(self.moments) - 1)

    def to_json(self) -> dict[str, Any]:
        """The documented JSON form."""
        return {
            "schema": "onnx-symmem/report",
            "version": SCHEMA_VERSION,
            "model": self.model,
            "provider": self.provider,
            "execution_order": self.execution_order,
            "nodes": self.nodes,
            "in_place": self.in_place,
            "notices": list(self.notices),
            **self.findings.to_json(),
            "peak": {**self.peak.to_json(), "members": [m.to_json() for m in self.members]},
            "lower_bound": self.lower_bound.to_json(),
            "scopes": {"inputs": self.inputs.to_json(), "weights": self.weights.to_json()},
            "versions": [v.to_json() for v in self.versions],
            "shapes": [m.to_json() for m in self.moments],
            "against": None if self.against is None else self.against.to_json(),
            "seconds": {stage: round(s, 3) for stage, s in self.seconds.items()},
        }


def memory_report(
    source: Any, domain: DomainSpec = None, at: Sequence[Mapping[str, int]] = (), provider: str = "cpu"
) -> MemoryReport:
    """Report on a path, proto or gs.Graph at the shapes `at`, or at a few that are spread over the domain."""
    return report_of(analyse(source, domain, at, provider))


def report_of(analysis: Analysis, against: Growth | None = None) -> MemoryReport:
    """The figures of an analysed model, at the shapes it was analysed for."""
    start = time.perf_counter()
    found, bound = analysis.profile, analysis.bound
    full = analysis.settled()
    legal = [shape for shape in full if all(name in shape for name in analysis.data_symbols)]
    label, reasons = found.label, left_out(found)
    branches = analysis.branches
    taken = [None if branches is None else branches.version_at(shape) for shape in legal]
    moments = tuple(
        _moment(analysis, shape, _bound(analysis, shape, version), version)
        for shape, version in zip(legal, taken, strict=True)
    )
    return MemoryReport(
        model=analysis.model.label,
        provider=analysis.provider,
        execution_order=analysis.execution_order,
        nodes=len(found.plan.view.nodes),
        in_place=in_place_count(found),
        findings=shape_findings(analysis.shapes),
        peak=peak_values(analysis.peak.members, legal, label, reasons),
        members=_members(found, analysis.peak),
        lower_bound=peak_values(bound, legal, "bound"),
        inputs=peak_values((found.inputs,), legal, label),
        weights=peak_values((found.weights,), legal, label),
        moments=moments,
        notices=(*no_bytes(len(full), len(legal), analysis.data_symbols, full), *analysis.notices()),
        seconds={**analysis.seconds, "evaluate": time.perf_counter() - start},
        against=against,
        asked=analysis.asked,
        versions=() if branches is None else _versions(analysis, branches, legal, taken),
    )


def _versions(
    analysis: Analysis,
    branches: Branches,
    at: Sequence[Mapping[str, int]],
    taken: Sequence[int | None],
) -> tuple[VersionFigures, ...]:
    """What each version takes, whichever runs, and at which of the shapes it is the one."""
    found = analysis.profile
    return tuple(
        VersionFigures(
            branches.name(k),
            peak_values(
                peak_of(branches.members(found, k), analysis.shapes.domain).members, at,
                branches.label(found, k), left_out(found),
            ),
            tuple(place for place, version in enumerate(taken) if version == k),
        )
        for k in range(branches.count)
    )  # fmt: skip


def _bound(analysis: Analysis, shape: Mapping[str, int], version: int | None) -> int:
    """Bytes that no order of the nodes that run at a shape is below."""
    members = analysis.bound if version is None else analysis.version_bounds[version]
    return max((b.evaluate(shape) for b in members), default=0)


def _members(found: MemoryProfile, top: Peak) -> tuple[PeakMember, ...]:
    """Each member with the first moment that it is."""
    if not found.moments:
        return (PeakMember("0", -1, ""),)
    return tuple(
        PeakMember(str(member), found.moments[row].step, found.where(row))
        for member, row in zip(top.members, top.rows, strict=True)
    )


def _moment(analysis: Analysis, shape: Mapping[str, int], bound: int, version: int | None) -> PeakMoment:
    found, label = analysis.profile, analysis.label_at(shape)
    passed = set(analysis.rows_at(shape))
    sizes = found.in_use.evaluate([shape])[:, 0]
    in_use = [int(size) if row in passed else 0 for row, size in enumerate(sizes)]
    outputs = found.outputs.evaluate([shape])[:, 0]
    timeline = [0] * len(found.plan.order)
    for moment, size in zip(found.moments, in_use, strict=True):
        timeline[moment.step] = max(timeline[moment.step], size)
    if not in_use:
        return PeakMoment(
            shape, 0, -1, "", found.inputs.evaluate(shape), found.weights.evaluate(shape), 0, 0, bound,
            (), 0, 0, (), version, label,
        )  # fmt: skip
    row = max(range(len(in_use)), key=lambda k: in_use[k])
    live = [
        LiveTensor(slot.name, slot.scope, slot.bytes.evaluate(shape), str(slot.bytes))
        for slot in found.live(row)
        if slot.bytes is not None
    ]
    live.sort(key=lambda t: -t.bytes)
    rest = live[_LARGEST:]
    return PeakMoment(
        shape=shape,
        peak=in_use[row],
        step=found.moments[row].step,
        moment=found.where(row),
        inputs=found.inputs.evaluate(shape),
        weights=found.weights.evaluate(shape),
        outputs=int(outputs[row]),
        activations=in_use[row] - int(outputs[row]),
        lower_bound=bound,
        tensors=tuple(live[:_LARGEST]),
        others=len(rest),
        other_bytes=sum(t.bytes for t in rest),
        timeline=tuple(timeline),
        version=version,
        label=label,
    )
