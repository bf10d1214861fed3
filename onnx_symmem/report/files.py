"""A report -> a file whose form its name tells: .html, .md, .json or .png; all or nothing."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from onnx_symmem.errors import UsageError
from onnx_symmem.graph.save import check_target
from onnx_symmem.report.analysis import Analysis
from onnx_symmem.report.memory import MemoryReport

__all__ = ["FORMS", "check_report_target", "write_report", "write_whole"]

Writer = Callable[[MemoryReport, Analysis, Analysis | None], bytes]


def _html(_report: MemoryReport, analysis: Analysis, other: Analysis | None) -> bytes:
    from onnx_symmem.report.html.page import render_page

    return render_page(analysis, other).encode()


def _markdown(report: MemoryReport, _analysis: Analysis, _other: Analysis | None) -> bytes:
    from onnx_symmem.report.markdown import markdown

    return markdown(report).encode()


def _json(report: MemoryReport, _analysis: Analysis, _other: Analysis | None) -> bytes:
    text = json.dumps(report.to_json(), indent=2, ensure_ascii=False, allow_nan=False)
    return (text + "\n").encode()


def _png(report: MemoryReport, analysis: Analysis, other: Analysis | None) -> bytes:
    from onnx_symmem.report.picture import picture

    return picture(report, analysis, other)


FORMS: dict[str, Writer] = {".html": _html, ".md": _markdown, ".json": _json, ".png": _png}
"""What makes the contents of a file, by the end of its name."""


def check_report_target(out: Path) -> None:
    """Raise UsageError where no report can be written to `out`, before any work is done."""
    if out.suffix.lower() not in FORMS:
        raise UsageError(f"{out}: expected a name that ends in {', '.join(FORMS)}")
    check_target(out, "report.html")
    if out.suffix.lower() == ".png":
        from onnx_symmem.report.canvas import check_pillow

        check_pillow(out)


def write_report(out: Path, report: MemoryReport, analysis: Analysis, other: Analysis | None = None) -> None:
    """Write a report beside its target and move it there."""
    check_report_target(out)
    contents = FORMS[out.suffix.lower()](report, analysis, other)
    write_whole(out, contents)


def write_whole(out: Path, contents: bytes) -> None:
    """Write a file beside its target and move it there."""
    if out.is_symlink():  # a link stays a link: what it points to is replaced
        out = out.resolve()
    try:
        handle, staged = tempfile.mkstemp(prefix=f".{out.name}.", suffix=".tmp", dir=out.parent)
    except OSError as error:
        raise UsageError(f"{out}: cannot be written ({error.strerror or error})") from None
    path = Path(staged)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(contents)
        mask = os.umask(0)
        os.umask(mask)
        path.chmod(0o666 & ~mask)  # what an ordinary file would have; temporary ones are private
        path.replace(out)
    except OSError as error:
        raise UsageError(f"{out}: cannot be written ({error.strerror or error})") from None
    finally:
        path.unlink(missing_ok=True)
