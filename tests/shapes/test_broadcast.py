"""Broadcasting: right for every shape that runs, and never a guess that two names are equal."""

from __future__ import annotations

from onnx_symmem.expr.domain import Domain, SymbolRange
from tests.shapes.building import BOOL, FLOAT, assert_right, graph, infer, model, node, texts, value


def added(
    left: list[int | str | None], right: list[int | str | None], domain: Domain | None = None
) -> object:
    of = graph([node("Add", "x z", "y")], [value("x", FLOAT, left), value("z", FLOAT, right)], "y")
    return infer(of, domain=domain)


def test_constants_decide() -> None:
    assert texts(added(["n", 1], [8]), "y") == ["n", "8"]
    assert texts(added(["n", "c"], [1, 8]), "y") == ["n", "8"]
    assert texts(added(["n"], [4, 1, 1]), "y") == ["4", "1", "n"]


def test_two_names_stay_free() -> None:
    of = graph([node("Add", "x z", "y")], [value("x", FLOAT, ["a"]), value("z", FLOAT, ["b"])], "y")
    shapes = assert_right(model(of), {"a": 1, "b": 5}, {"a": 4, "b": 1}, {"a": 3, "b": 3})
    assert texts(shapes, "x") == ["a"]
    assert texts(shapes, "y") == ["max(a, b)"]
    assert [(a.kind, a.text) for a in shapes.assumptions] == [("equal_or_one", "a == b (or 1)")]


def test_a_size_of_two_or_more_wins() -> None:
    shapes = added(["total"], ["p", "past"], Domain({"past": SymbolRange(2)}))
    assert texts(shapes, "y") == ["p", "past"]
    sums = infer(
        graph(
            [node("Concat", "k x", "c", axis=0), node("Add", "c m", "y")],
            [value("k", FLOAT, ["past"]), value("x", FLOAT, ["seq"]), value("m", FLOAT, ["total"])],
            "y",
        )
    )
    assert texts(sums, "y") == ["past + seq"]
    assert [a.kind for a in sums.assumptions] == ["equal_or_one"]


def test_sizes_that_may_be_zero_win_over_one() -> None:
    nodes = [
        node("NonZero", "x", "i"),
        node("ReduceSum", "i zero", "u", keepdims=0),
        node("Cast", "u", "f", to=FLOAT),
        node("Add", "f z", "y"),
    ]
    of = graph(nodes, [value("x", FLOAT, ["a"]), value("z", FLOAT, ["b"])], "y", zero=[0])
    dims = infer(of).graph.of("y")
    assert dims is not None
    (unknown,) = infer(of).unknowns
    for u, b, expected in ((0, 1, 0), (3, 1, 3), (1, 4, 4), (2, 2, 2)):
        assert dims[0].evaluate({unknown.symbol: u, "b": b, "a": 9}) == expected


def test_masks_of_one_or_full_size() -> None:
    nodes = [
        node("Transpose", "k", "kt", perm=[0, 1, 3, 2]),
        node("MatMul", "q kt", "s"),
        node("Where", "m s low", "y"),
    ]
    of = graph(
        nodes,
        [
            value("q", FLOAT, ["b", 4, "ql", 8]),
            value("k", FLOAT, ["b", 4, "kl", 8]),
            value("m", BOOL, ["mb", 1, "mq", "kl"]),
        ],
        "y",
        low=-1e4,
    )
    cases = [{"b": 2, "ql": 3, "kl": 5, "mb": mb, "mq": mq} for mb in (1, 2) for mq in (1, 3)]
    shapes = assert_right(model(of), *cases)
    assert texts(shapes, "y") == ["max(b, mb)", "4", "max(mq, ql)", "kl"]


def test_a_table_that_is_cut_bounds_the_length() -> None:
    nodes = [
        node("Shape", "x", "s", start=1, end=2),
        node("Slice", "table zero s zero", "t"),
        node("Add", "x t", "y"),
    ]
    of = graph(nodes, [value("x", FLOAT, ["b", "n", 2])], "y", table=[[0.0, 0.0]] * 12, zero=[0])
    shapes = infer(of)
    assert texts(shapes, "y") == ["b", "n", "2"]
    assert [limit.text for limit in shapes.limits] == ["n <= 12"]
    assert not shapes.domain.contains({"b": 1, "n": 13})


def test_inner_dims_are_equal_in_every_run() -> None:
    of = graph(
        [node("MatMul", "x z", "y")], [value("x", FLOAT, ["a", "total"]), value("z", FLOAT, ["k", "b"])], "y"
    )
    shapes = infer(of)
    assert [a.kind for a in shapes.assumptions] == ["equal"]
    assert shapes.domain.contains({"total": 3, "k": 3})
    assert not shapes.domain.contains({"total": 3, "k": 4})


def test_what_a_dead_node_needs_is_not_entailed() -> None:
    nodes = [node("MatMul", "x z", "dead"), node("Relu", "x", "y")]
    of = graph(nodes, [value("x", FLOAT, ["a", "p"]), value("z", FLOAT, ["k", "b"])], "y")
    shapes = infer(of)
    assert shapes.domain.contains({"p": 3, "k": 4})
    assert [a.kind for a in shapes.assumptions] == ["equal"]


def test_a_cache_and_its_total_length() -> None:
    nodes = [
        node("Concat", "past new", "k", axis=1),
        node("Transpose", "k", "kt", perm=[0, 2, 1]),
        node("MatMul", "new kt", "s"),
        node("Add", "s mask", "m"),
        node("MatMul", "m k", "y"),
    ]
    of = graph(
        nodes,
        [
            value("past", FLOAT, ["b", "past", 4]),
            value("new", FLOAT, ["b", "seq", 4]),
            value("mask", FLOAT, ["b", 1, "total"]),
        ],
        "y",
    )
    shapes = assert_right(
        model(of), {"b": 2, "past": 3, "seq": 2, "total": 5}, {"b": 1, "past": 1, "seq": 4, "total": 1}
    )
    assert texts(shapes, "y") == ["b", "seq", "4"]
    assert texts(shapes, "m") == ["b", "seq", "past + seq"]
