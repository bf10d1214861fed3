"""The pages that are to be followed: what is on them is run, in order, and prints what they show."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Command, Program, code_of

FOLLOWED = ("docs/tutorial.md", "docs/training.md")
# What is measured differs from machine to machine; what is planned does not.
MEASURING = ("run", "compare", "doctor")
DECIMAL = re.compile(r"[-+]?\d+\.\d+")


@pytest.mark.slow
@pytest.mark.parametrize("name", FOLLOWED)
def test_a_page_can_be_followed(name: str, tmp_path: Path) -> None:
    code, last = 0, ""
    for step in code_of(ROOT / name):
        if isinstance(step, Command) and step.line == "echo $?":
            assert step.printed == (str(code),), f"{last} ended with {code}"
            code = 0
            continue
        assert code == 0, f"{last} ended with {code}, and the page does not say so"
        done = run(step, tmp_path)
        code, last = done.returncode, step.code if isinstance(step, Program) else step.line
        if isinstance(step, Program):
            assert code == 0, done.stderr
            continue
        missing = first_missing(step.printed, done.stdout.splitlines(), measured=measures(step.line))
        assert missing is None, f"{last}: {missing!r} is not printed there, but\n{done.stdout}{done.stderr}"
    assert code == 0


def run(step: Command | Program, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a step as a reader would who has the environment activated."""
    environ = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "COLUMNS": "100",
    }
    argv = [sys.executable, "-c", step.code] if isinstance(step, Program) else ["bash", "-c", step.line]
    return subprocess.run(argv, cwd=folder, env=environ, capture_output=True, text=True, check=False)


def measures(line: str) -> bool:
    """Whether a command prints what it measures."""
    words = line.split()
    return words[0] == "onnx-symmem" and words[1] in MEASURING


def first_missing(shown: tuple[str, ...], printed: list[str], *, measured: bool) -> str | None:
    """The first line of a page that is not printed where it should be.

    A line `…` stands for any lines, `…` in a line for any words.
    """
    at, free = 0, False
    for line in shown:
        if line == "…":
            free = True
            continue
        rest = printed[at:] if free else printed[at : at + 1]
        found = next((k for k, real in enumerate(rest) if same(line.split(), real.split(), measured)), None)
        if found is None:
            return line
        at, free = at + found + 1, False
    return "(the end)" if shown and not free and any(printed[at:]) else None


def same(shown: list[str], printed: list[str], measured: bool) -> bool:
    """Whether words are the same; of what is measured any numbers do, but for a prediction and its outcome.

    These two, the first decimals of a line that begins with the number of a run or with a model, are exact.
    """
    if not shown or not printed:
        return not printed and all(word == "…" for word in shown)
    if shown[0] == "…":
        return any(same(shown[1:], printed[k:], measured) for k in range(len(printed) + 1))
    exact = 2 if measured and "shipped" not in " ".join(printed) else 0
    return same_word(shown[0], printed[0], measured and not exact) and _same_after(
        shown[1:], printed[1:], measured, exact
    )


def _same_after(shown: list[str], printed: list[str], measured: bool, exact: int) -> bool:
    if not shown or not printed or shown[0] == "…":
        return same(shown, printed, measured)
    loose = measured and exact == 0
    left = exact - bool(DECIMAL.fullmatch(shown[0])) if exact else 0
    return same_word(shown[0], printed[0], loose) and _same_after(shown[1:], printed[1:], measured, left)


def same_word(shown: str, printed: str, loose: bool) -> bool:
    return shown == printed or (loose and bool(DECIMAL.fullmatch(shown) and DECIMAL.fullmatch(printed)))


def test_what_is_not_printed_is_seen() -> None:
    printed = ["a.onnx", "  at  batch=1", "  1  17.78  17.78  23.75", "end"]
    assert first_missing(("a.onnx", "…"), printed, measured=False) is None
    assert first_missing(("…", "end"), printed, measured=False) is None
    assert first_missing(("a.onnx",), printed, measured=False) == "(the end)"
    assert first_missing(("…", "  1  17.78 …", "…"), printed, measured=False) is None
    assert first_missing(("…", "  1  17.78  17.78  99.75", "…"), printed, measured=True) is None
    assert first_missing(("…", "  1  17.78  17.78  99.75", "…"), printed, measured=False) is not None
    assert first_missing(("…", "  1  17.78  18.78  23.75", "…"), printed, measured=True) is not None
    assert first_missing(("…", "end", "a.onnx"), printed, measured=False) == "a.onnx"
    assert first_missing(("end",), printed, measured=False) == "end"
