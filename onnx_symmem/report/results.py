"""What the verbs answer, as plain frozen data: texts and numbers only, ready for people and pipelines.

All sizes are bytes, all durations seconds unless a name says `ms`. `to_json` gives the documented JSON
form (docs/json.md); fields are added over time, never renamed within one schema version.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = [
    "SCHEMA_VERSION",
    "Candidate",
    "Optimization",
    "PeakFigures",
    "SymbolFigures",
    "UnknownDimFigures",
    "VerifiedShape",
]

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class SymbolFigures:
    """An input symbol and what is known of it; `hi` None: unbounded."""

    name: str
    lo: int
    hi: int | None
    divisor: int

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "lo": self.lo, "hi": self.hi, "divisor": self.divisor}


@dataclass(frozen=True, slots=True)
class PeakFigures:
    """A peak in bytes as a function of the symbols, and its values at sample shapes.

    `label` is exact, bound (the value is not less than the truth), or unknown; `reasons` say why it is
    not exact.
    """

    formula: str
    at: tuple[tuple[Mapping[str, int], int], ...]
    label: str = "exact"
    reasons: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "formula": self.formula,
            "at": [{"shape": dict(shape), "bytes": size} for shape, size in self.at],
            "label": self.label,
            "reasons": list(self.reasons),
        }


@dataclass(frozen=True, slots=True)
class Candidate:
    """An order that was tried: its name, exact peaks at the sample shapes, and what became of it.

    `outcome` is chosen, proved (never worse, but not the best), refuted (worse at some shape), undecided,
    or worse (not considered: larger peaks at the samples).
    """

    name: str
    peaks: tuple[int, ...]
    outcome: str

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "peaks": list(self.peaks), "outcome": self.outcome}


@dataclass(frozen=True, slots=True)
class UnknownDimFigures:
    """A dim that could not be expressed in the input symbols."""

    tensor: str
    axis: int
    op: str
    reason: str

    def to_json(self) -> dict[str, Any]:
        return {"tensor": self.tensor, "axis": self.axis, "op": self.op, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class VerifiedShape:
    """A shape at which original and result ran on the same inputs, with equal outputs bit by bit."""

    shape: Mapping[str, int]
    outputs: int

    def to_json(self) -> dict[str, Any]:
        return {"shape": dict(self.shape), "outputs": self.outputs, "bit_equal": True}


@dataclass(frozen=True, slots=True)
class Optimization:
    """Result of `optimize`."""

    model: str
    out: str | None
    files: tuple[str, ...]
    provider: str
    ort_level: str
    notices: tuple[str, ...]
    nodes_original: int
    nodes_planned: int
    symbols: tuple[SymbolFigures, ...]
    samples: tuple[Mapping[str, int], ...]
    before: PeakFigures
    after: PeakFigures
    lower_bound: PeakFigures
    order_before: str
    order_after: str
    moved_nodes: int
    in_place_before: int
    in_place_after: int
    never_worse: str
    optimal: bool
    candidates: tuple[Candidate, ...]
    comparisons: Mapping[str, Mapping[str, int]]
    unknown_dims: tuple[UnknownDimFigures, ...]
    assumptions: tuple[str, ...]
    limits: tuple[str, ...]
    verified: tuple[VerifiedShape, ...]
    seconds: Mapping[str, float]

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": "onnx-symmem/optimize",
            "version": SCHEMA_VERSION,
            "model": self.model,
            "out": self.out,
            "files": list(self.files),
            "provider": self.provider,
            "ort_level": self.ort_level,
            "notices": list(self.notices),
            "nodes": {"original": self.nodes_original, "planned": self.nodes_planned},
            "symbols": [s.to_json() for s in self.symbols],
            "peak": {
                "before": self.before.to_json(),
                "after": self.after.to_json(),
                "lower_bound": self.lower_bound.to_json(),
            },
            "order": {
                "before": self.order_before,
                "after": self.order_after,
                "moved_nodes": self.moved_nodes,
            },
            "in_place": {"before": self.in_place_before, "after": self.in_place_after},
            "never_worse": self.never_worse,
            "optimal": self.optimal,
            "candidates": [c.to_json() for c in self.candidates],
            "comparisons": {kind: dict(tiers) for kind, tiers in self.comparisons.items()},
            "unknown_dims": [u.to_json() for u in self.unknown_dims],
            "assumptions": list(self.assumptions),
            "limits": list(self.limits),
            "verified": [v.to_json() for v in self.verified],
            "seconds": {stage: round(s, 3) for stage, s in self.seconds.items()},
        }
