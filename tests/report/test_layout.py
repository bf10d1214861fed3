"""Units, wrapped formulas and the timeline, by example."""

from __future__ import annotations

import io

import pytest

from onnx_symmem.report.text.layout import (
    Unit,
    console_for,
    formula_lines,
    indented,
    percent,
    sized_table,
    timeline_lines,
)


@pytest.mark.parametrize(
    ("numbers", "unit", "shown"),
    [
        ([0], "bytes", ["0"]),
        ([9_999, None], "bytes", ["9,999", "-"]),
        ([10_240], "KiB", ["10.00"]),
        ([1 << 20, 1, 0], "MiB", ["1.00", "<0.01", "0.00"]),
        ([5 << 40], "MiB", ["5,242,880.00"]),
        ([-(1 << 20)], "MiB", ["-1.00"]),
    ],
)
def test_one_unit_for_all(numbers: list[int | None], unit: str, shown: list[str]) -> None:
    found = Unit.of(numbers)
    assert found.name == unit
    assert [found.show(n) for n in numbers] == shown


def test_changes_in_percent() -> None:
    assert [percent(*pair) for pair in ((1, 2), (2, 2), (3, 2), (0, 0))] == [
        "-50.0 %",
        "0.0 %",
        "+50.0 %",
        "-",
    ]


def test_a_formula_is_broken_between_terms() -> None:
    text = "8*batch*((height + 3)//32)*((width + 3)//4) + 64*batch*((height + 3)//4) - 968"
    assert formula_lines(text, 50) == [
        "8*batch*((height + 3)//32)*((width + 3)//4)",
        "    + 64*batch*((height + 3)//4) - 968",
    ]
    assert formula_lines(text, 200) == [text]


def test_a_term_that_is_too_long_is_broken_inside() -> None:
    text = "2*max(first + 1, second + 2, third + 3, fourth + 4) + 7"
    lines = formula_lines(text, 30)
    assert " ".join(line.strip() for line in lines) == text
    assert all(len(line) <= 30 for line in lines)


def test_a_word_without_spaces_is_cut() -> None:
    lines = formula_lines("x" * 100, 30)
    assert all(len(line) <= 30 for line in lines)
    assert "".join(line.strip() for line in lines) == "x" * 100


def test_the_timeline_shows_the_most_of_every_bar() -> None:
    lines = timeline_lines([0, 600, 300, 0], Unit("bytes", 1), 40)
    bars = [line.split("┤")[1] if "┤" in line else "" for line in lines[:6]]
    assert [bar.rstrip() for bar in bars] == [" █", " █", " █", " ██", " ██", " ██"]
    assert lines[0].startswith(" 600 ┤")
    assert lines[-1].split() == ["1", "4"]


def test_many_steps_fit_the_width() -> None:
    values = [7] * 5000
    values[2500] = 70
    lines = timeline_lines(values, Unit("bytes", 1), 60)
    assert all(len(line) <= 60 for line in lines)
    assert "█" in lines[0]
    assert lines[-1].endswith("5000")


def test_a_plain_terminal_gets_plain_characters() -> None:
    assert all(line.isascii() for line in timeline_lines([1, 5, 3], Unit("bytes", 1), 40, plain=True))


def test_nothing_in_use_is_no_timeline() -> None:
    assert timeline_lines([], Unit("bytes", 1), 40) == timeline_lines([0, 0], Unit("bytes", 1), 40) == []


def test_a_pipe_gets_no_colour_and_a_fixed_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    out = io.StringIO()
    console = console_for(out)
    console.print("[red]dims[/red] [batch, 64]", style="bold")
    assert out.getvalue() == "[red]dims[/red] [batch, 64]\n"
    assert console.width == 120


@pytest.mark.parametrize("width", range(28, 100, 4))
def test_numbers_are_never_cut(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    out = io.StringIO()
    table = sized_table(("at", "name"), ("peak", "number"), ("outputs", "number"), ("", "short"))
    table.add_row("batch=2, seq=8", "1,234,567.89", "98,765.43", "fits")
    table.add_row("batch=4, seq=8", "2,234,567.89", "8,765.43", "too large")
    indented(console_for(out), table)
    shown = out.getvalue()
    for text in ("1,234,567.89", "98,765.43", "fits", "2,234,567.89", "8,765.43", "too large"):
        assert text in shown
    assert "…" not in shown
    assert all(len(line) <= width for line in shown.splitlines())
    assert shown.startswith("  at batch=2") == (width < 44)  # a list per row


def test_a_name_does_not_steer_the_terminal() -> None:
    out = io.StringIO()
    table = sized_table(("tensor", "name"), ("dims", "name"))
    table.add_row("\x1b[31mred\x9b2J", "[n]")
    console_for(out).print(table)
    assert "?[31mred?2J" in out.getvalue()
    assert all(char.isprintable() or char == "\n" for char in out.getvalue())
