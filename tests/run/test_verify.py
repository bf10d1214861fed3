import numpy as np
import pytest
from onnx import TensorProto, helper

from onnx_symmem.errors import VerificationFailed
from onnx_symmem.graph.load import load_model
from onnx_symmem.run.offline import optimize_offline
from onnx_symmem.run.verify import Verification, verify
from onnx_symmem.shapes.engine import infer_shapes

FLOAT = TensorProto.FLOAT


def info(name, dims, kind=FLOAT):
    return helper.make_tensor_value_info(name, kind, dims)


def model_of(nodes, inputs, outputs, initializers=(), opset=17):
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(initializers))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def scalar(name, value, kind=FLOAT):
    return helper.make_tensor(name, kind, [], [value])


def softmax(shift=0.0, extra=()):
    nodes = [
        helper.make_node("MatMul", ["x", "x"], ["h"], name="mm"),
        helper.make_node("Add", ["h", "shift"], ["k"], name="shift"),
        helper.make_node("Exp", ["k"], ["y"], name="exp"),
        helper.make_node("Relu", ["h"], ["z"], name="relu"),
    ]
    outputs = [info("y", ["n", "n"]), info("z", ["n", "n"])]
    return model_of(nodes, [info("x", ["n", "n"]), *extra], outputs, [scalar("shift", shift)])


def shapes_of(model):
    return infer_shapes(load_model(model).view())


AT = ({"n": 3}, {"n": 17})


def test_equal_bits():
    model = softmax()
    assert verify(model, softmax(), shapes_of(model), AT, level="none") == (
        Verification({"n": 3}, 2, True),
        Verification({"n": 17}, 2, True),
    )


def test_result_made_at_a_level_is_compared_at_that_level(tmp_path):
    model = softmax()
    result = optimize_offline(load_model(model), tmp_path)
    assert all(v.equal for v in verify(model, result, shapes_of(model), AT, level="extended"))


def test_difference_names_output_shape_and_size():
    model = softmax()
    with pytest.raises(VerificationFailed) as caught:
        verify(model, softmax(0.5), shapes_of(model), AT, level="none")
    message = str(caught.value)
    assert message.startswith("output 'y' at n=3: 9 of 9 numbers differ, by up to ")
    assert "\n" not in message


def test_tolerance():
    model = softmax()
    small, _ = verify(model, softmax(1e-4), shapes_of(model), AT, level="none", tolerance=1e-3)
    assert not small.equal
    assert small.worst_relative == pytest.approx(1e-4, rel=0.1)
    assert small.worst_absolute > 0
    with pytest.raises(VerificationFailed):
        verify(model, softmax(1e-2), shapes_of(model), AT, level="none", tolerance=1e-3)


def one_node(op, *inputs, kind=FLOAT, **attributes):
    node = helper.make_node(op, ["x", *(i.name for i in inputs)], ["y"], name="n", **attributes)
    return model_of([node], [info("x", ["n"])], [info("y", None, kind)], inputs)


def test_nan_of_the_same_bits_is_equal():
    model = one_node("Log")
    (found,) = verify(model, one_node("Log"), shapes_of(model), [{"n": 50}], level="none")
    assert found.equal


def test_nan_against_a_number_fails_whatever_the_tolerance():
    model = one_node("Log")
    with pytest.raises(VerificationFailed, match="inf of the largest"):
        verify(model, one_node("Neg"), shapes_of(model), [{"n": 50}], level="none", tolerance=1e9)


def test_signed_zeros_differ_in_bits():
    model = one_node("Mul", scalar("zero", 0.0))
    other = one_node("Mul", scalar("zero", -0.0))
    with pytest.raises(VerificationFailed, match="by up to 0 "):
        verify(model, other, shapes_of(model), [{"n": 5}], level="none")
    (found,) = verify(model, other, shapes_of(model), [{"n": 5}], level="none", tolerance=1e-9)
    assert (found.equal, found.worst_absolute) == (False, 0)


def test_other_type_or_dims():
    model = one_node("Identity")
    doubled = one_node("Concat", helper.make_tensor("z", FLOAT, [1], [0]), axis=0)
    with pytest.raises(VerificationFailed, match=r"float32\[6\] instead of float32\[5\]"):
        verify(model, doubled, shapes_of(model), [{"n": 5}], level="none")


def test_missing_output():
    model, result = softmax(), softmax()
    del result.graph.output[1]
    with pytest.raises(VerificationFailed, match="'z': the result has no such output"):
        verify(model, result, shapes_of(model), AT, level="none")


def test_random_operators_are_told_apart():
    """Without a seed the numbers hang on the node's place in the file, and change from run to run."""
    random = helper.make_node("RandomNormalLike", ["x"], ["y"], name="r")
    model = model_of([random], [info("x", ["n"])], [info("y", ["n"])])
    before = helper.make_node("Neg", ["x"], ["unused"], name="before")
    moved = model_of([before, random], [info("x", ["n"])], [info("y", ["n"])])
    with pytest.raises(VerificationFailed, match="the original itself gives other numbers"):
        verify(model, moved, shapes_of(model), [{"n": 5}], level="none")
    for node in (model.graph.node[0], moved.graph.node[1]):
        node.attribute.append(helper.make_attribute("seed", 1.0))
    (found,) = verify(model, moved, shapes_of(model), [{"n": 5}], level="none")
    assert found.equal


def test_feeds_for_the_result_only():
    model = softmax()
    result = softmax(extra=[info("limit", [], TensorProto.INT64)])
    found = verify(
        model, result, shapes_of(model), AT, level="none", result_feeds={"limit": np.array(1, np.int64)}
    )
    assert all(v.equal for v in found)


def test_sequences_and_texts():
    nodes = [helper.make_node("SequenceConstruct", ["x", "x"], ["y"])]
    model = model_of(nodes, [info("x", ["n"])], [helper.make_tensor_sequence_value_info("y", FLOAT, None)])
    (found,) = verify(model, model, shapes_of(model), [{"n": 5}], level="none")
    assert found.equal
    nodes = [helper.make_node("SequenceConstruct", ["x"], ["y"])]
    other = model_of(nodes, [info("x", ["n"])], [helper.make_tensor_sequence_value_info("y", FLOAT, None)])
    with pytest.raises(VerificationFailed, match="the contents differ"):
        verify(model, other, shapes_of(model), [{"n": 5}], level="none")


def test_large_arrays_are_compared_in_pieces():
    from onnx_symmem.run.verify import _difference

    a = np.zeros(3_000_000, np.float32)
    b = a.copy()
    a[0], b[-1] = 4, 1
    b[0] = 4
    assert _difference(a, b) == (1, 1.0, 0.25)
