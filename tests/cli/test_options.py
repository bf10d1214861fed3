"""Shared options: every spelling, and one line for every misspelling."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner
from onnx_symmem.cli import options
from onnx_symmem.cli.options import (
    DimRange,
    parse_assignments,
    parse_dims,
    parse_names,
    parse_shape,
    parse_shapes,
)

from onnx_symmem.errors import DomainError, UsageError
from onnx_symmem.expr.shape_text import dim_name, shape_text


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ([], []),
        (["batch=1..64"], [("batch", 1, 64, 1)]),
        (["batch=0..0"], [("batch", 0, 0, 1)]),
        (["batch=8"], [("batch", 8, 8, 1)]),
        (["seq=16.."], [("seq", 16, None, 1)]),
        (["seq%8"], [("seq", 1, None, 8)]),
        (["seq=1..2048%8"], [("seq", 1, 2048, 8)]),
        ([" seq = 1 .. 2048 "], [("seq", 1, 2048, 1)]),
        (["seq%8", "batch=2", "seq=0..64"], [("seq", 0, 64, 8), ("batch", 2, 2, 1)]),
        (["past_sequence_length + 1=2..9"], [("past_sequence_length + 1", 2, 9, 1)]),
        (["/model/Reshape.dim-0=3"], [("/model/Reshape.dim-0", 3, 3, 1)]),
        (['"a=b, c%2"=3..4', '"a=b, c%2"%2'], [("a=b, c%2", 3, 4, 2)]),
    ],
)
def test_dims_are_read(texts: list[str], expected: list[tuple[str, int, int | None, int]]) -> None:
    assert list(parse_dims(texts)) == expected


def test_a_dim_is_named_plain_data() -> None:
    (dim,) = parse_dims(["seq=1..64%8"])
    assert dim == DimRange(name="seq", lo=1, hi=64, divisor=8)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["batch"], "not understood"),
        ([""], "not understood"),
        (["=4"], "not understood"),
        (["batch="], "not understood"),
        (["batch=x"], "not understood"),
        (["batch=-1"], "not understood"),
        (["batch=..4"], "not understood"),
        (["batch=1...4"], "not understood"),
        (["batch=1:4"], "not understood"),
        (["batch=1,seq=2"], "not understood"),
        (["batch=1.5"], "not understood"),
        (["batch=٣"], "not understood"),
        (["seq%"], "not understood"),
        (["batch=" + "9" * 5000], "not understood"),
        (["batch=4..1"], "upside down, 4 is above 1"),
        (["seq%0"], "at least 1"),
        (["batch=1", "batch=2"], "'batch' is given twice"),
        (["seq%2", "seq%4"], "'seq' is given twice"),
        (["seq=9..15%8"], "no multiple of 8 lies in seq=9..15"),
        (["seq%8", "seq=7"], "no multiple of 8"),
    ],
)
def test_a_bad_dim_is_a_one_line_error(texts: list[str], message: str) -> None:
    with pytest.raises(DomainError, match=message) as caught:
        parse_dims(texts)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("--dim")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("batch=2,seq=64", {"batch": 2, "seq": 64}),
        ("batch=0", {"batch": 0}),
        (" batch = 2 , seq = 64 ", {"batch": 2, "seq": 64}),
        ('"a,b=1"=2,seq=64', {"a,b=1": 2, "seq": 64}),
        (' "batch" = 2', {"batch": 2}),
        ('"the ""long"", one"=2,seq=64', {'the "long", one': 2, "seq": 64}),
        ('"""q"""=2', {'"q"': 2}),
    ],
)
def test_a_shape_is_read(text: str, expected: dict[str, int]) -> None:
    assert parse_shape(text) == expected


@pytest.mark.parametrize(
    "text", ["", "batch", "batch=", "batch=-1", "batch=2,", "batch=2;seq=3", "a=1,a=1", '"a=1', '""=1']
)
def test_a_bad_shape_is_a_one_line_error(text: str) -> None:
    with pytest.raises(DomainError, match="--at") as caught:
        parse_shape(text)
    assert "\n" not in str(caught.value)


def test_shapes_are_joined_and_never_contradict() -> None:
    assert parse_shapes(["batch=2", "seq=64,width=3"]) == {"batch": 2, "seq": 64, "width": 3}
    assert parse_shapes([]) == {}
    with pytest.raises(DomainError, match="'batch' is given twice"):
        parse_shapes(["batch=2", "batch=3"])


def test_assignments_divide_at_the_first_equals() -> None:
    assert parse_assignments("--input", ["ids=randint(0,10)", "x = a=b "]) == {
        "ids": "randint(0,10)",
        "x": "a=b",
    }
    assert parse_assignments("--input", ['"x=1"=value:2']) == {"x=1": "value:2"}


NAMES = ("batch", "a=b", "c,d", "e f", '"q"', 'a"b', "%k", "-neg", "x..y", "@at", "[1]", " lead", '","', "é")


def test_what_is_shown_can_be_given_back() -> None:
    shape = {name: 2 + k for k, name in enumerate(NAMES)}
    assert parse_shape(shape_text(shape)) == shape
    assert parse_shape(shape_text(shape, ", ")) == shape
    assert parse_names(",".join(map(dim_name, NAMES)), "--solve") == NAMES
    ranges = parse_dims(f"{dim_name(name)}={size}..99" for name, size in shape.items())
    assert {dim.name: dim.lo for dim in ranges} == shape
    assert shape_text({"batch": 2, "past + seq": 3}) == "batch=2,past + seq=3"


@pytest.mark.parametrize("text", ["", "batch,", 'a"b', '"a'])
def test_bad_names_are_a_one_line_error(text: str) -> None:
    with pytest.raises(DomainError, match="--solve"):
        parse_names(text, "--solve")


@pytest.mark.parametrize("texts", [["ids"], ["=x"], ["ids="], ["ids=1", "ids=2"]])
def test_a_bad_assignment_is_a_one_line_error(texts: list[str]) -> None:
    with pytest.raises(UsageError, match="--input"):
        parse_assignments("--input", texts)


def test_a_command_gets_plain_data() -> None:
    seen = {}

    @click.command
    @options.dim_option
    @options.at_option
    @options.ep_option
    @options.ort_level_option
    @options.json_option
    @options.input_option
    def command(**values: object) -> None:
        seen.update(values)

    argv = [
        "--dim",
        "seq%8",
        "--at",
        "batch=2",
        "--at",
        "seq=8",
        "--ep",
        "cuda",
        "--json",
        "--input",
        "x=ones",
    ]
    result = CliRunner().invoke(command, [*argv, "--ort-level", "basic"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert seen == {
        "dims": (DimRange("seq", 1, None, 8),),
        "at": {"batch": 2, "seq": 8},
        "ep": "cuda",
        "ort_level": "basic",
        "as_json": True,
        "inputs": {"x": "ones"},
    }


def test_a_command_may_take_several_shapes() -> None:
    seen = {}

    @click.command
    @options.shapes_option
    def command(**values: object) -> None:
        seen.update(values)

    CliRunner().invoke(command, ["--at", "b=1,s=2", "--at", "b=2,s=2"], catch_exceptions=False)
    assert seen == {"shapes": ({"b": 1, "s": 2}, {"b": 2, "s": 2})}


@pytest.mark.parametrize("argv", [["--ep", "tpu"], ["--ort-level", "most"]])
def test_a_choice_outside_the_list_is_wrong_usage(argv: list[str]) -> None:
    @click.command
    @options.ep_option
    @options.ort_level_option
    def command(**values: object) -> None:
        raise AssertionError(values)

    assert CliRunner().invoke(command, argv).exit_code == 2
