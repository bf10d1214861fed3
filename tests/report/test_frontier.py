"""The picture of a frontier: where its points are, and what cannot be drawn."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from onnx_symmem.errors import UsageError
from onnx_symmem.memory.capacity import Capacity
from onnx_symmem.report.canvas import SCALE
from onnx_symmem.report.capacity import Fit, FitRow
from onnx_symmem.report.frontier import check_frontier_target, frontier_picture, write_frontier

Image = pytest.importorskip("PIL.Image")
FIRST, SECOND = (0x1F, 0x5F, 0x99), (0xC9, 0x76, 0x1A)


def fit(*answers: tuple[int | None, ...]) -> Fit:
    """Answers per model at seq = 1, 2, 4, ..."""
    rows = [
        FitRow({"seq": 2**k}, tuple(Capacity("batch", size, 100, None, None, {}) for size in found))
        for k, found in enumerate(zip(*answers, strict=True))
    ]
    names = tuple(f"{k}.onnx" for k in range(len(answers)))
    return Fit(
        names, ("exact",) * len(names), "cpu", 1 << 30, ("activations",), 0, ("batch", "seq"), tuple(rows)
    )  # fmt: skip


def places(found: Fit, colour: tuple[int, int, int]) -> list[tuple[int, int]]:
    """Pixels of a colour below the legend, as units of the layout."""
    image = Image.open(io.BytesIO(frontier_picture(found))).convert("RGB")
    pixels = image.load()
    return [
        (x // SCALE, y // SCALE)
        for y in range(100 * SCALE, image.height, SCALE)
        for x in range(0, image.width, SCALE)
        if pixels[x, y] == colour
    ]


def test_a_line_falls_where_less_fits() -> None:
    at = places(fit((64, 16, 4)), FIRST)
    left = [y for x, y in at if x < 100]
    right = [y for x, y in at if x > 1020]
    assert max(left) < min(right)
    middle = [y for x, y in at if abs(x - (84 + 1040) // 2) <= 4]
    # Both scales are logarithmic: equal factors are equal steps.
    assert abs(sum(middle) / len(middle) - (min(left) + max(right)) / 2) < 12


def test_the_larger_model_lies_below() -> None:
    both = fit((64, 16, 4), (32, 8, 2))
    top, low = places(both, FIRST), places(both, SECOND)
    for x in (90, 560, 1036):
        first = [y for at, y in top if abs(at - x) < 8]
        second = [y for at, y in low if abs(at - x) < 8]
        assert sum(first) / len(first) < sum(second) / len(second)


def test_nothing_fits_is_a_cross_on_the_ground() -> None:
    some = places(fit((64, 16, None)), FIRST)
    cross = [(x, y) for x, y in some if x > 1020]
    assert cross
    assert all(y > 550 for _, y in cross)
    assert not [x for x, _ in some if 570 < x < 1020]  # no line leads there
    frontier_picture(fit((None, None)))


def test_what_cannot_be_drawn_is_said_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="ends in .png"):
        check_frontier_target(tmp_path / "f.svg", ("batch", "seq"))
    with pytest.raises(UsageError, match="solve for two"):
        check_frontier_target(tmp_path / "f.png", ("batch",))
    write_frontier(tmp_path / "f.png", fit((8, 4)))
    assert (tmp_path / "f.png").read_bytes() == frontier_picture(fit((8, 4)))
