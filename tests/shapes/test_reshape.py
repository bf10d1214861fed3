"""Reshape: -1 as an exact quotient, copied dims, zeros, and the facts that equal counts give."""

from __future__ import annotations

from onnx_symmem.expr.domain import Domain, SymbolRange
from tests.shapes.building import FLOAT, INT64, assert_right, graph, infer, model, node, texts, value

X = value("x", FLOAT, ["b", "s", 64])


def reshaped(dims: list[int | str | None], *target: int, allowzero: int = 0) -> list[str] | None:
    of = graph(
        [node("Reshape", "x t", "y", allowzero=allowzero)], [value("x", FLOAT, dims)], "y", t=list(target)
    )
    return texts(infer(of), "y")


def test_minus_one_is_what_is_left() -> None:
    assert reshaped(["b", "s", 64], 0, 0, 4, -1) == ["b", "s", "4", "16"]
    assert reshaped(["b", "s", 64], -1, 64) == ["b*s", "64"]
    assert reshaped(["b", "s", 64], 0, -1) == ["b", "64*s"]
    assert reshaped(["b", "s", 64], -1) == ["64*b*s"]
    assert reshaped(["n", 6], -1, 4) == ["3*(n//2)", "4"]  # and n is even


def test_a_zero_copies_unless_it_is_allowed() -> None:
    assert reshaped([2, "n"], 0, -1) == ["2", "n"]
    assert reshaped([0, "n"], 0, 7, allowzero=1) == ["0", "7"]


def test_heads_are_split_and_merged_back() -> None:
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s zero", "b"),
        node("Gather", "s one", "l"),
        node("Concat", "b l four sixteen", "split", axis=0),
        node("Reshape", "x split", "heads"),
        node("Transpose", "heads", "t", perm=[0, 2, 1, 3]),
        node("Mul", "b four", "bh"),
        node("Concat", "bh l sixteen", "flat", axis=0),
        node("Reshape", "t flat", "u"),
        node("Shape", "u", "us"),
        node("Gather", "us zero", "bh2"),
        node("Div", "bh2 four", "b2"),
        node("Concat", "b2 four l sixteen", "back", axis=0),
        node("Reshape", "u back", "v"),
        node("Reshape", "v whole", "y"),
    ]
    constants = {"zero": [0], "one": [1], "four": [4], "sixteen": [16], "whole": [0, -1]}
    shapes = assert_right(model(graph(nodes, [X], "y", **constants)), {"b": 1, "s": 1}, {"b": 3, "s": 5})
    assert texts(shapes, "u") == ["4*b", "s", "16"]
    assert texts(shapes, "v") == ["b", "4", "s", "16"]
    assert not shapes.assumptions


def test_equal_counts_fix_a_size() -> None:
    of = graph([node("Reshape", "x t", "y")], [value("x", FLOAT, ["b", "n"])], "y", t=[0, 7, 49])
    shapes = infer(of)
    assert texts(shapes, "x") == ["b", "343"]
    assert [a.text for a in shapes.assumptions] == ["n == 343"]


def test_an_unknown_entry_is_told_by_the_count() -> None:
    nodes = [node("Concat", "p two", "t", axis=0), node("Reshape", "x t", "y")]
    shapes = infer(graph(nodes, [X, value("p", INT64, [1])], "y", two=[32]))
    assert texts(shapes, "y") == ["2*b*s", "32"]
    assert not shapes.unknowns


def test_several_unknown_entries_are_bounded_by_the_count() -> None:
    shapes = infer(graph([node("Reshape", "x t", "y")], [X, value("t", INT64, [2])], "y"))
    assert [str(u.bound) for u in shapes.unknowns] == ["64*b*s", "64*b*s"]


def test_the_number_of_target_dims_may_be_unknown() -> None:
    shapes = infer(graph([node("Reshape", "x t", "y")], [X, value("t", INT64, ["r"])], "y"))
    assert texts(shapes, "y") is None
    assert [(u.axis, u.tensor) for u in shapes.unknowns] == [(-1, "y")]


def test_a_count_that_may_be_zero_is_not_divided_by() -> None:
    nodes = [
        node("NonZero", "x", "z"),
        node("Shape", "z", "zs", start=1),
        node("Concat", "zs minus", "t", axis=0),
        node("Transpose", "z", "w", perm=[1, 0]),
        node("Reshape", "w t", "y"),
    ]
    shapes = infer(graph(nodes, [X], "y", minus=[-1]))
    (unknown,) = shapes.unknowns
    assert texts(shapes, "y") == [unknown.symbol, "3"]


def test_relations_say_that_counts_are_equal() -> None:
    shapes = infer(graph([node("Reshape", "x t", "y")], [X], "y", t=[-1, 64]))
    (relation,) = shapes.relations
    assert relation.kind == "elements"
    assert relation.text == "[b, s, 64] = [b*s, 64] elements"


def test_flatten_at_every_axis() -> None:
    for axis, dims in {0: ["1", "64*b*s"], 1: ["b", "64*s"], -1: ["b*s", "64"], 3: ["64*b*s", "1"]}.items():
        assert texts(infer(graph([node("Flatten", "x", "y", axis=axis)], [X], "y")), "y") == dims


def test_windows_of_a_padded_map_keep_their_factors() -> None:
    domain = Domain({"h": SymbolRange(7, None, 7), "w": SymbolRange(7, None, 7)})
    nodes = [
        node("Shape", "x", "s"),
        node("Div", "s seven", "g"),
        node("Gather", "g one1", "gh"),
        node("Gather", "g two1", "gw"),
        node("Gather", "s zero1", "n"),
        node("Concat", "n gh seven1 gw seven1 c", "t", axis=0),
        node("Reshape", "x t", "grid"),
        node("Transpose", "grid", "turned", perm=[0, 1, 3, 2, 4, 5]),
        node("Reshape", "turned win", "y"),
    ]
    of = graph(
        nodes,
        [value("x", FLOAT, ["n", "h", "w", 3])],
        "y",
        seven=[7],
        seven1=[7],
        one1=[1],
        two1=[2],
        zero1=[0],
        c=[3],
        win=[-1, 49, 3],
    )
    assert texts(infer(of, domain=domain), "y") == ["n*(h//7)*(w//7)", "49", "3"]


def test_a_size_that_may_be_0_beside_one_that_may_be_0_is_open() -> None:
    """With w = 0 the last target dim is 0, which copies h; the element count does not tell where n is 0."""
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s zero", "n", axis=0),
        node("Gather", "s one", "h", axis=0),
        node("Gather", "s two", "w", axis=0),
        node("Mul", "h w", "cells"),
        node("Concat", "n cells", "target", axis=0),
        node("Reshape", "x target", "y"),
    ]
    of = graph(nodes, [value("x", FLOAT, ["n", "h", "w"])], "y", zero=[0], one=[1], two=[2])
    assert texts(assert_right(model(of), {"n": 2, "h": 3, "w": 4}), "y") == ["n", "h*w"]
    domain = Domain({name: SymbolRange(0) for name in "nhw"})
    assert_right(model(of), {"n": 2, "h": 3, "w": 4}, {"n": 0, "h": 5, "w": 0}, domain=domain)


def test_where_there_may_be_no_elements_nothing_follows_from_their_number() -> None:
    """[h, c] -> [h, 2, c//2] needs an even c only where h is not 0; and dims of nothing have no bound."""
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s zero", "h", axis=0),
        node("Gather", "s one", "c", axis=0),
        node("Div", "c two", "half"),
        node("Concat", "h two half", "target", axis=0),
        node("Reshape", "x target", "y"),
    ]
    of = graph(nodes, [value("x", FLOAT, ["h", "c"])], "y", zero=[0], one=[1], two=[2])
    assert [limit.text for limit in infer(of).limits] == ["c % 2 == 0"]
    may_be_empty = Domain({"h": SymbolRange(0), "c": SymbolRange(0)})
    assert not infer(of, domain=may_be_empty).limits
    opened = graph(
        [node("Reshape", "x target", "y")],
        [value("x", FLOAT, ["h", "c"]), value("target", INT64, [2])],
        "y",
    )
    assert {str(u.bound) for u in infer(opened).unknowns} == {"c*h"}
    assert {u.bound for u in infer(opened, domain=may_be_empty).unknowns} == {None}
