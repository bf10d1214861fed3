"""The CPU table against ONNX Runtime itself: one small model per op."""

import numpy as np
import pytest
from onnx import helper

from onnx_symmem.errors import UsageError
from onnx_symmem.graph.view import view_model
from onnx_symmem.memory.sharing import sharing_of
from tests.memory.runtime import (
    BOOL,
    FLOAT,
    INT32,
    INT64,
    bytes_by_node,
    info,
    measured,
    model,
    number,
    planned,
    predicted,
)  # fmt: skip

UINT32 = 12
ONES = np.ones((3, 8), np.float32)

IN_PLACE = (
    "Relu", "LeakyRelu", "Elu", "Selu", "Celu", "Sigmoid", "HardSigmoid", "Tanh", "Softplus", "Softsign",
    "ThresholdedRelu", "Clip", "Softmax", "LogSoftmax", "Shrink", "Trilu",
)  # fmt: skip
ALIAS = ("Identity", "Flatten", "Squeeze")
NEITHER = ("Neg", "Abs", "Exp", "Log", "Sqrt", "Erf", "Floor", "Reciprocal", "Round", "Hardmax", "Dropout")


def one_op(op, reads=("a",), weights=(), opset=17, domain="", elem_type=FLOAT, **attributes):
    """x -> Neg -> op -> Size, all of [N, 8]: the op may take over what Neg made."""
    nodes = [
        helper.make_node("Neg", ["x"], ["a"], name="before"),
        helper.make_node(op, list(reads), ["b"], name="op", domain=domain, **attributes),
        helper.make_node("Size", ["b"], ["n"], name="after"),
    ]
    infos = [info("a", ["N", 8]), info("b", ["N", 8], elem_type)]
    domains = [domain] if domain else []
    return model(nodes, [info("x", ["N", 8])], [info("n", [], INT64)], weights, infos, opset, domains)


def check(proto, feeds):
    """Measured bytes per node, after they were found to be the predicted ones."""
    found = measured(proto, feeds)
    expected = bytes_by_node(predicted(proto), {"N": 3})
    assert {name: expected[name] for name in found} == found
    return found


def shares(proto, feeds=None):
    found = check(proto, feeds or {"x": ONES})
    return found["op"] == found["before"]


@pytest.mark.parametrize("op", [*IN_PLACE, *ALIAS])
def test_ops_that_share(op):
    assert shares(one_op(op))


@pytest.mark.parametrize("op", NEITHER)
def test_ops_that_do_not(op):
    assert not shares(one_op(op))


@pytest.mark.parametrize("opset", [8, 11, 13, 20])
@pytest.mark.parametrize("op", ["Relu", "Clip", "Softmax", "Sigmoid", "Flatten"])
def test_sharing_does_not_depend_on_the_opset(op, opset):
    assert shares(one_op(op, opset=opset))


@pytest.mark.parametrize(
    ("elem_type", "in_place"), [(INT32, True), (UINT32, True), (INT64, False), (BOOL, False)]
)
def test_cast_is_in_place_between_elements_of_one_size(elem_type, in_place):
    assert shares(one_op("Cast", elem_type=elem_type, to=elem_type)) is in_place


def test_ops_with_weights():
    at, rows = number("at", [[0]]), number("rows", [[9.0]], FLOAT)
    assert shares(one_op("ScatterElements", ("a", "at", "rows"), [at, rows]))
    assert shares(one_op("Reshape", ("a", "to"), [number("to", [-1, 8])]))
    assert not shares(one_op("ScatterND", ("a", "at", "row"), [at, number("row", [[1.0] * 8], FLOAT)]))
    assert not shares(one_op("Expand", ("a", "to"), [number("to", [1, 1])]))


def test_ops_of_other_domains():
    assert shares(one_op("Trilu", domain="com.microsoft"))
    assert not shares(one_op("Gelu", domain="com.microsoft"))
    assert not shares(one_op("QuickGelu", domain="com.microsoft"))
    assert shares(one_op("Scaler", domain="ai.onnx.ml", offset=[0.0], scale=[1.0]))
    assert shares(one_op("Normalizer", domain="ai.onnx.ml", norm="MAX"))
    assert not shares(one_op("Binarizer", domain="ai.onnx.ml", threshold=0.5))


def test_optional_get_element_is_an_alias():
    assert shares(one_op("OptionalGetElement", opset=18))


def test_bitcast_is_in_place():
    assert shares(one_op("BitCast", opset=26, elem_type=INT32, to=INT32))


def test_fused_conv_works_in_the_buffer_of_what_it_adds():
    nodes = [
        helper.make_node("Neg", ["x"], ["z"], name="before"),
        helper.make_node(
            "FusedConv", ["x", "w", "", "z"], ["b"], name="op", domain="com.microsoft", activation="Relu"
        ),
        helper.make_node("Size", ["b"], ["n"], name="after"),
    ]
    infos = [info("z", ["N", 2, 4, 4]), info("b", ["N", 2, 4, 4])]
    weight = number("w", np.ones((2, 2, 1, 1)), FLOAT)
    proto = model(
        nodes, [info("x", ["N", 2, 4, 4])], [info("n", [], INT64)], [weight], infos, 17, ["com.microsoft"]
    )
    assert shares(proto, {"x": np.ones((3, 2, 4, 4), np.float32)})


@pytest.mark.parametrize("opset", [14, 15])
def test_batch_normalization_in_training_updates_its_statistics_in_place(opset):
    nodes = [
        helper.make_node("Neg", ["one"], ["m"], name="m"),
        helper.make_node("Neg", ["one"], ["v"], name="v"),
        helper.make_node(
            "BatchNormalization", ["x", "one", "one", "m", "v"], ["y", "rm", "rv"], name="op", training_mode=1
        ),
        *(helper.make_node("Size", [name], ["n" + name], name="n" + name) for name in ("y", "rm", "rv")),
    ]
    infos = [info("m", [8]), info("v", [8]), info("y", ["N", 8, 2]), info("rm", [8]), info("rv", [8])]
    results = [info("n" + name, [], INT64) for name in ("y", "rm", "rv")]
    proto = model(nodes, [info("x", ["N", 8, 2])], results, [number("one", [1.0] * 8, FLOAT)], infos, opset)
    check(proto, {"x": np.ones((3, 8, 2), np.float32)})
    result = planned(proto)
    names = {v.name: v.index for v in result.view.values}
    assert [result.root[names[n]] for n in ("rm", "rv")] == [names["m"], names["v"]]


def test_grouped_attention_extends_its_cache_in_place_on_cuda_only():
    proto = model(
        [helper.make_node("GroupQueryAttention", ["q"], ["y"], domain="com.microsoft")],
        [info("q", ["N"])], [info("y", ["N"])], domains=["com.microsoft"],
    )  # fmt: skip
    node = view_model(proto).graph.nodes[0]
    assert sharing_of(node, "cuda").in_place == ((3, 1), (4, 2))
    assert sharing_of(node, "cpu").in_place == ()
    with pytest.raises(UsageError, match="provider 'tpu' is not modelled; expected one of cpu, cuda"):
        sharing_of(node, "tpu")
