"""Sizes of memory, and answers of `fit` that `run` confirms."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper
from onnx_symmem.cli.options import parse_size

from onnx_symmem.errors import UsageError
from tests.cli.conftest import Command


def save_row(path: Path, dim: str | int) -> None:
    """A model of one dim: y = exp(relu(x)), each 4 bytes per size."""
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Exp", ["r"], ["y"])]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [dim]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "row", ends[:1], ends[1:])
    opset = helper.make_opsetid("", 18)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=10), path)


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


def test_a_model_whose_dims_are_all_numbers_has_one_shape(command: Command, tmp_path: Path) -> None:
    save_row(tmp_path / "row.onnx", 64)
    path = str(tmp_path / "row.onnx")
    checked = command("check", path, "--max-peak", "600")
    assert checked.code == 1
    assert checked.err.endswith("row.onnx: needs 768 bytes at its shape, more than 600\n")
    solved = command("fit", path, "--budget", "600", "--solve", "batch")
    assert solved.code == 2
    assert solved.err.endswith("dim 'batch' is not a dim of the inputs; they have none\n")


def test_that_nothing_fits_is_an_answer_in_words(command: Command, folder: Path) -> None:
    """`check` is the test: it ends with code 1."""
    at = ("--at", "seq=3")
    found = command("fit", "plain.onnx", "--budget", "100", "--solve", "batch", *at)
    assert found.code == 0
    needed = json.loads(
        command("check", "plain.onnx", "--max-peak", "100", "--at", "batch=1,seq=3", "--json").out
    )["shapes"][0]["needed"]
    text = f"no batch fits: batch=1 needs {needed:,} bytes, {needed - 100:,} more than the budget"
    assert text in " ".join(found.out.split())
    assert "no batch fits" not in command("fit", "plain.onnx", "--budget", "1GB", "--solve", "batch", *at).out
    twice = command(
        "fit", "plain.onnx", "--against", "plain.onnx", "--budget", "100", "--solve", "batch", *at
    )
    assert " ".join(twice.out.split()).count("plain.onnx: no batch fits") == 2
    assert command("check", "plain.onnx", "--max-peak", "100", "--at", "batch=1,seq=3").code == 1


@pytest.mark.parametrize("verb", ["fit", "check"])
def test_a_limit_that_no_model_takes_is_refused(command: Command, folder: Path, verb: str) -> None:
    asked = {"fit": ("--budget", "1GB", "--solve", "batch", "--at", "seq=3"), "check": ("--max-peak", "1GB")}
    found = command(verb, "plain.onnx", *asked[verb], "--memory-limit", "1kB")
    assert (found.code, found.out) == (2, "")
    assert "plain.onnx: no level is chosen by a memory limit; write levels" in found.err


def test_several_models_are_checked(command: Command, folder: Path) -> None:
    argv = ("check", "plain.onnx", "plain.onnx", "--max-peak", "1kB", "--at", "batch=1,seq=1", "--json")
    found = command(*argv)
    document = json.loads(found.out)
    assert found.code == 1
    assert not document["holds"]
    assert [check["schema"] for check in document["models"]] == ["onnx-symmem/check"] * 2
    assert found.err.count("\n") == 1
    assert "(and 1 more)" in found.err
    assert json.loads(command(*argv[:3], *argv[3:3], "--max-peak", "1GB", *argv[5:]).out)["holds"]


@pytest.mark.parametrize(
    "said", [("--dim", "batch=1..2", "--dim", "seq=1..2"), ("--at", "batch=1,seq=2,n=3")]
)
def test_what_is_said_goes_to_the_models_that_have_the_dim(
    command: Command, folder: Path, said: tuple[str, ...]
) -> None:
    save_row(folder / "row.onnx", "n")
    argv = ("check", "plain.onnx", "row.onnx", "--max-peak", "1GB", *said, "--dim", "n=1..3", "--json")
    found = command(*argv)
    assert found.code == 0, found.err
    assert [check["model"] for check in json.loads(found.out)["models"]] == ["plain.onnx", "row.onnx"]
    assert "dim 'sqe' is not a dim of any model's inputs; they have: batch, seq, n" in (
        command(*argv, "--dim", "sqe=1..2").err
    )


def test_the_model_held_against_may_lack_dims(command: Command, folder: Path) -> None:
    save_row(folder / "row.onnx", "batch")
    argv = ("fit", "plain.onnx", "--against", "row.onnx", "--budget", "1MB", "--solve", "batch", "--json")
    found = command(*argv, "--at", "seq=0", "--dim", "seq=0..8")
    assert found.code == 0, found.err
    assert json.loads(found.out)["rows"][0]["found"][1]["size"] == 1_000_000 // 12


def test_a_size_outside_the_range_of_its_dim_is_said(command: Command, folder: Path) -> None:
    found = command("fit", "plain.onnx", "--budget", "1MiB", "--solve", "batch", "--at", "seq=0")
    assert found.code == 2
    assert found.err == "onnx-symmem: error: seq = 0: expected a size in 1..inf\n"


@pytest.mark.parametrize(
    "argv",
    [
        ("fit", "--budget", "1MiB", "--solve", "batch", "--at", "seq=3"),
        ("check", "--max-peak", "1MiB", "--at", "batch=1,seq=3"),
    ],
)
def test_it_is_said_that_other_nodes_may_run(command: Command, folder: Path, argv: tuple[str, ...]) -> None:
    verb, *options = argv
    note = "plain.onnx: bytes of the file's own nodes; ONNX Runtime may add or replace nodes"
    assert note in command(verb, "plain.onnx", *options).err
    assert command("-q", verb, "plain.onnx", *options).err == ""
    assert "ONNX Runtime may add" in " ".join(
        json.loads(command(verb, "plain.onnx", *options, "--json").out)["notices"]
    )
    command("optimize", "plain.onnx", "-o", "planned.onnx", "--time-budget", "0", "--no-verify")
    assert command(verb, "planned.onnx", *options).err == ""
    assert json.loads(command(verb, "planned.onnx", *options, "--json").out)["notices"] == []


def test_the_largest_size_is_a_lower_bound_where_bytes_are_an_upper_one(
    command: Command, folder: Path
) -> None:
    argv = ("--budget", "1MiB", "--solve", "batch", "--at", "seq=3")
    assert "Largest batch that is sure to fit" in command("fit", "odd.onnx", *argv).out
    assert "Largest batch that fits" in command("fit", "plain.onnx", *argv).out


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
