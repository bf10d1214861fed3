"""How results were made: command, date, hardware, versions; and progress while they are made."""

from __future__ import annotations

import os
import platform
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TypeVar

__all__ = ["Progress", "duration", "how_made", "without_options"]

T = TypeVar("T")

_PACKAGES = ("onnx-symmem", "onnxruntime-gpu", "onnxruntime", "onnx", "numpy")


def how_made(arguments: Sequence[str], start: float) -> dict[str, str]:
    """What a page says of its making; `start` is the `time.perf_counter()` at which it began."""
    return {
        "command": "make bench" + (f' ARGS="{shlex.join(arguments)}"' if arguments else ""),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "took": duration(time.perf_counter() - start),
        "hardware": _hardware(),
        "versions": ", ".join(_versions()),
    }


def duration(seconds: float) -> str:
    """`5 s`, `12 min`."""
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


def without_options(arguments: Sequence[str], options: Sequence[str]) -> list[str]:
    """The arguments but for options, with their values, that only say where files are."""
    kept, skip = [], False
    for text in arguments:
        if skip:
            skip = False
        elif text in options:
            skip = True
        elif not text.startswith(tuple(f"{option}=" for option in options)):
            kept.append(text)
    return kept


def _hardware() -> str:
    name = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        lines = [
            line.partition(":")[2].strip() for line in info.read_text().splitlines() if "model name" in line
        ]
        name = lines[0] if lines else name
    memory = ""
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        memory = f", {os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GiB"
    return f"{name}, {os.cpu_count()} cores{memory}, {platform.system()} {platform.machine()}"


def _versions() -> list[str]:
    found = [f"Python {platform.python_version()}"]
    for name in _PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return found


class Progress:
    """Says on stderr what is being done, and how long the rest will take if it is like what was done."""

    def __init__(self, what: str) -> None:
        self.what, self.start = what, time.perf_counter()
        self.live = sys.stderr.isatty()

    def tell(self, text: str) -> None:
        """One line; on a terminal it replaces the one before."""
        line = f"{self.what}: {text}" if text else ""
        print(
            f"\r\033[K{line}" if self.live else line,
            end="" if self.live else "\n",
            file=sys.stderr,
            flush=True,
        )

    @contextmanager
    def attempt(self, name: str, wrong: list[str]) -> Iterator[None]:
        """What fails inside, a defect of the tool included, is a line of `wrong`, never the end of a part."""
        try:
            yield
        except Exception as error:
            wrong.append(f"{name}: {type(error).__name__}: {error}")

    def each(self, items: Mapping[str, T]) -> Iterator[tuple[str, T]]:
        """The items, by name, with a line before each."""
        for done, (name, item) in enumerate(items.items()):
            passed = time.perf_counter() - self.start
            rest = f", about {duration(passed / done * (len(items) - done))} left" if done else ""
            self.tell(f"{done + 1} of {len(items)}, {name}{rest}")
            yield name, item
        if self.live:
            self.tell("")
