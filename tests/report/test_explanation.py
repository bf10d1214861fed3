"""Every dim is explained back to its ends, on all small models; single operators by example."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from models.build import MODELS, build
from onnx_symmem.api import infer_shapes
from onnx_symmem.errors import UsageError
from onnx_symmem.expr.text import parse
from onnx_symmem.report.explanation import Step, explain
from onnx_symmem.report.text.explanation import show_explanation
from onnx_symmem.report.text.layout import console_for
from tests.cli.small import free_model, odd_model, plain_model
from tests.conftest import DATA

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
SMALL = {"free": free_model, "odd": odd_model, "plain": plain_model}
ENDS = ("input", "weight", "constant", "unknown")


def shapes_of(name: str):
    if name in SMALL:
        return infer_shapes(SMALL[name]())
    return infer_shapes(DATA / f"{name}.onnx" if name not in MODELS else build(name))


def symbols(step: Step) -> frozenset[str]:
    return frozenset() if step.value is None else parse(step.value).symbols()


@pytest.mark.parametrize("name", [*SMALL, *MODELS, "llama_8l_kv", "randwire_ws_hw", "whisper_decoder"])
def test_every_dim_leads_to_ends_that_have_its_symbols(name: str) -> None:
    shapes = shapes_of(name)
    values = [v for graph in shapes.graph.walk() for v in graph.view.values]
    # Every tensor of a small model, about forty of a large one.
    for value in values[:: max(1, len(values) // 40)]:
        for dim in explain(name, shapes, value.name).dims:
            steps = dim.steps
            assert steps[0].value == dim.value
            ends = frozenset().union(*(symbols(s) for s in steps if s.kind in ENDS))
            assert symbols(steps[0]) <= ends, steps[0]
            for k, step in enumerate(steps):
                assert step.kind in (*ENDS, "same", "computed")
                assert step.reason
                assert (step.axis is None) != (step.item is None)
                assert k not in step.sources
                if step.kind == "same":
                    assert [steps[j].value for j in step.sources] == [step.value]
                if step.kind in ENDS:
                    assert step.sources == ()
            reached = {0, *(j for s in steps for j in s.sources)}
            assert reached == set(range(len(steps)))


# ---------------------------------------------------------------------------------------- by example


def why(
    node: onnx.NodeProto,
    inputs: dict[str, Sequence[int | str | None]],
    constants: dict[str, Sequence[int]] | None = None,
    before: Sequence[onnx.NodeProto] = (),
) -> list[list[str]]:
    """Per dim of the node's first output, the steps as `place = value: reason`."""
    weights = [numpy_helper.from_array(np.array(v, np.int64), k) for k, v in (constants or {}).items()]
    graph = helper.make_graph(
        [*before, node],
        "g",
        [helper.make_tensor_value_info(k, FLOAT, v) for k, v in inputs.items()],
        [helper.make_tensor_value_info(node.output[0], FLOAT, None)],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    found = explain("m", infer_shapes(model), node.output[0])
    return [[f"{s.place} = {s.value}: {s.reason}" for s in dim.steps] for dim in found.dims]


def test_a_convolution_gives_its_window() -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"], strides=[2, 2], pads=[1, 1, 1, 1], dilations=[1, 2])
    dims = why(node, {"x": ["batch", 3, "height", "width"], "w": [16, 3, 3, 3]})
    formula = "(size + pads - dilation*(kernel - 1) - 1)//stride + 1"
    assert dims[0] == ["y[0] = batch: the batch of x", "x[0] = batch: a dim of an input"]
    assert dims[1] == ["y[1] = 16: the filters of w", "w[0] = 16: a dim of an input"]
    assert dims[2] == [
        f"y[2] = (height + 1)//2: windows along x[2]: {formula} with pads 2, dilation 1, kernel 3, stride 2",
        "x[2] = height: a dim of an input",
    ]
    assert dims[3][0].endswith("with pads 2, dilation 2, kernel 3, stride 2")


def test_a_reshape_gives_its_product() -> None:
    dims = why(
        helper.make_node("Reshape", ["x", "to"], ["y"]), {"x": ["batch", "seq", 64]}, {"to": [0, -1, 16]}
    )
    assert dims[0][0] == "y[0] = batch: a 0 in to copies the size of x[0]"
    assert dims[1] == [
        "y[1] = 4*seq: the elements of x [batch, seq, 64] over the other dims [batch, 16]",
        "x[1] = seq: a dim of an input",
        "x[2] = 64: a dim of an input",
    ]
    assert dims[2] == ["y[2] = 16: what to asks for", "to element 2 = 16: a weight of the model"]


def test_sizes_are_followed_through_shape_arithmetic() -> None:
    before = [
        helper.make_node("Shape", ["x"], ["dims"]),
        helper.make_node("Gather", ["dims", "second"], ["seq"]),
        helper.make_node("Mul", ["seq", "two"], ["twice"]),
        helper.make_node("Concat", ["one", "twice"], ["to"], axis=0),
    ]
    (_, dim) = why(
        helper.make_node("ConstantOfShape", ["to"], ["y"]),
        {"x": ["batch", "seq"]},
        {"second": [-1], "two": [2], "one": [1]},
        before,
    )
    assert dim == [
        "y[1] = 2*seq: what to asks for",
        "to element 1 = 2*seq: what twice element 0 is",
        "twice element 0 = 2*seq: seq element 0 * two element 0",
        "seq element 0 = seq: what dims element 1 is",
        "dims element 1 = seq: the size of x[1]",
        "x[1] = seq: a dim of an input",
        "two element 0 = 2: a weight of the model",
    ]


def test_a_broadcast_names_the_operand() -> None:
    dims = why(helper.make_node("Add", ["x", "b"], ["y"]), {"x": ["batch", 1, "n"], "b": ["seq", "n"]})
    assert dims[0][0] == "y[0] = batch: the size of x[0], broadcast"
    assert dims[1][0] == "y[1] = seq: the size of b[0], broadcast with x[1] = 1"
    assert dims[2][0] == "y[2] = n: the size of x[2], as of b[1]"


def test_other_operators() -> None:
    x = {"x": ["batch", "seq", 8]}
    flat = why(helper.make_node("Flatten", ["x"], ["y"], axis=2), x)
    assert flat[0][0] == "y[0] = batch*seq: the product of x[0], x[1]"
    joined = why(helper.make_node("Concat", ["x", "past"], ["y"], axis=1), {**x, "past": ["batch", "old", 8]})
    assert joined[1][0].endswith(": the sum of x[1], past[1]")
    turned = why(helper.make_node("Transpose", ["x"], ["y"], perm=[2, 0, 1]), x)
    assert turned[2] == ["y[2] = seq: axis 1 of x, transposed", "x[1] = seq: a dim of an input"]
    summed = why(helper.make_node("ReduceSum", ["x", "axis"], ["y"], keepdims=0), x, {"axis": [0]})
    assert summed[0][0] == "y[0] = seq: the size of x[1]"
    cut = why(
        helper.make_node("Slice", ["x", "from", "to", "axis"], ["y"]),
        x,
        {"from": [1], "to": [1 << 62], "axis": [1]},
    )
    assert cut[1][0] == "y[1] = seq - 1: x[1] cut to [1:]"
    padded = why(helper.make_node("Pad", ["x", "pads"], ["y"]), x, {"pads": [0, 1, 0, 0, 2, 0]})
    assert padded[1][0] == "y[1] = seq + 3: x[1] + 1 + 2, padded"


def test_an_input_says_what_it_is_declared_as() -> None:
    found = explain("odd", infer_shapes(odd_model()), "extra")
    (step,) = found.dims[1].steps
    assert step.value == "seq"
    assert step.reason.startswith("a dim of an input, declared as length; seq == length (MatMul 'mix'")


def test_an_unknown_dim_gives_node_reason_and_bound() -> None:
    found = explain("odd", infer_shapes(odd_model()), "found")
    end = found.dims[0].steps[-1]
    assert (end.kind, end.node, end.tensor, end.axis) == ("unknown", "NonZero 'find'", "hits", 1)
    assert end.reason == "the number of nonzero elements depends on data; at most 8*batch*seq"


def test_an_unknown_rank_gives_its_reason() -> None:
    node = helper.make_node("NoSuchOp", ["x"], ["y"], "odd_one", domain="other")
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", FLOAT, ["n"])],
        [helper.make_tensor_value_info("y", FLOAT, None)],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("other", 1)]
    found = explain("m", infer_shapes(helper.make_model(graph, opset_imports=opsets)), "y")
    assert found.dims == ()
    assert found.reason == "other.NoSuchOp 'odd_one': no rule for this op"
    stream = io.StringIO()
    show_explanation(console_for(stream), found)
    assert "not even the number of dims is known" in stream.getvalue()


def test_a_name_that_does_not_exist_is_answered_with_near_ones() -> None:
    with pytest.raises(UsageError, match="no such tensor; did you mean wide_out, "):
        explain("plain.onnx", infer_shapes(plain_model()), "wde_out")
    with pytest.raises(UsageError, match="no such tensor$"):
        explain("plain.onnx", infer_shapes(plain_model()), "qqqqqq")


def test_steps_in_floats_are_followed() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"], name="Shape"),
        helper.make_node("Gather", ["shape", "zero"], ["height"], name="Gather"),
        helper.make_node("Cast", ["height"], ["h"], name="Cast", to=FLOAT),
        helper.make_node("Reciprocal", ["h"], ["r"], name="Reciprocal"),
        helper.make_node("Mul", ["r", "side"], ["scale"], name="Mul"),
        helper.make_node("Mul", ["scale", "h"], ["product"], name="Again"),
        helper.make_node("Floor", ["product"], ["low"], name="Floor"),
        helper.make_node("Cast", ["low"], ["size"], name="Whole", to=INT64),
        helper.make_node("ConstantOfShape", ["size"], ["y"], name="Fill"),
    ]
    numbers = {"zero": np.array([0], np.int64), "side": np.array([160], np.float32)}
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in numbers.items()],
    )  # fmt: skip
    shapes = infer_shapes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    (dim,) = explain("m", shapes, "y").dims
    steps = {step.tensor: step for step in dim.steps}
    assert steps["y"].value == "floor_f32(n, 1/n, 160)"
    assert steps["product"].value == "n * 160 * 1/n"
    assert steps["scale"].value == "160 * 1/n"
    assert steps["low"].reason == "product element 0, rounded down"
    assert steps["r"].reason == "1 / h element 0"
    assert steps["x"].value == "n"
