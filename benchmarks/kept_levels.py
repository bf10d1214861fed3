"""Files of levels that keep them by themselves: every level in sessions that are told nothing.

Models are planned with anchors for dims up to the shape here, with a limit that is left to the run. Every
level runs under the limit that it needs: with what every API can set (no optimisation at load, no memory
pattern), and with no option at all, where ONNX Runtime optimises at level all. Its outputs are compared with
those of level 0 in the same session, bit by bit, without an option and with packing of weights off: inside an
If inside an If ONNX Runtime packs none.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.case import Shape
from benchmarks.document import Cell, Finding, Page, Table, geometric_mean
from benchmarks.environment import Progress
from benchmarks.weights import CORPUS, FILLED, is_complete, prepare
from onnx_symmem.api import optimize
from onnx_symmem.expr.domain import SymbolRange
from onnx_symmem.graph.load import load_model
from onnx_symmem.rewrite.choice import LIMIT
from onnx_symmem.run.inputs import generate_inputs
from onnx_symmem.run.measure import measure
from onnx_symmem.run.session import SessionSettings, create_session, feeds_of, run_session, shipped
from onnx_symmem.shapes.engine import infer_shapes

__all__ = ["KEPT", "level_rows", "run"]

KEPT: Mapping[str, Shape] = {
    "llama_4l_train": {"batch": 4, "seq": 64},
    "gpt2_6l_train": {"batch": 4, "seq": 64},
    "bert_6l_train": {"batch": 4, "seq": 128},
    "sd_unet": {"batch": 1, "height": 16, "width": 24, "seq": 7},
    "densenet121_hw": {"batch": 2, "height": 64, "width": 96},
    "resnet50_train": {"batch": 4, "height": 128, "width": 128},
}
"""Models with weights, and the shape that each is planned up to and runs at."""

_MIB = 1 << 20
_BUDGET = 1.0  # of the search for level 0
_LEVELS, _SLOWDOWN = 2, 1.5
_UNPACKED = ("session.disable_prepacking", "1")
_COLUMNS = (
    "model", "shape", "level", "anchors", "peak, MiB", "/ level 0", "as planned", "nodes, shipped",
    "first / planned", "later, bytes above", "bits of level 0", "no weights packed", "why not",
)  # fmt: skip


def level_rows(name: str, path: Path) -> Iterator[tuple[Cell, ...]]:
    """Every level of one model that runs at its shape."""
    at = KEPT[name]
    words = ", ".join(f"{k}={v}" for k, v in at.items())
    with tempfile.TemporaryDirectory(prefix="onnx-symmem-") as folder:
        out = Path(folder, "levels.onnx")
        details = optimize(
            path, out, domain={n: SymbolRange(1, size) for n, size in at.items()}, delivery="anchors",
            levels=_LEVELS, max_slowdown=_SLOWDOWN, verify=False, time_budget=_BUDGET,
        ).details  # fmt: skip
        plan, made = details.levels, details.delivered
        assert plan is not None
        assert made is not None
        full = details.shapes.domain.completed(at)
        limited = len(plan.levels) > 1 and plan.only is None
        fed = {}
        for level in range(len(plan.levels)):
            limit = plan.needed(level, full)
            if plan.level_at(full, limit) == level:
                fed[level] = {LIMIT: np.array(limit, np.int64)} if limited else {}
        alike = [_alike(out, at, fed, s) for s in (shipped(), replace(shipped(), config=(_UNPACKED,)))]
        for level, given in fed.items():
            kept = measure(out, at, overrides=given, latency_runs=0)
            own = measure(
                out, at, settings=shipped(), overrides=given, runs=3, latency_runs=0, plan=kept.settings
            )  # fmt: skip
            planned = plan.peak(level).at(full)
            as_planned = kept.nodes_equal == 1.0 and all(r.requested_peak == planned for r in kept.runs)
            first, *later = (r.requested_peak for r in own.runs)
            yield (
                name, words, level, made.anchors, planned / _MIB, planned / plan.peak(0).at(full),
                _yes(as_planned), _yes(own.nodes_equal == 1.0), first / planned, max(later) - planned,
                *(_yes(found[level]) for found in alike), own.prediction.why_not,
            )  # fmt: skip


def _alike(
    path: Path, at: Shape, fed: Mapping[int, Mapping[str, np.ndarray]], settings: SessionSettings
) -> dict[int, bool]:
    """Which levels give the bits of the first in one session."""
    session = create_session(path, settings)
    feeds = generate_inputs(infer_shapes(load_model(path).view()), at)
    feeds.pop(LIMIT, None)
    known = {i.name for i in session.get_inputs()}
    feeds = {name: array for name, array in feeds.items() if name in known}
    runs = {
        level: [np.array(v) for v in run_session(session, feeds_of({**feeds, **given}))]
        for level, given in fed.items()
    }
    first = next(iter(runs.values()))
    return {
        level: all(a.tobytes() == b.tobytes() for a, b in zip(first, values, strict=True))
        for level, values in runs.items()
    }


def _yes(fact: bool) -> str:
    return "yes" if fact else "no"


def run(only: Sequence[str] = ()) -> Page:
    """The page over the models."""
    rows: list[tuple[Cell, ...]] = []
    names = {name: at for name, at in KEPT.items() if not only or name in only}
    if (CORPUS / "cases.json").is_file():
        prepare(CORPUS, FILLED, list(names))
    for name, _ in Progress("kept_levels").each(names):
        path = FILLED / f"{name}.onnx"
        if is_complete(path):
            rows += level_rows(name, path)
    last = {row[0]: row[5] for row in rows}
    later = [row[9] for row in rows if isinstance(row[9], int)]
    return Page(
        "kept_levels",
        "Levels that are kept by the file alone",
        (__doc__ or "").partition("\n\n")[2],
        (
            _count(
                "levels as planned after every node, by settings of any API", [r[6] == "yes" for r in rows]
            ),
            _count(
                "levels that a session that is told nothing runs as planned after every node",
                [r[7] == "yes" and r[8] == 1 for r in rows],
            ),
            Finding("most bytes by which later runs are above", str(max(later, default=0))),
            _count("levels with the bits of level 0 in one session, no weights packed",
                   [r[11] == "yes" for r in rows]),
            Finding("levels with its bits, weights packed",
                    f"{sum(r[10] == 'yes' for r in rows)} of {len(rows)}"),
            Finding("peak of the last level / level 0",
                    f"{geometric_mean(r for r in last.values() if isinstance(r, float)):.3f}"),
        ),
        (
            Table(
                "kept_levels", "Every level", _COLUMNS, tuple(rows),
                """anchors: of all levels together. as planned: bytes after every node of two runs, with
                settings of any API. nodes, shipped: order, and bytes after every node of the first run, in a
                session that is told nothing. later: the most of its second and third run, above the plan.""",
                digits=3,
            ),
        ),
        (),
        tuple(f"{row[0]}, level {row[2]}: not as planned" for row in rows if row[6] != "yes"),
    )  # fmt: skip


def _count(what: str, good: Sequence[bool]) -> Finding:
    return Finding(what, f"{sum(good)} of {len(good)}", "all", all(good))
