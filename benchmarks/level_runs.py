"""Levels on ONNX Runtime: what every level takes, whether its outputs are the original's, and its time.

A model is planned for dims up to its largest shape here, with a limit that is left to the run. At each shape
every level runs under the limit that it needs. Outputs are compared bit by bit, on one thread and without
packed weights on both sides (inside an If inside an If ONNX Runtime packs none). Times are of one session
that runs level 0 and the level in turns: the median of the ratios of up to five turns, fewer where they take
long, once as a session is by default and once without packed weights, where both levels have the same
kernels.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.case import Shape
from benchmarks.document import Cell, Finding, Table, geometric_mean
from onnx_symmem.api import Optimized, optimize
from onnx_symmem.expr.domain import SymbolRange
from onnx_symmem.graph.load import load_model
from onnx_symmem.remat.cost import node_costs
from onnx_symmem.rewrite.choice import LIMIT
from onnx_symmem.rewrite.versions import NO_LIMIT
from onnx_symmem.run.baseline import baseline_settings
from onnx_symmem.run.inputs import generate_inputs
from onnx_symmem.run.measure import measure
from onnx_symmem.run.session import SessionSettings, create_session, feeds_of, kept_for, run_session
from onnx_symmem.run.several import LevelPlan
from onnx_symmem.shapes.engine import infer_shapes

if TYPE_CHECKING:
    import onnxruntime

__all__ = ["COLUMNS", "MEASURED", "LevelRun", "LevelRuns", "findings", "level_runs", "runs_table"]

MEASURED: Mapping[str, tuple[Shape, ...]] = {
    "llama_4l_train": ({"batch": 2, "seq": 48}, {"batch": 4, "seq": 256}),
    "gpt2_6l_train": ({"batch": 2, "seq": 48}, {"batch": 4, "seq": 256}),
    "bert_6l_train": ({"batch": 2, "seq": 48}, {"batch": 4, "seq": 256}),
    "resnet50_train": (
        {"batch": 2, "height": 64, "width": 96}, {"batch": 8, "height": 224, "width": 224},
    ),
    "sd_unet_train": (
        {"batch": 1, "height": 16, "width": 24, "seq": 7}, {"batch": 2, "height": 32, "width": 32, "seq": 16},
    ),
    "sd_unet": (
        {"batch": 1, "height": 16, "width": 24, "seq": 7}, {"batch": 2, "height": 32, "width": 32, "seq": 16},
    ),
    "densenet121_hw": (
        {"batch": 2, "height": 64, "width": 96}, {"batch": 4, "height": 128, "width": 128},
    ),
}  # fmt: skip
"""Models with weights, and the shapes at which they run; dims are planned up to those of the last."""

_BUDGET = 5.0  # of the search for level 0
_LONG = 60.0  # seconds of turns after which no other is begun
_UNPACKED = ("session.disable_prepacking", "1")
COLUMNS = (
    "model", "shape", "level", "peak MiB", "measured as predicted", "nodes as predicted", "nodes",
    "outputs equal", "peak / level 0", "added operations", "time / level 0", "time, no weights packed",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LevelRun:
    """One level at one shape; `equal` of `nodes` took what was predicted, times are over level 0's."""

    model: str
    shape: Shape
    level: int
    predicted: int | None
    measured: int
    nodes: int
    equal: int
    bits: bool
    peak: float
    operations: float
    slower: float
    slower_unpacked: float

    @property
    def as_predicted(self) -> bool:
        """Whether the level took what was predicted, after every node."""
        return self.predicted == self.measured and self.nodes == self.equal > 0

    @property
    def row(self) -> tuple[Cell, ...]:
        """The run under `COLUMNS`."""
        words = ", ".join(f"{k}={v}" for k, v in self.shape.items())
        same = "yes" if self.predicted == self.measured else f"no: {self.predicted} predicted"
        return (
            self.model, words, self.level, self.measured / 2**20, same, self.equal, self.nodes,
            "yes" if self.bits else "no", self.peak, self.operations, self.slower, self.slower_unpacked,
        )  # fmt: skip


@dataclass(frozen=True)
class LevelRuns:
    """All runs of one model; `guard` nodes decide, and leave `overhead` bytes."""

    model: str
    runs: tuple[LevelRun, ...]
    guard: int
    overhead: int


def level_runs(
    name: str, path: Path, shapes: Sequence[Shape], levels: int, slowdown: float, rounds: int
) -> LevelRuns:
    """Plan the model at `path` with levels, and run all of them at all shapes."""
    most = {n: max(shape[n] for shape in shapes) for n in shapes[0]}
    with tempfile.TemporaryDirectory(prefix="onnx-symmem-") as folder:
        planned = Path(folder, "planned.onnx")
        found = optimize(
            path, planned, domain={n: SymbolRange(1, size) for n, size in most.items()}, levels=levels,
            max_slowdown=slowdown, verify=False, time_budget=_BUDGET,
        )  # fmt: skip
        plan = found.details.levels
        assert plan is not None
        guard = sum(n.op_type not in ("If", "Constant") for n in found.proto.graph.node)
        runs = tuple(_runs(name, path, planned, found, plan, shapes, rounds))
        return LevelRuns(name, runs, guard if len(plan.levels) > 1 else 0, plan.overhead)


def _runs(
    name: str,
    path: Path,
    planned: Path,
    found: Optimized,
    plan: LevelPlan,
    shapes: Sequence[Shape],
    rounds: int,
) -> Iterator[LevelRun]:
    details = found.details
    before = baseline_settings(found.figures.ort_level, "cpu")
    known = infer_shapes(load_model(path).view())
    ours = kept_for(load_model(planned), "cpu")
    original = create_session(path, _unpacked(replace(before, intra_op_threads=1)))
    careful = create_session(planned, _unpacked(replace(ours, intra_op_threads=1)))
    sessions = [create_session(planned, settings) for settings in (ours, _unpacked(ours))]
    costs = node_costs(details.shapes.graph, plan.floor.sizes).total(
        range(len(details.shapes.graph.view.nodes))
    )
    limited = len(plan.levels) > 1 and plan.only is None
    for shape in shapes:
        full = details.shapes.domain.completed(shape)
        feeds = feeds_of(generate_inputs(known, shape, None, 0))
        expected = [_bits(v) for v in run_session(original, feeds)]
        once = max(costs[0].evaluate(full), 1)
        for level, what in enumerate(plan.levels):
            limit = plan.needed(level, full)
            if plan.level_at(full, limit) != level:
                continue  # One before it takes no more here.
            fed = {LIMIT: np.array(limit, np.int64)} if limited else {}
            outputs = run_session(careful, {**feeds, **fed})
            result = measure(planned, shape, overrides=fed, runs=1, latency_runs=0)
            slower = [_slower(s, feeds, fed, rounds) if level else 1.0 for s in sessions]
            yield LevelRun(
                name, shape, level, result.predicted_peak, result.runs[0].requested_peak,
                len(result.nodes), result.prediction.equal, [_bits(v) for v in outputs] == expected,
                what.peak.at(full) / max(plan.levels[0].peak.at(full), 1),
                what.operations.evaluate(full) / once, *slower,
            )  # fmt: skip


def _unpacked(settings: SessionSettings) -> SessionSettings:
    return replace(settings, config=(*settings.config, _UNPACKED))


def _bits(array: Any) -> tuple[Any, ...]:
    return array.dtype, array.shape, array.tobytes()


def _slower(
    session: onnxruntime.InferenceSession,
    feeds: Mapping[str, Any],
    fed: Mapping[str, Any],
    rounds: int,
) -> float:
    """Time of a level over that of the first, run in turns: the median of the ratios."""
    first = {LIMIT: np.array(NO_LIMIT, np.int64)}
    ratios: list[float] = []
    begun = time.perf_counter()
    for turn in range(rounds + 1):
        if ratios and time.perf_counter() - begun > _LONG:
            break
        taken = []
        for limit in (first, fed):
            start = time.perf_counter()
            run_session(session, {**feeds, **limit})
            taken.append(time.perf_counter() - start)
        if turn:  # The first warms up.
            ratios.append(taken[1] / taken[0])
    return statistics.median(ratios) if ratios else 1.0


def runs_table(found: Sequence[LevelRuns]) -> Table:
    """Every run of every model."""
    return Table(
        "level_runs", "Levels measured", COLUMNS, tuple(run.row for model in found for run in model.runs),
        (__doc__ or "").partition("\n\n")[2],
    )  # fmt: skip


def findings(found: Sequence[LevelRuns]) -> tuple[Finding, ...]:
    """What the runs show in short."""
    runs = [run for model in found for run in model.runs]
    exact, equal = sum(r.as_predicted for r in runs), sum(r.bits for r in runs)
    guard = max((m.guard for m in found), default=0)
    overhead = max((m.overhead for m in found), default=0)
    lowest = [min(_largest(m), key=lambda r: r.peak) for m in found if m.runs]
    return (
        Finding("levels at shapes whose bytes are as predicted, after every node", f"{exact} of {len(runs)}",
                "all", exact == len(runs)),
        Finding("levels at shapes whose outputs are the original's, bit by bit", f"{equal} of {len(runs)}",
                "all", equal == len(runs)),
        Finding("most nodes of a guard", str(guard), "<= 100", guard <= 100),
        Finding("most bytes that deciding leaves in memory", str(overhead)),
        Finding("peak of the last level / level 0, measured models, largest shape, geometric mean",
                f"{geometric_mean(r.peak for r in lowest):.3f}"),
        Finding("its time / level 0, without packed weights on both sides, geometric mean",
                f"{geometric_mean(r.slower_unpacked for r in lowest):.2f}"),
    )  # fmt: skip


def _largest(model: LevelRuns) -> list[LevelRun]:
    """The runs at the last shape."""
    return [run for run in model.runs if run.shape == model.runs[-1].shape]
