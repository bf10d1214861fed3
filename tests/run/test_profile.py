import json
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from onnx_symmem.errors import RunFailed
from onnx_symmem.run.profile import read_profile
from onnx_symmem.run.session import create_session, kept, run_session, shipped

MIB = 1 << 20
CPU = "CPUExecutionProvider"


def info(name, dims, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, dims)


def model_of(nodes, inputs, outputs, initializers=()):
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(initializers))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def profiled(model, feeds, tmp_path, settings=None):
    settings = replace(settings or kept(), profile_prefix=str(tmp_path / "p"))
    session = create_session(model, settings)
    for feed in feeds:
        run_session(session, feed)
    return read_profile(session.end_profiling(), len(feeds))


def doubling_chain() -> onnx.ModelProto:
    """x -> a = [x, x] (8 MiB) -> b = [a, a] (16 MiB) -> a scalar: 24 MiB are live at b."""
    nodes = [
        helper.make_node("Concat", ["x", "x"], ["a"], axis=0, name="A"),
        helper.make_node("Concat", ["a", "a"], ["b"], axis=0, name="B"),
        helper.make_node("ReduceSum", ["b"], ["c"], name="C", keepdims=0),
    ]
    return model_of(nodes, [info("x", ["n", MIB])], [info("c", [])])


def control_flow() -> onnx.ModelProto:
    then = helper.make_graph(
        [
            helper.make_node("Relu", ["a"], ["t1"], name="T1"),
            helper.make_node("Neg", ["t1"], ["t2"], name="T2"),
        ],
        "then",
        [],
        [info("t2", ["n"])],
    )
    other = helper.make_graph(
        [helper.make_node("Neg", ["a"], ["e1"], name="E1")], "else", [], [info("e1", ["n"])]
    )
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["go_on"], name="L1"),
            helper.make_node("Add", ["v", "v"], ["w"], name="L2"),
        ],
        "body",
        [info("i", [], TensorProto.INT64), info("go", [], TensorProto.BOOL), info("v", ["n"])],
        [info("go_on", [], TensorProto.BOOL), info("w", ["n"])],
    )
    nodes = [
        helper.make_node("Exp", ["x"], ["a"], name="A"),
        helper.make_node("Shape", ["x"], ["s"], name="SH"),
        helper.make_node("Less", ["s", "five"], ["l"], name="LE"),
        helper.make_node("Squeeze", ["l"], ["c"], name="SQ"),
        helper.make_node("If", ["c"], ["r"], then_branch=then, else_branch=other, name="IF"),
        helper.make_node("Loop", ["three", "true", "r"], ["y"], body=body, name="LOOP"),
    ]
    initializers = [
        helper.make_tensor("five", TensorProto.INT64, [1], [5]),
        helper.make_tensor("three", TensorProto.INT64, [], [3]),
        helper.make_tensor("true", TensorProto.BOOL, [], [True]),
    ]
    return model_of(nodes, [info("x", ["n"])], [info("y", ["n"])], initializers)


def test_bytes_of_a_chain_known_by_hand(tmp_path):
    x = np.ones((1, MIB), np.float32)
    first, second = profiled(doubling_chain(), [{"x": x}] * 2, tmp_path)
    for run in (first, second):
        assert [e.name for e in run.events] == ["A", "B", "C"]
        assert [e.index for e in run.events] == [0, 1, 2]
        assert [e.requested for e in run.events] == [8 * MIB, 24 * MIB, 16 * MIB + 4]
        assert run.static_bytes(CPU) == 0
        assert run.events[1].outputs == (("float", (4, MIB)),)
    assert second.events[-1].held == 24 * MIB
    assert second.events[-1].in_use_peak == 24 * MIB


def test_each_session_has_an_arena_of_its_own(tmp_path):
    big = np.ones((4, MIB), np.float32)
    small = np.ones((1, MIB), np.float32)
    (first,) = profiled(doubling_chain(), [{"x": big}], tmp_path)
    (second,) = profiled(doubling_chain(), [{"x": small}], tmp_path)
    assert first.events[-1].in_use_peak == 96 * MIB
    assert second.events[-1].in_use_peak == 24 * MIB
    assert second.events[-1].held == 24 * MIB


def test_as_shipped_the_arena_grows_by_powers_of_two(tmp_path):
    x = np.ones((3, MIB), np.float32)
    (run,) = profiled(doubling_chain(), [{"x": x}], tmp_path, shipped())
    assert max(e.requested for e in run.events) == 72 * MIB
    assert run.events[-1].held > 72 * MIB


def test_events_of_branches_belong_to_their_node(tmp_path):
    short, long = (np.ones(n, np.float32) for n in (3, 7))
    runs = profiled(control_flow(), [{"x": short}, {"x": long}, {"x": short}], tmp_path)
    names = ["SH", "A", "LE", "SQ", "IF", "LOOP"]  # a Shape is hoisted
    for run, branch in zip(runs, (["T1", "T2"], ["E1"], ["T1", "T2"]), strict=True):
        assert [e.name for e in run.events] == names
        (taken,) = run.events[4].graphs
        assert [e.name for e in taken] == branch
        assert [[e.name for e in turn] for turn in run.events[5].graphs] == [["L1", "L2"]] * 3
        assert len(list(run.walk())) == len(names) + len(branch) + 6


def test_prepacked_weights_are_static(tmp_path):
    w = helper.make_tensor("w", TensorProto.FLOAT, [256, 256], np.ones(65536, np.float32).tobytes(), raw=True)
    model = model_of(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], [info("x", ["n", 256])], [info("y", ["n", 256])], [w]
    )
    (run,) = profiled(model, [{"x": np.ones((2, 256), np.float32)}], tmp_path)
    assert run.static_bytes(CPU) >= 65536 * 4
    assert run.events[0].requested - run.static_bytes(CPU) == 2 * 256 * 4


def test_runs_that_broke_off_are_not_runs(tmp_path):
    x = np.ones((1, MIB), np.float32)
    profiled(doubling_chain(), [{"x": x}], tmp_path)
    (path,) = tmp_path.glob("*.json")
    records = json.loads(path.read_bytes())
    path.write_text(json.dumps([r for r in records if r["name"] != "model_run"]))
    with pytest.raises(RunFailed, match="0 whole runs of 1"):
        read_profile(path, 1)
    path.write_text("[")
    with pytest.raises(RunFailed, match="cannot be read"):
        read_profile(path, 1)
