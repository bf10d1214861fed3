"""Models of constant dims whose dims ONNX Runtime does not know at load."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from onnx_symmem.graph.load import load_model
from onnx_symmem.rewrite.unknown_dims import with_unknown_dims
from onnx_symmem.run.at_load import keys_at_load
from onnx_symmem.run.session import SessionSettings, create_session, run_session
from onnx_symmem.shapes.engine import infer_shapes
from tests.memory.runtime import info, model, number


def _reshaped() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Exp", ["x"], ["a"], name="a"),
        helper.make_node("Reshape", ["a", "to"], ["b"], name="b"),
        helper.make_node("Neg", ["b"], ["c"], name="c"),
        helper.make_node("Unsqueeze", ["c", "axes"], ["y"], name="y"),
    ]
    weights = [number("to", [6, 2]), number("axes", [0])]
    return model(nodes, [info("x", [3, 4])], [info("y", [1, 6, 2])], weights)


def test_no_dim_is_known_beyond_the_inputs() -> None:
    made = with_unknown_dims(_reshaped())
    loaded = load_model(made)
    del loaded.proto.graph.value_info[:]
    graph = infer_shapes(loaded.view()).graph
    keys = keys_at_load(loaded, graph)
    assert [keys.values[graph.view.index[name]] for name in "abc"] == [None] * 3
    # To us they are as constant as before.
    assert [str(d) for d in graph.dims[graph.view.index["c"]]] == ["6", "2"]


def test_only_what_says_dims_is_listed_and_nothing_has_to_be_fed() -> None:
    made = with_unknown_dims(_reshaped())
    assert [i.name for i in made.graph.input] == ["x", "symmem/unknown/2", "to"]
    onnx.checker.check_model(made, full_check=True)
    feeds = {"x": np.arange(12, dtype=np.float32).reshape(3, 4)}
    for settings in (SessionSettings(), SessionSettings(optimization="all")):
        first, second = (run_session(create_session(p, settings), feeds)[0] for p in (_reshaped(), made))
        assert first.tobytes() == second.tobytes()
