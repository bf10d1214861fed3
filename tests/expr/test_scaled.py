"""Products in float32: numpy as the oracle for values, one form, bounds that hold at every size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnx_symmem.errors import ExpressionError
from onnx_symmem.expr.atom import SCALED_FLOOR
from onnx_symmem.expr.certificate import check
from onnx_symmem.expr.decide import compare
from onnx_symmem.expr.domain import Domain, SymbolRange
from onnx_symmem.expr.expression import Expr, maximum, minimum, scaled_floor
from onnx_symmem.expr.grid import evaluate
from onnx_symmem.expr.interval import Intervals
from onnx_symmem.expr.proof import Rounded
from onnx_symmem.expr.samples import legal_near
from onnx_symmem.expr.scaled import lines_of
from onnx_symmem.expr.tally import Kind
from onnx_symmem.expr.text import parse

X, Q, H, W = (Expr.symbol(name) for name in ("x", "q", "h", "w"))
HEIGHT = "min(floor_f32(h, 1/min(h, w), 160), floor_f32(h, 1/max(h, w), 320))"
single = np.float32


def numpy_floor(factors: Sequence[tuple[float, float]]) -> int:
    """The product as a chain of float32 operations."""
    result: np.float32 | None = None
    for top, bottom in reversed(factors):
        factor = single(top) / single(bottom)
        result = factor if result is None else factor * result
    return int(np.floor(result))  # type: ignore[arg-type]


FACTORS = st.tuples(
    st.sampled_from([X, Q, H, W, X + 3, 5 * Q, minimum(H, W), maximum(X, 40)])
    | st.sampled_from([1, 2, 7, 160, 1333]),
    st.sampled_from([X, Q, W, 2 * H + 1, maximum(H, W)]) | st.sampled_from([1, 1, 3, 8, 96]),
)
SIZES = st.fixed_dictionaries({name: st.integers(1, 1 << 17) for name in "xqhw"})


def _at(part: Expr | int, shape: dict[str, int]) -> int:
    return part if isinstance(part, int) else part.evaluate(shape)


@settings(max_examples=300, deadline=None)
@given(st.lists(FACTORS, min_size=1, max_size=4), SIZES)
def test_every_form_has_the_value_that_numpy_finds(
    factors: list[tuple[Expr | int, Expr | int]], shape: dict[str, int]
) -> None:
    expr = scaled_floor(*factors)
    wanted = numpy_floor([(_at(top, shape), _at(bottom, shape)) for top, bottom in factors])
    if abs(wanted) >= 1 << 24:  # no size
        return
    if any(a.kind == SCALED_FLOOR for a in expr.atoms()):
        assert expr.evaluate(shape) == wanted
    else:  # a form without rounding: for sizes below 2**24 the same
        assert abs(expr.evaluate(shape) - wanted) <= (wanted >= 1 << 20)
    assert evaluate([expr], [shape, shape]).tolist() == [[expr.evaluate(shape)] * 2]
    part = expr.substitute({"x": shape["x"], "q": shape["q"]})
    assert part.evaluate(shape) == expr.evaluate(shape)
    assert parse(str(expr)) == expr


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (scaled_floor(X, 160, (1, Q)), "floor_f32(x, 1/q, 160)"),
        (scaled_floor(X, (320, 2 * Q)), "floor_f32(x, 160/q)"),
        (scaled_floor(X, (X, X)), "x"),
        (scaled_floor(X, 2, (Q, Q * W)), "floor_f32(2*x, 1/w)"),
        (scaled_floor(0.3, X), "floor_f32(x, 0.3)"),
        (scaled_floor(X, 0.5, 0.6), "floor_f32(x, 0.3)"),
        (scaled_floor((X, 3)), "x//3"),
        (scaled_floor((1 << 24, 5 * Q)), "16777216//(5*q)"),
        (scaled_floor((1000 * X, Q)), "floor_f32((1000*x)/q)"),
        (scaled_floor(X, -0.5), str(-X // 2)),
        (scaled_floor(X, -0.6), "floor_f32(-x, 0.6)"),
        (scaled_floor(X, 0), "0"),
        (scaled_floor(X, (1, X), 160), "floor_f32(x, 1/x, 160)"),
    ],
)
def test_one_form(expr: Expr, text: str) -> None:
    assert str(expr) == text
    assert parse(text) == expr


def test_the_scale_of_detection_models_is_not_the_quotient() -> None:
    """160 * (1/q) is rounded twice, and h times it is not 160 for q = h."""
    twice = scaled_floor(H, 160, (1, H))
    assert {twice.evaluate({"h": h}) for h in range(1, 2000)} == {159, 160}
    once = scaled_floor(H, (160, H))
    assert any(once.evaluate({"h": h}) != twice.evaluate({"h": h}) for h in range(1, 2000))
    for h, w in ((187, 640), (1081, 409), (49, 98)):
        scale = min(
            single(160) * (single(1) / single(min(h, w))), single(320) * (single(1) / single(max(h, w)))
        )
        assert parse(HEIGHT).evaluate({"h": h, "w": w}) == int(np.floor(single(h) * scale))


@settings(max_examples=150, deadline=None)
@given(st.lists(FACTORS, min_size=2, max_size=4), SIZES, st.integers(0, 1 << 16))
def test_bounds_hold(factors: list[tuple[Expr | int, Expr | int]], shape: dict[str, int], room: int) -> None:
    expr = scaled_floor(*factors)
    intervals = Intervals(lambda name: (max(1, shape[name] - room), shape[name] + room))
    low, high = intervals.of(expr)
    value = expr.evaluate(shape)
    assert low is None or low <= value
    assert high is None or value <= high
    for atom in expr.atoms():
        if atom.kind == SCALED_FLOOR and (lines := lines_of(atom.args)) is not None:
            size = Expr.lift(lines.size).evaluate(shape)
            exact = Expr.of(atom).evaluate(shape)
            assert lines.low * size - lines.n <= exact * lines.n <= lines.high * size


def test_the_bounds_are_close() -> None:
    free = Intervals(lambda name: (1, None))
    assert free.of(parse("floor_f32(h, 1/h, 160)")) == (159, 160)
    assert free.of(parse("floor_f32(h, 1/min(h, w), 160)")) == (159, None)
    assert free.of(parse("floor_f32(h, 1/max(h, w), 320)")) == (0, 320)
    assert free.of(parse(HEIGHT)) == (0, 320)
    boxed = Intervals(lambda name: (32, 1024))
    assert boxed.of(parse("floor_f32(-h, 0.3)")) == (-308, -10)
    assert boxed.of(parse("floor_f32(h, 160/w)")) == (5, 5120)
    assert Intervals(lambda name: (0, 9)).of(parse("floor_f32(h, 160/w)")) == (None, None)


@pytest.mark.parametrize("scale", [0.3, 0.6, 1.5, 1 / 3, 7.77])
def test_float32_rounding_stays_between_the_lines(scale: float) -> None:
    (atom,) = scaled_floor(X, scale).atoms()
    lines = lines_of(atom.args)
    assert lines is not None
    assert lines.size == X
    for x in (*range(200), 1000, 65535, (1 << 24) - 1, (1 << 24) + 1, 123456789):
        value = Expr.of(atom).evaluate({"x": x}) * lines.n
        assert lines.low * x - lines.n <= value <= lines.high * x


def test_comparisons_are_proved() -> None:
    domain = Domain({"h": SymbolRange(1), "w": SymbolRange(1)})
    for low, high in (
        (HEIGHT, "320"),
        ("150*w", "floor_f32(h, 1/h, 160)*w"),
        (f"2*({HEIGHT})*w", "641*w"),
        ("2*floor_f32(h, w/h)", "3*w"),
    ):
        verdict = compare(parse(low), parse(high), domain)
        assert verdict.kind is Kind.LE, low
        assert all(check(certificate) for certificate in verdict.certificates)
    mixed = compare(parse(HEIGHT), parse("159"), domain)
    assert mixed.kind is Kind.INCOMPARABLE


def test_a_proof_about_another_product_is_refused() -> None:
    domain = Domain({"h": SymbolRange(1)})
    verdict = compare(parse("floor_f32(h, 0.3)"), parse("h"), domain)
    (certificate,) = verdict.certificates
    assert isinstance(certificate.proof, Rounded)
    assert check(certificate)
    assert not check(replace(certificate, low=parse("floor_f32(h, 1.3)")))
    other = replace(certificate.proof, atom=next(iter(parse("floor_f32(h, 3.3)").atoms())))
    assert not check(replace(certificate, low=parse("floor_f32(h, 3.3)"), proof=other))


def test_a_fact_about_a_product_is_used() -> None:
    domain = Domain({"h": SymbolRange(1), "w": SymbolRange(1)})
    assert domain.bounds(parse(HEIGHT)) == (0, 320)
    told = domain.with_inequality(parse("floor_f32(h, 1/max(h, w), 320) - 1"))
    assert told.bounds(parse(HEIGHT)) == (1, 320)
    assert told.bounds(parse(f"7*(({HEIGHT} + 31)//32)")) == (7, 70)
    assert told.facts() == (parse("floor_f32(h, 1/max(h, w), 320) - 1"),)
    near = legal_near(told, {"h": 1, "w": 1000})
    assert near is not None
    assert told.contains(near)
    assert not told.contains({"h": 1, "w": 1000})
    assert told.contains({"h": 10, "w": 1000})


def test_what_float32_cannot_hold_is_refused() -> None:
    with pytest.raises(ExpressionError, match="a scale of 1e-30"):
        scaled_floor(X, 1e-30)
    with pytest.raises(ExpressionError, match="division by zero"):
        parse("floor_f32(x, 1/q)").evaluate({"x": 1, "q": 0})
    with pytest.raises(ExpressionError, match="beyond float32"):
        parse("floor_f32(x, 0.3)").evaluate({"x": 1 << 101})
    with pytest.raises(ExpressionError, match="division by zero"):
        evaluate([parse("floor_f32(x, 1/q)")], [{"x": 1, "q": 1}, {"x": 1, "q": 0}])
    with pytest.raises(ExpressionError, match="beyond float32"):
        evaluate([parse("floor_f32(x, x, 0.3)")], [{"x": 1 << 80}])
