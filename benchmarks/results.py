"""What a benchmark found, as plain data: one result per model, rows per shape, and their JSON form.

All sizes are bytes. A file of results can be read back, so that documents are rendered without running again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

__all__ = [
    "Difference",
    "ModelResult",
    "Report",
    "ShapeResult",
    "geometric_mean",
    "read_report",
    "write_report",
]

SCHEMA = "onnx-symmem/bench"
VERSION = 1


@dataclass(frozen=True, slots=True)
class Difference:
    """Nodes of one op whose measured bytes differ from the predicted ones, where the difference arises."""

    op: str
    nodes: int
    largest: int


@dataclass(frozen=True, slots=True)
class ShapeResult:
    """One model at one shape.

    `formula` is the peak by `optimize` before anything ran, None where it depends on data. `predicted`,
    `measured`, `nodes`, `nodes_equal`, `scratch` and `static` are those of the first run of the planned file;
    `in_use` and `held` of the second run, as are those of the session as shipped. `before_predicted` and
    `before_measured`: ONNX Runtime's graph and order under the memory settings of a planned session.
    `why_not` says why nothing is predicted, `reasons` what is not counted, `taken` which sizes that depend
    on data were read off the run. `least` is what no order of the graph goes below at this shape, None where
    that depends on data. `unpacked_in_use` and `unpacked_held`: of the planned file, its weights used as they
    are in the file.
    """

    shape: Mapping[str, int]
    formula: int | None
    predicted: int | None
    measured: int
    nodes: int
    nodes_equal: float | None
    scratch: int
    static: int
    in_use: int
    held: int
    before_predicted: int | None
    before_measured: int
    shipped_measured: int
    shipped_in_use: int
    shipped_held: int
    why_not: str = ""
    reasons: tuple[str, ...] = ()
    taken: Mapping[str, int] = field(default_factory=dict)
    differences: tuple[Difference, ...] = ()
    least: int | None = None
    unpacked_in_use: int | None = None
    unpacked_held: int | None = None

    @property
    def equal(self) -> bool:
        """Whether the peak and the bytes after every node came out as predicted."""
        formula = self.predicted if self.formula is None else self.formula
        return formula == self.predicted == self.measured and self.nodes_equal == 1.0

    @property
    def in_use_ratio(self) -> float:
        """Arena in use, planned over shipped."""
        return self.in_use / self.shipped_in_use

    @property
    def least_ratio(self) -> float | None:
        """Below what `in_use_ratio` no order comes: the bound and the weights laid out anew, over shipped."""
        return None if self.least is None else (self.least + self.static) / self.shipped_in_use

    @property
    def held_ratio(self) -> float:
        """Arena held, planned over shipped."""
        return self.held / self.shipped_held

    @property
    def unpacked_ratios(self) -> tuple[float, float]:
        """Arena in use and held, planned without weights laid out anew, over shipped."""
        in_use = self.in_use if self.unpacked_in_use is None else self.unpacked_in_use
        held = self.held if self.unpacked_held is None else self.unpacked_held
        return in_use / self.shipped_in_use, held / self.shipped_held

    @property
    def tensor_ratio(self) -> float:
        """Activations and outputs, planned over what would have run, both under the same memory settings."""
        return self.measured / self.before_measured if self.before_measured else 1.0


@dataclass(frozen=True, slots=True)
class ModelResult:
    """One model: how it was planned, and its rows. `failed` says in one line what went wrong, if anything.

    `peaks` are (shape, before, after, least possible) at shapes spread over the domain. `verified` are the
    shapes at which outputs were equal, bit by bit. `notes` are remarks for the reader. `unpacked_equal`:
    whether outputs are the original's, bit by bit, at the first shape, where neither has weights laid out
    anew.
    """

    name: str
    source: str
    nodes: int = 0
    level: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)
    never_worse: str = ""
    optimal: bool = False
    order: str = ""
    moved: int = 0
    in_place: tuple[int, int] = (0, 0)
    peaks: tuple[tuple[Mapping[str, int], int | None, int | None, int | None], ...] = ()
    unknown_dims: int = 0
    verified: tuple[Mapping[str, int], ...] = ()
    shapes: tuple[ShapeResult, ...] = ()
    notes: tuple[str, ...] = ()
    failed: str = ""
    unpacked_equal: bool | None = None

    @property
    def total_seconds(self) -> float:
        """How long `optimize` took."""
        return sum(self.seconds.values())


@dataclass(frozen=True, slots=True)
class Report:
    """A whole benchmark: how it was made and what came out; `planning` is (nodes, seconds) per graph."""

    made: Mapping[str, str]
    models: tuple[ModelResult, ...]
    planning: tuple[tuple[int, Mapping[str, float]], ...] = ()

    @property
    def rows(self) -> tuple[ShapeResult, ...]:
        """All rows of all models."""
        return tuple(row for model in self.models for row in model.shapes)

    @property
    def largest(self) -> tuple[ShapeResult, ...]:
        """Per model the row in which ONNX Runtime as shipped uses most."""
        return tuple(max(m.shapes, key=lambda row: row.shipped_in_use) for m in self.models if m.shapes)


def geometric_mean(numbers: Iterable[float]) -> float | None:
    """Of positive numbers; None of none."""
    logs = [math.log(n) for n in numbers]
    return math.exp(sum(logs) / len(logs)) if logs else None


def write_report(report: Report, path: Path) -> None:
    """Write the JSON form."""
    document = {"schema": SCHEMA, "version": VERSION, **asdict(report)}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def read_report(path: Path) -> Report:
    """Read what `write_report` wrote."""
    document = json.loads(path.read_text())
    if document.get("schema") != SCHEMA or document.get("version") != VERSION:
        raise ValueError(f"{path}: not a result of benchmarks.corpus, version {VERSION}")
    return Report(
        document["made"],
        tuple(map(_model, document["models"])),
        tuple((nodes, seconds) for nodes, seconds in document["planning"]),
    )


def _model(entry: Mapping[str, Any]) -> ModelResult:
    tuples: dict[str, Sequence[Any]] = {
        "in_place": entry["in_place"],
        "peaks": [tuple(p) for p in entry["peaks"]],
        "verified": entry["verified"],
        "shapes": [_shape(s) for s in entry["shapes"]],
        "notes": entry["notes"],
    }
    return ModelResult(**{**entry, **{name: tuple(items) for name, items in tuples.items()}})


def _shape(entry: Mapping[str, Any]) -> ShapeResult:
    differences = tuple(Difference(**d) for d in entry["differences"])
    return ShapeResult(**{**entry, "reasons": tuple(entry["reasons"]), "differences": differences})
