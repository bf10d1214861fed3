"""What ONNX Runtime's optimiser makes of small models: every op has a rule, every dim is the real one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

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
