"""Small models for the tests of the command: a plain one, one with all that inference reports, a free one."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["free_model", "odd_model", "plain_model"]

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def _weight(name: str, *dims: int) -> TensorProto:
    rng = np.random.default_rng(len(name) + sum(dims))
    return numpy_helper.from_array(rng.standard_normal(dims).astype(np.float32), name)


def _ints(name: str, *numbers: int) -> TensorProto:
    return numpy_helper.from_array(np.array(numbers, np.int64), name)


def plain_model() -> onnx.ModelProto:
    """A block of two branches over `batch` and `seq`, folded to two dims and back.

    ONNX Runtime would run the thin branch first and keep its result while the wide one needs most memory.
    """
    nodes = [
        helper.make_node("Shape", ["x"], ["x_shape"], name="shape"),
        helper.make_node("Reshape", ["x", "rows"], ["flat"], name="fold"),
        helper.make_node("MatMul", ["flat", "wide_up"], ["wide"], name="wide/up"),
        helper.make_node("Tanh", ["wide"], ["wide_active"], name="wide/tanh"),
        helper.make_node("MatMul", ["wide_active", "wide_down"], ["wide_out"], name="wide/down"),
        helper.make_node("MatMul", ["flat", "thin_up"], ["thin_out"], name="thin/up"),
        helper.make_node("Mul", ["wide_out", "thin_out"], ["gated"], name="gate"),
        helper.make_node("MatMul", ["gated", "down"], ["narrow"], name="down"),
        helper.make_node("Reshape", ["narrow", "x_shape"], ["back"], name="unfold"),
        helper.make_node("Add", ["back", "x"], ["y"], name="skip"),
    ]
    graph = helper.make_graph(
        nodes,
        "plain",
        [helper.make_tensor_value_info("x", FLOAT, ["batch", "seq", 8])],
        [helper.make_tensor_value_info("y", FLOAT, ["batch", "seq", 8])],
        [
            _ints("rows", -1, 8),
            _weight("wide_up", 8, 256),
            _weight("wide_down", 256, 64),
            _weight("thin_up", 8, 64),
            _weight("down", 64, 8),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def odd_model() -> onnx.ModelProto:
    """Data-dependent dims, a table of 16 positions, dims that must be equal, an If, dims declared wrongly."""
    then = helper.make_graph(
        [helper.make_node("Exp", ["added"], ["grown"], name="exp")],
        "then",
        [],
        [helper.make_tensor_value_info("grown", FLOAT, ["batch", "seq", 8])],
    )
    other = helper.make_graph(
        [
            helper.make_node("Neg", ["added"], ["turned"], name="neg"),
            helper.make_node("Abs", ["turned"], ["kept"], name="abs"),
        ],
        "else",
        [],
        [helper.make_tensor_value_info("kept", FLOAT, ["batch", "seq", 8])],
    )
    nodes = [
        helper.make_node("Shape", ["x"], ["seq_size"], name="size", start=1, end=2),
        helper.make_node("Slice", ["positions", "zero", "seq_size", "zero"], ["place"], name="cut"),
        helper.make_node("Add", ["x", "place"], ["placed"], name="place"),
        helper.make_node("Transpose", ["placed"], ["columns"], name="columns", perm=[0, 2, 1]),
        helper.make_node("MatMul", ["columns", "extra"], ["mixed"], name="mix"),
        helper.make_node("MatMul", ["placed", "mixed"], ["added"], name="apply"),
        helper.make_node("If", ["flag"], ["picked"], name="pick", then_branch=then, else_branch=other),
        helper.make_node("NonZero", ["picked"], ["hits"], name="find"),
        helper.make_node("Transpose", ["hits"], ["found"], name="turn"),
        helper.make_node("Identity", ["picked"], ["y"], name="give"),
    ]
    graph = helper.make_graph(
        nodes,
        "odd",
        [
            helper.make_tensor_value_info("x", FLOAT, ["batch", "seq", 8]),
            helper.make_tensor_value_info("extra", FLOAT, ["batch", "length", 8]),
            helper.make_tensor_value_info("flag", BOOL, []),
        ],
        [
            helper.make_tensor_value_info("y", FLOAT, ["batch", "seq", 8]),
            helper.make_tensor_value_info("found", INT64, ["hits", 3]),
        ],
        [_weight("positions", 16, 8), _ints("zero", 0)],
        value_info=[helper.make_tensor_value_info("place", FLOAT, ["places", 8])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def free_model() -> onnx.ModelProto:
    """A tensor as long as a number that is an input says, which nothing limits, and boxes that are kept."""
    nodes = [
        helper.make_node("ConstantOfShape", ["count"], ["blank"], name="fill"),
        helper.make_node("Exp", ["blank"], ["ones"], name="exp"),
        helper.make_node("ReduceSum", ["ones"], ["total"], name="sum"),
        helper.make_node("NonMaxSuppression", ["boxes", "scores", "all"], ["kept"], name="keep"),
    ]
    graph = helper.make_graph(
        nodes,
        "free",
        [
            helper.make_tensor_value_info("count", INT64, [1]),
            helper.make_tensor_value_info("boxes", FLOAT, [1, "n", 4]),
            helper.make_tensor_value_info("scores", FLOAT, [1, 1, "n"]),
        ],
        [
            helper.make_tensor_value_info("total", FLOAT, [1]),
            helper.make_tensor_value_info("kept", INT64, [None, 3]),
        ],
        [_ints("all", (1 << 63) - 1)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
