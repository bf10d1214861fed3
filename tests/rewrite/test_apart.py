"""Repeats told apart: every one reads an alias that no other expression of the graph reads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from onnx_symmem.errors import UnsupportedModel
from onnx_symmem.graph.load import load_model
from onnx_symmem.remat.expansion import expand
from onnx_symmem.remat.schedule import schedule_of
from onnx_symmem.rewrite.versions import Version, emit_versions
from onnx_symmem.run.session import SessionSettings, create_session, run_session
from onnx_symmem.run.unchanged import changed_results
from onnx_symmem.shapes.engine import infer_shapes
from tests.memory.runtime import info, model


def _written(proto: onnx.ModelProto, order: Sequence[int], apart: bool = True) -> onnx.ModelProto:
    """The model with its nodes run in an order that may repeat them, without If."""
    loaded = load_model(proto)
    shapes = infer_shapes(loaded.view())
    expansion = expand(shapes.graph.view, schedule_of(order), loaded.view().opsets)
    return emit_versions(proto, shapes, [Version(expansion, ())], apart=apart)


def _chain() -> onnx.ModelProto:
    """Exp and Mul by a weight, three times read."""
    weight = numpy_helper.from_array(np.arange(1, 5, dtype=np.float32), "w")
    nodes = [
        helper.make_node("Exp", ["x"], ["a"], name="a"),
        helper.make_node("Mul", ["w", "a"], ["b"], name="b"),
        helper.make_node("Neg", ["b"], ["c"], name="c"),
        helper.make_node("Sin", ["b"], ["d"], name="d"),
        helper.make_node("Cos", ["b"], ["e"], name="e"),
        helper.make_node("Sum", ["c", "d", "e"], ["y"], name="y"),
    ]
    return model(nodes, [info("x", ["n", 4])], [info("y", ["n", 4])], [weight])


def _aliases(proto: onnx.ModelProto) -> list[tuple[str, str]]:
    return [(n.input[0], n.input[1]) for n in proto.graph.node if n.op_type == "Reshape"]


def test_each_repeat_of_a_node_has_zeros_of_its_own() -> None:
    made = _written(_chain(), [0, 1, 2, 1, 3, 1, 4, 5])
    # What a node made rather than the weight that stands first.
    assert _aliases(made) == [("a", "symmem/apart/1_2"), ("a", "symmem/apart/2_2")]
    zeros = {t.name: numpy_helper.to_array(t).tolist() for t in made.graph.initializer}
    assert zeros["symmem/apart/1_2"] == zeros["symmem/apart/2_2"] == [0, 0]
    assert {i.name for i in made.graph.input} == {"x", "symmem/apart/1_2", "symmem/apart/2_2"}
    onnx.checker.check_model(made, full_check=True)


def test_what_reads_another_instance_needs_no_alias() -> None:
    made = _written(_chain(), [0, 1, 2, 0, 1, 3, 4, 5])
    assert _aliases(made) == [("x", "symmem/apart/1_2")]


@pytest.mark.parametrize("order", [[0, 1, 2, 1, 3, 1, 4, 5], [0, 1, 2, 0, 1, 3, 0, 1, 4, 5]])
@pytest.mark.parametrize("apart", [False, True])
def test_onnx_runtime_merges_what_is_not_told_apart(order: list[int], apart: bool) -> None:
    made = _written(_chain(), order, apart)
    assert bool(changed_results(load_model(made), "basic")) != apart
    feeds = {"x": np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)}
    ran = [
        run_session(create_session(p, SessionSettings(optimization="all")), feeds) for p in (_chain(), made)
    ]
    assert ran[0][0].tobytes() == ran[1][0].tobytes()


def test_a_scalar_and_an_empty_tensor_have_aliases_too() -> None:
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["s"], name="s", keepdims=0),
        helper.make_node("Exp", ["s"], ["a"], name="a"),
        helper.make_node("Mul", ["x", "a"], ["b"], name="b"),
        helper.make_node("Add", ["b", "a"], ["y"], name="y"),
    ]
    proto = model(nodes, [info("x", ["n"])], [info("y", ["n"])])
    made = _written(proto, [0, 1, 2, 1, 3])
    assert _aliases(made) == [("s", "symmem/apart/1_0")]
    assert not changed_results(load_model(made), "basic")
    for size in (0, 3):
        feeds = {"x": np.ones(size, np.float32)}
        ran = [
            run_session(create_session(p, SessionSettings(optimization="all")), feeds)[0]
            for p in (proto, made)
        ]
        assert ran[0].tobytes() == ran[1].tobytes()
        assert ran[0].shape == ran[1].shape == (size,)


def test_nodes_that_the_model_has_twice_are_told_apart() -> None:
    nodes = [
        helper.make_node("Softmax", ["x"], ["a"], name="a", axis=1),
        helper.make_node("Softmax", ["x"], ["b"], name="b", axis=1),
        helper.make_node("Softmax", ["x"], ["c"], name="c", axis=0),
        helper.make_node("Sum", ["a", "b", "c"], ["y"], name="y"),
    ]
    proto = model(nodes, [info("x", ["n", 4])], [info("y", ["n", 4])])
    assert _aliases(_written(proto, [0, 1, 2, 3])) == [("x", "symmem/apart/1_2")]


def test_what_cannot_be_told_apart_is_refused() -> None:
    nodes = [
        helper.make_node("SplitToSequence", ["x"], ["s"], name="s", axis=0),
        helper.make_node("ConcatFromSequence", ["s"], ["a"], name="a", axis=0),
        helper.make_node("Exp", ["a"], ["b"], name="b"),
        helper.make_node("Add", ["b", "a"], ["y"], name="y"),
    ]
    proto = model(nodes, [info("x", ["n", 4])], [info("y", ["n", 4])])
    with pytest.raises(
        UnsupportedModel, match="ConcatFromSequence 'a/again2'.* told apart, which anchors need"
    ):
        _written(proto, [0, 1, 2, 1, 3])
