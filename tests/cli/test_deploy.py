"""`optimize --delivery anchors`, `deploy`, and what `doctor` says of models that keep their own plan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from onnx_symmem.run.deployment import read_settings
from onnx_symmem.run.session import SessionSettings
from tests.cli.conftest import Command

AT = ("--at", "batch=4,seq=8")


@pytest.fixture
def anchored(command: Command, folder: Path) -> str:
    done = command("optimize", "plain.onnx", "-o", "out.onnx", "--delivery", "anchors", "--time-budget", "0")
    assert done.code == 0
    assert "the file alone: " in done.out
    return "out.onnx"


def test_settings_and_tritons_part_are_written_beside(anchored: str, folder: Path) -> None:
    wanted = SessionSettings(execution_order="default", mem_reuse=True)
    assert read_settings(folder / "out.onnx.session.json") == wanted
    assert "only_from_python" not in json.loads((folder / "out.onnx.session.json").read_text())
    assert (folder / "out.onnx.config.pbtxt").read_text().startswith('backend: "onnxruntime"\n')


def test_nothing_is_written_beside_unless_it_is_asked_for(command: Command, folder: Path) -> None:
    quick = ("--time-budget", "0", "--no-verify")
    command("optimize", "plain.onnx", "-o", "a.onnx", *quick)
    command("optimize", "plain.onnx", "-o", "b.onnx", *quick, "--delivery", "anchors", "--no-deployment")
    command("optimize", "plain.onnx", "-o", "c.onnx", *quick, "--deployment")
    assert [p.name for p in sorted(folder.glob("[abc].onnx*"))] == [
        "a.onnx", "b.onnx", "c.onnx", "c.onnx.session.json",
    ]  # fmt: skip


def test_run_is_as_predicted_with_reuse(command: Command, anchored: str) -> None:
    document = json.loads(command("run", anchored, *AT, "--json").out)
    assert document["settings"] == "kept"
    assert document["nodes_equal"] == 1.0


def test_it_is_compared_with_what_would_have_run_with_reuse(command: Command, anchored: str) -> None:
    document = json.loads(command("compare", "plain.onnx", anchored, *AT, "--json").out)
    assert (document["before"]["settings"], document["after"]["settings"]) == ("baseline", "kept")
    for run in (document["before"], document["after"]):
        assert run["nodes_equal"] == 1.0
    assert document["after"]["predicted_peak"] <= document["before"]["predicted_peak"]


def test_what_the_c_api_can_set_keeps_it(command: Command, anchored: str, folder: Path) -> None:
    for given in ((), ("--session", f"{anchored}.session.json"), ("--set", "mem_reuse=on")):
        found = command("doctor", anchored, *AT, *given, "--json")
        document = json.loads(found.out)
        assert found.code == 0
        assert document["keeps"]
        assert document["options"] == []
        assert document["given"]["nodes_equal"] == 1.0


def test_what_breaks_it_is_named(command: Command, anchored: str) -> None:
    found = command(
        "doctor", anchored, *AT, "--session", f"{anchored}.session.json", "--set", "mem_pattern=on"
    )
    assert found.code == 1
    assert "broken by mem_pattern = on" in found.err
    without = json.loads(command("doctor", anchored, *AT, "--set", "mem_reuse=off", "--json").out)
    assert without["keeps"]  # less is held, never more
    assert [o["option"] for o in without["options"]] == ["mem_reuse"]


def test_code_is_printed(command: Command, anchored: str) -> None:
    for language, words in (("cpp", "Ort::Session"), ("csharp", "InferenceSession"), ("triton", "backend")):
        found = command("deploy", anchored, "--language", language)
        assert (found.code, found.err) == (0, "")
        assert words in found.out
        assert "out.onnx" in found.out
    document = json.loads(command("deploy", anchored, "--language", "json").out)
    assert document["model"]["delivery"] == "anchors"


def test_other_languages_need_anchors(command: Command, folder: Path) -> None:
    found = command("deploy", "plain.onnx", "--language", "csharp")
    assert found.code == 2
    assert "--delivery anchors" in found.err
    assert command("deploy", "plain.onnx", "--language", "python").code == 0
