"""What ONNX Runtime's optimiser makes of small models: every op has a rule, every dim is the real one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from benchmarks.real_shapes import compare_shapes, run_all_outputs
from benchmarks.shapes_corpus import optimised
from onnx_symmem.graph.load import load_model
from onnx_symmem.shapes.engine import infer_shapes
from onnx_symmem.shapes.registry import find_rule
from onnx_symmem.shapes.table import ModelShapes
from tests.shapes.building import FLOAT, feeds, graph, model, node, value

IMAGE = value("x", FLOAT, ["n", 3, "h", "w"])
SIZES = [{"n": 1, "h": 17, "w": 24}, {"n": 2, "h": 32, "w": 19}, {"n": 3, "h": 40, "w": 41}]
RNG = np.random.default_rng(5)


def weights(*dims: int) -> np.ndarray:
    return (RNG.standard_normal(dims) * 0.1).astype(np.float32)


def checked(
    proto: onnx.ModelProto, level: str, folder: Path, sizes: Sequence[Mapping[str, int]]
) -> ModelShapes:
    """Shapes of the optimised model, compared with those of real runs."""
    loaded = optimised(load_model(proto), folder, level)
    view = loaded.view()
    assert not [node.op for node in view.graph.nodes if find_rule(node.domain, node.op) is None]
    shapes = infer_shapes(view)
    session = None
    for at in sizes:
        shapes.domain.check(at)
        real, session = run_all_outputs(loaded, feeds(proto, at), session)
        assert not list(compare_shapes(shapes, real, at)), at
    return shapes


def ops(shapes: ModelShapes) -> set[str]:
    return {f"{n.domain}.{n.op}" for n in shapes.graph.view.nodes}


@pytest.mark.parametrize("channels", [8, 16, 20, 24, 32])
def test_blocks_of_channels(channels: int, tmp_path: Path) -> None:
    """A stem, pools, a skip connection, a grouped and a pointwise convolution, a head."""
    c = channels
    nodes = [
        node("Conv", "x w0 b0", "a", pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Relu", "a", "b"),
        node("MaxPool", "b", "p", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Conv", "p w1", "d", pads=[1, 1, 1, 1]),
        node("Add", "d p", "e"),
        node("Relu", "e", "f"),
        node("Conv", "f w2", "g", group=c, pads=[1, 1, 1, 1]),
        node("Sigmoid", "g", "h"),
        node("AveragePool", "h", "i", kernel_shape=[2, 2], ceil_mode=1),
        node("Conv", "i w3", "j"),
        node("Concat", "j i", "k", axis=1),
        node("GlobalAveragePool", "k", "l"),
        node("GlobalMaxPool", "j", "m"),
        node("Flatten", "l", "y"),
        node("Flatten", "m", "z"),
    ]
    constants = {
        "w0": weights(c, 3, 3, 3), "b0": weights(c), "w1": weights(c, c, 3, 3), "w2": weights(c, 1, 3, 3),
        "w3": weights(c, c, 1, 1),
    }  # fmt: skip
    proto = model(graph(nodes, [IMAGE], "y z", **constants))
    shapes = checked(proto, "all", tmp_path, SIZES)
    assert [op for op in ops(shapes) if op.startswith("com.microsoft.nchwc.")]
    assert not shapes.unknowns


def test_an_image_that_is_put_into_blocks_first(tmp_path: Path) -> None:
    """Inputs of many channels are reordered; what follows tells how far they were padded."""
    nodes = [
        node("Conv", "x w", "a", pads=[1, 1, 1, 1]),
        node("Resize", "a - scales", "b", mode="nearest", nearest_mode="floor",
             coordinate_transformation_mode="asymmetric"),
        node("Conv", "b v", "y"),
    ]  # fmt: skip
    of = graph(
        nodes, [value("x", FLOAT, ["n", 24, "h", "w"])], "y", w=weights(32, 24, 3, 3),
        v=weights(16, 32, 1, 1), scales=[1.0, 1.0, 2.0, 2.0],
    )  # fmt: skip
    shapes = checked(model(of), "all", tmp_path, SIZES)
    assert "com.microsoft.nchwc.ReorderInput" in ops(shapes)
    assert "com.microsoft.nchwc.Upsample" in ops(shapes)
    assert not shapes.unknowns


def test_blocks_of_an_unknown_size_are_bounded(tmp_path: Path) -> None:
    """Pooling does not tell the padded number of channels: it is at most the next multiple of 16."""
    of = graph(
        [node("ReorderInput", "x", "a", domain="com.microsoft.nchwc")],
        [value("x", FLOAT, ["n", 20, "h", "w"])],
        "a",
    )
    loaded = load_model(model(of, com_microsoft_nchwc=1))
    shapes = infer_shapes(loaded.view())
    (unknown,) = shapes.unknowns
    assert str(unknown.bound) == "32"
    at = {"n": 1, "h": 4, "w": 5}
    real, _ = run_all_outputs(loaded, feeds(loaded.proto, at))
    assert not list(compare_shapes(shapes, real, at))
    assert 20 <= real["a"][1] <= 32


class Quantised:
    """Nodes with QuantizeLinear and DequantizeLinear around every tensor, as quantisers write them."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {"s": np.float32(0.05), "z": np.uint8(128), "zw": np.int8(0)}

    def around(self, tensor: str) -> str:
        self.nodes += [
            node("QuantizeLinear", f"{tensor} s z", f"{tensor}_q"),
            node("DequantizeLinear", f"{tensor}_q s z", f"{tensor}_d"),
        ]
        return f"{tensor}_d"

    def weight(self, name: str, *dims: int) -> str:
        self.constants[name] = RNG.integers(-9, 9, dims).astype(np.int8)
        self.nodes.append(node("DequantizeLinear", f"{name} s zw", f"{name}_d"))
        return f"{name}_d"

    def op(self, kind: str, inputs: str, output: str, **attributes: Any) -> str:
        self.nodes.append(node(kind, inputs, output, **attributes))
        return self.around(output)


@pytest.mark.parametrize("level", ["extended", "all"])
def test_quantised_images(level: str, tmp_path: Path) -> None:
    q = Quantised()
    x = q.around("x")
    a = q.op("Conv", f"{x} {q.weight('w0', 16, 3, 3, 3)}", "a", pads=[1, 1, 1, 1], strides=[2, 2])
    b = q.op("Relu", a, "b")
    c = q.op("MaxPool", b, "c", kernel_shape=[2, 2])
    d = q.op("Conv", f"{c} {q.weight('w1', 16, 16, 1, 1)}", "d")
    e = q.op("Add", f"{d} {c}", "e")
    f = q.op("Sigmoid", e, "f")
    g = q.op("Mul", f"{e} {f}", "g")
    h = q.op("Concat", f"{g} {c}", "h", axis=1)
    i = q.op("AveragePool", h, "i", kernel_shape=[2, 2])
    k = q.op("LeakyRelu", i, "k")
    m = q.op("GlobalAveragePool", k, "m")
    n = q.op("Flatten", m, "n")
    o = q.op("Gemm", f"{n} {q.weight('w2', 5, 32)}", "o", transB=1)
    q.nodes.append(node("Softmax", o, "y", axis=-1))
    proto = model(graph(q.nodes, [IMAGE], "y", **q.constants))
    shapes = checked(proto, level, tmp_path, SIZES)
    assert {op.split(".")[-1] for op in ops(shapes)} >= {
        "QLinearConv",
        "QLinearAdd",
        "QLinearConcat",
        "QGemm",
    }
    assert not shapes.unknowns


@pytest.mark.parametrize("level", ["extended", "all"])
def test_dynamically_quantised_products(level: str, tmp_path: Path) -> None:
    nodes = [
        node("DynamicQuantizeLinear", "x", "q s z"),
        node("MatMulInteger", "q w z zw", "i"),
        node("Cast", "i", "f", to=FLOAT),
        node("Mul", "s ws", "t"),
        node("Mul", "f t", "m"),
        node("Add", "m b", "a"),
        node("LayerNormalization", "a g g", "n", axis=-1),
        node("Add", "n x", "r"),
        node("LayerNormalization", "r g g", "o", axis=-1),
        node("Erf", "o", "e"),
        node("MatMul", "e v", "y"),
    ]
    constants = {
        "w": np.ones((16, 16), np.int8), "zw": np.int8(0), "ws": np.float32(0.1), "b": weights(16),
        "g": weights(16), "v": weights(16, 4),
    }  # fmt: skip
    x = value("x", FLOAT, ["n", "s", 16])
    proto = model(graph(nodes, [x], "y", **constants))
    shapes = checked(proto, level, tmp_path, [{"n": 1, "s": 5}, {"n": 4, "s": 2}])
    names = {op.split(".")[-1] for op in ops(shapes)}
    assert names & {"MatMulIntegerToFloat", "DynamicQuantizeMatMul"}
    assert "SkipLayerNormalization" in names or "LayerNormalization" in names


@pytest.mark.parametrize("level", ["extended", "all"])
def test_transformer_layers(level: str, tmp_path: Path) -> None:
    """The layer that ONNX Runtime fuses into attention, and the gelu behind it."""
    nodes = [
        node("LayerNormalization", "x g g", "n0", axis=-1),
        *(step for part in "qkv" for step in (
            node("MatMul", f"n0 w{part}", f"m{part}"),
            node("Add", f"m{part} b{part}", f"a{part}"),
            node("Reshape", f"a{part} heads", f"r{part}"),
            node("Transpose", f"r{part}", f"t{part}", perm=[0, 2, 3, 1] if part == "k" else [0, 2, 1, 3]),
        )),
        node("MatMul", "tq tk", "s0"),
        node("Div", "s0 root", "s1"),
        node("Softmax", "s1", "s2", axis=-1),
        node("MatMul", "s2 tv", "c0"),
        node("Transpose", "c0", "c1", perm=[0, 2, 1, 3]),
        node("Reshape", "c1 merged", "c2"),
        node("MatMul", "c2 wo", "o0"),
        node("Add", "o0 bo", "o1"),
        node("Add", "o1 x", "o2"),
        node("LayerNormalization", "o2 g g", "n1", axis=-1),
        node("MatMul", "n1 wi", "i0"),
        node("Add", "i0 bi", "i1"),
        node("Div", "i1 two", "e0"),
        node("Erf", "e0", "e1"),
        node("Add", "e1 one", "e2"),
        node("Mul", "i1 e2", "e3"),
        node("Mul", "e3 half", "e4"),
        node("MatMul", "e4 wj", "y"),
    ]  # fmt: skip
    constants: dict[str, np.ndarray] = {f"w{part}": weights(16, 16) for part in "qkvo"}
    constants |= {f"b{part}": weights(16) for part in "qkvo"}
    constants |= {
        "heads": np.array([0, 0, 2, 8]), "merged": np.array([0, 0, 16]), "root": np.float32(2.83),
        "wi": weights(16, 32), "bi": weights(32), "wj": weights(32, 16), "two": np.float32(2**0.5),
        "one": np.float32(1), "half": np.float32(0.5), "g": weights(16),
    }  # fmt: skip
    proto = model(graph(nodes, [value("x", FLOAT, ["n", "s", 16])], "y", **constants))
    shapes = checked(proto, level, tmp_path, [{"n": 1, "s": 5}, {"n": 3, "s": 8}])
    assert [op for op in ops(shapes) if op.startswith("com.microsoft.")]
    assert not shapes.unknowns
