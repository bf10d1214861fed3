"""Progress on stderr: a live line on a terminal, plain notices with --verbose, else nothing.

    with progress(verbose=flags.verbose) as tell:
        tell.stage("reading the model")
        tell.stage("searching orders", total=200)
        for order in orders:
            ...
            tell.advance()

Stdout is never touched, so results can be piped.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import click

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

__all__ = ["Progress", "progress", "ticker"]


class Progress(Protocol):
    """What a verb tells while it works."""

    def stage(self, name: str, total: int | None = None) -> None:
        """Begin the named stage, and end the one before; total is its number of steps, when known."""

    def advance(self, steps: int = 1) -> None:
        """So many steps of the present stage are done."""

    def update(self, done: int, total: int | None = None) -> None:
        """So many steps of the present stage are done, counted from its start."""


@contextmanager
def progress(*, verbose: bool = False) -> Iterator[Progress]:
    """Choose the form that fits stderr, and clean up at the end, also after an error."""
    if _is_terminal():
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            SpinnerColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )
        from rich.progress import (
            Progress as RichProgress,
        )

        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        # Transient: what stays on the screen is the result.
        with RichProgress(*columns, console=Console(stderr=True), transient=True) as live:
            yield _Live(live)
    elif verbose:
        yield _Notices()
    else:
        yield _Silent()


def ticker(tell: Progress) -> Callable[[str, int, int], None]:
    """`tell` as the callback of the Python API: stage, steps done, steps in all (0: not known)."""
    stage = ""

    def tick(name: str, done: int, total: int) -> None:
        nonlocal stage
        if name != stage:
            stage = name
            tell.stage(name, total or None)
        elif total:
            tell.update(done, total)

    return tick


def _is_terminal() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


class _Silent:
    def stage(self, name: str, total: int | None = None) -> None:
        pass

    def advance(self, steps: int = 1) -> None:
        pass

    def update(self, done: int, total: int | None = None) -> None:
        pass


class _Notices(_Silent):
    def stage(self, name: str, total: int | None = None) -> None:
        steps = f" ({total} steps)" if total is not None else ""
        click.echo(f"onnx-symmem: {name}{steps}", err=True)


class _Live:
    def __init__(self, live: RichProgress) -> None:
        self._live = live
        self._task = live.add_task("starting", total=None)

    def stage(self, name: str, total: int | None = None) -> None:
        self._live.remove_task(self._task)
        self._task = self._live.add_task(name, total=total)

    def advance(self, steps: int = 1) -> None:
        self._live.advance(self._task, steps)

    def update(self, done: int, total: int | None = None) -> None:
        self._live.update(self._task, completed=done, total=total)
