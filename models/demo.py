"""The whole job on one small model, step by step: build, optimise, run, prediction beside measurement.

    python -m models.demo [--folder FOLDER] [KEY=VALUE ...]        make demo

KEY=VALUE are options of the model's builder, e.g. `layers=2`. Files are kept in build/demo, to go on with.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text

import onnx_symmem
from models import DEMO, DEMO_SHAPE
from models import build as models
from onnx_symmem.api import Optimized
from onnx_symmem.errors import SymmemError
from onnx_symmem.report.text.layout import (
    BAD,
    GOOD,
    facts,
    formulas,
    heading,
    indented,
    percent,
    quiet,
    shape_text,
)
from onnx_symmem.report.text.measurements import SESSION_COLUMNS, SessionRow, sessions_table, sessions_unit
from onnx_symmem.run.baseline import baseline_settings
from onnx_symmem.run.measure import Measurement, measure
from onnx_symmem.run.session import shipped

__all__ = ["SHAPES", "Demo", "Trial", "main", "run_demo"]

SHAPES: tuple[Mapping[str, int], ...] = (
    DEMO_SHAPE,
    {"batch": 1, "dec_seq": 1, "enc_seq": 1500},
    {"batch": 2, "dec_seq": 448, "enc_seq": 1500},
)
"""A batch in the middle of decoding, the first token of one recording, and the longest texts."""

_WIDTH = 100  # columns at most: a demo is read, and copied into documents


@dataclass(frozen=True, slots=True)
class Trial:
    """One shape, measured three ways.

    `shipped`: the model in a session as ONNX Runtime is shipped. `before`: the graph and the order of ONNX
    Runtime, memory settings of a session that keeps a plan. `after`: the planned file. The predictions are
    the formulas of `optimize` at the shape.
    """

    shape: Mapping[str, int]
    shipped: Measurement
    before: Measurement
    after: Measurement
    predicted_before: int
    predicted_after: int

    @property
    def exact(self) -> bool:
        """Whether both predictions hold to the byte, and after every node of the planned file."""
        return (
            all(run.requested_peak == self.predicted_before for run in self.before.runs)
            and all(run.requested_peak == self.predicted_after for run in self.after.runs)
            and self.after.nodes_equal == 1.0
        )


@dataclass(frozen=True, slots=True)
class Demo:
    """What the demo found out."""

    model: Path
    planned: Path
    optimized: Optimized
    trials: tuple[Trial, ...]


def run_demo(
    console: Console,
    folder: Path,
    shapes: Sequence[Mapping[str, int]] = SHAPES,
    options: Mapping[str, int] | None = None,
) -> Demo:
    """Build the demo's model in `folder`, plan it, measure it at `shapes`, and tell about each step."""
    start = time.perf_counter()
    folder.mkdir(parents=True, exist_ok=True)
    model, planned = folder / f"{DEMO}.onnx", folder / "planned.onnx"
    _build(console, model, options or {})
    found = _optimize(console, model, planned, shapes)
    trials = _measure(console, model, planned, found, shapes)
    _next(console, model, planned, shapes[0])
    console.print()
    console.print(quiet(f"The demo took {time.perf_counter() - start:.0f} s."))
    return Demo(model, planned, found, trials)


# ------------------------------------------------------------------------------------------------ steps


def _step(console: Console, number: int, title: str, call: str) -> None:
    heading(console, f"{number}  {title}")
    indented(console, Text(call, style="cyan"))
    console.print()


def _build(console: Console, model: Path, options: Mapping[str, int]) -> None:
    given = "".join(f" {key}={value}" for key, value in options.items())
    _step(console, 1, "A model with symbolic dims", f"python -m models.build {DEMO} -o {model}{given}")
    proto = models.build(DEMO, **options)
    model.write_bytes(proto.SerializeToString(deterministic=True))
    ports = {
        value.name: ", ".join(d.dim_param or str(d.dim_value) for d in value.type.tensor_type.shape.dim)
        for value in (*proto.graph.input, *proto.graph.output)
    }
    names = [
        [f"{v.name} ({ports[v.name]})" for v in side] for side in (proto.graph.input, proto.graph.output)
    ]
    facts(
        console,
        [
            ("model", models.MODELS[DEMO].summary),
            ("size", f"{len(proto.graph.node)} nodes, {model.stat().st_size / 1e6:.1f} MB"),
            ("inputs", ", ".join(names[0])),
            ("outputs", ", ".join(names[1])),
        ],
    )


def _optimize(console: Console, model: Path, planned: Path, shapes: Sequence[Mapping[str, int]]) -> Optimized:
    _step(console, 2, "A plan for all shapes", f'onnx_symmem.optimize("{model}", "{planned}")')
    found = onnx_symmem.optimize(model, planned, verify_at=shapes)
    figures = found.figures
    moved = f"{figures.order_before} -> {figures.order_after}, {figures.moved_nodes} nodes moved"
    equal = "; ".join(shape_text(v.shape) for v in figures.verified)
    proofs = {
        "proved": "proved: at no shape does the plan need more than before",
        "kept": "no better order was proved; the one that would have run is kept",
    }
    facts(
        console,
        [
            ("symbols", _symbols(found)),
            ("order", moved),
            (
                "in place",
                f"{figures.in_place_before} -> {figures.in_place_after} tensors written over an input",
            ),
            ("never worse", proofs.get(figures.never_worse, figures.never_worse)),
            ("outputs", f"bit-equal to the original's at {equal}"),
            ("time", f"{sum(figures.seconds.values()):.1f} s"),
        ],
    )
    for title, peak in (("Peak before", figures.before), ("Peak after", figures.after)):
        note = f"bytes, the largest of {len(peak.members)}" if len(peak.members) > 1 else "bytes"
        heading(console, title, note)
        formulas(console, [(member, "") for member in peak.members])
    return found


def _symbols(found: Optimized) -> str:
    texts = []
    for s in found.figures.findings.symbols:
        texts.append(f"{s.name} >= {s.lo}" if s.hi is None else f"{s.name} in {s.lo}..{s.hi}")
    return ", ".join(texts)


def _measure(
    console: Console, model: Path, planned: Path, found: Optimized, shapes: Sequence[Mapping[str, int]]
) -> tuple[Trial, ...]:
    _step(console, 3, "Predicted and measured", f'onnx_symmem.measure("{planned}", shape)')
    choice, level = found.details.choice, found.figures.ort_level
    trials = []
    for shape in shapes:
        first = shape is shapes[0]
        trials.append(
            Trial(
                shape,
                measure(model, shape, settings=shipped(), latency_runs=5 if first else 0),
                measure(model, shape, settings=baseline_settings(level), runs=2, latency_runs=0),
                measure(planned, shape, latency_runs=5 if first else 0),
                choice.before.at(shape),
                choice.after.at(shape),
            )
        )
    _table(console, trials)
    _legend(console, planned, level)
    _verdict(console, trials)
    return tuple(trials)


def _table(console: Console, trials: Sequence[Trial]) -> None:
    groups = [
        (
            shape_text(trial.shape),
            [
                SessionRow("as shipped", None, trial.shipped.runs[-1]),
                SessionRow("its graph and order", trial.predicted_before, trial.before.runs[-1]),
                SessionRow("planned", trial.predicted_after, trial.after.runs[-1]),
            ],
        )
        for trial in trials
    ]
    unit = sessions_unit(row for _, rows in groups for row in rows)
    indented(console, quiet(f"{unit.name}; second run in each session"))
    indented(console, sessions_table(unit, groups))


def _legend(console: Console, planned: Path, level: str) -> None:
    console.print()
    facts(
        console,
        [
            ("as shipped", "ONNX Runtime with its defaults"),
            ("its graph and order", f"level {level}, with the memory settings of a planned session"),
            ("planned", f"{planned.name} in onnx_symmem.create_session"),
            ("predicted", "the formulas above, at this shape"),
            *SESSION_COLUMNS,
        ],
    )


def _verdict(console: Console, trials: Sequence[Trial]) -> None:
    exact = all(t.exact for t in trials)
    nodes = sum(t.after.prediction.equal for t in trials)
    compared = sum(t.after.prediction.compared for t in trials)
    first = trials[0]
    last, plain = first.after.runs[-1], first.shipped.runs[-1]
    rows: list[tuple[str, str | Text]] = [
        (
            "prediction",
            Text(
                f"right to the byte after {nodes} of {compared} nodes, {len(trials)} shapes",
                style=GOOD if exact else BAD,
            ),
        ),
        ("in use", f"{percent(last.in_use_peak, plain.in_use_peak)} against as shipped, first shape"),
        ("held", percent(last.held, plain.held)),
    ]
    if first.after.latency_ms and first.shipped.latency_ms:
        rows.append(("time per run", f"{first.shipped.latency_ms:.0f} ms -> {first.after.latency_ms:.0f} ms"))
    console.print()
    facts(console, rows)


def _next(console: Console, model: Path, planned: Path, shape: Mapping[str, int]) -> None:
    heading(console, "4  Your own model")
    at = ",".join(f"{name}={size}" for name, size in shape.items())
    command = Path(sys.executable).with_name("onnx-symmem")
    here = command.relative_to(Path.cwd()) if command.is_relative_to(Path.cwd()) else command
    for text in (
        f"{here} shapes MODEL.onnx",
        f"{here} optimize MODEL.onnx -o SMALLER.onnx",
        f"{here} run SMALLER.onnx --at NAME=SIZE,...",
        f"{here} compare MODEL.onnx SMALLER.onnx --at NAME=SIZE,...",
    ):
        indented(console, Text(text, style="cyan"))
    console.print()
    indented(console, quiet("or, with this one:"))
    indented(console, Text(f"{here} compare {model} {planned} --at {at}", style="cyan"))


# ------------------------------------------------------------------------------------------------ command


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; 1 where a prediction is not what was measured."""
    parser = argparse.ArgumentParser(
        prog="python -m models.demo", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--folder", type=Path, default=Path("build", "demo"), help="where files are kept")
    parser.add_argument("options", nargs="*", metavar="KEY=VALUE", help="options of the model's builder")
    given = parser.parse_args(arguments)
    options = {}
    for text in given.options:
        key, _, value = text.partition("=")
        if key not in models.MODELS[DEMO].options or not value.isdecimal():
            parser.error(f"{text}: expected KEY=NUMBER, KEY one of {', '.join(models.MODELS[DEMO].options)}")
        options[key] = int(value)
    console = Console(markup=False, highlight=False, emoji=False)
    if console.width > _WIDTH or not console.is_terminal:
        console.width = min(_WIDTH, max(console.width, 80))
    try:
        found = run_demo(console, given.folder, options=options)
    except SymmemError as error:
        print(f"demo: {error}", file=sys.stderr)
        return error.exit_code
    return 0 if all(trial.exact for trial in found.trials) else 1


if __name__ == "__main__":
    sys.exit(main())
