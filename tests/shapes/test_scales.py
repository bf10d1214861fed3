"""Decimal scales: the fraction that float32 rounds like, up to the size at which it no longer does."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from onnx_symmem.expr.domain import Domain, SymbolRange
from onnx_symmem.expr.text import parse
from onnx_symmem.shapes.scales import as_fractions, fraction_of
from onnx_symmem.shapes.table import ModelShapes
from tests.shapes.building import BOOL, FLOAT, assert_right, graph, infer, model, node, texts, value

LINE = value("x", FLOAT, ["n", 1, "w"])


def scaled(scale: float, domain: Domain | None = None) -> ModelShapes:
    one = node("Resize", "x - scales", "y", mode="nearest")
    return infer(graph([one], [LINE], "y", scales=[1.0, 1.0, scale]), domain=domain)


@pytest.mark.parametrize(
    ("scale", "up", "p", "q", "until"),
    [
        (0.6, False, 3, 5, 3_495_258), (0.8, False, 4, 5, 5_242_881), (0.7, False, 7, 10, 5_991_867),
        (0.1, False, 1, 10, 1 << 24), (2.3, False, 23, 10, 1_823_613), (0.7, True, 7, 10, 2_995_933),
    ],
)  # fmt: skip
def test_the_first_size_that_rounds_otherwise(scale: float, up: bool, p: int, q: int, until: int) -> None:
    found = fraction_of(scale, up)
    assert found is not None
    assert (found.p, found.q, found.until) == (p, q, until)
    rounding = np.ceil if up else np.floor

    def agrees(size: int) -> bool:
        exact = -(-size * p // q) if up else size * p // q
        return int(rounding(np.float32(size) * np.float32(scale))) == exact

    assert all(map(agrees, (*range(3000), *range(until - 3000, until))))
    assert until == 1 << 24 or not agrees(until)


@pytest.mark.parametrize("scale", [1.3, 2.94, 0.123456, 1e-9])
def test_scales_that_soon_round_otherwise_have_no_fraction(scale: float) -> None:
    assert fraction_of(scale) is None


def test_rounding_up_has_a_limit_of_its_own() -> None:
    assert fraction_of(0.6, up=True) is None
    assert str(as_fractions(parse("-floor_f32(-x, 0.7)"), lambda size, fraction: True)) == "(7*x + 9)//10"
    assert (
        str(as_fractions(parse("x + floor_f32(x, 0.7)//2"), lambda size, fraction: True)) == "x + (7*x)//20"
    )


def test_a_fraction_limits_the_size() -> None:
    shapes = scaled(0.6)
    assert texts(shapes, "y") == ["n", "1", "(3*w)//5"]
    (limit,) = [limit for limit in shapes.limits if limit.hi is not None]
    assert limit.text == "w <= 3495257"
    assert limit.reason == "float32 rounds as 3/5 only below 3,495,258"
    assert shapes.domain.range_of("w").hi == 3_495_257


def test_a_size_that_the_caller_asks_for_is_never_excluded() -> None:
    shapes = scaled(0.6, Domain({"w": SymbolRange(1, 4_000_000)}))
    assert texts(shapes, "y") == ["n", "1", "floor_f32(w, 0.6)"]
    assert not [limit for limit in shapes.limits if limit.hi is not None]
    assert texts(scaled(0.6, Domain({"w": SymbolRange(1, 4096)})), "y") == ["n", "1", "(3*w)//5"]


def test_a_size_that_is_in_the_data_is_not_limited() -> None:
    nodes = [
        node("NonZero", "x", "found"),
        node("Unsqueeze", "found axis", "image"),
        node("Resize", "image - scales", "y", mode="nearest"),
    ]
    shapes = infer(graph(nodes, [LINE], "y", axis=[0], scales=[1.0, 1.0, 0.6]))
    assert texts(shapes, "y") == ["1", "3", "floor_f32(u0, 0.6)"]
    assert not [limit for limit in shapes.limits if limit.hi is not None]


def test_a_branch_does_not_limit_the_model() -> None:
    inside = helper.make_graph(
        [node("Resize", "x - scales", "p", mode="nearest")],
        "b",
        [],
        [helper.make_empty_tensor_value_info("p")],
    )
    other = helper.make_graph(
        [node("Identity", "x", "q")], "b", [], [helper.make_empty_tensor_value_info("q")]
    )
    one = node("If", "flag", "y", then_branch=inside, else_branch=other)
    shapes = infer(graph([one], [LINE, value("flag", BOOL, [])], "y", scales=[1.0, 1.0, 0.6]))
    assert [str(d) for d in shapes.graph.subgraphs[0, "then_branch"].of("p") or ()][2] == "floor_f32(w, 0.6)"
    assert not [limit for limit in shapes.limits if limit.hi is not None]


def test_the_largest_size_allowed_is_what_onnx_runtime_makes() -> None:
    one = node("Resize", "x - scales", "y", mode="nearest")
    proto = model(graph([one], [LINE], "y", scales=[1.0, 1.0, 0.6]))
    assert_right(proto, *({"n": 1, "w": w} for w in (2, 3, 5, 1001, 3_495_255, 3_495_257)))
