"""Sizes of memory, and answers of `fit` that `run` confirms."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from onnx_symmem.cli.options import parse_size

from onnx_symmem.errors import UsageError
from tests.cli.conftest import Command


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("25769803776", 25_769_803_776),
        ("24GiB", 24 << 30),
        ("24 gib", 24 << 30),
        ("24GB", 24_000_000_000),
        ("1.5MiB", 3 << 19),
        ("0.1kB", 100),
        ("0", 0),
        ("2TiB", 2 << 40),
        ("7B", 7),
    ],
)
def test_a_size_is_read(text: str, number: int) -> None:
    assert parse_size(text) == number


@pytest.mark.parametrize("text", ["", "GiB", "-1", "1e9", "24G iB", "24GiBi", "1,000", "inf", "1.", "٣"])
def test_a_bad_size_is_a_one_line_error(text: str) -> None:
    with pytest.raises(UsageError, match="--budget .* is not a size") as caught:
        parse_size(text)
    assert "\n" not in str(caught.value)


def test_the_answer_is_what_a_run_takes(command: Command, folder: Path) -> None:
    argv = ("fit", "plain.onnx", "--budget", "200kB", "--solve", "batch", "--at", "seq=3", "--json")
    only = json.loads(command(*argv, "--count", "activations").out)["rows"][0]["found"][0]
    assert only["needed"] <= 200_000 < only["next_needed"]
    for size, needed in ((only["size"], only["needed"]), (only["next_size"], only["next_needed"])):
        run = json.loads(command("run", "plain.onnx", "--at", f"batch={size},seq=3", "--json").out)
        assert run["measured_peak"] == needed


def test_several_models_are_checked(command: Command, folder: Path) -> None:
    argv = (
        "check",
        "plain.onnx",
        "free.onnx",
        "--max-peak",
        "1kB",
        "--dim",
        "batch=1..2",
        "--dim",
        "seq=1..2",
    )
    found = command(*argv, "--json")
    assert found.code == 2  # free.onnx has no such dims
    assert "'batch' is not a dim" in found.err
    argv = ("check", "plain.onnx", "plain.onnx", "--max-peak", "1kB", "--at", "batch=1,seq=1", "--json")
    found = command(*argv)
    document = json.loads(found.out)
    assert found.code == 1
    assert not document["holds"]
    assert [check["schema"] for check in document["models"]] == ["onnx-symmem/check"] * 2
    assert found.err.count("\n") == 1
    assert "(and 1 more)" in found.err
    assert json.loads(command(*argv[:3], *argv[3:3], "--max-peak", "1GB", *argv[5:]).out)["holds"]


def test_a_frontier_is_drawn_beside_its_table(command: Command, folder: Path) -> None:
    pytest.importorskip("PIL")
    argv = ("fit", "plain.onnx", "--budget", "200kB", "--solve", "batch,seq", "--dim", "seq=1..64")
    plain = command(*argv)
    drawn = command(*argv, "-o", "frontier.png")
    assert drawn.code == 0
    assert drawn.out == plain.out
    assert (folder / "frontier.png").read_bytes().startswith(b"\x89PNG")
    found = command("fit", "plain.onnx", "--budget", "200kB", "--solve", "batch", "-o", "one.png")
    assert found.code == 2
    assert "solve for two" in found.err
    assert not (folder / "one.png").exists()
