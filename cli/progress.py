"""Progress on stderr: a live line with the time left on a terminal, a line per stage with -v, none with -q.

    with progress() as tell:
        tell.stage("reading the model")
        tell.stage("searching orders", total=200)
        for order in orders:
            ...
            tell.advance()

Stdout is never touched, so results can be piped, and what goes to a pipe has no control characters.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import click
from onnx_symmem.cli.flags import Flags, given_flags

from onnx_symmem.run.stages import STEPS

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

__all__ = ["Progress", "progress", "ticker"]


class Progress(Protocol):
    """What a verb tells while it works."""

    def stage(self, name: str, total: int | None = None, done: int = 0) -> None:
        """Begin the named stage, and end the one before; total is its number of steps, when known.

        With steps `done` of the same total, the stage is a part of the work of the one before, under another
        name: the time left is that of both.
        """

    def advance(self, steps: int = 1) -> None:
        """So many steps of the present stage are done."""

    def update(self, done: int, total: int | None = None) -> None:
        """So many steps of the present stage are done, counted from its start."""


@contextmanager
def progress(flags: Flags | None = None) -> Iterator[Progress]:
    """Choose the form that fits stderr and the flags; clean up at the end, also after an error."""
    flags = flags or given_flags()
    if flags.quiet:
        yield _Silent()
    elif _is_terminal():
        from onnx_symmem.cli.live_line import live_line

        with live_line() as live:
            yield _Live(live, flags.verbose)
    elif flags.verbose:
        yield _Notices()
    else:
        yield _Silent()


def ticker(tell: Progress) -> Callable[[str, int, int], None]:
    """`tell` as the callback of the Python API: stage, steps done, steps in all (0: not known)."""
    stage: str | None = None

    def tick(name: str, done: int, total: int) -> None:
        nonlocal stage
        if name != stage:
            stage = name
            tell.stage(name, total or None, done)
        elif total:
            tell.update(done, total)

    return tick


def _is_terminal() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def _line(name: str, total: int | None) -> str:
    return f"onnx-symmem: {name}" + (f" ({total} steps)" if total not in (None, STEPS) else "")


class _Silent:
    def stage(self, name: str, total: int | None = None, done: int = 0) -> None:
        pass

    def advance(self, steps: int = 1) -> None:
        pass

    def update(self, done: int, total: int | None = None) -> None:
        pass


class _Notices(_Silent):
    def stage(self, name: str, total: int | None = None, done: int = 0) -> None:
        click.echo(_line(name, None if done else total), err=True)


class _Live:
    def __init__(self, live: RichProgress, verbose: bool) -> None:
        self._live, self._verbose = live, verbose
        self._total: int | None = None
        self._task = live.add_task("starting", total=None)

    def stage(self, name: str, total: int | None = None, done: int = 0) -> None:
        if self._verbose:
            self._live.console.print(_line(name, None if done else total), markup=False, highlight=False)
        if done and total == self._total:
            self._live.update(self._task, description=name, completed=done)
            return
        self._live.remove_task(self._task)
        self._total = total
        self._task = self._live.add_task(name, total=total, completed=done)

    def advance(self, steps: int = 1) -> None:
        self._live.advance(self._task, steps)

    def update(self, done: int, total: int | None = None) -> None:
        self._live.update(self._task, completed=done, total=total)
