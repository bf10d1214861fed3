"""A folder with small models, and the command run in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import onnx
import pytest
from onnx_symmem.cli.main import main

from tests.cli.small import free_model, odd_model, plain_model


@dataclass(frozen=True)
class Outcome:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


Command = Callable[..., Outcome]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An own working folder with plain.onnx, odd.onnx and free.onnx; reports are 80 columns wide."""
    onnx.save(plain_model(), tmp_path / "plain.onnx")
    onnx.save(odd_model(), tmp_path / "odd.onnx")
    onnx.save(free_model(), tmp_path / "free.onnx")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


@pytest.fixture
def command(folder: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run `onnx-symmem` with the given arguments in the folder."""

    def run(*argv: str) -> Outcome:
        capsys.readouterr()
        code = main(argv)
        out, err = capsys.readouterr()
        return Outcome(code, out, err)

    return run
