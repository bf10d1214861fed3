"""Files as parameters: a path of a model completes to .onnx files and to folders that hold some.

A folder that is the only answer is opened, as far as there is a choice: shells put a space behind an answer
that is the only one, and the file is what was wanted.

`-` is no file here: a model may refer to others beside it, read or written.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

__all__ = ["ModelPath", "OutPath"]

_SUFFIX = ".onnx"


class OutPath(click.Path):
    """A path to write to; whether that can be done is for the writer to say."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path; wrong usage where it says stdin or stdout."""
        if value == "-":
            self.fail("'-' is no file: data may lie beside a model; expected a name, such as model.onnx")
        return super().convert(value, param, ctx)


class ModelPath(OutPath):
    """A path; whether there is a model is for the loader to say."""

    name = "model"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Files and folders that begin with what was typed, as it was typed."""
        return [CompletionItem(text) for text in _answers(incomplete)]


def _answers(typed: str) -> list[str]:
    found = list(_begun_with(typed))
    while len(found) == 1 and found[0].endswith("/"):
        found = list(_begun_with(found[0]))
    return found


def _begun_with(typed: str) -> Iterator[str]:
    head, slash, begun = typed.rpartition("/")
    shown = head + slash
    for path in _listed(Path(shown or ".").expanduser()):
        # Hidden files only where their dot was typed, as shells do.
        if not path.name.startswith(begun) or path.name.startswith(".") != begun.startswith("."):
            continue
        if path.suffix == _SUFFIX and path.is_file():
            yield shown + path.name
        elif path.is_dir() and any(p.suffix == _SUFFIX or p.is_dir() for p in _listed(path)):
            yield f"{shown}{path.name}/"


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:  # no such folder, or not ours to read: nothing to complete
        return []
