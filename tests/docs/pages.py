"""What the tests of the documentation read: its pages, and the code in them."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "ROOT",
    "Command",
    "Program",
    "anchors_of",
    "code_of",
    "links_of",
    "pages",
    "shown_code",
    "text_of",
]

ROOT = Path(__file__).resolve().parents[2]
_FENCE = re.compile(r"^```(?P<language>\w*)[^\n]*\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!\!)\[[^\]]*\]\((?P<target>[^)\s]+)\)|!\[[^\]]*\]\((?P<image>[^)\s]+)\)")


@dataclass(frozen=True)
class Command:
    """A line after `$`, and the lines that it is said to print; `…` stands for anything."""

    line: str
    printed: tuple[str, ...]


@dataclass(frozen=True)
class Program:
    """Python that a page shows."""

    code: str


def pages() -> list[Path]:
    """Every Markdown file that is kept."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    return [ROOT / name for name in sorted(listed) if not name.startswith("tests/golden/")]


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def code_of(page: Path) -> list[Command | Program]:
    """What is to be run, in order: blocks of `console` and of `python`."""
    found: list[Command | Program] = []
    for block in _FENCE.finditer(text_of(page)):
        if block["language"] == "python":
            found.append(Program(block["code"]))
        elif block["language"] == "console":
            for part in re.split(r"^\$ ", block["code"], flags=re.MULTILINE)[1:]:
                line, *printed = part.rstrip("\n").split("\n")
                found.append(Command(line, tuple(printed)))
    return found


def shown_code(page: Path) -> str:
    """All lines of code of a page: what is fenced, and what is indented."""
    text = text_of(page)
    fenced = [block["code"] for block in _FENCE.finditer(text)]
    return "\n".join([*fenced, *re.findall(r"^ {4}.*$", _FENCE.sub("", text), flags=re.MULTILINE)])


def links_of(page: Path) -> list[str]:
    """Targets of the links and pictures of a page, outside code."""
    prose = re.sub(r"`[^`\n]*`", "", _FENCE.sub("", text_of(page)))
    prose = re.sub(r"^(?: {4}|\t).*$", "", prose, flags=re.MULTILINE)
    return [m["target"] or m["image"] for m in _LINK.finditer(prose)]


def anchors_of(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and mkdocs both make them."""
    titles = re.findall(r"^#{1,6} (.+)$", _FENCE.sub("", text_of(page)), flags=re.MULTILINE)
    found: set[str] = set()
    for title in titles:
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).strip().lower()
        base = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        found.add(base)
    return found
