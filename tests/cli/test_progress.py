"""Progress: on stderr only, live on a terminal only, silent unless asked for."""

from __future__ import annotations

import io
import sys

import pytest
from onnx_symmem.cli.flags import Flags
from onnx_symmem.cli.progress import Progress, progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def work(tell: Progress) -> None:
    tell.stage("reading the model")
    tell.stage("searching [orders]", total=3)
    tell.advance()
    tell.advance(2)
    tell.update(3, total=3)


def test_a_pipe_stays_silent(capsys: pytest.CaptureFixture[str]) -> None:
    with progress() as tell:
        work(tell)
    assert capsys.readouterr() == ("", "")


def test_verbose_gives_one_line_per_stage(capsys: pytest.CaptureFixture[str]) -> None:
    with progress(Flags(verbose=True)) as tell:
        work(tell)
    assert capsys.readouterr() == (
        "",
        "onnx-symmem: reading the model\nonnx-symmem: searching [orders] (3 steps)\n",
    )


def test_a_terminal_gets_a_live_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setenv("TERM", "xterm")
    with progress() as tell:
        work(tell)
    assert "searching [orders]" in terminal.getvalue()
    assert "3/3" in terminal.getvalue()
    assert capsys.readouterr().out == ""


def test_a_live_line_is_taken_down_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setenv("TERM", "xterm")
    with pytest.raises(ValueError, match="broke"), progress() as tell:
        tell.stage("searching")
        raise ValueError("broke")
    assert terminal.getvalue().endswith("\x1b[?25h\r\x1b[1A\x1b[2K")


def test_a_dumb_terminal_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setenv("TERM", "dumb")
    with progress() as tell:
        work(tell)
    assert terminal.getvalue() == ""
