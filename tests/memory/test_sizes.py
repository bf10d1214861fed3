from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from onnx_symmem.expr.expression import Expr
from onnx_symmem.expr.text import parse
from onnx_symmem.graph.load import load_model
from onnx_symmem.graph.view import view_model
from onnx_symmem.memory.sizes import (
    element_bits,
    from_declared,
    from_model,
    from_written,
    tensor_bytes,
    value_sizes,
)
from onnx_symmem.shapes.engine import infer_shapes
from tests.memory.runtime import BOOL, FLOAT, INT64, info, measured, model, number

N = Expr.symbol("N")


@pytest.mark.parametrize(
    ("elem_type", "text"),
    [
        ("FLOAT", "12*N"), ("DOUBLE", "24*N"), ("FLOAT16", "6*N"), ("BFLOAT16", "6*N"), ("INT64", "24*N"),
        ("BOOL", "3*N"), ("FLOAT8E5M2", "3*N"), ("COMPLEX128", "48*N"), ("UINT4", "(3*N + 1)//2"),
        ("FLOAT4E2M1", "(3*N + 1)//2"), ("INT2", "(3*N + 3)//4"),
    ],
)  # fmt: skip
def test_bytes_of_every_width(elem_type, text):
    assert tensor_bytes([N, 3], TensorProto.DataType.Value(elem_type)) == parse(text)


def test_scalars_and_types_without_a_width():
    assert tensor_bytes([], FLOAT) == 4
    assert tensor_bytes([N, 0], FLOAT) == 0
    assert tensor_bytes([N], TensorProto.STRING) is None
    assert tensor_bytes([N], TensorProto.UNDEFINED) is None


def test_types_without_a_width_are_those_that_onnx_runtime_cannot_hold_in_plain_tensors():
    without = {name for name, number in TensorProto.DataType.items() if element_bits(number) is None}
    assert without <= {"UNDEFINED", "STRING", "FLOAT6E2M3", "FLOAT6E3M2"}


def test_declared_keys_are_element_size_and_dims():
    branch = helper.make_graph([helper.make_node("Neg", ["x"], ["b"])], "b", [], [info("b", ["N", 2])])
    nodes = [
        helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch),
        helper.make_node("Cast", ["x"], ["d"], to=BOOL),
        helper.make_node("Neg", ["x"], ["e"]),
        helper.make_node("Identity", ["w"], ["f"]),
    ]
    infos = [info("d", ["N", 2], BOOL), info("e", ["N", None])]
    proto = model(
        nodes, [info("x", ["N", 2]), info("c", [], BOOL)], [info("y", ["N", 2])], [number("w", [7])], infos
    )
    view = view_model(proto).graph
    keys = from_declared(view)
    found = {v.name: keys.values[v.index] for v in view.values}
    assert found == {
        "x": (4, ("N", 2)), "c": (1, ()), "w": (8, (1,)), "y": (4, ("N", 2)), "d": (1, ("N", 2)), "e": None,
        "f": None,
    }  # fmt: skip
    assert keys.subgraphs[0, "then_branch"].values == (None, (4, ("N", 2)))


def shapes(view, dims, elem_types):
    return SimpleNamespace(view=view, dims=dims, elem_types=elem_types, subgraphs={})


def small_view():
    sequence = onnx.helper.make_tensor_sequence_value_info("s", FLOAT, None)
    nodes = [
        helper.make_node("Neg", ["x"], ["a"]),
        helper.make_node("SplitToSequence", ["a"], ["s"]),
        helper.make_node("Cast", ["x"], ["t"], to=TensorProto.STRING),
    ]
    return view_model(model(nodes, [info("x", ["N"])], [info("a", ["N"])], (), [sequence])).graph


def test_written_keys_are_the_printed_dims():
    view = small_view()
    dims = ((N * 2 + 1,), (N * 2 + 1, Expr.const(3)), None, (N,))
    assert from_written(shapes(view, dims, (FLOAT, INT64, 0, TensorProto.STRING))).values == (
        (4, ("2*N + 1",)), (8, ("2*N + 1", 3)), None, None,
    )  # fmt: skip


def test_sizes_say_why_they_are_unknown():
    view = small_view()
    sizes = value_sizes(shapes(view, ((N,), None, None, (N,)), (FLOAT, FLOAT, 0, TensorProto.STRING)))
    assert sizes.bytes == (4 * N, None, None, None)
    assert dict(sizes.why) == {
        1: "its rank is unknown", 2: "sequence_type is not modelled", 3: "strings are not modelled",
    }  # fmt: skip


def test_sizes_round_up_on_request():
    view = small_view()
    dims = ((N,), (Expr.const(3),), None, None)
    sizes = value_sizes(shapes(view, dims, (FLOAT, FLOAT, 0, 0)), rounding=256)
    assert sizes.bytes[0] == parse("256*((N + 63)//64)")
    assert sizes.bytes[1] == 256


def test_keys_of_a_model_as_it_is_include_what_inference_adds():
    nodes = [
        helper.make_node("Concat", ["x", "x"], ["a"], axis=0),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Concat", ["b", "x"], ["c"], axis=1),
        helper.make_node("Neg", ["c"], ["y"]),
    ]
    proto = model(nodes, [info("x", [1, "N"])], [info("y", None)], (), [info("b", ["rows", "M"])])
    keys = from_model(proto)
    assert dict(zip((v.name for v in view_model(proto).graph.values), keys.values, strict=True)) == {
        "x": (4, (1, "N")), "a": (4, (2, "N")), "b": (4, (2, "M")), "c": None, "y": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("a", "b", "in_place"),
    [
        (["rows", "M"], ["rows", "M"], True),  # texts stand for themselves
        ([2, "N"], [2, "M"], False),
        (["rows", "N"], ["other", "N"], True),  # both are the constant 2 that inference finds
        ([None, None], [None, None], True),
        (["rows", "M"], [None, None], True),  # what is not declared is filled in
        ([3, "N"], [3, "N"], False),  # a wrong constant makes the dim unknown
    ],
)
def test_how_onnx_runtime_merges_declared_and_inferred_dims(a, b, in_place):
    nodes = [
        helper.make_node("Concat", ["x", "x"], ["a"], axis=0, name="a"),
        helper.make_node("Relu", ["a"], ["b"], name="b"),
        helper.make_node("Size", ["b"], ["n"], name="n"),
    ]
    proto = model(nodes, [info("x", [1, "N"])], [info("n", [], INT64)], (), [info("a", a), info("b", b)])
    found = measured(proto, {"x": np.ones((1, 5), np.float32)})
    assert (found["a"] == found["b"]) is in_place
    keys = from_model(proto)
    named = {v.name: keys.values[v.index] for v in view_model(proto).graph.values}
    if a[0] != 3:
        assert (named["a"] == named["b"]) is in_place


def test_a_subgraph_that_inference_does_not_enter_has_no_sizes() -> None:
    """FlexAttention has graphs for scores; they are no control flow, and nothing of them is guessed."""
    inner = helper.make_graph(
        [helper.make_node("Abs", ["score"], ["out"])],
        "inner",
        [helper.make_tensor_value_info("score", TensorProto.FLOAT, [])],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, [])],
    )
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])
    graph = helper.make_graph([helper.make_node("NoSuchOp", ["x"], ["y"], body=inner)], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    sizes = value_sizes(infer_shapes(load_model(model).view()).graph)
    found = sizes.subgraphs[0, "body"]
    assert found.bytes == (None, None)
    assert set(found.why.values()) == {"NoSuchOp #0 is not followed inside"}
