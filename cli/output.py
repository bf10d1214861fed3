"""How a verb answers: one JSON document, or a report for people, on stdout; notices on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

import click
from onnx_symmem.cli.flags import given_flags

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["answer", "notify"]


class _Figures(Protocol):
    def to_json(self) -> dict[str, Any]: ...


def answer(figures: _Figures, as_json: bool, show: Callable[[Console], None]) -> None:
    """Print the figures as JSON, or let `show` print them on the console."""
    if as_json:
        plain = "utf" not in (sys.stdout.encoding or "utf-8").lower()
        click.echo(json.dumps(figures.to_json(), indent=2, ensure_ascii=plain, allow_nan=False))
        return
    from onnx_symmem.report.text.layout import console_for

    show(console_for())


def notify(notices: Iterable[str]) -> None:
    """Say what the user should know, one line each, on stderr; nothing with --quiet."""
    if given_flags().quiet:
        return
    for notice in notices:
        click.echo(f"onnx-symmem: note: {' '.join(notice.split())}", err=True)
