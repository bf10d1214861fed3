"""`doctor`: what keeps a plan, what breaks it, and that it says so."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from onnx_symmem.run.deployment import settings_document
from onnx_symmem.run.session import kept, shipped
from tests.cli.conftest import Command

AT = ("--at", "batch=4,seq=8")


@pytest.fixture
def planned(command: Command, folder: Path) -> str:
    assert command("optimize", "plain.onnx", "-o", "planned.onnx", "--no-verify").code == 0
    return "planned.onnx"


def test_our_session_keeps_the_plan(command: Command, planned: str) -> None:
    found = command("doctor", planned, *AT, "--json")
    document = json.loads(found.out)
    assert found.code == 0
    assert found.err == ""
    assert document["keeps"]
    assert document["options"] == []
    assert document["not_predicted"] == ""
    assert document["given"]["nodes_equal"] == 1.0


def test_settings_for_another_provider_are_not_taken_for_the_one_that_was_asked_for(
    command: Command, planned: str, folder: Path
) -> None:
    (folder / "cpu.json").write_text(json.dumps(settings_document(kept("cpu"))))
    found = command("doctor", planned, *AT, "--session", "cpu.json", "--ep", "cuda")
    assert (found.code, found.out) == (2, "")
    assert "cpu.json: settings for provider 'cpu', and 'cuda' was asked for" in found.err
    assert command("doctor", planned, *AT, "--session", "cpu.json", "--ep", "cpu").code in (0, 1)


def test_another_order_and_a_memory_pattern_break_it_and_are_named(
    command: Command, planned: str, folder: Path
) -> None:
    """The file is in the order of `optimize`, whichever that is: reversing its ready nodes is another."""
    planned_for = json.loads(command("doctor", planned, *AT, "--json").out)["planned_for"]
    other = {"priority": "default", "default": "priority"}[planned_for]
    argv = ("--set", f"execution_order={other}", "--set", "mem_pattern=on", "--set", "arena=power_of_two")
    found = command("doctor", planned, *AT, *argv, "--json")
    document = json.loads(found.out)
    alone = {o["option"]: o for o in document["options"]}
    assert set(alone) == {"execution_order", "mem_pattern", "arena"}
    assert alone["arena"]["keeps_order"]  # the arena moves no tensor
    assert alone["arena"]["keeps_peak"]
    assert not alone["mem_pattern"]["keeps_peak"]
    assert alone["mem_pattern"]["measured_peak"] > alone["mem_pattern"]["planned_peak"]
    assert alone["mem_pattern"]["first_peak"] == alone["mem_pattern"]["planned_peak"]
    assert found.code == 1
    assert found.err == f"onnx-symmem: error: {document['problem']}\n"
    assert "mem_pattern = on" in document["problem"]
    assert "no prediction covers" in document["not_predicted"]
    told = command("doctor", planned, *AT, "--set", "mem_pattern=on").out
    assert " ".join(document["not_predicted"].split()) in " ".join(told.split())
    assert ("execution_order" in document["problem"]) == (not alone["execution_order"]["keeps_order"])


def test_another_traversal_of_an_unplanned_file_is_another_order(command: Command, folder: Path) -> None:
    found = command("doctor", "plain.onnx", *AT, "--set", "execution_order=default", "--json")
    (option,) = json.loads(found.out)["options"]
    assert found.code == 1
    assert not option["keeps_order"]
    assert "ONNX Runtime ran" in option["order"]


def test_a_session_is_not_blamed_for_what_no_plan_counts(command: Command, folder: Path) -> None:
    """A sequence has no size: what no formula gives is measured in a session that keeps the plan."""
    nodes = [
        helper.make_node("SequenceConstruct", ["x", "x"], ["both"]),
        helper.make_node("ConcatFromSequence", ["both"], ["long"], axis=0),
        helper.make_node("Relu", ["long"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [name + "s"]) for name in "xy")
    graph = helper.make_graph(nodes, "pair", [x], [y])
    opset = helper.make_opsetid("", 18)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=10), folder / "pair.onnx")
    found = command("doctor", "pair.onnx", "--at", "xs=100", "--json")
    document = json.loads(found.out)
    assert (found.code, document["keeps"], document["problem"]) == (0, True, "")
    assert document["kept"]["nodes_equal"] < 1.0
    assert document["kept"]["planned_peak"] == document["kept"]["first_peak"] == 1600
    assert "both" in document["not_predicted"]
    told = " ".join(command("doctor", "pair.onnx", "--at", "xs=100").out.split())
    assert "planned is what the first run took" in told


def test_settings_from_a_file(command: Command, folder: Path) -> None:
    (folder / "kept.json").write_text(json.dumps(settings_document(kept())))
    (folder / "shipped.json").write_text(json.dumps(settings_document(shipped())))
    assert command("doctor", "plain.onnx", *AT, "--session", "kept.json").code == 0
    assert command("doctor", "plain.onnx", *AT, "--session", "shipped.json").code == 1
    repaired = ("--set", "optimization=none", "--set", "execution_order=priority", "--set", "mem_pattern=off")
    assert command("doctor", "plain.onnx", *AT, "--session", "shipped.json", *repaired).code == 0


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--set", "reuse=on"), "--set 'reuse' is not known"),
        (("--set", "mem_reuse=maybe"), "expected on or off"),
        (("--set", "arena=small"), "arena 'small' is not known"),
        (("--session", "none.json"), "none.json: cannot be read"),
        (("--session", "none.json", "--shipped"), "contradict each other"),
    ],
)
def test_bad_settings_are_one_line(
    command: Command, planned: str, argv: tuple[str, ...], message: str
) -> None:
    found = command("doctor", planned, *AT, *argv)
    assert found.code == 2
    assert message in found.err
    assert found.err.count("\n") == 1
