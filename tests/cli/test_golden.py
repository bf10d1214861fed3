"""Commands with all they print: every file of tests/golden is a list of commands, each with its output.

A line that starts with `$ ` is a command; then come stdout, stderr with `! ` before each line, and `-> CODE`
where the exit code is not 0. Numbers that differ from run to run are masked. `SYMMEM_GOLDEN=write` writes the
files anew; look at the difference before committing it.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Command

GOLDEN = Path(__file__).parents[1] / "golden"
FILES = sorted(GOLDEN.glob("*.txt"))
# How long, and how proofs were found, may change without the answer changing.
MASKED = re.compile(r"^(  (?:time|comparisons|latency) +)\S.*$", re.MULTILINE)


def commands(text: str) -> Iterator[str]:
    """The commands of a golden file, and of comments between them."""
    return (line for line in text.splitlines() if line.startswith(("$ ", "# ")))


def shown(text: str) -> str:
    """Output as it is kept: masked."""
    return "\n".join(MASKED.sub(r"\1...", text).splitlines())


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_what_is_printed(file: Path, command: Command, folder: Path) -> None:
    expected = file.read_text()
    parts = []
    for line in commands(expected):
        if line.startswith("# "):
            parts.append(line)
            continue
        before = sorted(p.name for p in folder.iterdir())
        found = command(*shlex.split(line)[2:])
        parts.append(line)
        assert not [text for text in found.out.splitlines() if text != text.rstrip()], line
        if found.out:
            parts.append(shown(found.out))
        parts += [f"! {error}" for error in shown(found.err).splitlines()]
        if found.code:
            parts.append(f"-> {found.code}")
            assert sorted(p.name for p in folder.iterdir()) == before, line
        parts.append("")
    text = "\n".join(parts)
    if os.environ.get("SYMMEM_GOLDEN") == "write":
        file.write_text(text)
        return
    assert text == expected
