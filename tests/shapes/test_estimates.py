"""Sizes that are computed in float32 by several steps, against ONNX Runtime's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from onnx import ModelProto, NodeProto

from onnx_symmem.run.session import SessionSettings, create_session
from tests.shapes.building import FLOAT, graph, infer, model, node, texts, value

IMAGE = value("x", FLOAT, [1, "h", "w"])
ENDS = [
    node("Floor", "product", "low"),
    node("Cast", "low", "size", to=7),
    node("Unsqueeze", "size zero", "dims"),
]
SIDES = [
    node("Shape", "x", "shape"),
    node("Gather", "shape one", "height"),
    node("Gather", "shape two", "width"),
    node("Cast", "height", "h", to=FLOAT),
    node("Cast", "width", "w", to=FLOAT),
    node("Min", "height width", "short"),
    node("Max", "height width", "long"),
    node("Cast", "short", "s", to=FLOAT),
    node("Cast", "long", "l", to=FLOAT),
]
RECIPROCALS = [
    node("Reciprocal", "s", "s1"),
    node("Mul", "s1 c1", "scale1"),
    node("Reciprocal", "l", "l1"),
    node("Mul", "l1 c2", "scale2"),
    node("Min", "scale1 scale2", "scale"),
    node("Mul", "h scale", "product"),
]
QUOTIENTS = [
    node("Div", "c1 s", "scale1"),
    node("Div", "c2 l", "scale2"),
    node("Max", "scale1 scale2", "scale"),
    node("Mul", "scale w", "product"),
]
CHAIN = [node("Mul", "h c3", "a"), node("Mul", "a c4", "b"), node("Mul", "b w", "product")]
HALVES = [node("Mul", "h c5", "half"), node("Div", "half s", "ratio"), node("Mul", "ratio w", "product")]
MEANS = [node("Add", "h w", "sum"), node("Div", "sum l", "ratio"), node("Mul", "c1 ratio", "product")]


def small(steps: Sequence[NodeProto], ends: Sequence[NodeProto] = ENDS) -> ModelProto:
    nodes = [*SIDES, *steps, *ends, node("ConstantOfShape", "dims", "y")]
    return model(
        graph(
            nodes, [IMAGE], "y", one=1, two=2, zero=[0],
            c1=np.float32(160), c2=np.float32(320), c3=np.float32(0.3), c4=np.float32(0.7),
            c5=np.float32(0.5), unit=np.float32(1),
        )
    )  # fmt: skip


def real_sizes(proto: ModelProto, shapes: Sequence[tuple[int, int]], level: str) -> list[int]:
    session = create_session(proto, SessionSettings(optimization=level))
    return [session.run(None, {"x": np.zeros((1, *shape), np.float32)})[0].shape[0] for shape in shapes]


def drawn(count: int = 150) -> list[tuple[int, int]]:
    rng = np.random.default_rng(5)
    return [(int(h), int(w)) for h, w in rng.integers(1, 700, (count, 2))]


@pytest.mark.parametrize("level", ["none", "all"])
@pytest.mark.parametrize(
    ("steps", "text"),
    [
        (RECIPROCALS, "min(floor_f32(h, 1/max(h, w), 320), floor_f32(h, 1/min(h, w), 160))"),
        (QUOTIENTS, "max(floor_f32(w, 160/min(h, w)), floor_f32(w, 320/max(h, w)))"),
        (CHAIN, "floor_f32(w, 0.7, h, 0.3)"),
        (HALVES, "floor_f32(w, h/(2*min(h, w)))"),
        (MEANS, "floor_f32((h + w)/max(h, w), 160)"),
    ],
)
def test_steps_are_exact(steps: list[NodeProto], text: str, level: str) -> None:
    proto = small(steps)
    shapes = infer(proto)
    assert texts(shapes, "y") == [text]
    (dim,) = shapes.graph.of("y") or ()
    points = drawn()
    found = [dim.evaluate({"h": h, "w": w}) for h, w in points]
    assert found == real_sizes(proto, points, level)


def test_the_exact_quotient_would_be_wrong() -> None:
    """Where a rounded scale is taken for the quotient, one size in ten is off by one."""
    points = drawn()
    real = real_sizes(small(RECIPROCALS), points, "none")
    exact = [min(160 * h // min(h, w), 320 * h // max(h, w)) for h, w in points]
    off = [a - b for a, b in zip(real, exact, strict=True)]
    assert set(off) <= {-1, 0, 1}
    assert 0 < sum(map(abs, off)) < len(points) / 4


def test_rounding_up() -> None:
    ends = [node("Ceil", "product", "high"), node("Cast", "high", "size", to=7), ENDS[2]]
    proto = small(RECIPROCALS, ends)
    (dim,) = infer(proto).graph.of("y") or ()
    points = drawn(80)
    assert [dim.evaluate({"h": h, "w": w}) for h, w in points] == real_sizes(proto, points, "all")


def test_what_the_optimiser_rounds_otherwise_is_only_bounded() -> None:
    """(1/s) * 160 becomes 160/s in ONNX Runtime at level `all`, and rounds otherwise there."""
    steps = [node("Div", "unit s", "s1"), node("Mul", "s1 c1", "scale"), node("Mul", "scale h", "product")]
    proto = small(steps)
    shapes = infer(proto)
    assert texts(shapes, "y") == ["u0"]
    bound = shapes.unknowns[0].bound
    assert bound is not None
    points = drawn(300)
    plain, fused = (real_sizes(proto, points, level) for level in ("none", "all"))
    assert plain != fused
    assert all(
        max(a, b) <= bound.evaluate({"h": h, "w": w})
        for a, b, (h, w) in zip(plain, fused, points, strict=True)
    )


def test_a_second_rounded_divisor_is_only_bounded() -> None:
    steps = [node("Mul", "h c3", "a"), node("Div", "a s", "product")]
    assert texts(infer(small(steps)), "y") == ["u0"]


def test_a_scale_of_resize_may_be_computed() -> None:
    steps = [
        *SIDES,
        node("Div", "c1 s", "scale"),
        node("Unsqueeze", "scale zero", "last"),
        node("Concat", "ones last", "scales", axis=0),
        node("Resize", "x - scales", "y", mode="nearest"),
    ]
    proto = model(graph(steps, [IMAGE], "y", one=1, two=2, zero=[0], ones=[1.0, 1.0], c1=np.float32(7)))
    shapes = infer(proto)
    assert texts(shapes, "y") == ["1", "h", "floor_f32(w, 7/min(h, w))"]
    dim = (shapes.graph.of("y") or ())[2]
    points = drawn(60)
    session = create_session(proto, SessionSettings())
    real = [session.run(None, {"x": np.zeros((1, *p), np.float32)})[0].shape[2] for p in points]
    assert [dim.evaluate({"h": h, "w": w}) for h, w in points] == real
