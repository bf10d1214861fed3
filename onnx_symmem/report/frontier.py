"""The answers of `fit` over two dims as a PNG: per size of the second dim the largest of the first that fits.

Both axes are logarithmic. The points are exact; lines join them. What is below a line fits, what is above
does not. A size at which nothing fits has a cross on the ground, one at which everything does an arrow at the
top.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath

from onnx_symmem.errors import UsageError
from onnx_symmem.graph.save import check_target
from onnx_symmem.memory.capacity import Capacity
from onnx_symmem.report.canvas import DIM, INK, LINE, PAPER, SCALE, Canvas, check_pillow
from onnx_symmem.report.capacity import Fit
from onnx_symmem.report.files import write_whole
from onnx_symmem.report.text.layout import shape_text

__all__ = ["check_frontier_target", "frontier_picture", "write_frontier"]

_WIDTH, _HEIGHT = 1080, 640
_LEFT, _RIGHT, _TOP, _BOTTOM = 84, 40, 116, 64
# Line and area of each model; told apart by lightness and by the form of their points, too.
_COLOURS = (("#1f5f99", "#dcebf7"), ("#c9761a", "#f8ead6"))
_GAP = 18  # units that a label needs


def check_frontier_target(out: Path, solve: Sequence[str]) -> None:
    """Raise UsageError where no frontier can be written to `out`, before any work is done."""
    if out.suffix.lower() != ".png":
        raise UsageError(f"{out}: the frontier is a picture: expected a name that ends in .png")
    if len(solve) != 2:
        raise UsageError(f"{out}: a frontier is over two dims: solve for two, as in --solve batch,seq")
    check_target(out, "frontier.png")
    check_pillow(out)


def write_frontier(out: Path, fit: Fit) -> None:
    """Write the picture, all or nothing."""
    check_frontier_target(out, fit.solve)
    write_whole(out, frontier_picture(fit))


def frontier_picture(fit: Fit) -> bytes:
    """The picture as a PNG file; `fit` is over two dims."""
    from PIL import Image, ImageDraw

    image = Image.new("RGB", (_WIDTH * SCALE, _HEIGHT * SCALE), PAPER)
    _Chart(ImageDraw.Draw(image), fit).paint()
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return file.getvalue()


class _Chart(Canvas):
    """Axes, and a line with points per model."""

    def __init__(self, draw: object, fit: Fit) -> None:
        super().__init__(draw)  # type: ignore[arg-type]
        self.fit = fit
        first, second = fit.solve
        self.over = [row.fixed[second] for row in fit.rows]
        sizes = [c.size for row in fit.rows for c in row.found if c.size is not None and not c.unlimited]
        self.xs = max(min(self.over, default=1), 1), max(*self.over, 2)
        self.ys = max(min(sizes, default=1), 1), max(*sizes, 2) if sizes else 2
        self.first, self.second = first, second

    def x(self, size: int) -> float:
        return _LEFT + _part(size, self.xs) * (_WIDTH - _LEFT - _RIGHT)

    def y(self, size: int) -> float:
        ground = _HEIGHT - _BOTTOM - 24
        return ground - _part(size, self.ys) * (ground - _TOP - 16)

    def paint(self) -> None:
        fit, ground, right = self.fit, _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
        self.text(
            24, 26, f"What fits into {_budget(fit.budget)}: largest {self.first} over {self.second}", 20
        )
        fixed = {k: v for k, v in fit.rows[0].fixed.items() if k != self.second} if fit.rows else {}
        said = [f"at {shape_text(fixed)}"] if fixed else []
        counts = "activations and outputs" if "activations" in fit.counts else ""
        said.append("counted: " + ", ".join(filter(None, [counts, *fit.counts[bool(counts) :]])))
        said += [f"{fit.reserve:,} bytes kept free"] if fit.reserve else []
        said.append("exact at the points" if set(fit.labels) == {"exact"} else "bounds, at the points")
        self.text(24, 54, "; ".join(said), 13, DIM)
        at = 24.0
        for number, name in enumerate(fit.models):
            self.point(at + 6, 82, number)
            at += 20 + self.text(at + 18, 82, PurePath(name).name, 13, DIM) + 24
        self.areas(ground)
        for size in _ticks(*self.ys):
            self.line(_LEFT, self.y(size), right, self.y(size), LINE)
            self.text(_LEFT - 8, self.y(size), f"{size:,}", 11, DIM, "rm")
        self.line(_LEFT, ground, right, ground, DIM)
        last = -math.inf
        for size in self.over:
            if self.x(size) - last >= _GAP * 2:
                last = self.x(size)
                self.line(last, ground, last, ground + 4, DIM)
                self.text(last, ground + 14, f"{size:,}", 11, DIM, "mm")
        self.text(right, ground + 36, self.second, 13, anchor="rm")
        self.text(24, _TOP - 6, self.first, 13)
        for number in range(len(fit.models)):
            self.curve(number, ground)

    def found(self, number: int) -> Iterator[tuple[int, Capacity]]:
        for size, row in zip(self.over, self.fit.rows, strict=True):
            yield size, row.found[number]

    def areas(self, ground: float) -> None:
        """What fits, the largest areas first so that all are seen."""
        shapes = []
        for number in range(len(self.fit.models)):
            top = [
                (self.x(o), _TOP if c.unlimited else self.y(c.size))
                for o, c in self.found(number)
                if c.size is not None
            ]
            if len(top) > 1:
                shapes.append((sum(y for _, y in top), number, top))
        for _, number, top in sorted(shapes):
            self.area([(top[0][0], ground), *top, (top[-1][0], ground)], _COLOURS[number % 2][1])

    def curve(self, number: int, ground: float) -> None:
        """One model: points with their sizes, joined; crosses where nothing fits."""
        colour = _COLOURS[number % 2][0]
        before: tuple[float, float] | None = None
        said = -math.inf
        for over, c in self.found(number):
            x = self.x(over)
            if c.size is None:
                for way in (-4, 4):
                    self.line(x - 4, ground - 10 - way, x + 4, ground - 10 + way, colour, 2)
                before = None
                continue
            y = float(_TOP) if c.unlimited else self.y(c.size)
            if before is not None:
                self.line(*before, x, y, colour, 2)
            before = x, y
        for over, c in self.found(number):
            if c.size is None:
                continue
            x = self.x(over)
            if c.unlimited:
                self.area([(x, _TOP - 8), (x - 6, _TOP + 2), (x + 6, _TOP + 2)], colour)
                continue
            self.point(x, self.y(c.size), number)
            text = f"{c.size:,}"
            if x - said >= 8 + 7 * len(text):
                said = x
                if number % 2 == 0:
                    self.text(x + 7, self.y(c.size) - 11, text, 11)
                elif x > _LEFT + 40:
                    self.text(x - 8, self.y(c.size) + 11, text, 11, INK, "rm")
                else:
                    self.text(x + 8, self.y(c.size) + 18, text, 11)

    def point(self, x: float, y: float, number: int) -> None:
        """A square for the first model, a diamond for the second."""
        colour = _COLOURS[number % 2][0]
        if number % 2:
            self.area([(x, y - 6), (x + 6, y), (x, y + 6), (x - 6, y)], colour)
        else:
            self.box(x - 4, y - 4, x + 4, y + 4, colour)


def _part(size: int, span: tuple[int, int]) -> float:
    """Where a size lies in a span, from 0 to 1, on a logarithmic scale."""
    low, high = math.log2(span[0]), math.log2(max(span[1], span[0] + 1))
    return min(max((math.log2(max(size, 1)) - low) / (high - low), 0.0), 1.0)


def _ticks(least: int, most: int) -> list[int]:
    """Round sizes for the lines of a logarithmic axis, at most nine."""
    for steps in ((1, 2, 5), (1, 3), (1,)):
        powers = range(len(str(most)) + 1)
        found = [k * 10**p for p in powers for k in steps if least <= k * 10**p <= most]
        if len(found) <= 9:
            break
    return found or [least]


def _budget(size: int) -> str:
    """A budget as a person writes it: in the largest unit of which it is at least one."""
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if size >= 1 << 10 * power:
            return f"{size / (1 << 10 * power):,.4g} {unit}"
    return f"{size:,} bytes"
