"""Reductions of tensors that may be empty: ONNX Runtime leaves their negative axes as they are."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from benchmarks.real_shapes import run_all_outputs
from onnx_symmem.expr.domain import Domain, SymbolRange
from onnx_symmem.graph.load import load_model
from tests.shapes.building import FLOAT, assert_right, graph, infer, model, node, texts, value

CUBE = value("x", FLOAT, ["a", "b", "c"])
ANY = Domain({name: SymbolRange(0) for name in "abc"})
SIZES = [{"a": a, "b": b, "c": c} for a in (0, 2) for b in (0, 3) for c in (0, 4)]
OPS = ["ReduceSum", "ReduceMax", "ReduceMean", "ReduceL2", "ReduceLogSumExp", "ReduceProd", "ReduceSumSquare"]


def reduction(op: str, axes: list[int], keep: int, opset: int = 18, **more: int) -> onnx.ModelProto:
    if op.startswith("Arg"):
        return model(graph([node(op, "x", "y", axis=axes[0], keepdims=keep)], [CUBE], "y"), opset)
    if opset < 13:
        return model(graph([node(op, "x", "y", axes=axes, keepdims=keep)], [CUBE], "y"), opset)
    one = node(op, "x axes", "y", keepdims=keep, **more)
    return model(graph([one], [CUBE], "y", axes=np.array(axes, np.int64)), opset)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("axes", [[-1], [0, -1], [-2, -3], [1], [-1, 2], []])
@pytest.mark.parametrize("opset", [11, 18])
def test_kept_axes_of_tensors_that_may_be_empty(op: str, axes: list[int], opset: int) -> None:
    if opset == 11 and not axes:
        return
    assert_right(reduction(op, axes, 1, opset), *SIZES, domain=ANY)


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_kept_axis_of_the_largest_of_tensors_that_may_be_empty(op: str) -> None:
    assert_right(reduction(op, [-2], 1), *SIZES, domain=ANY)
    assert texts(infer(reduction(op, [-2], 1)), "y") == ["a", "1", "c"]


@pytest.mark.parametrize("op", ["ReduceSum", "ArgMax"])
def test_dropped_axes_are_those_of_a_tensor_that_is_not_empty(op: str) -> None:
    proto = reduction(op, [-1], 0)
    assert not infer(proto).assumptions
    shapes = infer(proto, domain=ANY)
    assert texts(shapes, "y") == ["a", "b"]
    (needed,) = shapes.assumptions
    assert (needed.kind, needed.text) == ("nonempty", "min(1, a)*min(1, b)*min(1, c) >= 1")
    # The reason: even the rank is another one.
    real, _ = run_all_outputs(load_model(proto), {"x": np.zeros((2, 0, 4), np.float32)})
    assert real["y"] == (2, 0, 4)
    # Axes counted from the front are dropped, empty or not.
    right = assert_right(
        reduction(op, [1], 0), {"a": 2, "b": 3, "c": 0}, {"a": 0, "b": 3, "c": 4}, domain=ANY
    )
    assert not right.assumptions


def test_a_tensor_that_is_always_empty_keeps_its_negative_axes() -> None:
    of = graph(
        [node("ReduceSum", "x axes", "y", keepdims=0)], [value("x", FLOAT, ["a", 0])], "y", axes=[-2, 1]
    )
    assert texts(assert_right(model(of), {"a": 3}), "y") == ["a"]


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("keep", [0, 1])
def test_no_axes_at_all_reduce_nothing_where_that_is_asked_for(op: str, keep: int) -> None:
    shapes = assert_right(reduction(op, [], keep, noop_with_empty_axes=1), *SIZES, domain=ANY)
    assert texts(shapes, "y") == ["a", "b", "c"]


@pytest.mark.parametrize("op", ["ReduceSum", "ReduceSumSquare", "ReduceL1"])
def test_contents_that_are_not_reduced_are_those_of_the_op(op: str) -> None:
    nodes = [
        node(op, "k none", "t", noop_with_empty_axes=1),
        node("Abs", "t", "s"),
        node("Expand", "x s", "y"),
    ]
    of = graph(nodes, [value("x", FLOAT, [1, 1])], "y", k=[-3, 2], none=np.zeros(0, np.int64))
    real, _ = run_all_outputs(load_model(model(of)), {"x": np.ones((1, 1), np.float32)})
    dims = texts(infer(of), "y")
    assert dims is not None
    for dim, size in zip(dims, real["y"], strict=True):
        assert not dim.isdigit() or int(dim) == size
