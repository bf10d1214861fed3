"""A memory report as a PNG: bytes in use over the run, before and after on one scale, and peaks at shapes.

Drawn with Pillow (extra `png`), which is imported when a picture is asked for.
"""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from onnx_symmem.errors import DomainError
from onnx_symmem.report.analysis import Analysis
from onnx_symmem.report.canvas import DIM, INK, LINE, PAPER, SCALE, Canvas
from onnx_symmem.report.growth import same_shape
from onnx_symmem.report.memory import MemoryReport
from onnx_symmem.report.text.findings import at_text
from onnx_symmem.report.text.layout import Unit

__all__ = ["picture"]

_WIDTH, _LEFT, _RIGHT = 1080, 84, 24
_PANEL, _BAR = 220, 15  # heights: of one run, of one bar
# Told apart by lightness too: the picture may be printed grey.
_SCOPES = (
    ("weights", "#c3c9d0"),
    ("inputs", "#a9d7ef"),
    ("outputs", "#f0a92b"),
    ("activations", "#2f7bbd"),
)
_BEFORE, _AFTER = "#9aa4ae", "#2f7bbd"


def picture(report: MemoryReport, analysis: Analysis, other: Analysis | None = None) -> bytes:
    """The picture as a PNG file."""
    from PIL import Image, ImageDraw

    runs = _runs(report, analysis, other)
    peaks = _peaks(report)
    per = _BAR * (1 if other is None else 2) + 12
    height = 92 + (_PANEL + 58) * len(runs) + (64 + per * len(peaks) if peaks else 0) + 20
    image = Image.new("RGB", (_WIDTH * SCALE, height * SCALE), PAPER)
    canvas = _Canvas(ImageDraw.Draw(image))
    name = PurePath(report.model).name
    canvas.text(_LEFT - 60, 22, f"Memory of {name}", 22)
    if report.moments:
        at = at_text(report.findings, report.moments[report.shown].shape)
        canvas.text(_LEFT - 60, 52, f"In use over the run at {at}; one scale", 13, DIM)
    else:
        canvas.text(_LEFT - 60, 52, "no bytes: sizes depend on data that nothing limits", 13, DIM)
    canvas.legend(_LEFT - 60, 76)
    top = 104
    unit = Unit.of([run.top for run in runs])
    most = max((run.top for run in runs), default=0)
    for run in runs:
        canvas.run(run, top, most, unit)
        top += _PANEL + 58
    if peaks:
        canvas.peaks(peaks, top, other is not None)
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return file.getvalue()


@dataclass(frozen=True, slots=True)
class _Run:
    """One run: bytes per row of the scopes, from the bottom of the stack up."""

    title: str
    weights: int
    inputs: int
    outputs: tuple[int, ...]
    in_use: tuple[int, ...]
    steps: int

    @property
    def top(self) -> int:
        return self.weights + self.inputs + max(self.in_use, default=0)


@dataclass(frozen=True, slots=True)
class _Peak:
    shape: str
    before: int | None
    after: int


def _runs(report: MemoryReport, analysis: Analysis, other: Analysis | None) -> list[_Run]:
    if not report.moments:
        return []
    shape = report.moments[report.shown].shape
    runs = []
    if other is not None:
        # Where the other model does not take this shape, its run is left out.
        with contextlib.suppress(DomainError):
            runs.append(_run(other, same_shape(other, shape), "before: "))
    return [*runs, _run(analysis, shape, "after: " if runs else "")]


def _run(analysis: Analysis, shape: Any, which: str) -> _Run:
    found, rows = analysis.profile, list(analysis.rows_at(shape))
    return _Run(
        which + PurePath(analysis.model.label).name,
        found.weights.evaluate(shape),
        found.inputs.evaluate(shape),
        tuple(int(v) for v in found.outputs.evaluate([shape])[rows, 0]),
        tuple(int(v) for v in found.in_use.evaluate([shape])[rows, 0]),
        len(found.plan.order) if analysis.branches is None else len(rows),
    )


def _peaks(report: MemoryReport) -> list[_Peak]:
    before = [] if report.against is None else [s.before for s in report.against.shapes]
    return [
        _Peak(at_text(report.findings, m.shape), before[k] if k < len(before) else None, m.peak)
        for k, m in enumerate(report.moments)
    ]


def _ticks(most: int, unit: Unit) -> list[int]:
    """Sizes for the lines of a chart, in round numbers of the unit."""
    raw = max(most / unit.size / 4, 1e-9)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(s * power for s in (1, 2, 2.5, 5, 10) if s * power >= raw * 0.999)
    return [round(k * step * unit.size) for k in range(int(most / unit.size / step * 1.0001) + 1)]


class _Canvas(Canvas):
    """A canvas for runs and peaks."""

    def legend(self, x: float, y: float) -> None:
        """The scopes with their colours, in the order of the stack."""
        for name, fill in reversed(_SCOPES):
            self.box(x, y - 6, x + 12, y + 6, fill)
            x += 18 + self.text(x + 18, y, name, 12, DIM) + 22

    def run(self, run: _Run, top: float, most: int, unit: Unit) -> None:
        """One run as a stack of areas over its rows."""
        ground, right = top + 22 + _PANEL, _WIDTH - _RIGHT
        self.text(_LEFT, top + 8, run.title, 14)

        def y(size: int) -> float:
            return ground - size / max(most, 1) * (_PANEL - 14)

        for size in _ticks(most, unit):
            self.line(_LEFT, y(size), right, y(size), LINE)
            self.text(_LEFT - 8, y(size), f"{size / unit.size:,.4g}", 11, DIM, "rm")
        self.text(_LEFT - 8, top + 8, unit.name, 11, DIM, "rm")
        pixels = (right - _LEFT) * SCALE
        rows = len(run.in_use)
        base = run.weights + run.inputs
        for pixel in range(pixels if rows else 0):
            first = pixel * rows // pixels
            last = max((pixel + 1) * rows // pixels, first + 1)
            row = max(range(first, last), key=run.in_use.__getitem__)
            stack = (run.weights, base, base + run.outputs[row], base + run.in_use[row])
            x, low = _LEFT + pixel / SCALE, 0
            for (_, fill), high in zip(_SCOPES, stack, strict=True):
                self.box(x, y(high), x + 1 / SCALE, y(low), fill)
                low = high
        self.line(_LEFT, ground, right, ground, DIM)
        if rows:
            at = max(range(rows), key=run.in_use.__getitem__)
            x = _LEFT + (at + 0.5) / rows * (right - _LEFT)
            tip = y(run.top) - 3
            self.area([(x, tip), (x - 5, tip - 8), (x + 5, tip - 8)], INK)
            words = f"peak {unit.named(run.in_use[at])}, with inputs and weights {unit.show(run.top)}"
            self.text(right, top + 8, words, 12, anchor="rm")
        self.text(_LEFT, ground + 14, "1", 11, DIM)
        self.text(right, ground + 14, f"step {run.steps:,}", 11, DIM, "rm")

    def peaks(self, peaks: Sequence[_Peak], top: float, compared: bool) -> None:
        """One bar per shape, or two: before and after."""
        self.text(_LEFT - 60, top + 6, "Peak at shapes, outputs and activations", 16)
        sizes = [size for peak in peaks for size in (peak.before, peak.after) if size is not None]
        unit, most = Unit.of(sizes), max(*sizes, 1)
        left, right = _LEFT + 250, _WIDTH - _RIGHT - 110
        if compared:
            for x, fill, name in ((left, _BEFORE, "before"), (left + 90, _AFTER, "after")):
                self.box(x, top + 22, x + 12, top + 34, fill)
                self.text(x + 18, top + 28, name, 12, DIM)
        y = top + 44
        for peak in peaks:
            bars = [(peak.before, _BEFORE), (peak.after, _AFTER)] if compared else [(peak.after, _AFTER)]
            self.text(left - 12, y + _BAR * len(bars) / 2, peak.shape, 12, INK, "rm")
            for size, fill in bars:
                if size is not None:
                    end = left + max(size / most * (right - left), 1)
                    self.box(left, y + 1, end, y + _BAR - 1, fill)
                    self.text(end + 8, y + _BAR / 2, unit.named(size), 12, DIM)
                y += _BAR
            y += 12
