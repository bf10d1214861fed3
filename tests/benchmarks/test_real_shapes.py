"""The comparison of inferred dims with those of real runs: what it draws, what it finds, what it counts."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.real_shapes import compare_shapes, random_shapes, run_all_outputs
from benchmarks.shapes_corpus import compare_model, optimised
from onnx_symmem.graph.load import load_model
from onnx_symmem.shapes.engine import infer_shapes
from tests.shapes.building import FLOAT, feeds, graph, model, node, value

NODES = [
    node("Conv", "x w", "a"),
    node("Relu", "a", "b"),
    node("NonZero", "b", "found"),
    node("Flatten", "b", "y"),
]
PROTO = model(
    graph(NODES, [value("x", FLOAT, ["n", 3, "s", "s"])], "y found", w=np.ones((4, 3, 3, 3), np.float32))
)
CASES = [{"n": 1, "s": 4}, {"n": 3, "s": 12}]


def test_random_shapes_are_legal_different_and_the_same_again() -> None:
    shapes = infer_shapes(load_model(PROTO).view())
    drawn = random_shapes(shapes, CASES, 5, 0, 1 << 30)
    assert drawn == random_shapes(shapes, CASES, 5, 0, 1 << 30)
    assert len({tuple(at.items()) for at in drawn}) == 5
    assert all(1 <= at["n"] <= 3 <= at["s"] <= 12 for at in drawn)
    assert random_shapes(shapes, CASES, 5, 1, 1 << 30) != drawn
    small = random_shapes(shapes, CASES, 5, 0, 4 * 500)
    assert small
    assert all(2 * at["n"] * 4 * (at["s"] - 2) ** 2 <= 500 for at in small)


def test_other_dims_are_found() -> None:
    loaded = load_model(PROTO)
    shapes = infer_shapes(loaded.view())
    at = CASES[0]
    real, _ = run_all_outputs(loaded, feeds(PROTO, at))
    assert not list(compare_shapes(shapes, real, at))
    assert list(compare_shapes(shapes, real | {"b": (1, 4, 2, 3)}, at)) == ["b[3]: s - 2 = 2 inferred, 3 met"]
    assert list(compare_shapes(shapes, real | {"b": (1, 4, 4)}, at)) == ["b: rank 4 inferred, 3 met"]
    (above,) = compare_shapes(shapes, real | {"found": (4, 1000)}, at)
    assert "above the bound" in above


def test_levels_are_compared_and_counted(tmp_path: Path) -> None:
    for level in ("none", "extended", "all"):
        folder = tmp_path / level
        folder.mkdir()
        loaded = optimised(load_model(PROTO), folder, level)
        found = compare_model("small", loaded, {"cases": CASES, "fills": {"x": "ones"}}, level, 3, 0)
        assert (found.shapes, found.wrong, found.without_rule, found.open) == (3, [], set(), 0)
        assert found.of_data == 1
    assert "com.microsoft.nchwc.Conv" in found.ops
