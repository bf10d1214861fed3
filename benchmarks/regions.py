"""An If around the nodes in which levels differ, beside one around whole schedules: what either would take.

A file of levels has every schedule as a whole. Where a level differs from the one before in a stretch of
nodes only, an If around these would repeat fewer. But what a branch reads from outside stays in memory until
the If has ended (facts/ONNXRUNTIME, 4), so whatever dies within the stretch would live to its end.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.case import Shape, case_of
from benchmarks.document import Cell, Finding, Page, Table
from benchmarks.environment import Progress
from benchmarks.levels import TRAINING, levels_from
from benchmarks.weights import CORPUS
from onnx_symmem.graph.load import load_model
from onnx_symmem.remat.cost import node_costs
from onnx_symmem.remat.levels import LevelOptions
from onnx_symmem.remat.tables import Tables, tables_of
from onnx_symmem.remat.timeline import Timeline, codes_of, timeline
from onnx_symmem.shapes.engine import infer_shapes

__all__ = ["GRAPHS", "differing", "peak_with_if", "run"]

GRAPHS = ("densenet121_hw", "bert_6l_train", "sd_unet", "llama_4l_train", "gpt2_6l_train")
HALF = 0.5
_SAME = 1 + 1e-3
_COLUMNS = (
    "model", "shape", "level", "nodes", "nodes that differ", "part", "peak of level 0",
    "peak / level 0, whole schedules", "peak / level 0, If around the difference",
)  # fmt: skip


def differing(before: Sequence[int], after: Sequence[int]) -> tuple[int, int]:
    """The stretch of the second schedule, from its first step on and up to its end, in which two differ."""
    start = 0
    while start < min(len(before), len(after)) and before[start] == after[start]:
        start += 1
    same = 0
    while same < min(len(before), len(after)) - start and before[-1 - same] == after[-1 - same]:
        same += 1
    return start, len(after) - same


def peak_with_if(tables: Tables, lived: Timeline, start: int, end: int) -> float:
    """Bytes at most, at the first shape, where steps from `start` to before `end` are a branch."""
    held = lived.by_step[:, 0].copy()
    for life in lived.lifetimes:
        last = max(life.reads, default=-1)
        if life.made < start <= last < end - 1 and not life.stays and not life.on_host:
            held[last + 1 : end] += tables.bytes[life.size, 0]
    return float(held.max(initial=0.0))


def run(only: Sequence[str] = ()) -> Page:
    """The table of some models of the corpus, or of others by name."""
    rows: list[tuple[Cell, ...]] = []
    wrong: list[str] = []
    progress = Progress("regions")
    there = {name: TRAINING.get(name) for name in (only or GRAPHS) if (CORPUS / f"{name}.onnx").is_file()}
    for name, shape in progress.each(there):
        with progress.attempt(name, wrong):
            rows += _rows(name, shape)
    small = [row for row in rows if float(str(row[5])) <= HALF]
    kept = [row for row in small if float(str(row[8])) <= float(str(row[7])) * _SAME]
    return Page(
        "regions",
        "An If around what differs between levels",
        """Levels of graphs without weights, steered by the shape of the table. An If around the stretch of
        nodes in which a level differs from the one before would repeat fewer nodes than whole schedules do.
        Its peak is that of the same schedule with whatever the stretch reads from before it kept until it
        ends, as ONNX Runtime keeps what either branch of an If reads. By formulas; nothing is run.""",
        (
            Finding("levels that differ in at most half of their nodes", f"{len(small)} of {len(rows)}"),
            Finding("of these, peak as with whole schedules", f"{len(kept)} of {len(small)}"),
        ),
        (Table("regions", "By level", _COLUMNS, tuple(rows)),),
        wrong=tuple(wrong),
    )


def _rows(name: str, shape: Shape | None) -> list[tuple[Cell, ...]]:
    case = case_of(load_model(str(CORPUS / f"{name}.onnx")), "none")
    shape = shape or case.shapes[len(case.shapes) // 2]
    options = LevelOptions()
    levels = levels_from(case, shape, options)
    costs = node_costs(infer_shapes(case.model.view()).graph, case.sizes)
    tables = tables_of(case.prepared["priority"], case.sizes, costs, [shape], case.file, options.machine)
    schedules = [codes_of(tables, level.schedule) for level in levels]
    peaks = [float(timeline(tables, codes).peaks[0]) for codes in schedules]
    text = ", ".join(f"{symbol}={shape[symbol]}" for symbol in case.symbols)
    rows: list[tuple[Cell, ...]] = []
    for k in range(1, len(levels)):
        start, end = differing(schedules[k - 1], schedules[k])
        with_if = peak_with_if(tables, timeline(tables, schedules[k]), start, end)
        rows.append((
            name, text, k, len(schedules[k]), end - start, round((end - start) / len(schedules[k]), 3),
            int(peaks[0]), round(peaks[k] / peaks[0], 3), round(with_if / peaks[0], 3),
        ))  # fmt: skip
    return rows
