"""Two models -> what grew: peak, tensors at the peak, and operators, at the shapes of a report.

Tensors are matched by name. One counts as grown where it takes more bytes at the peak than it did at the
other model's peak, be it larger now or not alive then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnx_symmem.errors import DomainError
from onnx_symmem.memory.profile import MemoryProfile
from onnx_symmem.report.analysis import Analysis
from onnx_symmem.report.findings import left_out, peak_values
from onnx_symmem.report.results import PeakFigures
from onnx_symmem.run.inputs import resolve_shape

__all__ = ["Grown", "Growth", "GrowthAt", "OperatorCount", "growth", "same_shape"]

_LARGEST = 50  # tensors listed per shape


@dataclass(frozen=True, slots=True)
class Grown:
    """A tensor with the bytes it takes at the peak of the other model and of this one; 0: not alive then."""

    name: str
    before: int
    after: int

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "before": self.before, "after": self.after}


@dataclass(frozen=True, slots=True)
class OperatorCount:
    """How many nodes of an operator both models have, where the numbers differ."""

    op: str
    before: int
    after: int

    def to_json(self) -> dict[str, Any]:
        return {"op": self.op, "before": self.before, "after": self.after}


@dataclass(frozen=True, slots=True)
class GrowthAt:
    """Peak and total (with inputs and weights) of both models at one shape.

    `before` is None where the shape is none of the other model's, `why` says so; `tensors` are those that
    grew most, `others` counts further ones.
    """

    shape: Mapping[str, int]
    before: int | None
    after: int
    total_before: int | None
    total_after: int
    tensors: tuple[Grown, ...]
    others: int
    why: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "shape": dict(self.shape),
            "before": self.before,
            "after": self.after,
            "total": {"before": self.total_before, "after": self.total_after},
            "tensors": [t.to_json() for t in self.tensors],
            "others": self.others,
            "why_not": self.why,
        }


@dataclass(frozen=True, slots=True)
class Growth:
    """What grew from the model named here to the one that is reported on."""

    model: str
    nodes: int
    peak: PeakFigures
    shapes: tuple[GrowthAt, ...]
    operators: tuple[OperatorCount, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "nodes": self.nodes,
            "peak": self.peak.to_json(),
            "shapes": [s.to_json() for s in self.shapes],
            "operators": [o.to_json() for o in self.operators],
        }


def growth(analysis: Analysis, other: Analysis) -> Growth:
    """What grew from `other` to the analysed model, at the shapes of the latter that have bytes."""
    rows = []
    known = []
    for shape in analysis.settled():
        if any(name not in shape for name in analysis.data_symbols):
            continue
        row, theirs = _at(analysis, other, shape)
        rows.append(row)
        known += [] if theirs is None else [theirs]
    found = other.profile
    return Growth(
        model=other.model.label,
        nodes=len(found.plan.view.nodes),
        peak=peak_values(other.peak.members, known, found.label, left_out(found)),
        shapes=tuple(rows),
        operators=_operators(other.profile, analysis.profile),
    )


def same_shape(other: Analysis, shape: Mapping[str, int]) -> dict[str, int]:
    """A shape of one model as one of another, by the names of dims; DomainError where it is none."""
    names = other.shapes.input_symbols
    wanted = resolve_shape(other.shapes, {name: size for name, size in shape.items() if name in names})
    (full,) = other.settled([wanted])
    missing = [name for name in other.data_symbols if name not in full]
    if missing:
        raise DomainError(f"nothing limits {', '.join(missing)}")
    return full


def _at(analysis: Analysis, other: Analysis, shape: Mapping[str, int]) -> tuple[GrowthAt, Any]:
    mine, alive = _peak(analysis, shape)
    outside = _outside(analysis.profile, shape)
    try:
        theirs = same_shape(other, shape)
    except DomainError as error:
        return GrowthAt(shape, None, mine, None, mine + outside, (), 0, str(error)), None
    before, were_alive = _peak(other, theirs)
    grown = [
        Grown(name, were_alive.get(name, 0), size)
        for name, size in alive.items()
        if size > were_alive.get(name, 0)
    ]
    grown.sort(key=lambda t: (t.before - t.after, t.name))
    row = GrowthAt(
        shape, before, mine, before + _outside(other.profile, theirs), mine + outside,
        tuple(grown[:_LARGEST]), len(grown[_LARGEST:]),
    )  # fmt: skip
    return row, theirs


def _outside(found: MemoryProfile, shape: Mapping[str, int]) -> int:
    return found.inputs.evaluate(shape) + found.weights.evaluate(shape)


def _peak(analysis: Analysis, shape: Mapping[str, int]) -> tuple[int, dict[str, int]]:
    """The peak at a shape, and the bytes of what is alive then by name."""
    found = analysis.profile
    if not found.moments:
        return 0, {}
    in_use = [int(v) for v in found.in_use.evaluate([shape])[:, 0]]
    row = max(analysis.rows_at(shape), key=in_use.__getitem__)
    alive: dict[str, int] = {}
    for slot in found.live(row):
        if slot.bytes is not None:
            alive[slot.name] = alive.get(slot.name, 0) + slot.bytes.evaluate(shape)
    return in_use[row], alive


def _operators(before: MemoryProfile, after: MemoryProfile) -> tuple[OperatorCount, ...]:
    counts: Sequence[Counter[str]] = [
        Counter(f"{n.domain}.{n.op}" if n.domain else n.op for n in found.plan.view.nodes)
        for found in (before, after)
    ]
    old, new = counts
    changed = [op for op in old.keys() | new.keys() if old[op] != new[op]]
    changed.sort(key=lambda op: (-(new[op] - old[op]), op))
    return tuple(OperatorCount(op, old[op], new[op]) for op in changed)
