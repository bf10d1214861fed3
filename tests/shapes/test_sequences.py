"""Sequences and optionals: elements one by one where they are built, together elsewhere."""

from __future__ import annotations

import numpy as np
from onnx import helper

from tests.shapes.building import FLOAT, INT64, assert_right, graph, infer, model, node, texts, value

X = value("x", FLOAT, ["n", 6])
Z = value("z", FLOAT, ["m", 6])


def test_elements_are_told_apart() -> None:
    nodes = [
        node("SequenceConstruct", "x z", "s"),
        node("SequenceAt", "s one", "b"),
        node("SequenceInsert", "s b zero", "t"),
        node("SequenceErase", "t one", "u"),
        node("SequenceAt", "u zero", "c"),
        node("ConcatFromSequence", "t", "d", axis=0),
        node("SequenceLength", "t", "k"),
    ]
    shapes = assert_right(
        model(graph(nodes, [X, Z], "d k", zero=0, one=1)), {"n": 2, "m": 3}, {"n": 1, "m": 1}
    )
    assert texts(shapes, "c") == ["m", "6"]
    assert texts(shapes, "d") in (["2*m + n", "6"], ["n + 2*m", "6"])


def test_an_unknown_position_leaves_what_all_share() -> None:
    nodes = [node("SequenceConstruct", "x z", "s"), node("SequenceAt", "s i", "y")]
    shapes = infer(graph(nodes, [X, Z, value("i", INT64, [])], "y"))
    dims = texts(shapes, "y")
    assert dims is not None
    assert dims[1] == "6"
    assert [u.symbol for u in shapes.unknowns] == [dims[0]]


def test_splitting_into_a_sequence() -> None:
    nodes = [
        node("SplitToSequence", "x two", "s", axis=1),
        node("SequenceAt", "s last", "a"),
        node("SplitToSequence", "x", "t", axis=1, keepdims=0),
        node("SequenceAt", "t zero", "b"),
        node("SplitToSequence", "x parts", "u", axis=1),
        node("ConcatFromSequence", "u", "c", axis=1),
        node("ConcatFromSequence", "t", "d", axis=0, new_axis=1),
    ]
    of = graph(nodes, [X], "a b c d", two=2, last=-1, zero=0, parts=[1, 5])
    shapes = assert_right(model(of), {"n": 1}, {"n": 4})
    assert texts(shapes, "a") == ["n", "2"]
    assert texts(shapes, "d") == ["6", "n"]


def test_parts_of_one_size_are_of_that_size() -> None:
    nodes = [
        node("SplitToSequence", "x one", "s", axis=0),
        node("ConcatFromSequence", "s", "a", axis=1),
        node("Concat", "x x", "twice", axis=0),
        node("SplitToSequence", "twice two", "t", axis=0),
        node("SequenceAt", "t i", "b"),
        node("ConcatFromSequence", "t", "c", axis=0),
    ]
    of = graph(nodes, [X, value("i", INT64, [])], "a b c", one=1, two=2)
    shapes = assert_right(model(of), {"n": 1}, {"n": 3}, given={"i": np.array(0)})
    assert texts(shapes, "a") == ["1", "6*n"]
    assert texts(shapes, "b") == ["2", "6"]
    assert texts(shapes, "c") == ["2*n", "6"]
    assert not shapes.unknowns


def test_declared_sequences_and_optionals() -> None:
    tensor = helper.make_tensor_type_proto(FLOAT, ["n", None])
    of = graph([node("SequenceAt", "s zero", "y"), node("OptionalGetElement", "o", "z")], [], "y z", zero=0)
    of.input.append(helper.make_value_info("s", helper.make_sequence_type_proto(tensor)))
    of.input.append(helper.make_value_info("o", helper.make_optional_type_proto(tensor)))
    of.input.append(value("x", FLOAT, ["n"]))
    shapes = infer(of)
    assert (texts(shapes, "y") or [""])[0] == "n"
    assert (texts(shapes, "z") or [""])[0] == "n"


def test_a_sequence_of_growing_length_in_a_loop() -> None:
    from tests.shapes.test_control import body

    inputs = [
        value("k", INT64, []),
        value("go", helper.TensorProto.BOOL, []),
        helper.make_value_info(
            "v", helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, None))
        ),
    ]
    inner = body([node("Identity", "go", "on"), node("SequenceInsert", "v x", "w")], inputs, "on w")
    nodes = [
        node("SequenceEmpty", "", "s"),
        node("Loop", "m go0 s", "t", body=inner),
        node("ConcatFromSequence", "t", "y", axis=0),
        node("SequenceAt", "t zero", "z"),
    ]
    shapes = infer(graph(nodes, [X], "y z", m=3, go0=True, zero=0))
    assert shapes.graph.of("z") is None or (texts(shapes, "z") or [])[1] == "6"
