"""Real models planned and run: predicted beside measured bytes, planned beside ONNX Runtime as shipped.

    python -m benchmarks.corpus [--corpus FOLDER] [--models A,B] [--json FILE] [--write-docs]
    make bench ARGS="corpus"

The corpus folder holds NAME.onnx without weights, `fill_weights.py` that writes them, and `cases.json` with
shapes at which each model runs. Models whose weights stay away are planned only. Without the folder there is
nothing to measure, and the command says so and ends well.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.environment import Progress, how_made, without_options
from benchmarks.planning import PLANNED_NODES, planning_times
from benchmarks.results import ModelResult, Report, read_report, write_report
from benchmarks.tables import mean_text, write_documents
from benchmarks.trials import plan_only, trial
from benchmarks.weights import CORPUS, FILLED, is_complete, prepare, read_cases

__all__ = ["main", "measure_models"]

ROOT = Path(__file__).resolve().parents[1]


def measure_models(filled: Path, cases: dict[str, Any], tell: Callable[[str], None]) -> list[ModelResult]:
    """One result per model; a failure is part of the results, never the end of them."""
    results = []
    for name, entry in cases.items():
        path = filled / f"{name}.onnx"
        start = time.perf_counter()

        def step(text: str, name: str = name) -> None:
            tell(f"{name}: {text}")

        try:
            if entry["cases"] and is_complete(path):
                result = trial(name, entry["source"], path, entry["cases"], step)
            else:
                result = plan_only(name, entry["source"], path, step)
        except Exception as error:  # a defect of the tool is a result, too
            result = ModelResult(name, entry["source"], failed=f"{type(error).__name__}: {error}")
        results.append(result)
        print(_line(result, time.perf_counter() - start), flush=True)
    return results


def _line(result: ModelResult, seconds: float) -> str:
    if not result.never_worse:
        return f"{result.name:24}{result.failed}"
    text = f"{result.name:24}{result.nodes:6,} nodes  {result.never_worse:8}"
    if result.shapes:
        equal = sum(row.equal for row in result.shapes)
        in_use = mean_text(row.in_use_ratio for row in result.shapes)
        held = mean_text(row.held_ratio for row in result.shapes)
        text += f"  equal at {equal} of {len(result.shapes)}  in use {in_use}  held {held}"
    return f"{text}  optimize {result.total_seconds:.1f} s, all {seconds:.0f} s  {result.failed}".rstrip()


# ------------------------------------------------------------------------------------------------ command


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print a line per model, write what was asked for; 1 where something failed or differs."""
    given_arguments = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.corpus", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--corpus", type=Path, default=CORPUS, help=f"the models (default {CORPUS})")
    parser.add_argument("--models", "--only", default="", metavar="A,B", help="only these, by name")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to a file")
    parser.add_argument("--render", type=Path, metavar="FILE", help="take the results of such a file instead")
    parser.add_argument(
        "--write-docs", action="store_true", help="write docs/RESULTS.md and the README's table"
    )
    parser.add_argument(
        "--planning", default=",".join(map(str, PLANNED_NODES)), metavar="N,...",
        help="sizes of the graphs that planning is timed for; 0: none (default %(default)s)",
    )  # fmt: skip
    given = parser.parse_args(given_arguments)
    try:
        sizes = [int(text) for text in given.planning.split(",") if int(text)]
    except ValueError:
        parser.error(f"--planning {given.planning}: expected whole numbers with commas between them")

    if given.render is not None:
        try:
            report = read_report(given.render)
        except (OSError, ValueError) as error:
            parser.error(str(error))
    else:
        if not (given.corpus / "cases.json").is_file():
            print(f"{given.corpus}: no corpus here, so nothing was measured; --corpus names its folder")
            return 0
        try:
            cases = read_cases(given.corpus, [name for name in given.models.split(",") if name])
        except ValueError as error:
            parser.error(str(error))
        report = _run(given.corpus, cases, sizes, given_arguments)
    if given.json is not None:
        write_report(report, given.json)
    if given.write_docs:
        write_documents(report, ROOT / "docs" / "RESULTS.md", ROOT / "README.md")
    print(
        f"\nplanned / as shipped, geometric means: in use {mean_text(r.in_use_ratio for r in report.rows)}, "
        f"held {mean_text(r.held_ratio for r in report.rows)} over {len(report.rows)} shapes; in use "
        f"{mean_text(r.in_use_ratio for r in report.largest)}, held "
        f"{mean_text(r.held_ratio for r in report.largest)} at the largest of each model"
    )
    return 1 if any(m.failed or not all(r.equal for r in m.shapes) for m in report.models) else 0


def _run(corpus: Path, cases: dict[str, Any], sizes: Sequence[int], arguments: Sequence[str]) -> Report:
    """Everything measured, progress on stderr."""
    start = time.perf_counter()
    tell = Progress("corpus").tell
    tell("writing weights")
    prepare(corpus, FILLED, list(cases))
    models = measure_models(FILLED, cases, tell)
    planning = planning_times(sizes, tell)
    for row in planning:
        print(f"{row.nodes:,} nodes planned in {row.total:.1f} s")
    return Report(
        how_made(["corpus", *without_options(arguments, ("--json", "--corpus"))], start),
        tuple(models),
        tuple((row.nodes, dict(row.seconds)) for row in planning),
    )


if __name__ == "__main__":
    sys.exit(main())
