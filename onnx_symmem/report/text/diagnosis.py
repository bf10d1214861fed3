"""The result of `doctor` on the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from onnx_symmem.report.diagnosis import DiagnosisFigures
from onnx_symmem.report.text.layout import (
    Unit,
    facts,
    heading,
    indented,
    list_lines,
    quiet,
    shape_text,
    sized_table,
)
from onnx_symmem.run.doctor import Finding

__all__ = ["show_diagnosis"]

_TRAVERSALS = {"priority": "PRIORITY_BASED (the file's order)", "default": "DEFAULT"}


def show_diagnosis(console: Console, figures: DiagnosisFigures) -> None:
    """The verdict, the bytes under every setting, and what did not run as planned."""
    d = figures.found
    document = figures.to_json()
    console.print(Text(d.model, style="bold"))
    facts(
        console,
        [
            ("at", shape_text(d.shape)),
            ("planned for", _TRAVERSALS[d.planned_for]),
            ("verdict", "the plan is kept" if d.keeps else "the plan is not kept"),
        ],
    )
    rows = [("as planned", "", d.kept), ("as given", "", d.given)]
    rows += [
        (f"only {o.option}", found["given"], o.finding)
        for o, found in zip(d.options, document["options"], strict=True)
    ]
    unit = Unit.of(n for _, _, f in rows for n in (f.planned, f.peak, f.in_use, f.held))
    heading(console, "Runs", f"{unit.name}; tensors at the peak: planned, and measured; the arena")
    table = sized_table(
        ("settings", "short"), ("", "short"), ("order", "short"), ("planned", "number"),
        ("first run", "number"), ("any run", "number"), ("in use", "number"), ("held", "number"),
    )  # fmt: skip
    for name, value, f in rows:
        measured = unit.show(f.peak)
        table.add_row(
            name, value, "kept" if f.keeps_order else "other", unit.show(f.planned),
            unit.show(f.first),
            Text(measured if f.keeps_peak else f"{measured} !", style="" if f.keeps_peak else "bold"),
            unit.show(f.in_use), unit.show(f.held),
        )  # fmt: skip
    indented(console, table)
    if any(not f.keeps_peak for _, _, f in rows):
        indented(console, quiet("!: more than planned"))
    if figures.not_predicted:
        indented(console, quiet(figures.not_predicted))
    list_lines(console, "What ran otherwise", _orders(rows))


def _orders(rows: list[tuple[str, str, Finding]]) -> list[tuple[str, str]]:
    return [(f"{name} {value}".strip(), f.order) for name, value, f in rows if f.order]
