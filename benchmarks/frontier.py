"""Peak against time as a picture: a line per model, a point per level, in SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

__all__ = ["frontier_picture"]

Points = Sequence[tuple[float, float]]
"""(time over level 0, peak over level 0) per level."""

_WIDTH, _HEIGHT = 760, 440
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 190, 24, 48
_INK, _DIM, _LINE, _PAPER = "#1a1e23", "#5a646e", "#dde2e7", "#ffffff"
# Colours that stay apart for every kind of sight (Okabe and Ito), and marks that stay apart without them.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
_DASHES = ("", "7 4", "2 3")
_STEP_X, _STEP_Y = 0.1, 0.1


def frontier_picture(lines: Mapping[str, Points], across: str, up: str) -> str:
    """The picture; `across` and `up` name the axes."""
    most = max((x for points in lines.values() for x, _ in points), default=1.0)
    right = 1.0 + _STEP_X * max(1, int((most - 1.0) / _STEP_X + 1))
    least = min((x for points in lines.values() for x, _ in points), default=1.0)
    left = 1.0 - _STEP_X * math.ceil(max(0.0, 1.0 - least) / _STEP_X)

    def place(x: float, y: float) -> tuple[float, float]:
        width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
        return round(_LEFT + (x - left) / (right - left) * width, 1), round(_TOP + (1 - y) * height, 1)

    size = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12" role="img">',
        f"<title>{escape(up)} against {escape(across)}</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="{_PAPER}"/>',
    ]
    for k in range(round((right - left) / _STEP_X) + 1):
        x = left + k * _STEP_X
        (at, low), (_, high) = place(x, 0), place(x, 1)
        parts.append(_rule(at, low, at, high))
        parts.append(_text(at, low + 18, f"{x:.1f}", "middle", _DIM))
    for k in range(round(1 / _STEP_Y) + 1):
        (start, at), (end, _) = place(left, k * _STEP_Y), place(right, k * _STEP_Y)
        parts.append(_rule(start, at, end, at))
        parts.append(_text(start - 8, at + 4, f"{k * _STEP_Y:.1f}", "end", _DIM))
    middle = place((left + right) / 2, 0)
    parts.append(_text(middle[0], _HEIGHT - 8, across, "middle", _INK))
    parts.append(
        f'<text x="16" y="{_HEIGHT / 2}" fill="{_INK}" text-anchor="middle" '
        f'transform="rotate(-90 16 {_HEIGHT / 2})">{escape(up)}</text>'
    )
    for number, (name, points) in enumerate(lines.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        dash = _DASHES[number % len(_DASHES)]
        places = [place(x, y) for x, y in points]
        way = " ".join(f"{x},{y}" for x, y in places)
        parts.append(
            f'<polyline points="{way}" fill="none" stroke="{colour}" stroke-width="2"'
            + (f' stroke-dasharray="{dash}"' if dash else "") + "/>"
        )  # fmt: skip
        for level, ((x, y), (time, peak)) in enumerate(zip(places, points, strict=True)):
            what = f"{name}, level {level}: {peak:.2f} of the peak in {time:.2f} of the time"
            parts.append(
                f'<circle cx="{x}" cy="{y}" r="4" fill="{colour}"><title>{escape(what)}</title></circle>'
            )
        at = _TOP + 10 + 20 * number
        start = _WIDTH - _RIGHT + 20
        parts.append(
            f'<line x1="{start}" y1="{at}" x2="{start + 26}" y2="{at}" stroke="{colour}" stroke-width="2"'
            + (f' stroke-dasharray="{dash}"' if dash else "") + "/>"
        )  # fmt: skip
        parts.append(_text(start + 32, at + 4, name, "start", _INK))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _rule(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{_LINE}"/>'


def _text(x: float, y: float, words: str, anchor: str, colour: str) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{colour}">{escape(words)}</text>'
