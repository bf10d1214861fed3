"""Drawing for the PNG pictures: text, boxes and lines in units of the layout, with Pillow (extra `png`).

Pillow is imported when a picture is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from onnx_symmem.errors import UsageError

if TYPE_CHECKING:
    from PIL import ImageDraw

__all__ = ["DIM", "INK", "LINE", "PAPER", "SCALE", "Canvas", "check_pillow"]

SCALE = 2
"""Pixels per unit: sharp on dense screens and in print."""
INK, DIM, LINE, PAPER = "#1a1e23", "#5a646e", "#dde2e7", "#ffffff"


def check_pillow(out: Path) -> None:
    """Raise UsageError where Pillow is not installed."""
    try:
        import PIL  # noqa: F401
    except ImportError:
        message = f"{out}: a PNG needs Pillow, which is not installed: pip install 'onnx-symmem[png]'"
        raise UsageError(message) from None


class Canvas:
    """Drawing in units of the layout; text is set in Pillow's own font, so that machines do not differ."""

    def __init__(self, draw: ImageDraw.ImageDraw) -> None:
        self.draw = draw

    def text(self, x: float, y: float, text: str, size: int, fill: str = INK, anchor: str = "lm") -> float:
        """Text at a point; its width."""
        from PIL import ImageFont

        font = ImageFont.load_default(size * SCALE)
        self.draw.text((x * SCALE, y * SCALE), text, fill=fill, font=font, anchor=anchor)
        return float(self.draw.textlength(text, font=font)) / SCALE

    def box(self, x: float, y: float, right: float, bottom: float, fill: str) -> None:
        """A filled rectangle; nothing where it is thinner than a pixel."""
        if (right - x) * SCALE >= 1 and (bottom - y) * SCALE >= 1:
            corners = [round(v * SCALE) for v in (x, y, right, bottom)]
            self.draw.rectangle((corners[0], corners[1], corners[2] - 1, corners[3] - 1), fill=fill)

    def line(self, x: float, y: float, right: float, bottom: float, fill: str, width: int = 1) -> None:
        """A straight line."""
        self.draw.line([round(v * SCALE) for v in (x, y, right, bottom)], fill=fill, width=width * SCALE)

    def area(self, points: Sequence[tuple[float, float]], fill: str) -> None:
        """A filled polygon."""
        self.draw.polygon([(x * SCALE, y * SCALE) for x, y in points], fill=fill)
