"""The outcomes of several `optimize` at once, as a table on the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from onnx_symmem.report.text.layout import Unit, heading, indented, percent, quiet, shape_text, sized_table

__all__ = ["show_batch"]


def show_batch(console: Console, document: Mapping[str, Any]) -> None:
    """A row per model of a batch's JSON form: peaks at a shape from the middle of its domain."""
    rows: Sequence[Mapping[str, Any]] = document["models"]
    heading(console, "Models", f"{len(rows)}, to {document['folder']}")
    table = sized_table(
        ("model", "short"), ("at", "name"), ("before", "number"), ("after", "number"), ("", "number"),
        ("never worse", "short"), ("", "short"),
    )  # fmt: skip
    for row in rows:
        figures, name = row["figures"], Path(row["model"]).name
        state = "as before" if row["kept"] else "" if row["code"] == 0 else f"code {row['code']}"
        if figures is None:
            table.add_row(name, "", "", "", "", "", Text(state, style="bold"))
            continue
        at = _middle(figures["peak"]["before"]["at"])
        before = None if at is None else figures["peak"]["before"]["at"][at]["bytes"]
        after = None if at is None else figures["peak"]["after"]["at"][at]["bytes"]
        unit = Unit.of([before])
        shape = "" if at is None else shape_text(figures["peak"]["before"]["at"][at]["shape"])
        change = "-" if before is None or after is None else percent(after, before)
        table.add_row(
            name, shape, unit.named(before), unit.named(after), change, figures["never_worse"], state
        )
    indented(console, table)
    failed = [row for row in rows if row["code"]]
    for row in failed:
        indented(console, quiet(f"{row['model']}: {row['message']}"))


def _middle(at: Sequence[Mapping[str, Any]]) -> int | None:
    known = [k for k, entry in enumerate(at) if entry["bytes"] is not None]
    return known[min(1, len(known) - 1)] if known else None
