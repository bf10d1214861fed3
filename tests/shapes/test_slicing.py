"""Slice: clamping, negative and symbolic bounds, steps; what peers get wrong."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_symmem.expr.domain import Domain, SymbolRange
from tests.shapes.building import FLOAT, INT64, assert_right, graph, infer, model, node, texts, value

X = value("x", FLOAT, ["d"])


def sliced(start: int, end: int, step: int) -> str:
    of = graph([node("Slice", "x s e a t", "y")], [X], "y", s=[start], e=[end], a=[0], t=[step])
    (text,) = texts(infer(of), "y") or [""]
    return text


def length(size: int, start: int, end: int, step: int) -> int:
    """Elements that ONNX Runtime slices: for negative steps a start before the axis is moved onto it."""
    start, end = (bound + size if bound < 0 else bound for bound in (start, end))
    if step > 0:
        return len(range(min(max(start, 0), size), min(max(end, 0), size), step))
    return len(range(min(max(start, 0), size - 1), min(max(end, -1), size - 1), step))


@given(st.integers(-12, 12), st.integers(-12, 12), st.sampled_from([-3, -2, -1, 1, 2, 5]))
def test_constant_bounds(start: int, end: int, step: int) -> None:
    of = graph([node("Slice", "x s e a t", "y")], [X], "y", s=[start], e=[end], a=[0], t=[step])
    dims = infer(of).graph.of("y")
    assert dims is not None
    for size in range(1, 20):
        assert dims[0].evaluate({"d": size}) == length(size, start, end, step), (size, dims)


def test_constant_bounds_at_run_time() -> None:
    for start, end, step in ((-2, -2, -3), (-5, -9, -1), (3, -9, -2), (-1, 0, -1), (-3, 9, 2), (2, -1, 1)):
        of = graph([node("Slice", "x s e a t", "y")], [X], "y", s=[start], e=[end], a=[0], t=[step])
        assert_right(model(of), *({"d": size} for size in (1, 2, 3, 8)))


@pytest.mark.parametrize("end", [2**31 - 1, 2**63 - 1])
def test_far_ends_mean_the_whole_axis(end: int) -> None:
    assert sliced(0, end, 1) == "d"
    assert sliced(end, -end - 1, -1) == "d"
    assert sliced(1, end, 2) == "d//2"


def test_a_constant_end_is_cut_at_the_size() -> None:
    assert sliced(0, 1000, 1) in ("min(1000, d)", "min(d, 1000)")
    assert sliced(1, 1000, 1) == "min(d, 1000) - 1"


def by_length(low: int) -> tuple[str, ...]:
    """x[-n:] of a sequence of length d, n the length of another input."""
    nodes = [node("Shape", "k", "n"), node("Neg", "n", "m"), node("Slice", "x m big zero", "y")]
    of = graph(nodes, [X, value("k", FLOAT, ["n"])], "y", big=[2**63 - 1], zero=[0])
    domain = Domain({"n": SymbolRange(low)})
    shapes = infer(of, domain=domain)
    dims = shapes.graph.of("y")
    assert dims is not None
    for d in range(1, 9):
        for n in range(low, 12):
            assert dims[0].evaluate({"d": d, "n": n}) == len(range(d)[-n:]), (d, n)
    return tuple(map(str, dims))


def test_the_last_n_elements_are_all_for_n_zero() -> None:
    assert by_length(1) in (("min(d, n)",), ("min(n, d)",))
    by_length(0)  # x[-0:] is x: right, whatever it looks like


def test_symbolic_bounds_at_run_time() -> None:
    nodes = [
        node("Shape", "k", "n"),
        node("Slice", "x zero n", "head"),
        node("Slice", "x n big", "tail"),
        node("Sub", "n two", "n2"),
        node("Slice", "x n2 big", "late"),
        node("Slice", "x big n2 zero minus", "back"),
    ]
    of = graph(
        nodes,
        [X, value("k", INT64, ["n"])],
        "head tail late back",
        zero=[0],
        big=[2**62],
        two=[2],
        minus=[-1],
    )
    assert_right(model(of), *({"d": d, "n": n} for d, n in ((1, 1), (5, 2), (5, 5), (3, 9), (8, 4))))


def test_unknown_bounds_are_bounded_by_the_size() -> None:
    of = graph([node("Slice", "x s e", "y")], [X, value("s", INT64, [1]), value("e", INT64, [1])], "y")
    shapes = infer(of)
    (unknown,) = shapes.unknowns
    assert str(unknown.bound) == "d"
    assert shapes.domain.contains({"d": 4, unknown.symbol: 0})
    assert not shapes.domain.contains({"d": 4, unknown.symbol: 5})


def test_attributes_of_old_opsets() -> None:
    of = graph([node("Slice", "x", "y", starts=[1], ends=[-1], axes=[0])], [X], "y")
    dims = infer(of, opset=9).graph.of("y")
    assert dims is not None
    assert [dims[0].evaluate({"d": size}) for size in (1, 2, 3, 9)] == [
        len(np.arange(n)[1:-1]) for n in (1, 2, 3, 9)
    ]
