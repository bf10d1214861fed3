"""Shapes of real models, as exported and as ONNX Runtime's optimiser makes them, against those of real runs.

    python -m benchmarks.shapes_corpus [--corpus FOLDER] [--models A,B] [--level none extended all]
                                       [--shapes 5] [--seed 0] [--speed]

Each model is inferred at each level; then it runs at random legal shapes around those of the corpus'
`cases.json`, and every output of every node of the main graph is fetched. Dims are constants, expressions,
of data (a size that depends on the data of this run), bounded (another unknown with an upper bound) or open.
Exit code 1 where a dim is wrong. `--speed` measures inference instead, beside onnx.shape_inference and ONNX
Runtime's tool.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.corpus import CORPUS, FILLED, prepare, read_cases
from benchmarks.document import Cell, Finding, Page, Table
from benchmarks.real_shapes import compare_shapes, draw_feeds, random_shapes, run_all_outputs
from benchmarks.shape_speed import print_speed, speed_table
from onnx_symmem.errors import ModelFileError
from onnx_symmem.graph.load import LoadedModel, check_external_data, load_model
from onnx_symmem.run.offline import optimize_offline
from onnx_symmem.run.session import SessionSettings, create_session
from onnx_symmem.shapes.engine import infer_shapes
from onnx_symmem.shapes.registry import find_rule
from onnx_symmem.shapes.table import ModelShapes, UnknownDim

__all__ = ["Comparison", "compare_corpus", "compare_model", "main", "optimised", "run"]

LEVELS = ("none", "basic", "extended", "all")
MOST_BYTES = 1 << 30  # of all node outputs together at one shape
SPARE = 3  # shapes drawn per shape wanted: ONNX Runtime may refuse one for its data
# Ops some of whose sizes are in the data, and what carries such sizes on.
OF_DATA = ("data", "the branches of the If differ")


@dataclass
class Comparison:
    """What one model came to at one level: dims inferred, dims compared, and those that differ."""

    name: str
    level: str
    nodes: int = 0
    seconds: float = 0.0
    constant: int = 0
    symbolic: int = 0
    of_data: int = 0
    bounded: int = 0
    open: int = 0
    no_rank: int = 0
    shapes: int = 0
    tensors: int = 0
    wrong: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    ops: set[str] = field(default_factory=set)
    without_rule: set[str] = field(default_factory=set)
    reasons: Counter[str] = field(default_factory=Counter)
    note: str = ""


def optimised(model: LoadedModel, folder: Path, level: str) -> LoadedModel:
    """The model as ONNX Runtime's optimiser saves it; `none` is the model itself."""
    if level == "none":
        return model
    if level != "all":
        return load_model(optimize_offline(model, folder, "cpu", level))
    settings = SessionSettings(optimization=level, execution_order="default", arena="power_of_two")
    options = settings.to_session_options()
    path = folder / "optimized.onnx"
    options.optimized_model_filepath = str(path)
    for key, text in (
        ("session.optimized_model_external_initializers_file_name", "optimized.data"),
        ("session.optimized_model_external_initializers_min_size_in_bytes", "1024"),
        ("session.disable_prepacking", "1"),
    ):
        options.add_session_config_entry(key, text)
    create_session(model, settings, options)
    return load_model(path)


def is_of_data(unknown: UnknownDim) -> bool:
    """Whether a size is unknown because it is in the data."""
    return any(text in unknown.reason for text in OF_DATA)


def _count(shapes: ModelShapes, into: Comparison) -> None:
    """How the dims of all node outputs ended, subgraphs included."""
    unknowns = {u.symbol: u for u in shapes.unknowns if u.symbol}
    for unknown in shapes.unknowns:
        into.reasons[f"{unknown.op}: {unknown.reason}"] += 1
    for graph in shapes.graph.walk():
        for node in graph.view.nodes:
            op = f"{node.domain}.{node.op}" if node.domain else node.op
            into.ops.add(op)
            if find_rule(node.domain, node.op) is None:
                into.without_rule.add(op)
        for value, dims in zip(graph.view.values, graph.dims, strict=True):
            if value.kind != "node":
                continue
            if dims is None:
                into.no_rank += 1
                continue
            for dim in dims:
                fresh = dim.symbols() & unknowns.keys()
                if dim.is_const:
                    into.constant += 1
                elif not fresh:
                    into.symbolic += 1
                elif all(is_of_data(unknowns[name]) for name in fresh):
                    into.of_data += 1
                elif all(is_of_data(u) or u.bound is not None for u in map(unknowns.__getitem__, fresh)):
                    into.bounded += 1
                else:
                    into.open += 1


def compare_model(
    name: str, model: LoadedModel, entry: Mapping[str, Any], level: str, count: int, seed: int
) -> Comparison:
    """Infer a model, run it at `count` random shapes, compare."""
    view = model.view()
    result = Comparison(name, level, len(view.graph.nodes))
    start = time.perf_counter()
    shapes = infer_shapes(view)
    result.seconds = time.perf_counter() - start
    _count(shapes, result)
    if not entry["cases"]:
        result.note = "no shapes to run"
        return result
    try:
        check_external_data(model)
    except ModelFileError:
        result.note = "no weights"
        return result
    session = None
    wanted = random_shapes(shapes, entry["cases"], count * SPARE, seed, MOST_BYTES)
    for number, at in enumerate(wanted):
        if result.shapes == count:
            break
        feeds = draw_feeds(shapes, entry.get("fills", {}), at, seed + number)
        try:
            real, session = run_all_outputs(model, feeds, session)
        except Exception as error:  # what ONNX Runtime raises has no type of its own
            result.refused.append(f"{at}: {str(error).splitlines()[0][:200]}")
            continue
        result.shapes += 1
        result.tensors += len(real)
        result.wrong.extend(f"{at}: {line}" for line in compare_shapes(shapes, real, at))
    return result


HEADS = (
    "model", "level", "nodes", "s", "constant", "expression", "of data", "bounded", "open", "no rank",
    "shapes run", "tensors", "wrong", "note",
)  # fmt: skip


def _cells(c: Comparison) -> tuple[Cell, ...]:
    return (
        c.name, c.level, c.nodes, c.seconds, c.constant, c.symbolic, c.of_data, c.bounded, c.open, c.no_rank,
        c.shapes, c.tensors, len(c.wrong), c.note,
    )  # fmt: skip


def _row(c: Comparison) -> str:
    return "| " + " | ".join(f"{x:.2f}" if isinstance(x, float) else str(x) for x in _cells(c)) + " |"


def _print_table(rows: Sequence[Comparison]) -> None:
    print("| " + " | ".join(HEADS) + " |")
    print("|---" * len(HEADS) + "|")
    for row in rows:
        print(_row(row))


def _print_rest(rows: Sequence[Comparison]) -> None:
    for level in dict.fromkeys(row.level for row in rows):
        ops = set().union(*(row.ops for row in rows if row.level == level))
        without = set().union(*(row.without_rule for row in rows if row.level == level))
        special = sorted(op for op in ops if "." in op)
        print(f"\n{level}: {len(ops)} op types, without a rule: {', '.join(sorted(without)) or 'none'}")
        if special:
            print(f"  beyond ONNX: {', '.join(special)}")
    for row in rows:
        for reason, times in row.reasons.most_common():
            print(f"{row.name} {row.level}: {times} unknown, {reason}")
        if row.refused:
            print(f"{row.name} {row.level}: {len(row.refused)} drawn shapes refused, e.g. {row.refused[0]}")
        for line in row.wrong[:10]:
            print(f"{row.name} {row.level}: WRONG at {line}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print progress, then the table; 1 where a dim is wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shapes_corpus")
    parser.add_argument("--corpus", type=Path, default=CORPUS, help="folder with models and cases.json")
    parser.add_argument("--filled", type=Path, default=FILLED, help="where models with weights are kept")
    parser.add_argument("--models", default="", help="names, separated by commas (default: all)")
    parser.add_argument("--level", nargs="+", choices=LEVELS, default=["none", "extended", "all"])
    parser.add_argument("--shapes", type=int, default=5, help="random shapes per model and level")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--speed", action="store_true", help="measure inference instead")
    options = parser.parse_args(arguments)
    if options.speed:
        print_speed()
        return 0
    if not options.corpus.is_dir():
        print(f"no corpus at {options.corpus}: nothing to measure")
        return 0
    names = [n for n in options.models.split(",") if n]
    rows = compare_corpus(options.corpus, options.filled, names, options.level, options.shapes, options.seed)
    print()
    _print_table(rows)
    _print_rest(rows)
    return 1 if any(row.wrong for row in rows) else 0


def compare_corpus(
    corpus: Path, filled: Path, names: Sequence[str], levels: Sequence[str], count: int, seed: int
) -> list[Comparison]:
    """Every model at every level, a line printed for each."""
    cases = read_cases(corpus, names)
    prepare(corpus, filled, [n for n, entry in cases.items() if entry["cases"]])
    rows = []
    for name, entry in cases.items():
        given = load_model(filled / f"{name}.onnx")
        for level in levels:
            if level != "none" and not _has_weights(given):
                continue
            with TemporaryDirectory() as folder:
                model = optimised(given, Path(folder), level)
                row = compare_model(name, model, entry, level, count, seed)
            print(_row(row), flush=True)
            rows.append(row)
    return rows


def run(only: Sequence[str] = ()) -> Page:
    """The part `shapes_corpus` of the benchmark: all levels at five shapes, and speed beside other tools."""
    rows = compare_corpus(CORPUS, FILLED, only, ("none", "extended", "all"), 5, 0) if CORPUS.is_dir() else []
    speed, figures = speed_table()
    wrong = tuple(f"{row.name} {row.level}: {line}" for row in rows for line in row.wrong)
    dims = sum(row.constant + row.symbolic + row.of_data + row.bounded + row.open for row in rows)
    without = sorted(set().union(*(row.without_rule for row in rows)))
    still = sum(row.open + row.no_rank for row in rows)
    met = sum(row.tensors for row in rows)
    findings = (
        Finding("tensors met with other dims than inferred", f"{len(wrong)} of {met:,}", "0", not wrong),
        Finding("open dims that are not of data", f"{still} of {dims:,}", "0", not still),
        Finding("op types without a rule", ", ".join(without) or "none", "none", not without),
        *figures,
    )
    text = """
        Every output of every node of the main graph is fetched at five random legal shapes per model and
        level, and compared with the inferred dims. A level is what ONNX Runtime's optimiser makes of the
        model. Dims are constants, expressions, of data (a size that depends on the data of the run), bounded
        (another unknown with an upper bound) or open.
    """
    notes = tuple(
        f"{r.name} {r.level}: {n} x {reason}" for r in rows for reason, n in r.reasons.most_common()
    )
    tables = (Table("shapes", "Dims", HEADS, tuple(map(_cells, rows)), digits=2), speed)
    return Page("shapes_corpus", "Shapes of real models", text, findings, tables, notes, wrong)


def _has_weights(model: LoadedModel) -> bool:
    try:
        check_external_data(model)
    except ModelFileError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
