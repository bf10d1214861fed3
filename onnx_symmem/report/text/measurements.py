"""The results of `run` and `compare` on the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

from onnx_symmem.report.measurements import Comparison, MeasuredRun
from onnx_symmem.report.text.layout import (
    BAD,
    GOOD,
    Unit,
    facts,
    heading,
    indented,
    list_lines,
    percent,
    shape_text,
    sized_table,
)
from onnx_symmem.run.measure import RunFigures

__all__ = [
    "SESSION_COLUMNS",
    "SessionRow",
    "sessions_table",
    "sessions_unit",
    "show_comparison",
    "show_run",
]

SESSION_COLUMNS = (
    ("measured", "the most that activations and outputs took at any node"),
    ("in use, held", "the whole arena: also repacked weights, scratch, slack"),
)


@dataclass(frozen=True, slots=True)
class SessionRow:
    """One session of a comparison: what was predicted, one of its runs, and the time of a run."""

    name: str
    predicted: int | None
    run: RunFigures
    ms: float | None = None


def sessions_unit(rows: Iterable[SessionRow]) -> Unit:
    """The unit that suits all figures of the rows."""
    return Unit.of(n for row in rows for n in (row.predicted, row.run.in_use_peak, row.run.held))


def sessions_table(unit: Unit, groups: Sequence[tuple[str, Sequence[SessionRow]]]) -> Table:
    """Sessions below each other, prediction beside measurement, in groups that may have a title."""
    timed = any(row.ms is not None for _, rows in groups for row in rows)
    titles = ("predicted", "measured", "in use", "held", *(["ms"] if timed else []))
    table = sized_table(("", "short"), *((title, "number") for title in titles))
    for number, (title, rows) in enumerate(groups):
        if number:
            table.add_section()
        if title:
            table.add_row(Text(title, style="bold"))
        for row in rows:
            run = row.run
            style = "" if row.predicted is None else GOOD if row.predicted == run.requested_peak else BAD
            table.add_row(
                f"  {row.name}" if title else row.name,
                Text(unit.show(row.predicted), style=style),
                Text(unit.show(run.requested_peak), style=style),
                unit.show(run.in_use_peak),
                unit.show(run.held),
                *([f"{row.ms:,.2f}" if row.ms is not None else "-"] if timed else []),
            )
    return table


def show_run(console: Console, run: MeasuredRun) -> None:
    """Prediction and measurement of one model side by side."""
    console.print(Text(run.model, style="bold"))
    lines = [("at", shape_text(run.shape)), ("provider", run.provider)]
    if run.chosen_version is not None:
        which = f"{run.chosen_version} of 0..{run.versions - 1}"
        chosen = f"{which}, by the input shapes, of levels also by the limit"
        lines.append(("version", chosen))
    facts(console, lines)
    unit = Unit.of(
        [run.predicted_peak, run.static_bytes, *(n for r in run.runs for n in (r.in_use_peak, r.held))]
    )
    heading(console, "Memory", unit.name)
    columns = [("run", "number"), ("predicted peak", "number"), ("measured peak", "number")]
    table = sized_table(*columns, ("arena in use", "number"), ("arena held", "number"))
    for number, figures in enumerate(run.runs):
        predicted = unit.show(run.predicted_peak)
        table.add_row(
            str(number + 1), predicted, unit.show(figures.requested_peak), unit.show(figures.in_use_peak),
            unit.show(figures.held),
        )  # fmt: skip
    indented(console, table)
    heading(console, "Prediction")
    rows: list[tuple[str, str | Text]] = [("nodes equal", _nodes(run))]
    if run.label != "exact" and not run.why_not:
        rows.append(("label", run.label))
    if run.taken:
        rows.append(("read off the run", shape_text(run.taken)))
    rows.append(("static", f"{unit.named(run.static_bytes)} of weights laid out anew, in the arena only"))
    rows.append(
        ("scratch", f"{unit.named(run.scratch)} of kernels' own buffers and chunk slack, in the arena only")
    )
    if run.device_bytes is not None:
        rows.append(("device", f"{unit.named(run.device_bytes)} more in use on the GPU, libraries included"))
    if run.latency_ms is not None and run.first_ms is not None:
        rows.append(("latency", f"{run.latency_ms:,.2f} ms (first run {run.first_ms:,.2f} ms)"))
    facts(console, rows)
    list_lines(console, "Not counted", [(reason, "") for reason in run.reasons])
    own = [m for m in run.mismatches if m["change"]]
    if own:
        heading(console, f"Nodes whose bytes came out otherwise ({len(own)})", "where the difference arises")
        small = Unit.of(m["change"] for m in own)
        table = sized_table(("node", "name"), (f"measured - predicted, {small.name}", "number"))
        for m in own[:8]:
            table.add_row(m["node"], small.show(m["change"]))
        indented(console, table)
    wrong = [
        (f"{w['tensor']}: {list(w['measured'])} instead of {w['inferred']}", w["node"])
        for w in run.wrong_dims
    ]
    list_lines(console, "Dims that came out otherwise", wrong)


def _nodes(run: MeasuredRun) -> Text:
    if run.nodes_equal is None:
        return Text(f"no prediction: {run.why_not or 'no node can be compared'}")
    equal = round(run.nodes_equal * run.nodes_compared)
    text = f"{equal} of {run.nodes_compared}, to the byte"
    if run.nodes_compared < run.nodes:
        text += f" ({run.nodes - run.nodes_compared} more in loops are only bounded)"
    return Text(text, style=GOOD if equal == run.nodes_compared else BAD)


def show_comparison(console: Console, comparison: Comparison) -> None:
    """Three sessions side by side, and whether the outputs are equal."""
    facts(
        console,
        [
            ("before", comparison.before.model),
            ("after", comparison.after.model),
            ("at", shape_text(comparison.shape)),
            ("provider", comparison.provider),
        ],
    )
    measured = dict(zip(("before, as shipped", "before", "after"), comparison.measured, strict=True))
    rows = [SessionRow(name, m.predicted_peak, m.runs[-1], m.latency_ms) for name, m in measured.items()]
    unit = sessions_unit(rows)
    heading(console, "Memory", f"{unit.name}, last of {len(comparison.after.runs)} runs in each session")
    indented(console, sessions_table(unit, [("", rows)]))
    console.print()
    level = (
        f"ONNX Runtime's graph at level {comparison.ort_level} and its order, with memory settings that keep"
    )
    names = [
        "ONNX Runtime with its defaults",
        f"{level} the plan",
        "as planned, with the same memory settings",
    ]
    facts(console, [*zip(measured, names, strict=True), *SESSION_COLUMNS])
    heading(console, "Predictions", "nodes after which the bytes in use came out as predicted")
    predicted = list(measured.items())[1:]
    facts(console, [(name, _nodes(m)) for name, m in predicted])
    for name, m in predicted:
        list_lines(console, f"Not counted {name}", [(reason, "") for reason in m.reasons])
    heading(console, "After against before as shipped", "last run")
    first, last = comparison.shipped.runs[-1], comparison.after.runs[-1]
    changes = [
        ("measured", percent(last.requested_peak, first.requested_peak)),
        ("in use", percent(last.in_use_peak, first.in_use_peak)),
        ("held", percent(last.held, first.held)),
    ]
    if comparison.after.latency_ms is not None and comparison.shipped.latency_ms:
        changes.append(("latency", percent(comparison.after.latency_ms, comparison.shipped.latency_ms)))
    facts(console, [*changes, ("outputs", _outputs(comparison))])


def _outputs(comparison: Comparison) -> Text:
    found = comparison.outputs
    what = f"{found.outputs} output{'s' if found.outputs != 1 else ''}"
    against = f"before at level {found.level}, after as it is, one thread each"
    if found.bit_equal:
        return Text(f"bit-equal ({what}; {against})", style=GOOD)
    if found.equal:
        return Text(
            f"equal but for rounding: worst relative difference {found.worst_relative:.3g}, tolerance "
            f"{found.tolerance:g} ({what}; {against})",
            style=GOOD,
        )
    return Text(f"different: {found.reason} ({against})", style=BAD)
