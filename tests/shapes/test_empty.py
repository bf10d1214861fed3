"""Where ONNX Runtime goes its own way: products of nothing, slopes of PRelu, targets of losses."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnxruntime.capi.onnxruntime_inference_collection import OrtDevice

from onnx_symmem.expr.domain import Domain, SymbolRange
from tests.shapes.building import (
    FLOAT,
    INT64,
    assert_right,
    assert_true_at,
    graph,
    infer,
    model,
    node,
    texts,
    value,
)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((2, 1, 0), (7, 0, 3)),
        ((1, 2, 0), (4, 0, 3)),
        ((5, 1, 2, 0), (7, 0, 3)),
        ((2, 0), (5, 7, 0, 3)),
        ((0,), (7, 0, 3)),
        ((7, 2, 0), (0,)),
        ((1, 2, 4), (3, 4, 5)),
        ((0, 2, 3), (1, 3, 2)),
    ],
)
def test_a_product_without_inner_elements_has_the_batch_of_the_higher_rank(
    a: tuple[int, ...], b: tuple[int, ...]
) -> None:
    named = [[f"{name}{axis}" for axis in range(len(dims))] for name, dims in (("a", a), ("b", b))]
    inputs = [value(name, FLOAT, dims) for name, dims in zip("ab", named, strict=True)]
    at = dict(zip((*named[0], *named[1]), (*a, *b), strict=True))
    domain = Domain({name: SymbolRange(0) for name in at})
    assert_right(model(graph([node("MatMul", "a b", "y")], inputs, "y")), at, domain=domain)


def test_a_product_with_inner_elements_broadcasts_as_ever() -> None:
    inputs = [value("a", FLOAT, ["p", "q", "k"]), value("b", FLOAT, ["r", "k", "m"])]
    assert texts(infer(graph([node("MatMul", "a b", "y")], inputs, "y")), "y") == ["max(p, r)", "q", "m"]


def test_input_and_slope_broadcast_each_other() -> None:
    inputs = [value("x", FLOAT, ["a", "b", "c"]), value("slope", FLOAT, ["d", "c"])]
    proto = model(graph([node("PRelu", "x slope", "y")], inputs, "y"))
    sizes = [{"a": 2, "b": b, "c": 4, "d": d} for b, d in ((1, 3), (3, 1), (3, 3))]
    assert texts(assert_right(proto, *sizes), "y") == ["a", "max(b, d)", "c"]
    usual = graph([node("PRelu", "x s", "y")], [value("x", FLOAT, ["n", 3, "w"])], "y", s=np.ones((3, 1)))
    assert texts(infer(usual), "y") == ["n", "3", "w"]


@pytest.mark.parametrize("op", ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"])
def test_a_loss_has_one_element_per_target(op: str) -> None:
    inputs = [value("x", FLOAT, ["n", 4, "w"]), value("target", INT64, ["m", "v"])]
    proto = model(graph([node(op, "x target", "y", reduction="none")], inputs, "y"))
    sizes = [{"n": 3, "w": 5, "m": m, "v": v} for m, v in ((3, 5), (1, 2), (2, 5), (4, 5), (3, 6))]
    assert assert_true_at(proto, *sizes) == 3
    assert texts(infer(proto), "y") == ["m", "v"]


@pytest.mark.parametrize("left", [0, 1])
@pytest.mark.parametrize("right", [0, 1])
def test_a_product_of_a_sparse_matrix(left: int, right: int) -> None:
    sparse = onnx.ValueInfoProto(name="a")
    sparse.type.sparse_tensor_type.elem_type = FLOAT
    for name in ("m", "k"):
        sparse.type.sparse_tensor_type.shape.dim.add().dim_param = name
    one = node("SparseToDenseMatMul", "a b", "y", transA=left, transB=right)
    one.domain = "com.microsoft"
    proto = model(graph([one], [sparse, value("b", FLOAT, ["p", "q"])], "y"), 17, com_microsoft=1)
    rows, inner = (4, 3) if left else (3, 4)
    cells = np.array([0, 1, 1, 1], np.int64)
    ones = np.ones(2, np.float32)
    a = ort.SparseTensor.sparse_coo_from_numpy(np.array([3, 4]), ones, cells, OrtDevice.make("cpu", 0))
    b = np.ones((2, inner) if right else (inner, 2), np.float32)
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    feeds = {"a": ort.OrtValue.ort_value_from_sparse_tensor(a), "b": ort.OrtValue.ortvalue_from_numpy(b)}
    (y,) = session.run_with_ort_values(["y"], feeds)
    sizes = {"m": 3, "k": 4, "p": b.shape[0], "q": b.shape[1]}
    assert y.numpy().shape == (rows, 2)
    assert tuple(d.evaluate(sizes) for d in infer(proto).graph.of("y") or ()) == (rows, 2)
