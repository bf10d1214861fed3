"""The result of `shapes` on the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from onnx_symmem.report.inference import ShapeTable, TensorFigures
from onnx_symmem.report.text.findings import show_findings, symbols_text
from onnx_symmem.report.text.layout import QUIET, facts, heading, indented, list_lines, quiet, sized_table

__all__ = ["show_shapes"]

_WIDE = 110  # columns from which there is room for the bytes


def show_shapes(
    console: Console, figures: ShapeTable, relations: bool = False, weights: bool = False
) -> None:
    """The table of tensors, then what stayed unknown or had to be assumed."""
    console.print(Text(figures.model, style="bold"))
    hidden = 0 if weights else sum(t.kind == "weight" for t in figures.tensors)
    count = f"{len(figures.tensors) - hidden}" + (
        f", and {hidden} weight{'s' if hidden != 1 else ''} not shown" if hidden else ""
    )
    facts(
        console,
        [
            ("symbols", symbols_text(figures.findings)),
            ("nodes", str(figures.nodes)),
            ("tensors", count),
        ],
    )
    wide = console.width >= _WIDE
    place: str | None = None
    table = None
    for tensor in figures.tensors:
        if tensor.kind == "weight" and not weights:
            continue
        if table is None or tensor.graph != place:
            if table is not None:
                indented(console, table)
            place = tensor.graph
            heading(console, f"Tensors in {place}" if place else "Tensors")
            columns = [("tensor", "name"), ("made by", "name"), ("type", "short"), ("dims", "name")]
            table = sized_table(*columns, *([("bytes", "name")] if wide else []))
        cells: list[str | Text] = [tensor.name, _made_by(tensor), tensor.type, dims_text(tensor)]
        table.add_row(*cells, *([tensor.bytes or "-"] if wide else []))
    if table is not None:
        indented(console, table)
    show_findings(console, figures.findings, most=40)
    if relations:
        list_lines(console, "Relations", [(r.text, r.node) for r in figures.relations], most=1 << 30)
    elif figures.relations:
        console.print()
        many = len(figures.relations)
        count = f"{many} relations between dims were" if many > 1 else "1 relation between dims was"
        console.print(quiet(f"{count} found; --relations shows {'them' if many > 1 else 'it'}"))
    if figures.written:
        console.print()
        console.print(f"written: {figures.written}")


def _made_by(tensor: TensorFigures) -> Text:
    if tensor.kind in ("input", "weight"):
        return Text(tensor.kind, style=QUIET)
    text = Text(tensor.op)
    if tensor.kind == "output":
        text.append(" (output)", style=QUIET)
    return text


def dims_text(tensor: TensorFigures) -> str:
    """Dims as `[batch, 64]`, `[]` for a scalar, `?` where not even their number is known."""
    return "?" if tensor.dims is None else f"[{', '.join(map(str, tensor.dims))}]"
