"""What the verbs answer, as plain frozen data: the figures that several verbs share, and those of `optimize`.

All sizes are bytes, all durations seconds unless a name says `ms`. `to_json` gives the documented JSON
form (docs/json.md); fields are added over time, never renamed within one schema version.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from onnx_symmem.order.explanation import OrderExplanation

__all__ = [
    "SCHEMA_VERSION",
    "AssumptionFigures",
    "Candidate",
    "DeliveryFigures",
    "LevelFigures",
    "LevelsFigures",
    "LimitFigures",
    "Optimization",
    "PeakFigures",
    "ShapeFindings",
    "SymbolFigures",
    "UnknownDimFigures",
    "VerifiedShape",
    "VersionFigures",
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
    """A peak in bytes, the maximum of `members` as functions of the symbols, and its values at sample shapes.

    `label` is exact, bound (the value is not less than the truth), or unknown; `reasons` say why it is
    not exact. A value is None where a size that the peak depends on has no upper limit.
    """

    members: tuple[str, ...]
    at: tuple[tuple[Mapping[str, int], int | None], ...]
    label: str = "exact"
    reasons: tuple[str, ...] = ()

    @property
    def formula(self) -> str:
        """The peak as one text in Python syntax."""
        return self.members[0] if len(self.members) == 1 else f"max({', '.join(self.members)})"

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

    `outcome` is chosen, refuted (larger than what would have run at some shape), undecided (not proved), or
    passed over (its peaks at the sample shapes are not among the best). A peak is None where what would have
    run has none.
    """

    name: str
    peaks: tuple[int | None, ...]
    outcome: str

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "peaks": list(self.peaks), "outcome": self.outcome}


@dataclass(frozen=True, slots=True)
class VersionFigures:
    """One of several orders in one file: its name and its peak; `runs_at` numbers the samples it runs at."""

    name: str
    peak: PeakFigures
    runs_at: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "peak": self.peak.to_json(), "runs_at": list(self.runs_at)}


@dataclass(frozen=True, slots=True)
class LevelFigures:
    """One schedule of several that repeat more and more.

    `peak` is of outputs and activations; `needed` at the samples is all that the limit covers. `operations`
    and `moved` are formulas of what it adds to level 0, the latter in bytes. `recomputed` and `offloaded` are
    tensors. `runs_at` numbers the samples it runs at under the limit. `slower` are the added operations, at
    the samples, as a part of those of level 0.
    """

    peak: PeakFigures
    needed: tuple[int | None, ...]
    operations: str
    moved: str
    recomputed: tuple[str, ...]
    offloaded: tuple[str, ...]
    never_above: bool
    runs_at: tuple[int, ...]
    slower: tuple[float | None, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "peak": self.peak.to_json(),
            "needed": list(self.needed),
            "added": {
                "operations": self.operations,
                "bytes_moved": self.moved,
                "operations_share": list(self.slower),
            },
            "recomputed": list(self.recomputed),
            "offloaded": list(self.offloaded),
            "never_above": self.never_above,
            "runs_at": list(self.runs_at),
        }


@dataclass(frozen=True, slots=True)
class LevelsFigures:
    """Levels of a model for a memory limit in bytes (None: as fed at run time) and what that covers."""

    limit: int | None
    limit_input: str
    counts: tuple[str, ...]
    reserve: int
    floor: PeakFigures
    levels: tuple[LevelFigures, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "limit": self.limit,
            "input": self.limit_input,
            "counts": list(self.counts),
            "reserve": self.reserve,
            "floor": self.floor.to_json(),
            "list": [level.to_json() for level in self.levels],
        }


@dataclass(frozen=True, slots=True)
class UnknownDimFigures:
    """A dim that could not be expressed in the input symbols.

    `symbol` stands for it in formulas and is at most `bound` (None: no bound is known). `axis` -1: not even
    the number of dims is known.
    """

    tensor: str
    axis: int
    op: str
    node: str
    reason: str
    symbol: str
    bound: str | None

    def to_json(self) -> dict[str, Any]:
        return {
            "tensor": self.tensor,
            "axis": self.axis,
            "op": self.op,
            "node": self.node,
            "reason": self.reason,
            "symbol": self.symbol,
            "bound": self.bound,
        }


@dataclass(frozen=True, slots=True)
class AssumptionFigures:
    """What the model needs in order to run, or what its file claims, beyond what was proved.

    `kind` is equal, equal_or_one, declared, adopted, or default; see `shapes.table.Assumption`.
    """

    text: str
    kind: str
    node: str
    reason: str

    def to_json(self) -> dict[str, Any]:
        return {"text": self.text, "kind": self.kind, "node": self.node, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class LimitFigures:
    """A bound on the shapes that an operator of the model accepts, e.g. `T <= 512`."""

    text: str
    node: str
    reason: str

    def to_json(self) -> dict[str, Any]:
        return {"text": self.text, "node": self.node, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class ShapeFindings:
    """What shape inference found out about a model besides the dims themselves."""

    symbols: tuple[SymbolFigures, ...]
    unknown_dims: tuple[UnknownDimFigures, ...]
    assumptions: tuple[AssumptionFigures, ...]
    limits: tuple[LimitFigures, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "symbols": [s.to_json() for s in self.symbols],
            "unknown_dims": [u.to_json() for u in self.unknown_dims],
            "assumptions": [a.to_json() for a in self.assumptions],
            "limits": [limit.to_json() for limit in self.limits],
        }


@dataclass(frozen=True, slots=True)
class VerifiedShape:
    """A shape at which original and result ran on the same inputs, with equal outputs bit by bit.

    `packed`: as in a usual session; else only in sessions that pack no weights, and last bits differ there.
    """

    shape: Mapping[str, int]
    outputs: int
    packed: bool = True

    def to_json(self) -> dict[str, Any]:
        return {
            "shape": dict(self.shape),
            "outputs": self.outputs,
            "bit_equal": True,
            "packed": self.packed,
        }


@dataclass(frozen=True, slots=True)
class DeliveryFigures:
    """What keeps the plan: order (the session) or anchors (the file, which has so many of them).

    `separated`: texts of dims keep freed buffers from being reused for later tensors. `changed_at_load`:
    nodes that ONNX Runtime's own settings change when they load the file, None where that is unknown.
    """

    kind: str = "order"
    anchors: int = 0
    separated: bool = False
    changed_at_load: int | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "anchors": self.anchors,
            "separated": self.separated,
            "changed_at_load": self.changed_at_load,
        }


@dataclass(frozen=True, slots=True)
class Optimization:
    """Result of `optimize`.

    `versions` are the orders among which the shapes of the inputs decide, empty where there is one only;
    `overhead_bytes` is by how much `after` is above `before` at most, 0 for an order that is never worse; of
    levels it is about the first of them. `added_weights` are bytes of constants that deciding takes. `floor`
    are bytes that no order of the planned nodes is below at each sample, and there only.
    """

    model: str
    out: str | None
    files: tuple[str, ...]
    provider: str
    ort_level: str
    notices: tuple[str, ...]
    nodes_original: int
    nodes_planned: int
    findings: ShapeFindings
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
    verified: tuple[VerifiedShape, ...]
    seconds: Mapping[str, float]
    versions: tuple[VersionFigures, ...] = ()
    overhead_bytes: int = 0
    added_weights: int = 0
    levels: LevelsFigures | None = None
    floor: tuple[int | None, ...] = ()
    explanation: OrderExplanation | None = None
    delivery: DeliveryFigures = DeliveryFigures()

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
            **self.findings.to_json(),
            "peak": {
                "before": self.before.to_json(),
                "after": self.after.to_json(),
                "lower_bound": self.lower_bound.to_json(),
                "no_order_below": list(self.floor),
            },
            "order": {
                "before": self.order_before,
                "after": self.order_after,
                "moved_nodes": self.moved_nodes,
            },
            "in_place": {"before": self.in_place_before, "after": self.in_place_after},
            "never_worse": self.never_worse,
            "versions": [v.to_json() for v in self.versions],
            "overhead_bytes": self.overhead_bytes,
            "added_weights": self.added_weights,
            "levels": None if self.levels is None else self.levels.to_json(),
            "explanation": None if self.explanation is None else self.explanation.to_json(),
            "delivery": self.delivery.to_json(),
            "optimal": self.optimal,
            "candidates": [c.to_json() for c in self.candidates],
            "comparisons": {kind: dict(tiers) for kind, tiers in self.comparisons.items()},
            "verified": [v.to_json() for v in self.verified],
            "seconds": {stage: round(s, 3) for stage, s in self.seconds.items()},
        }
