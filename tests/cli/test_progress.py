"""Progress: on stderr only, live on a terminal only, silent unless asked for."""

from __future__ import annotations

import io
import sys

import pytest
from onnx_symmem.cli.flags import Flags
from onnx_symmem.cli.live_line import live_line
from onnx_symmem.cli.progress import Progress, progress, ticker


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


def test_quiet_is_silent_on_a_terminal_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setenv("TERM", "xterm")
    with progress(Flags(quiet=True)) as tell:
        work(tell)
    assert terminal.getvalue() == ""


def test_the_time_left_is_that_of_the_steps_to_come() -> None:
    live = live_line()
    now = [100.0]
    live.get_time = lambda: now[0]
    time = live.columns[-1]
    task = live.add_task("searching", total=8)
    assert str(time(live.tasks[0])) == "0/8"
    for done in (1, 2):
        now[0] += 200.0  # steps may be long
        live.update(task, completed=done)
    assert str(time(live.tasks[0])) == "2/8  6:40  20:00 left"
    now[0] += 7000
    assert str(time(live.tasks[0])).startswith("2/8  2:03:20  ")


def test_work_of_unknown_length_says_how_long_it_has_taken() -> None:
    live = live_line()
    now = [100.0]
    live.get_time = lambda: now[0]
    live.add_task("planning", total=None)
    assert str(live.columns[-1](live.tasks[0])) == ""
    now[0] += 5
    assert str(live.columns[-1](live.tasks[0])) == "0:05"


def test_parts_of_one_work_share_their_time() -> None:
    told: list[tuple[object, ...]] = []

    class Noted:
        def stage(self, *told_of: object) -> None:
            told.append(("stage", *told_of))

        def advance(self, steps: int = 1) -> None:
            raise AssertionError("a ticker counts from the start")

        def update(self, *told_of: object) -> None:
            told.append(("update", *told_of))

    tick = ticker(Noted())
    for step in (("loading", 0, 0), ("one", 0, 4), ("one", 1, 4), ("two", 2, 4), ("two", 3, 4)):
        tick(*step)
    assert told == [
        ("stage", "loading", None, 0),
        ("stage", "one", 4, 0),
        ("update", 1, 4),
        ("stage", "two", 4, 2),
        ("update", 3, 4),
    ]


def test_a_part_goes_on_with_the_same_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    with progress() as tell:
        live = tell._live  # type: ignore[attr-defined]
        tell.stage("one", 4)
        begun = live.tasks[0].id
        tell.update(1, 4)
        tell.stage("two", 4, 2)
        assert [(t.id, t.description, t.completed) for t in live.tasks] == [(begun, "two", 2)]
        tell.stage("three", 9)
        assert [(t.description, t.completed, t.total) for t in live.tasks] == [("three", 0, 9)]
        assert live.tasks[0].id != begun
