import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from onnx_symmem.errors import UnsupportedModel, UsageError
from onnx_symmem.graph.load import external_entry, load_model
from onnx_symmem.run.offline import optimize_offline
from onnx_symmem.run.session import create_session, run_session


def dense(op="MatMul") -> onnx.ModelProto:
    """x @ w + b, which becomes one Gemm; w is large enough to be kept outside the file."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 64])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 64])
    w = np.arange(4096, dtype=np.float32).tobytes()
    initializers = [
        helper.make_tensor("w", TensorProto.FLOAT, [64, 64], w, raw=True),
        helper.make_tensor("b", TensorProto.FLOAT, [64], np.ones(64, np.float32).tobytes(), raw=True),
    ]
    nodes = [helper.make_node(op, ["x", "w"], ["h"], name="mm"), helper.make_node("Add", ["h", "b"], ["y"])]
    graph = helper.make_graph(nodes, "dense", [x], [y], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("level", ["basic", "extended"])
def test_saved_graph_is_fused_and_stands_alone(tmp_path, level):
    source, out = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    out.mkdir()
    onnx.save(dense(), source / "m.onnx", save_as_external_data=True, location="m.bin", size_threshold=0)
    x = np.ones((2, 64), np.float32)
    (before,) = run_session(create_session(source / "m.onnx"), {"x": x})
    path = optimize_offline(load_model(source / "m.onnx"), out, level=level)
    assert path.parent == out
    for file in source.iterdir():
        file.unlink()
    saved = load_model(path)
    assert [n.op_type for n in saved.proto.graph.node] == ["Gemm"]
    entries = {t.name: external_entry(t) for t in saved.proto.graph.initializer}
    assert entries["w"] == ("optimized.data", 0, 4096 * 4)
    assert entries["b"] is None
    (after,) = run_session(create_session(path), {"x": x})
    assert np.array_equal(before, after)


def test_model_given_as_an_object(tmp_path):
    path = optimize_offline(load_model(dense()), tmp_path)
    assert external_entry(load_model(path).proto.graph.initializer[0]) is not None


def test_refused_model_is_one_line(tmp_path):
    with pytest.raises(
        UnsupportedModel, match="dense: this ONNX Runtime cannot run the model: .*Nope"
    ) as caught:
        optimize_offline(load_model(dense("Nope")), tmp_path)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_unknown_level(tmp_path):
    with pytest.raises(UsageError, match="expected one of basic, extended, all"):
        optimize_offline(load_model(dense()), tmp_path, level="most")


def test_level_all_is_for_the_cpu_only(tmp_path):
    with pytest.raises(UsageError, match="one processor.*'cpu'"):
        optimize_offline(load_model(dense()), tmp_path, "cuda", "all")
