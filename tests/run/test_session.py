import threading
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnx_symmem import api
from onnx_symmem.errors import ModelFileError, RunFailed, UnsupportedModel, UsageError
from onnx_symmem.graph.load import load_model
from onnx_symmem.run import session as session_module
from onnx_symmem.run.session import (
    SessionSettings,
    create_session,
    kept,
    reason_of,
    run_session,
    shipped,
    unpacked,
)


def chain() -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])
    nodes = [helper.make_node("Neg", ["x"], ["h"], name="first"), helper.make_node("Exp", ["h"], ["y"])]
    graph = helper.make_graph(nodes, "chain", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def test_kept_settings_reach_onnx_runtime():
    options = kept().to_session_options()
    assert options.execution_order.name == "PRIORITY_BASED"
    assert options.graph_optimization_level.name == "ORT_DISABLE_ALL"
    assert not options.enable_mem_pattern
    assert not options.enable_mem_reuse
    assert options.get_session_config_entry("session.use_env_allocators") == "1"


def test_shipped_settings_are_the_defaults_of_onnx_runtime():
    import onnxruntime as ort

    ours, theirs = shipped().to_session_options(), ort.SessionOptions()
    for name in (
        "execution_order",
        "graph_optimization_level",
        "execution_mode",
        "enable_mem_pattern",
        "enable_mem_reuse",
        "intra_op_num_threads",
        "enable_profiling",
    ):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert shipped().config_entries() == {}


def test_cuda_settings():
    settings = kept("cuda")
    assert settings.config_entries() == {"session.use_device_allocator_for_initializers": "1"}
    assert settings.provider_options() == {
        "device_id": "0",
        "arena_extend_strategy": "kSameAsRequested",
        "use_ep_level_unified_stream": "1",
    }


@pytest.mark.parametrize(
    "wrong",
    [{"provider": "tpu"}, {"optimization": "most"}, {"execution_order": "file"}, {"arena": "none"}],
)
def test_unknown_settings_are_refused(wrong):
    with pytest.raises(UsageError, match="expected one of"):
        SessionSettings(**wrong)


def test_sources(tmp_path):
    path = tmp_path / "chain.onnx"
    onnx.save(chain(), path)
    x = np.full((2, 4), -1, np.float32)
    for source in (path, str(path), chain(), load_model(path)):
        (y,) = run_session(create_session(source), {"x": x})
        assert np.allclose(y, np.e)


def test_loaded_model_finds_its_external_weights(tmp_path):
    w = helper.make_tensor("w", TensorProto.FLOAT, [64, 64], np.eye(64, dtype=np.float32).tobytes(), raw=True)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 64])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 64])
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [w])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    path = tmp_path / "m.onnx"
    onnx.save(model, path, save_as_external_data=True, location="m.bin", size_threshold=0)
    feed = np.ones((3, 64), np.float32)
    (result,) = run_session(create_session(load_model(path)), {"x": feed})
    assert np.array_equal(result, feed)
    (tmp_path / "m.bin").unlink()
    with pytest.raises(ModelFileError, match="missing"):
        create_session(load_model(path))


def test_missing_file():
    with pytest.raises(ModelFileError, match="no such file"):
        create_session("nowhere/at-all.onnx")


def test_refusal_is_one_line_naming_the_cause():
    model = chain()
    model.graph.node[0].op_type = "Nope"
    with pytest.raises(UnsupportedModel) as caught:
        create_session(model)
    message = str(caught.value)
    assert "\n" not in message
    assert "No Op registered for Nope" in message
    assert "ONNXRuntimeError" not in message


def test_broken_run_is_one_line_without_source_places():
    session = create_session(chain())
    with pytest.raises(RunFailed, match="broke off.*data type") as caught:
        run_session(session, {"x": np.ones((2, 4), np.float64)}, label="chain.onnx")
    assert str(caught.value).startswith("chain.onnx: ")
    text = (
        "[ONNXRuntimeError] : 1 : FAIL : Non-zero status code returned while running Reshape node. Name:'rs' "
        "Status Message: /src/core/helper.h:84 ns::Helper::Helper(const Shape&, bool) size != 0 was false.\n"
    )
    assert reason_of(RuntimeError(text)) == (
        "Non-zero status code returned while running Reshape node. Name:'rs' "
        "Status Message: size != 0 was false."
    )


def test_absent_cuda_is_one_line(monkeypatch):
    monkeypatch.setattr(session_module, "cuda_problem", lambda: "no NVIDIA driver here")
    with pytest.raises(UsageError, match="provider 'cuda': no NVIDIA driver.*choose 'cpu'"):
        create_session(chain(), kept("cuda"))


def test_sessions_may_be_created_by_several_threads():
    failures = []

    def work():
        try:
            run_session(create_session(chain()), {"x": np.ones((1, 4), np.float32)})
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def identity(kind, sequence=False) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", kind, ["n"])
    if sequence:
        y = helper.make_tensor_sequence_value_info("y", kind, None)
        node = helper.make_node("SequenceConstruct", ["x", "x"], ["y"])
    else:
        y = helper.make_tensor_value_info("y", kind, ["n"])
        node = helper.make_node("Identity", ["x"], ["y"])
    graph = helper.make_graph([node], "g", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("kind", [TensorProto.BFLOAT16, TensorProto.FLOAT16, TensorProto.FLOAT8E4M3FN])
@pytest.mark.parametrize("count", [0, 3])
def test_narrow_floats_go_in_and_come_out(kind, count):
    x = np.arange(count).astype(helper.tensor_dtype_to_np_dtype(kind))
    (y,) = run_session(create_session(identity(kind)), {"x": x})
    assert y.tobytes() == x.tobytes()
    assert y.shape == (count,)


def test_strings_and_sequences():
    words = np.array(["a", "bc"], dtype=object)
    (y,) = run_session(create_session(identity(TensorProto.STRING)), {"x": words})
    assert list(y) == ["a", "bc"]
    x = np.ones(2, np.float32)
    (pair,) = run_session(create_session(identity(TensorProto.FLOAT, sequence=True)), {"x": x})
    assert [list(a) for a in pair] == [[1, 1], [1, 1]]


def test_unpacked_weights_are_not_laid_out_anew():
    """The weight of a MatMul is in the arena once more where kernels may pack it, else it is not."""
    rng = np.random.default_rng(0)
    weight = numpy_helper.from_array(rng.standard_normal((256, 256)).astype(np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "product",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 256])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", 256])],
        [weight],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    packed, bare = (api.run(model, {"n": 4}, prepacking=value) for value in (True, False))
    assert packed.static_bytes >= 4 * 256 * 256
    assert bare.static_bytes < 4 * 256
    assert bare.predicted_peak == bare.runs[0].requested_peak == packed.runs[0].requested_peak
    feeds = {"x": rng.standard_normal((4, 256)).astype(np.float32)}
    found = [api.create_session(model, prepacking=value).run(None, feeds)[0] for value in (True, False)]
    np.testing.assert_allclose(*found, rtol=1e-4, atol=1e-4)


def test_unpacked_is_said_once_and_the_rest_is_kept():
    settings = replace(kept(), config=(("session.disable_prepacking", "0"), ("a", "b")))
    assert unpacked(unpacked(settings)).config == (("a", "b"), ("session.disable_prepacking", "1"))
