"""What a part of the check is given, and how it survives what goes wrong."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from benchmarks.gpu.prepared import Prepared, fill
from benchmarks.gpu.record import FAILED, Row
from onnx_symmem.graph.load import load_model
from onnx_symmem.rewrite.choice import LIMIT
from onnx_symmem.run.inputs import generate_inputs
from onnx_symmem.shapes.engine import infer_shapes
from onnx_symmem.shapes.table import ModelShapes

__all__ = ["NO_DEVICE", "Setting", "Tasks", "attempt", "counted", "each"]

NO_DEVICE = "no device"
Tasks = list[tuple[str, Callable[[], Iterator[Row]]]]


@dataclass(frozen=True)
class Setting:
    """What a part is given: provider, whether all is small, prepared models, and when it has to end."""

    provider: str
    small: bool
    folder: Path
    models: Mapping[str, Prepared]
    deadline: float

    @property
    def left(self) -> float:
        """Seconds left."""
        return self.deadline - time.monotonic()

    def file(self, name: str, variant: str) -> Path:
        """The file of a prepared model, its weights beside it."""
        fill(self.folder, self.models[name])
        return self.models[name].path(self.folder, variant)

    def feeds(self, name: str, shape: Mapping[str, int], limit: int | None = None) -> dict[str, np.ndarray]:
        """Made-up inputs of a prepared model, with a memory limit where one is given."""
        made = generate_inputs(_shapes(self.models[name].path(self.folder, "original")), shape)
        return made if limit is None else {**made, LIMIT: np.array(limit, np.int64)}

    def shapes(self, name: str) -> tuple[Mapping[str, int], ...]:
        """Shapes of a prepared model, from small to large."""
        return self.models[name].shapes


@contextmanager
def attempt(rows: list[Row], part: str, subject: str, shape: str = "") -> Iterator[None]:
    """What fails inside is a row."""
    try:
        yield
    except Exception as error:
        note = " ".join(f"{type(error).__name__}: {error}".split())
        rows.append(Row(part, subject, shape, "result", FAILED, note=note[:400]))


def each(part: str, tasks: Sequence[tuple[str, Callable[[], Iterator[Row]]]]) -> Iterator[Row]:
    """The rows of every task as they come; what fails ends its own task only."""
    for subject, task in tasks:
        failed: list[Row] = []
        with attempt(failed, part, subject):
            yield from task()
        yield from failed


@lru_cache
def _shapes(path: Path) -> ModelShapes:
    return infer_shapes(load_model(path).view())


def counted(ops: Counter[str]) -> str:
    """Operators with how often they ran, the most frequent first."""
    return ", ".join(f"{count} {op}" for op, count in ops.most_common(8))
