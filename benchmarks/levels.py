"""Levels of recomputation: peak against added work, and the least that any repeat could reach.

    python -m benchmarks.levels [MODEL ...] [--as-it-is] [--levels N] [--max-slowdown X] [--csv FILE]
    python -m benchmarks.levels --paper | --runs [MODEL ...]

MODEL is the name of a corpus model or a file; by default the training graphs. Peaks are exact, of outputs and
activations, at the shape named in the table, which also steers the search; level 0 is the order that
`optimize` would choose. A second table says what run-time policies would have paid under the same limits, in
simulation: each follows the order of the level and evicts when memory is short. A graph is planned as ONNX
Runtime's optimiser leaves it, or `--as-it-is`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.case import Case, Shape, case_of
from benchmarks.document import Cell, Finding, Page, Picture, Table, geometric_mean
from benchmarks.environment import Progress
from benchmarks.families import graph_sources
from benchmarks.frontier import frontier_picture
from benchmarks.level_runs import MEASURED, LevelRuns, level_runs, runs_table
from benchmarks.level_runs import findings as run_findings
from benchmarks.paper import PAPER, exact_table, has_paper, limit_table, paper_plan
from benchmarks.paper import findings as paper_findings
from benchmarks.weights import CORPUS, FILLED, prepare
from onnx_symmem.expr.domain import Domain
from onnx_symmem.graph.load import LoadedModel, load_model
from onnx_symmem.memory.execution_order import priority_order
from onnx_symmem.memory.sizes import from_written
from onnx_symmem.order.planner import plan_order
from onnx_symmem.remat.cost import node_costs
from onnx_symmem.remat.floor import any_floor
from onnx_symmem.remat.levels import Level, LevelOptions, plan_levels
from onnx_symmem.remat.policy import POLICIES, simulate, static_peak
from onnx_symmem.remat.tables import Tables, tables_of
from onnx_symmem.remat.timeline import codes_of
from onnx_symmem.shapes.engine import infer_shapes

__all__ = ["TRAINING", "LevelTable", "level_table", "levels_from", "main", "run"]

TRAINING: Mapping[str, Shape] = {
    "llama_4l_train": {"batch": 4, "seq": 256},
    "gpt2_6l_train": {"batch": 4, "seq": 256},
    "bert_6l_train": {"batch": 4, "seq": 256},
    "resnet50_train": {"batch": 32, "height": 224, "width": 224},
    "sd_unet_train": {"batch": 2, "height": 32, "width": 32, "seq": 16},
    "llama2_1b_paper_train": {"batch": 14, "seq": 1024},
}
"""Training graphs, and shapes at which they are looked at: those at which memory is short.

Gradients of weights have one size at all shapes; at small ones they alone are most of the peak.
"""

OPERATIONS = 0.2  # added at most, for the figure of merit
_LEVELS, _SLOWDOWN = 8, 1.3  # points of a curve, near enough that one lies close to `OPERATIONS`
_RUN_LEVELS, _ROUNDS = 3, 5
TARGET = 0.5
_MIB = 1 << 20
_COLUMNS = (
    "model", "shape", "level", "peak MiB", "of level 0", "added operations", "added bytes", "recomputed",
    "never above the level before", "any repeat at least MiB", "which is", "pinned by", "nodes", "seconds",
)  # fmt: skip


_POLICY_COLUMNS = ("model", "level", "limit of level 0", "time added by the level", *POLICIES)


@dataclass(frozen=True)
class LevelTable:
    """Levels of one model at one shape: rows under `_COLUMNS`, ratios (peak, operations, bytes) per level.

    `policies` are rows under `_POLICY_COLUMNS`: time added, None where a policy cannot keep the limit.
    """

    name: str
    rows: tuple[tuple[Cell, ...], ...]
    ratios: tuple[tuple[float, float, float], ...]
    floor: float
    policies: tuple[tuple[Cell, ...], ...]
    pinned: str

    def least(self, operations: float) -> float:
        """The least peak, as a part of level 0's, of a level that adds at most so many operations."""
        return min(peak for peak, added, _ in self.ratios if added <= operations)


def levels_from(case: Case, shape: Shape, options: LevelOptions) -> tuple[Level, ...]:
    """Levels of a graph that are steered by one shape, from the order that is best there."""
    given = {"onnxruntime": case.before.plan.order, "file": case.file}
    planned = plan_order(case.prepared, case.sizes, case.domain, (shape,), case.before, given)
    view, shapes = case.prepared["priority"].view, infer_shapes(case.model.view(), Domain())
    order = priority_order(view, planned.choice.chosen.order)
    return plan_levels(
        shapes.graph, from_written(shapes.graph), shapes.domain, order, [shape], options,
        opsets=case.model.view().opsets,
    )  # fmt: skip


def level_table(
    name: str, model: LoadedModel, level: str, shape: Shape | None, options: LevelOptions
) -> LevelTable:
    """Plan the order, then levels from it."""
    case = case_of(model, level)
    shape = shape or case.shapes[len(case.shapes) // 2]
    view = case.prepared["priority"].view
    shapes = infer_shapes(model.view(), Domain())
    start = time.perf_counter()
    levels = levels_from(case, shape, options)
    seconds = time.perf_counter() - start
    floor = any_floor(case.prepared["priority"], case.sizes, shapes.domain)
    pins = [p for p in floor.pins(shape) if p.bytes.evaluate(shape)]
    node = floor.node_at(shape)
    least = floor.peak.at(shape)
    costs = node_costs(shapes.graph, case.sizes)
    once = [max(e.evaluate(shape), 1) for e in costs.total(range(len(view.nodes)))]
    rows: list[tuple[Cell, ...]] = []
    ratios: list[tuple[float, float, float]] = []
    for number, found in enumerate(levels):
        peak = found.peak.at(shape)
        added = [e.evaluate(shape) / n for e, n in zip((found.operations, found.moved), once, strict=True)]
        ratios.append((peak / levels[0].peak.at(shape), added[0], added[1]))
        what = "outputs at the end" if node == len(view.nodes) else view.nodes[node].label()
        rows.append(
            (name, _text(shape), number, peak / _MIB, *ratios[-1], len(found.recomputed),
             "yes" if found.never_above else "not proved", least / _MIB, what,
             ", ".join(view.values[p.value].name for p in pins[:3]), _runs(found), seconds)
        )  # fmt: skip
    prepared = case.prepared["priority"]
    numbers = tables_of(prepared, case.sizes, costs, [shape], case.file, options.machine)
    return LevelTable(
        name, tuple(rows), tuple(ratios), least / max(levels[0].peak.at(shape), 1),
        tuple(_policies(name, numbers, levels)), ", ".join(view.values[p.value].name for p in pins[:3]),
    )  # fmt: skip


def _policies(name: str, numbers: Tables, levels: Sequence[Level]) -> Iterator[tuple[Cell, ...]]:
    """What policies add under the limits of the levels, without in-place results on both sides."""
    whole = numbers.seconds.sum()
    first = static_peak(numbers, codes_of(numbers, levels[0].schedule), 0)
    for number, level in enumerate(levels[1:], start=1):
        codes = codes_of(numbers, level.schedule)
        limit = static_peak(numbers, codes, 0)
        added = numbers.seconds[codes].sum() / whole - 1
        once = tuple(dict.fromkeys(codes))
        runs = [simulate(numbers, once, 0, limit, policy) for policy in POLICIES]
        found = [run.added if run.fits else None for run in runs]
        yield (name, number, limit / first, float(added), *found)


def _runs(level: Level) -> int:
    return sum(step.kind == "run" for step in level.schedule)


def _text(shape: Shape) -> str:
    return ", ".join(f"{k}={v}" for k, v in shape.items())


def _models(names: Sequence[str], as_it_is: bool) -> dict[str, Callable[[], tuple[LoadedModel, str]]]:
    sources = graph_sources(("corpus",))
    found: dict[str, Callable[[], tuple[LoadedModel, str]]] = {}
    for name in names or [n for n in TRAINING if n in sources]:
        if Path(name).is_file():
            found[Path(name).stem] = partial(_as_it_is, Path(name))
        elif name not in sources:
            raise SystemExit(f"{name}: no such model in the corpus, and no such file")
        elif as_it_is:
            found[name] = partial(_as_it_is, CORPUS / f"{name}.onnx")
        else:
            found[name] = sources[name].load
    return found


def _as_it_is(path: Path) -> tuple[LoadedModel, str]:
    return load_model(path), "none"


def tables(
    names: Sequence[str], options: LevelOptions | None = None, as_it_is: bool = False
) -> Iterator[LevelTable]:
    """One table per model, as they are done."""
    options = options or LevelOptions(_LEVELS, _SLOWDOWN)
    for name, load in Progress("levels").each(_models(names, as_it_is)):
        model, level = load()
        yield level_table(name, model, level, TRAINING.get(name), options)


def run(only: Sequence[str] = ()) -> Page:
    """The page of the benchmark: levels by formula, levels run, and the paper's model."""
    options = LevelOptions(_LEVELS, _SLOWDOWN)
    found = list(tables([n for n in only or TRAINING if n in TRAINING and n in graph_sources(("corpus",))]))
    wrong: list[str] = []
    ran = list(measured(only, wrong))
    wrong += [
        f"{r.model} at {_text(r.shape)}, level {r.level}: {r.equal} of {r.nodes} nodes as predicted; "
        f"predicted {r.predicted}, measured {r.measured}; outputs {'equal' if r.bits else 'differ'}"
        for m in ran for r in m.runs if not (r.as_predicted and r.bits)
    ]  # fmt: skip
    about_paper: tuple[Table, ...] = ()
    if has_paper() and (not only or PAPER in only):
        plan = paper_plan(options)
        about_paper = (limit_table(plan), exact_table(plan))
    return Page(
        "levels",
        "Levels of recomputation",
        """Peaks are exact, of outputs and activations, at the shape named in the table, which also steers the
        search; level 0 is the order that `optimize` would choose. A second table says what run-time policies
        would have paid under the same limits, in simulation: each follows the order of the level and evicts
        when memory is short. A third has levels that ran. Graphs are planned as ONNX Runtime's optimiser
        leaves them, and as they are where they have no weights.""",
        (
            *(_findings(found) if found else ()),
            *(run_findings(ran) if ran else ()),
            *(paper_findings(*about_paper) if about_paper else ()),
        ),
        (
            Table("levels", "Peak against added work", _COLUMNS, tuple(r for t in found for r in t.rows)),
            Table(
                "policies",
                "Time added at equal limits, as a part of one run",
                _POLICY_COLUMNS,
                tuple(r for t in found for r in t.policies),
                "A dash: the limit was not kept.",
            ),
            runs_table(ran),
            *about_paper,
        ),
        wrong=tuple(wrong),
        pictures=(Picture("levels", "Peak against time, measured", picture(ran)),) if ran else (),
    )


def measured(only: Sequence[str], wrong: list[str]) -> Iterator[LevelRuns]:
    """Models of the corpus that have weights, run; what fails is a line of `wrong`."""
    if not (CORPUS / "cases.json").is_file():
        return
    names = {n: shapes for n, shapes in MEASURED.items() if not only or n in only}
    prepare(CORPUS, FILLED, list(names))
    progress = Progress("levels, runs")
    for name, shapes in progress.each(names):
        with progress.attempt(name, wrong):
            yield level_runs(name, FILLED / f"{name}.onnx", shapes, _RUN_LEVELS, _SLOWDOWN, _ROUNDS)


def picture(found: Sequence[LevelRuns]) -> str:
    """Levels at the largest shape of each model, in sessions that pack no weights."""
    lines = {
        m.model: [(r.slower_unpacked, r.peak) for r in m.runs if r.shape == m.runs[-1].shape]
        for m in found if m.runs
    }  # fmt: skip
    return frontier_picture(lines, "time / level 0, no weights packed", "peak of activations / level 0")


def _findings(found: Sequence[LevelTable]) -> tuple[Finding, ...]:
    least = geometric_mean(t.least(OPERATIONS) for t in found)
    floor = geometric_mean(t.floor for t in found)
    worst = geometric_mean(max(t.floor, TARGET) for t in found)
    what = f"least peak at up to {OPERATIONS:.0%} more operations / level 0, geometric mean"
    target = f"<= {worst:.2f} ({TARGET} where any repeat can reach it)"
    gap = geometric_mean(t.least(OPERATIONS) / t.floor for t in found)
    near, far = (pick(found, key=lambda t: t.least(OPERATIONS) / t.floor) for pick in (min, max))
    return (
        Finding(what, f"{least:.3f}", target, least <= worst),
        Finding("peak that no repeat can get below / level 0, geometric mean", f"{floor:.3f}"),
        Finding("the first over the second, geometric mean", f"{gap:.2f}"),
        *(
            Finding(
                f"{word}: {t.name}, {t.least(OPERATIONS):.3f} over {t.floor:.3f}",
                f"{t.least(OPERATIONS) / t.floor:.2f}, the bound pinned by {t.pinned}",
            )
            for word, t in (("nearest to it", near), ("farthest from it", far))
        ),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table per model, and write all as CSV."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.levels", description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--paper", action="store_true", help="the paper's model under 40 GiB, nothing else")
    parser.add_argument("--runs", action="store_true", help="levels run on ONNX Runtime, nothing else")
    parser.add_argument("--as-it-is", action="store_true", help="without ONNX Runtime's optimiser")
    parser.add_argument("--levels", type=int, default=_LEVELS, metavar="N")
    parser.add_argument("--max-slowdown", type=float, default=_SLOWDOWN, metavar="X")
    parser.add_argument("--csv", type=Path, default=Path("build", "bench", "levels.csv"), metavar="FILE")
    given = parser.parse_args(arguments)
    options = LevelOptions(given.levels, given.max_slowdown)
    if given.paper:
        plan = paper_plan(options)
        print("\n".join([*limit_table(plan).markdown(), "", *exact_table(plan).markdown()]))
        return 0
    if given.runs:
        wrong: list[str] = []
        for ran in measured(given.models, wrong):
            print("\n".join(runs_table([ran]).markdown()), flush=True)
        print("\n".join(wrong))
        return 1 if wrong else 0
    found: list[LevelTable] = []
    for table in tables(given.models, options, given.as_it_is):
        found.append(table)
        print("\n".join(Table("", table.name, _COLUMNS, table.rows).markdown()))
        policies = Table("", "Time added at equal limits", _POLICY_COLUMNS, table.policies)
        print("\n".join(["", *policies.markdown()]), flush=True)
        given.csv.parent.mkdir(parents=True, exist_ok=True)
        rows = tuple(r for t in found for r in t.rows)
        Table("levels", "", _COLUMNS, rows).write_csv(given.csv)
    print()
    for finding in _findings(found):
        print(f"{finding.what}: {finding.found} {finding.target}".rstrip())
    return 0


if __name__ == "__main__":
    sys.exit(main())
