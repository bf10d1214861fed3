"""What the check finds, one line per number, written as it is found: a part that dies loses nothing.

A part runs in a process of its own and says its rows on stdout, each on a line with a mark; everything else
it says goes to the log.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

__all__ = ["FAILED", "MIB", "Row", "Sheet", "mib", "row_in", "table", "words"]

MIB = 1 << 20
FAILED = "failed"
_MARK = "@row "
_WIDE = 70  # characters of a note on the terminal
_OFF, _VALUES = 6, 12  # rows, numbers shown


@dataclass(frozen=True, slots=True)
class Row:
    """One finding: in which part, of what, at which shape; `expected` where something predicts it."""

    part: str
    subject: str
    shape: str
    what: str
    value: str
    expected: str = ""
    unit: str = ""
    note: str = ""

    def line(self) -> str:
        """The row as a part says it."""
        return _MARK + json.dumps(asdict(self))


def row_in(line: str) -> Row | None:
    """The row in a line that a part said; None where it is none."""
    return Row(**json.loads(line.removeprefix(_MARK))) if line.startswith(_MARK) else None


class Sheet:
    """A CSV file that grows row by row."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[Row] = []
        self._file = path.open("w", newline="")
        self._writer = csv.writer(self._file, lineterminator="\n")
        self._write(list(Row.__dataclass_fields__))

    def add(self, row: Row) -> None:
        """Keep a row, in the file at once."""
        self.rows.append(row)
        self._write(list(asdict(row).values()))

    def _write(self, cells: list[str]) -> None:
        self._writer.writerow(cells)
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def table(rows: Sequence[Row]) -> Iterator[str]:
    """The rows in short: what came out as expected is counted, the rest is listed, at most a few each."""
    for part in dict.fromkeys(row.part for row in rows):
        yield f"-- {part}"
        here = [row for row in rows if row.part == part]
        for what in dict.fromkeys(row.what for row in here if row.expected):
            judged = [row for row in here if row.what == what and row.expected]
            off = [row for row in judged if row.value != row.expected]
            yield f"{what}: {len(judged) - len(off)} of {len(judged)} as expected"
            for row in off[:_OFF]:
                at = " ".join((row.subject, row.shape))
                yield f"    {at}: {row.value}, expected {row.expected} {row.unit}".rstrip() + _note(row)
        plain = [row for row in here if row.unit or not row.expected]
        for subject, what in dict.fromkeys((row.subject, row.what) for row in plain):
            same = [row for row in plain if (row.subject, row.what) == (subject, what)]
            values = ", ".join(row.value for row in same[:_VALUES]) + (", ..." if len(same) > _VALUES else "")
            yield f"{subject} {what}: {values} {same[0].unit}".strip() + _note(same[0])


def _note(row: Row) -> str:
    note = row.note if len(row.note) <= _WIDE else row.note[: _WIDE - 3] + "..."
    return f"  [{note}]" if note else ""


def mib(number: float | None) -> str:
    """Bytes as MiB; a dash for none."""
    return "-" if number is None else f"{number / MIB:.2f}"


def words(shape: Mapping[str, int]) -> str:
    """A shape in words."""
    return ",".join(f"{name}={size}" for name, size in shape.items())
