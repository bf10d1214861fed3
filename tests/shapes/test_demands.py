"""What ops ask of the dims of their inputs: shapes that ONNX Runtime refuses are outside the domain."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import numpy as np
import onnx
import pytest
from onnx import helper

from onnx_symmem.expr.domain import Domain, SymbolRange
from tests.shapes.building import FLOAT, assert_right, assert_true_at, graph, infer, model, node, texts, value

X = value("x", FLOAT, ["a", "b"])
IMAGE = value("x", FLOAT, ["n", "c", "h", "w"])


def sizes(**ranges: range | tuple[int, ...]) -> list[dict[str, int]]:
    """All combinations."""
    return [dict(zip(ranges, chosen, strict=True)) for chosen in product(*ranges.values())]


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap", "constant"])
@pytest.mark.parametrize("pads", [[1, 0, 0, 0], [2, 0, 3, 0], [0, 0, 0, 0], [-1, 0, 2, 0], [-1, 0, -1, 0]])
@pytest.mark.parametrize("least", [0, 1])
def test_pads_that_repeat_elements_need_some(mode: str, pads: list[int], least: int) -> None:
    proto = model(graph([node("Pad", "x p", "y", mode=mode)], [X], "y", p=pads), 19)
    domain = Domain({"a": SymbolRange(least), "b": SymbolRange(least)})
    # Sizes below 0 and empty tensors that are wrapped are refused without a limit that says so.
    cases = sizes(a=range(3 if pads[0] < 0 else least, 7), b=(1, 2))
    if least or mode == "constant":
        assert assert_true_at(proto, *cases, domain=domain) >= 2
    else:
        assert {limit.text for limit in infer(proto, domain=domain).limits} <= {"a >= 2"}


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"])
def test_a_pool_takes_images_or_no_image(op: str) -> None:
    attributes = {} if op.startswith("Global") else {"kernel_shape": [2, 1]}
    proto = model(graph([node(op, "x", "y", **attributes)], [IMAGE], "y"), 17)
    images = Domain({"n": SymbolRange(1), "c": SymbolRange(0), "h": SymbolRange(0), "w": SymbolRange(0)})
    cases = sizes(n=(1, 2), c=(0, 1), h=(0, 1, 2), w=(0, 1, 3))
    assert assert_true_at(proto, *cases, domain=images) == 8
    some = Domain({name: SymbolRange(0) for name in "nchw"})
    assert_right(proto, *sizes(n=(0,), c=(0, 1), h=(1, 2), w=(0, 1, 3)), domain=some)


ONES = {"k": np.ones((3, 2, 2, 2), np.float32)}
DEMANDS: Mapping[str, tuple[list[onnx.NodeProto], list[onnx.ValueInfoProto], list[dict[str, int]], int]] = {
    "transposed convolution": (
        [node("ConvTranspose", "x k", "y")], [IMAGE], sizes(n=(1, 2), c=(2, 3, 4), h=(1, 2), w=(1,)), 4,
    ),
    "instance normalization": (
        [node("InstanceNormalization", "x s s", "y")], [IMAGE, value("s", FLOAT, ["e"])],
        sizes(n=(1,), c=(1, 2, 3), h=(2,), w=(1,), e=(1, 2, 3)), 3,
    ),
    "blocks of channels": (
        [node("DepthToSpace", "x", "y", blocksize=2)], [IMAGE],
        sizes(n=(1,), c=range(1, 9), h=(1,), w=(2,)), 2,
    ),
    "two equal parts": (
        [node("Split", "x", "p q", axis=0, num_outputs=2)], [X], sizes(a=range(1, 9), b=(1,)), 7,
    ),
    "three parts": (
        [node("Split", "x", "p q r", axis=0, num_outputs=3)], [X], sizes(a=range(1, 12), b=(1,)), 8,
    ),
    "given parts": ([node("Split", "x parts", "p q", axis=1)], [X], sizes(a=(1, 2), b=range(1, 6)), 2),
    "largest elements": ([node("TopK", "x three", "y i", axis=1)], [X], sizes(a=(1,), b=range(1, 6)), 3),
    "resizing to nothing": (
        [
            node("Shape", "x", "s"), node("Div", "s quarter", "t"),
            node("Resize", "x - - t", "y", mode="nearest"),
        ],
        [IMAGE], sizes(n=(1,), c=(1,), h=range(1, 9), w=(4, 5)), 5 * 2,
    ),
    "an element of a sequence": (
        [node("SplitToSequence", "x", "s", axis=0), node("SequenceAt", "s second", "y")], [X],
        sizes(a=range(1, 5), b=(1, 2)), 6,
    ),
    "parts of a sequence": (
        [
            node("SplitToSequence", "x two", "s", axis=0), node("SequenceAt", "s second", "y"),
            node("SequenceAt", "s last", "z"), node("ConcatFromSequence", "s", "w", axis=0),
            node("SequenceLength", "s", "n"),
        ],
        [X], sizes(a=range(1, 9), b=(1, 2)), 12,
    ),
    "elements of a sequence": (
        [node("SequenceConstruct", "x x2", "s"), node("ConcatFromSequence", "s", "y", axis=0)],
        [X, value("x2", FLOAT, ["c", "d"])], sizes(a=(1, 2), b=(1, 2), c=(1, 3), d=(1, 2)), 8,
    ),
    "a stack": (
        [
            node("SequenceConstruct", "x x2", "s"),
            node("ConcatFromSequence", "s", "y", axis=1, new_axis=1),
        ],
        [X, value("x2", FLOAT, ["c", "d"])], sizes(a=(1, 2), b=(1, 2), c=(1, 2), d=(1, 2)), 4,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DEMANDS)
def test_what_is_refused_is_outside(name: str) -> None:
    nodes, inputs, cases, runs = DEMANDS[name]
    constants = {
        **ONES, "parts": [1, 2], "three": [3], "two": np.array(2), "second": np.array(1),
        "last": np.array(-1), "quarter": [1, 1, 4, 4],
    }  # fmt: skip
    used = {i for one in nodes for i in one.input}
    outputs = " ".join(o for one in nodes for o in one.output if o not in used)
    of = graph(nodes, inputs, outputs, **{k: v for k, v in constants.items() if k in used})
    assert assert_true_at(model(of), *cases) == runs
    assert not infer(of).unknowns


def test_parts_of_a_constant_size_are_known_by_their_number() -> None:
    nodes = [
        node("SplitToSequence", "x three", "s", axis=1),
        node("SequenceAt", "s zero", "first"),
        node("SequenceAt", "s last", "rest"),
        node("ConcatFromSequence", "s", "whole", axis=1),
        node("SequenceLength", "s", "length"),
        node("ConstantOfShape", "count", "filled"),
        node("Unsqueeze", "length axis", "count"),
    ]
    nodes = [*nodes[:5], nodes[6], nodes[5]]
    constants = {"three": np.array(3), "zero": np.array(0), "last": np.array(-1), "axis": [0]}
    of = graph(nodes, [X], "first rest whole filled", **constants)
    shapes = assert_right(model(of), *sizes(a=(1, 2), b=range(1, 12)))
    assert texts(shapes, "first") == ["a", "min(3, b)"]
    assert texts(shapes, "whole") == ["a", "b"]
    assert texts(shapes, "filled") == ["(b + 2)//3"]


def test_weights_of_a_recurrent_layer_say_what_it_takes() -> None:
    inputs = [value("x", FLOAT, ["s", "b", "i"]), value("w", FLOAT, ["d", "g", "j"])]
    of = graph([node("LSTM", "x w r", "y", hidden_size=3)], inputs, "y", r=np.ones((1, 12, 3), np.float32))
    domain = infer(of).domain
    assert (domain.equalities["d"], domain.equalities["g"]) == (1, 12)
    cases = sizes(s=(2,), b=(1, 3), i=(1, 2), d=(1, 2), g=(12, 16), j=(1, 2))
    assert assert_true_at(model(of), *cases) == 4


def test_inputs_of_many_were_alike_before_opset_8() -> None:
    other = value("x2", FLOAT, ["c", "d"])
    for op in ("Sum", "Max", "Min"):
        of = graph([node(op, "x x2", "y")], [X, other], "y")
        assert assert_true_at(model(of, 7), *sizes(a=(1, 2), b=(1, 2), c=(1, 2), d=(1, 2))) == 4
        assert texts(infer(of, 8), "y") == ["max(a, c)", "max(b, d)"]


def test_a_bias_is_spread_over_what_it_is_added_to() -> None:
    inputs = [X, value("y", FLOAT, ["k", "m"])]
    of = graph([node("Gemm", "x y c", "z")], inputs, "z", c=np.ones(4, np.float32))
    assert assert_true_at(model(of), *sizes(a=(1, 2), b=(1, 3), k=(1, 3), m=(1, 4))) == 4
    assert infer(of).domain.equalities["m"] == 4
    scaled = graph([node("LayerNormalization", "x g", "z")], [X], "z", g=np.ones(3, np.float32))
    assert assert_true_at(model(scaled), *sizes(a=(1, 2), b=(1, 2, 3, 4))) == 2


def test_attention_agrees_on_batch_heads_and_sizes() -> None:
    names = {"q": "bhld", "k": "ckse", "v": "fgtu"}
    inputs = [value(n, FLOAT, [f"{n}{d}" for d in dims]) for n, dims in names.items()]
    of = helper.make_graph([node("Attention", "q k v", "y")], "g", inputs, [onnx.ValueInfoProto(name="y")])
    found = infer(model(of, 24)).domain.equalities
    assert len(found) == 5  # batch twice, size of a head, heads of key and value, their length


POSITIONS = {
    "a range": [],
    "a range with axes": [node("Unsqueeze", "r zero1", "u"), node("Expand", "u full", "p")],
    "shifted": [node("Add", "r two", "q"), node("Add", "two q", "p")],
}


@pytest.mark.parametrize(("name", "most"), [("a range", 9), ("a range with axes", 9), ("shifted", 5)])
def test_a_table_of_positions_limits_the_length(name: str, most: int) -> None:
    nodes = [
        node("Shape", "x", "s", end=1),
        node("Squeeze", "s zero1", "n"),
        node("Range", "zero n one", "r"),
        *([node("Concat", "three s", "full", axis=0)] if "axes" in name else []),
        *POSITIONS[name],
        node("Gather", f"table {'p' if POSITIONS[name] else 'r'}", "y"),
    ]
    used = {i for one in nodes for i in one.input}
    constants = {
        "zero": np.array(0), "one": np.array(1), "two": np.array(2), "zero1": [0], "three": [3],
        "table": np.ones((9, 4), np.float32),
    }  # fmt: skip
    of = graph(nodes, [X], "y", **{k: v for k, v in constants.items() if k in used})
    assert [limit.text for limit in infer(of).limits] == [f"a <= {most}"]
    assert assert_true_at(model(of), *sizes(a=range(1, 13), b=(1,))) == most
    # Nothing is looked up where there are no positions.
    domain = Domain({"a": SymbolRange(0), "b": SymbolRange(1)})
    assert_right(model(of), {"a": 0, "b": 1}, {"a": 2, "b": 1}, domain=domain)


def test_steps_of_positions_are_counted() -> None:
    nodes = [
        node("Shape", "x", "s", end=1),
        node("Squeeze", "s zero1", "n"),
        node("Range", "one n three", "r"),
        node("Gather", "table r", "y"),
    ]
    constants = {"one": np.array(1), "three": np.array(3), "zero1": [0], "table": np.ones((9, 4), np.float32)}
    of = graph(nodes, [X], "y", **constants)
    domain = Domain({"a": SymbolRange(2), "b": SymbolRange(1)})
    assert assert_true_at(model(of), *sizes(a=range(2, 18), b=(1,)), domain=domain) == 9  # up to 1 + 2*3


@pytest.mark.parametrize(("indices", "least"), [([3], 4), ([-5], 5), ([0, 2, -1], 3), ([], 1)])
def test_indices_that_are_constants_need_an_axis_as_long(indices: list[int], least: int) -> None:
    of = graph([node("Gather", "x i", "y", axis=1)], [X], "y", i=np.array(indices, np.int64))
    assert assert_true_at(model(of), *sizes(a=(1, 2), b=range(1, 8))) == 2 * (8 - least)
    some = Domain({"a": SymbolRange(0), "b": SymbolRange(0)})
    assert_true_at(model(of), *sizes(a=(0, 1), b=range(8)), domain=some)


def test_a_mask_that_is_looked_up_by_ranges_is_as_long_as_these() -> None:
    nodes = [
        node("Shape", "x", "s"),
        node("Split", "s", "rows cols", axis=0, num_outputs=2),
        node("Squeeze", "rows zero1", "a"),
        node("Squeeze", "cols zero1", "b"),
        node("Range", "zero a one", "ra"),
        node("Range", "zero b one", "rb"),
        node("Unsqueeze", "ra one1", "ca"),
        node("Expand", "ca s", "ea"),
        node("Expand", "rb s", "eb"),
        node("Unsqueeze", "ea last", "ia"),
        node("Unsqueeze", "eb last", "ib"),
        node("Concat", "ia ib", "i", axis=-1),
        node("GatherND", "mask i", "y"),
    ]
    constants = {"zero": np.array(0), "one": np.array(1), "zero1": [0], "one1": [1], "last": [-1]}
    of = graph(nodes, [X, value("mask", FLOAT, ["c", "d"])], "y", **constants)
    assert [limit.text for limit in infer(of).limits] == ["-a + c >= 0", "-b + d >= 0"]
    assert assert_true_at(model(of), *sizes(a=(1, 2, 3), b=(1, 2), c=(1, 2, 3), d=(1, 2, 3))) == 6 * 5


def test_a_ratio_that_is_kept_may_leave_nothing() -> None:
    one = node("Resize", "x - - t", "y", mode="nearest", axes=[2, 3], keep_aspect_ratio_policy="not_larger")
    of = graph([one], [IMAGE], "y", t=[1, 3])
    shapes = assert_right(model(of, 19), {"n": 1, "c": 2, "h": 8, "w": 3}, {"n": 1, "c": 1, "h": 2, "w": 3})
    assert not shapes.limits
