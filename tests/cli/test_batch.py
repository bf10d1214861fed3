"""Several models at once: one summary, the worst exit code, and no work done twice."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from onnx_symmem.cli.batch import SUMMARY

from tests.cli.conftest import Command

QUICK = ("--no-verify", "--time-budget", "0")


def summary(folder: Path) -> dict[str, dict[str, Any]]:
    document = json.loads((folder / "out" / SUMMARY).read_text())
    assert (document["schema"], document["version"]) == ("onnx-symmem/batch", 1)
    return {row["model"]: row for row in document["models"]}


@pytest.fixture
def models(folder: Path) -> Path:
    inside = folder / "models"
    inside.mkdir()
    for name in ("plain.onnx", "free.onnx"):
        shutil.copy(folder / name, inside / name)
    return inside


def test_a_folder_of_models(command: Command, folder: Path, models: Path) -> None:
    found = command("optimize", "models", "--out-dir", "out", "--dim", "batch=1..8", *QUICK)
    assert found.code == 0
    assert "  plain.onnx  " in found.out
    rows = summary(folder)
    assert list(rows) == ["models/free.onnx", "models/plain.onnx"]
    for row in rows.values():
        assert row["code"] == 0
        assert (folder / row["out"]).is_file()
        assert row["figures"]["never_worse"] in ("proved", "kept")
    # What is said of dims goes to the models that have them.
    his = {s["name"]: s["hi"] for s in rows["models/plain.onnx"]["figures"]["symbols"]}
    assert his == {"batch": 8, "seq": None}


def test_a_dim_of_no_model_is_refused(command: Command, folder: Path, models: Path) -> None:
    found = command("optimize", "models", "--out-dir", "out", "--dim", "bacth=1..8", *QUICK)
    assert found.code == 2
    assert "dim 'bacth' is not a dim of any model's inputs; they have: " in found.err
    assert not (folder / "out").exists()


def test_a_model_that_fails_is_a_row_and_the_exit_code(command: Command, folder: Path, models: Path) -> None:
    (models / "text.onnx").write_text("no model")
    found = command("optimize", "models", "--out-dir", "out", *QUICK, "--json")
    assert found.code == 2
    assert found.err.endswith("onnx-symmem: error: 1 of 3 models failed\n")
    document = json.loads(found.out)
    assert document["code"] == 2
    assert [row["code"] for row in document["models"]] == [0, 0, 2]
    assert "not an ONNX model" in document["models"][2]["message"]
    assert not (folder / "out" / "text.onnx").exists()


def test_a_second_call_goes_on_from_the_first(command: Command, folder: Path, models: Path) -> None:
    argv = ("optimize", "models", "--out-dir", "out", *QUICK)
    command(*argv)
    made = {p.name: p.stat().st_mtime_ns for p in (folder / "out").glob("*.onnx")}
    again = command(*argv, "--json")
    assert all(row["kept"] for row in json.loads(again.out)["models"])
    assert made == {p.name: p.stat().st_mtime_ns for p in (folder / "out").glob("*.onnx")}
    # Another model under a name, a result that is gone, and other options are made anew.
    shutil.copy(folder / "plain.onnx", models / "free.onnx")
    (folder / "out" / "plain.onnx").unlink()
    rows = {row["model"]: row["kept"] for row in json.loads(command(*argv, "--json").out)["models"]}
    assert rows == {"models/free.onnx": False, "models/plain.onnx": False}
    other = json.loads(command(*argv, "--seed", "1", "--json").out)["models"]
    assert not any(row["kept"] for row in other)


def test_jobs_give_the_same_models(command: Command, folder: Path, models: Path) -> None:
    command("optimize", "models", "--out-dir", "out", *QUICK)
    command("optimize", "models", "--out-dir", "two", "--jobs", "2", *QUICK)
    for name in ("plain.onnx", "free.onnx"):
        assert (folder / "out" / name).read_bytes() == (folder / "two" / name).read_bytes()


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("plain.onnx", "free.onnx", "-o", "x.onnx"), "several models need --out-dir"),
        (("plain.onnx", "--out-dir", "out", "-o", "x.onnx"), "contradict each other"),
        (("plain.onnx",), "Missing option '-o'"),
        (("plain.onnx", "--out-dir", "."), "choose another --out-dir"),
        (("plain.onnx", "models/plain.onnx", "--out-dir", "out"), "would both become"),
        (("empty", "--out-dir", "out"), "no .onnx file in this folder"),
        (("plain.onnx", "--out-dir", "odd.onnx"), "odd.onnx: is a file; expected a folder"),
        (("plain.onnx", "--out-dir", "out", "--parallel-backend", "nine"), "--parallel-backend 'nine': "),
        (("plain.onnx", "--out-dir", "-"), "'-' is no file"),
    ],
)
def test_bad_calls_are_one_line(
    command: Command, folder: Path, models: Path, argv: tuple[str, ...], message: str
) -> None:
    (folder / "empty").mkdir()
    found = command("optimize", *argv)
    assert found.code == 2
    assert message in found.err
    assert found.err.count("\n") == 1
