"""What all terminal reports have in common: the console, units, tables, wrapped formulas, the timeline.

Bytes are shown in one unit per table, so that columns can be compared by eye; the JSON form has them exact.
"""

from __future__ import annotations

import os
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from onnx_symmem.expr.shape_text import shape_text as typed_shape

__all__ = [
    "BAD",
    "GOOD",
    "QUIET",
    "Unit",
    "console_for",
    "facts",
    "formula_lines",
    "formulas",
    "heading",
    "indented",
    "labelled",
    "list_lines",
    "percent",
    "quiet",
    "shape_text",
    "sized_table",
    "timeline_lines",
]

HEADING, QUIET, GOOD, BAD = "bold", "dim", "green", "red"
_PIPED_WIDTH = 120  # columns where no terminal says how many
# Control characters, without the ends of lines.
_STEERING = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")
_BLOCKS = " ▁▂▃▄▅▆▇█"
_ROWS = 6  # height of the timeline in lines
_FOLDED = 8  # columns that a text needs which can be folded
_GLUE = "\u00a0"


def console_for(file: TextIO | None = None) -> Console:
    """A console on stdout that shows texts as they are; colour on terminals only."""
    file = file or sys.stdout
    piped = not file.isatty() and "COLUMNS" not in os.environ
    width = _PIPED_WIDTH if piped else None
    return _Console(file=file, width=width, markup=False, highlight=False, emoji=False)


class _Console(Console):
    """Shows characters that would steer the terminal as `?`: names of a model are anybody's text."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(_STEERING.sub("?", text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control or not _STEERING.search(segment.text):
                yield segment
            else:
                yield Segment(_STEERING.sub("?", segment.text), segment.style)


# ------------------------------------------------------------------------------------------------ numbers


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit for all byte numbers of one table: MiB, or smaller where even the largest number is small."""

    name: str
    size: int

    @staticmethod
    def of(numbers: Iterable[int | None]) -> Unit:
        """The unit that suits the largest of the numbers."""
        largest = max((abs(n) for n in numbers if n is not None), default=0)
        if largest >= 1 << 19:
            return Unit("MiB", 1 << 20)
        return Unit("KiB", 1 << 10) if largest >= 10_000 else Unit("bytes", 1)

    def show(self, number: int | None) -> str:
        """A number of bytes without the unit's name."""
        if number is None:
            return "-"
        if self.size == 1:
            return f"{number:,}"
        text = f"{number / self.size:,.2f}"
        return "<0.01" if number > 0 and text == "0.00" else text

    def named(self, number: int | None) -> str:
        """A number of bytes with the unit's name."""
        return "-" if number is None else f"{self.show(number)} {self.name}"


def labelled(title: str, label: str) -> str:
    """A title with what its label says, where the numbers are not exact."""
    said = {"exact": "", "bound": " (upper bound)"}.get(label, " (of what can be counted)")
    return title + said


def one_label(title: str, labels: Sequence[str]) -> tuple[str, bool]:
    """The title with what all labels say, if that is one thing; else each number has to say it for itself."""
    same = len(set(labels)) == 1
    return labelled(title, labels[0]) if same else title, same


def percent(part: float, whole: float) -> str:
    """Change from `whole` to `part`, e.g. `-48.8 %`."""
    if not whole:
        return "-"
    change = round((part / whole - 1) * 100, 1)
    return f"{change:+.1f} %" if change else "0.0 %"


def shape_text(shape: Mapping[str, int]) -> str:
    """A shape as `--at` takes it, with spaces to break lines at."""
    return typed_shape(shape, ", ") or "(no symbolic dims)"


# ------------------------------------------------------------------------------------------------ pieces


def heading(console: Console, title: str, note: str = "") -> None:
    """A line that begins a part, after a blank line."""
    console.print()
    text = Text(title, style=HEADING)
    if note:
        text.append(f"  {note}", style="not bold dim")
    indented(console, text, 0)


def quiet(text: str) -> Text:
    """A remark."""
    return Text(text, style=QUIET, overflow="fold")


def facts(console: Console, rows: Iterable[tuple[str, str | Text]]) -> None:
    """Names and what is said of them, in two columns."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style=QUIET, no_wrap=True)
    grid.add_column(overflow="fold")
    for name, text in rows:
        grid.add_row(name, text)
    indented(console, grid)


def sized_table(*columns: tuple[str, str]) -> Table:
    """A plain table; columns are (title, kind): name (folds where it is too long), short, number."""
    table = _Sized(
        box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False, header_style="dim"
    )
    for title, kind in columns:
        if kind == "number":
            table.add_column(title, justify="right", no_wrap=True)
        elif kind == "short":
            table.add_column(title, no_wrap=True)
        else:
            table.add_column(title, overflow="fold")
    return table


class _Sized(Table):
    """A table whose numbers are never cut: where it is too narrow for them, a list per row stands instead."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        titles = [str(column.header) for column in self.columns]
        rows = list(zip(*([*column.cells] for column in self.columns), strict=True))
        if sum(self._needed(k, rows) + 1 for k in range(len(titles))) - 1 <= options.max_width:
            yield from super().__rich_console__(console, options)
            return
        for row in rows:
            head, *others = zip(titles, row, strict=True)
            yield Text.assemble(f"{head[0]} ".lstrip(), head[1], overflow="fold")
            grid = Table.grid(padding=(0, 2, 0, 0))
            grid.add_column(style=QUIET, no_wrap=True)
            grid.add_column(overflow="fold")
            for title, cell in others:
                grid.add_row(f"  {title}", cell)
            yield grid

    def _needed(self, column: int, rows: Sequence[tuple[Any, ...]]) -> int:
        """Columns of the terminal that a column needs: all of a number, a part of what may be folded."""
        found = max(cell_len(str(cell)) for cell in (self.columns[column].header, *(r[column] for r in rows)))
        return found if self.columns[column].no_wrap else min(found, _FOLDED)


def indented(console: Console, what: RenderableType, by: int = 2) -> None:
    """Print a table or a text some columns to the right; lines of a text that is too long stay there."""
    console.print(_Trimmed(what, by))


@dataclass(frozen=True, slots=True)
class _Trimmed:
    """Something moved to the right, without the spaces that would fill its lines up."""

    what: RenderableType
    by: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        inner = options.update(max_width=max(options.max_width - self.by, 1))
        for line in console.render_lines(self.what, inner, pad=False):
            while line and not line[-1].text.strip(" "):
                line.pop()
            if line:
                last = line.pop()
                yield Segment(" " * self.by)
                yield from line
                yield Segment(last.text.rstrip(" "), last.style)
            yield Segment.line()


def formula_lines(text: str, width: int, indent: int = 4) -> list[str]:
    """A formula in lines of at most `width`, broken between terms, inside one only where it is too long."""
    width = max(width, 24)
    parts = []
    for term in _terms(text):
        inner = term[:2] + term[2:].replace(" ", _GLUE)
        if len(term) > width - indent:
            inner = term.replace(" + ", f" +{_GLUE}").replace(" - ", f" -{_GLUE}")
        parts.append(inner.replace("+ ", f"+{_GLUE}", 1).replace("- ", f"-{_GLUE}", 1))
    lines = textwrap.wrap(
        " ".join(parts), width, subsequent_indent=" " * indent, break_long_words=True, break_on_hyphens=False
    )
    return [line.replace(_GLUE, " ") for line in lines]


def _terms(text: str) -> list[str]:
    """The terms of a sum, each with the sign before it."""
    depth, start, found = 0, 0, []
    for k, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if not depth and text[k : k + 3] in (" + ", " - "):
            found.append(text[start:k])
            start = k + 1
    return [*found, text[start:]]


def formulas(console: Console, members: Sequence[tuple[str, str]], most: int = 8, lines: int = 6) -> None:
    """The formulas of a maximum one below the other, each with a quiet remark; long ones are cut."""
    for text, remark in members[:most]:
        wrapped = formula_lines(text, console.width - 2)
        for line in wrapped[:lines]:
            console.print(f"  {line}")
        if len(wrapped) > lines:
            indented(console, quiet(f"... {len(wrapped) - lines} more lines; --json has all"), 6)
        if remark:
            indented(console, quiet(remark), 6)
    if len(members) > most:
        indented(console, quiet(f"... and {len(members) - most} more; --json has all"))


def list_lines(
    console: Console, title: str, items: Sequence[tuple[str, str]], most: int = 8, note: str = ""
) -> None:
    """A part with one item per line, (text, quiet remark), cut after `most`; nothing where there are none."""
    if not items:
        return
    heading(console, f"{title} ({len(items)})", note)
    for text, remark in items[:most]:
        line = Text(text, overflow="fold")
        if remark:
            line.append(f"  {remark}", style=QUIET)
        indented(console, line)
    if len(items) > most:
        indented(console, quiet(f"... and {len(items) - most} more; --json has all"))


# ------------------------------------------------------------------------------------------------ timeline


def timeline_lines(values: Sequence[int], unit: Unit, width: int, plain: bool = False) -> list[str]:
    """Bytes in use over the steps as bars, at most `width` wide; each bar is the most of its steps."""
    largest = max(values, default=0)
    if not largest:
        return []
    labels = [unit.show(largest), unit.show(largest // 2), "0"]
    margin = max(map(len, labels)) + 1
    columns = min(max(10, width - margin - 2), len(values))
    bars = [
        max(values[k * len(values) // columns : (k + 1) * len(values) // columns]) for k in range(columns)
    ]
    blocks = "  ..::||#" if plain else _BLOCKS
    full = len(_BLOCKS) - 1
    heights = [-(-bar * _ROWS * full // largest) for bar in bars]
    lines = []
    for row in range(_ROWS - 1, -1, -1):
        label = {_ROWS - 1: labels[0], _ROWS // 2 - 1: labels[1]}.get(row, "")
        cells = "".join(blocks[min(max(h - row * full, 0), full)] for h in heights)
        lines.append(f"{label:>{margin}} {'|' if plain else '┤'}{cells}".rstrip())
    last = str(len(values))
    lines.append(f"{'':>{margin}}  1{last:>{max(columns - 1, len(last) + 1)}}")
    return lines
