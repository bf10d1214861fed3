"""Convolution, pooling and resizing: sizes and the limits they set."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from onnx_symmem.expr.domain import Domain, SymbolRange
from tests.shapes.building import (
    FLOAT,
    UINT8,
    assert_right,
    assert_true_at,
    graph,
    infer,
    model,
    node,
    texts,
    value,
)

LINE = value("x", FLOAT, ["n", 1, "w"])


def kernel(size: int) -> np.ndarray:
    return np.ones((1, 1, size), np.float32)


def test_a_chain_of_strided_convolutions_is_one_floor_division() -> None:
    nodes = [
        node("Conv", "x k10", "t", strides=[5]),
        node("Conv", "t k3", "u", strides=[2]),
        node("Conv", "u k3", "v", strides=[2]),
        node("Conv", "v k2", "y", strides=[2]),
    ]
    of = graph(nodes, [LINE], "y", k10=kernel(10), k3=kernel(3), k2=kernel(2))
    shapes = assert_right(model(of), *({"n": 1, "w": w} for w in (60, 61, 400, 401, 2999)))
    assert texts(shapes, "y") == ["n", "1", "(w + 20)//40 - 1"]
    assert [limit.text for limit in shapes.limits] == ["w >= 60"]
    assert not shapes.domain.contains({"n": 1, "w": 59})


@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize(
    ("size", "stride", "pads"), [(3, 3, (1, 1)), (2, 3, (1, 0)), (3, 2, (0, 1)), (4, 3, (2, 2))]
)
def test_rounding_up_drops_a_window_that_starts_in_the_padding(
    kind: str, size: int, stride: int, pads: tuple[int, int]
) -> None:
    one = node(kind, "x", "y", kernel_shape=[size], strides=[stride], pads=list(pads), ceil_mode=1)
    of = graph([one], [LINE], "y")
    assert_right(model(of, 22), *({"n": 1, "w": w} for w in range(4, 17)))


@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize("up", [0, 1])
@pytest.mark.parametrize(
    ("size", "stride", "pads", "dilation", "runs"),
    [(3, 1, (0, 0), 1, 10), (5, 3, (0, 0), 1, 11), (5, 2, (0, 0), 1, 10), (5, 1, (1, 1), 1, 10),
     (3, 2, (0, 0), 2, 10), (3, 1, (0, 0), 3, 6), (7, 3, (0, 2), 1, 11), (9, 2, (0, 0), 1, 6)],
)  # fmt: skip
def test_a_window_larger_than_its_input_is_no_limit_as_long_as_a_size_comes_out(
    kind: str, up: int, size: int, stride: int, pads: tuple[int, int], dilation: int, runs: int
) -> None:
    one = node(
        kind, "x", "y", kernel_shape=[size], strides=[stride], pads=list(pads), ceil_mode=up,
        dilations=[dilation],
    )  # fmt: skip
    found = assert_true_at(model(graph([one], [LINE], "y"), 22), *({"n": 1, "w": w} for w in range(1, 12)))
    assert found == runs


@pytest.mark.parametrize("kind", ["Conv", "ConvInteger"])
def test_a_kernel_larger_than_its_input_is_a_limit(kind: str) -> None:
    whole = kind == "ConvInteger"
    line = value("x", UINT8 if whole else FLOAT, ["n", 1, "w"])
    weights = np.ones((1, 1, 5), np.uint8 if whole else np.float32)
    of = graph([node(kind, "x k", "y", strides=[3], pads=[1, 0])], [line], "y", k=weights)
    assert assert_true_at(model(of), *({"n": 1, "w": w} for w in range(1, 12))) == 8


def test_pools_after_each_other_keep_one_floor() -> None:
    nodes = [
        node("AveragePool", a, b, kernel_shape=[2], strides=[2])
        for a, b in (("x", "s"), ("s", "t"), ("t", "y"))
    ]
    proto = model(graph(nodes, [LINE], "y"))
    assert texts(infer(proto), "y") == ["n", "1", "max(1, w//8)"]
    assert assert_true_at(proto, *({"n": 1, "w": w} for w in range(1, 35))) == 34


POOLS = [
    [(3, 2), (3, 2), (3, 2)],
    [(2, 2), (3, 2), (2, 2)],
    [(5, 3), (2, 2), (3, 2)],
    [(3, 2), (5, 4), (2, 3)],
]


@pytest.mark.parametrize("up", [0, 1])
@pytest.mark.parametrize("sizes", POOLS)
def test_three_pools_are_as_short_as_one(sizes: list[tuple[int, int]], up: int) -> None:
    names = ["x", "s", "t", "u"]
    nodes = [
        node("MaxPool", a, b, kernel_shape=[size], strides=[stride], ceil_mode=up)
        for a, b, (size, stride) in zip(names, names[1:], sizes, strict=False)
    ]
    shapes = infer(graph(nodes, [LINE], "u"))
    assert not shapes.unknowns
    assert all(limit.symbol == "w" for limit in shapes.limits)
    assert len(texts(shapes, "u")[2]) <= len("max(0, (w + 11)//12 - 1, min(1, (w + 11)//12 - 1))")  # type: ignore[index]
    assert assert_true_at(model(graph(nodes, [LINE], "u")), *({"n": 1, "w": w} for w in range(1, 50))) > 40


def test_a_convolution_after_pools_limits_the_size_itself() -> None:
    nodes = [
        node("Conv", "x k", "s", strides=[2]),
        node("MaxPool", "s", "t", kernel_shape=[3], strides=[2]),
        node("Conv", "t one", "u"),
        node("MaxPool", "u", "v", kernel_shape=[3], strides=[2]),
        node("Conv", "v one", "y"),
    ]
    of = graph(nodes, [LINE], "y", k=kernel(3), one=kernel(1))
    shapes = infer(of)
    assert [limit.text for limit in shapes.limits] == ["w >= 11"]
    assert texts(shapes, "t") == ["n", "1", "(w + 1)//4 - 1"]
    assert assert_true_at(model(of), *({"n": 1, "w": w} for w in range(1, 40))) == 29


def test_same_padding_rounds_up() -> None:
    of = graph([node("MaxPool", "x", "y", kernel_shape=[3], strides=[2], auto_pad="SAME_UPPER")], [LINE], "y")
    assert texts(infer(of), "y") == ["n", "1", "(w + 1)//2"]


def test_a_pool_inside_a_branch_sets_no_limit() -> None:
    def pooled(name: str, size: int) -> onnx.GraphProto:
        one = node("MaxPool", "x", f"{name}_y", kernel_shape=[size], strides=[3])
        return helper.make_graph([one], name, [], [onnx.ValueInfoProto(name=f"{name}_y")])

    of = graph(
        [node("If", "flag", "y", then_branch=pooled("then", 4), else_branch=pooled("else", 2))],
        [LINE, value("flag", onnx.TensorProto.BOOL, [])],
        "y",
    )
    shapes = infer(of)
    assert not shapes.limits
    inner = shapes.graph.subgraphs[0, "then_branch"].of("then_y")
    assert inner is not None
    # ONNX Runtime rounds (w - 4) / 3 towards zero.
    assert [inner[2].evaluate({"n": 1, "w": w}) for w in (1, 2, 3, 4, 7)] == [0, 1, 1, 1, 2]


@pytest.mark.parametrize("scale", [0.5, 0.25, 2.0, 3.0, 0.3, 0.7, 1.7, 2.94])
def test_resize_multiplies_in_float32(scale: float) -> None:
    of = graph([node("Resize", "x - scales", "y", mode="nearest")], [LINE], "y", scales=[1.0, 1.0, scale])
    assert_right(model(of), *({"n": 1, "w": w} for w in (4, 10, 11, 20, 29, 30, 70, 90, 1001)))


def test_resize_keeps_the_ratio_that_its_policy_says() -> None:
    image = value("x", FLOAT, [1, 1, "h", "w"])
    for policy in ("not_larger", "not_smaller"):
        one = node("Resize", "x - - sizes", "y", mode="nearest", axes=[2, 3], keep_aspect_ratio_policy=policy)
        of = graph([one], [image], "y", sizes=[7, 8])
        assert_right(model(of), {"h": 3, "w": 4}, {"h": 8, "w": 4}, {"h": 5, "w": 11}, {"h": 6, "w": 6})


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("dilation", [1, 2, 3])
def test_pads_of_a_dilated_window_are_those_of_the_plain_one(stride: int, dilation: int) -> None:
    one = node(
        "MaxPool", "x", "y", kernel_shape=[3], strides=[stride], dilations=[dilation], auto_pad="SAME_UPPER"
    )
    least = {(1, 2): 2, (1, 3): 4, (2, 3): 3}.get((stride, dilation), 1)  # below, less than no window
    assert_right(model(graph([one], [LINE], "y")), *({"n": 1, "w": w} for w in range(least, 13)))


def test_channels_fix_a_symbolic_channel_count() -> None:
    of = graph(
        [node("Conv", "x w", "y")],
        [value("x", FLOAT, ["n", "c", "w"])],
        "y",
        w=np.ones((2, 3, 1), np.float32),
    )
    shapes = infer(of)
    assert texts(shapes, "x") == ["n", "3", "w"]
    assert shapes.domain.equalities["c"] == 3
    assert [a.text for a in shapes.assumptions] == ["c == 3"]


def test_halves_and_doubles_demand_an_even_size() -> None:
    nodes = [
        node("MaxPool", "x", "t", kernel_shape=[2], strides=[2]),
        node("Resize", "t - scales", "u", mode="nearest"),
        node("Concat", "u x", "y", axis=1),
    ]
    of = graph(nodes, [LINE], "y", scales=[1.0, 1.0, 2.0])
    shapes = assert_right(model(of), {"n": 1, "w": 2}, {"n": 2, "w": 10})
    assert texts(shapes, "y") == ["n", "2", "w"]
    assert [limit.text for limit in shapes.limits if limit.divisor > 1] == ["w % 2 == 0"]
    assert not shapes.assumptions


def test_levels_of_a_unet_look_the_same_on_both_ways() -> None:
    nodes = [
        node("AveragePool", "x", "h", kernel_shape=[2], strides=[2]),
        node("AveragePool", "h", "q", kernel_shape=[2], strides=[2]),
        node("Resize", "q - scales", "h2", mode="nearest"),
        node("Concat", "h2 h", "hh", axis=1),
        node("Resize", "hh - scales", "x2", mode="nearest"),
        node("Concat", "x2 x", "y", axis=1),
    ]
    shapes = infer(graph(nodes, [LINE], "y", scales=[1.0, 1.0, 2.0]))
    assert texts(shapes, "h") == texts(shapes, "h2") == ["n", "1", "w//2"]
    assert texts(shapes, "y") == ["n", "3", "w"]
    assert shapes.domain.range_of("w") == SymbolRange(4, None, 4)


def test_a_limit_that_the_caller_guarantees_is_not_repeated() -> None:
    of = graph([node("Conv", "x w", "y")], [LINE], "y", w=kernel(5))
    assert not infer(of, domain=Domain({"w": SymbolRange(8)})).limits
    assert [limit.text for limit in infer(of).limits] == ["w >= 5"]


def test_a_domain_without_legal_shapes_is_said_to_be_so() -> None:
    of = graph([node("Conv", "x w", "y")], [LINE], "y", w=kernel(50))
    (limit,) = infer(of, domain=Domain({"w": SymbolRange(1, 8)})).limits
    assert "never met" in limit.reason
