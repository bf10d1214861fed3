"""What a part of the benchmark found, as tables: CSV files to compute with, a Markdown page to read.

`docs/results/NAME.md` is written by the part NAME alone; `docs/results/README.md` gathers the first table of
every page, what was asked for and what was found.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Cell", "Finding", "Page", "Picture", "Table", "geometric_mean", "write_page"]

Cell = str | int | float | None

_IN_SHORT = "## In short"
_INDEX = (
    "Every page is written by a command, which it names. Planned models beside ONNX Runtime as shipped, and "
    "predicted beside measured bytes: [RESULTS.md](../RESULTS.md)."
)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under titles; `name` is that of its CSV file, `text` says what the numbers are."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    text: str = ""
    digits: int = 3

    def write_csv(self, path: Path) -> None:
        """All rows, numbers in full."""
        with path.open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(self.columns)
            writer.writerows(self.rows)

    def markdown(self) -> list[str]:
        """Lines of the page."""
        number = [any(isinstance(row[k], int | float) for row in self.rows) for k in range(len(self.columns))]
        rules = ["---:" if right else "---" for right in number]
        lines = [_line(self.columns), _line(rules)]
        lines += [_line([self._text(cell) for cell in row]) for row in self.rows]
        head = [f"## {self.title}", ""] + ([" ".join(self.text.split()), ""] if self.text else [])
        return head + lines

    def _text(self, cell: Cell) -> str:
        if cell is None:
            return "-"
        if isinstance(cell, float):
            return f"{cell:,.{self.digits}f}" if math.isfinite(cell) else "-"
        return f"{cell:,}" if isinstance(cell, int) else cell


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was asked for: what was found, the target, and whether it is met (None: no target)."""

    what: str
    found: str
    target: str = ""
    met: bool | None = None


@dataclass(frozen=True, slots=True)
class Picture:
    """An SVG file beside the page, shown in it under a title."""

    name: str
    title: str
    svg: str

    def markdown(self) -> list[str]:
        """Lines of the page."""
        return [f"## {self.title}", "", f"![{self.title}]({self.name}.svg)"]


@dataclass(frozen=True, slots=True)
class Page:
    """What one part found. `wrong` are lines about what must not happen; the command then exits with 1."""

    name: str
    title: str
    text: str
    findings: tuple[Finding, ...]
    tables: tuple[Table, ...]
    notes: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    pictures: tuple[Picture, ...] = ()

    def markdown(self, made: Mapping[str, str]) -> str:
        """The page."""
        parts = [
            [f"# {self.title}", "", " ".join(self.text.split())],
            [
                f"- **command**: `{made['command']}`",
                f"- **date**: {made['date']}; it took {made['took']}",
                f"- **hardware**: {made['hardware']}",
                f"- **versions**: {made['versions']}",
            ],
            self.in_short(),
            *(picture.markdown() for picture in self.pictures),
            *(table.markdown() for table in self.tables),
        ]
        notes = [*(f"- **wrong**: {line}" for line in self.wrong), *(f"- {line}" for line in self.notes)]
        if notes:
            parts.append(["## Notes", "", *notes])
        return "\n\n".join("\n".join(part) for part in parts) + "\n"

    def in_short(self) -> list[str]:
        """The findings as a table."""
        lines = [_IN_SHORT, "", _line(("what", "found", "target", "met")), _line(["---"] * 4)]
        words = {True: "yes", False: "no", None: ""}
        return lines + [_line((f.what, f.found, f.target, words[f.met])) for f in self.findings]


def geometric_mean(numbers: Iterable[float]) -> float:
    """Of positive numbers; not a number of none."""
    logs = [math.log(n) for n in numbers]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def write_page(page: Page, made: Mapping[str, str], tables: Path, docs: Path | None) -> list[Path]:
    """Write the tables as CSV and, given the folder `docs`, the page and the list of all pages there."""
    tables.mkdir(parents=True, exist_ok=True)
    written = []
    for table in page.tables:
        written.append(tables / f"{table.name}.csv")
        table.write_csv(written[-1])
    if docs is not None:
        docs.mkdir(parents=True, exist_ok=True)
        written.append(docs / f"{page.name}.md")
        written[-1].write_text(page.markdown(made))
        for picture in page.pictures:
            written.append(docs / f"{picture.name}.svg")
            written[-1].write_text(picture.svg)
        _write_index(docs)
    return written


def _write_index(docs: Path) -> None:
    """The list of all pages that are there, each with its findings."""
    lines = [
        "# All results",
        "",
        _INDEX,
    ]
    for path in sorted(docs.glob("*.md")):
        if path.name != "README.md":
            text = path.read_text()
            title = text.partition("\n")[0].removeprefix("# ")
            short = text.partition(_IN_SHORT)[2].partition("\n## ")[0].strip()
            made = [line for line in text.splitlines() if line.startswith(("- **command**", "- **date**"))]
            lines += ["", f"## [{title}]({path.name})", "", *made, "", short]
    (docs / "README.md").write_text("\n".join(lines) + "\n")


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
