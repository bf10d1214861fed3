"""Different texts of equal dims: buffers of a plan are told apart, in-place partners and numbers are not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
from onnx import TensorProto, helper

from onnx_symmem.expr.text import parse
from onnx_symmem.graph.load import load_model
from onnx_symmem.graph.view import view_model
from onnx_symmem.memory.execution_order import default_order
from onnx_symmem.memory.plan import PlanOptions, prepare
from onnx_symmem.memory.sizes import from_declared, from_written
from onnx_symmem.rewrite.separation import separate_buffers
from onnx_symmem.rewrite.value_info import write_dims
from onnx_symmem.run.at_load import keys_at_load
from onnx_symmem.run.measure import measure
from onnx_symmem.run.session import SessionSettings
from onnx_symmem.shapes.engine import infer_shapes


def chain(rows: str | int = "batch size") -> onnx.ModelProto:
    """Buffers of one size in a row, one of them written in place, and more of them in a branch."""

    def info(name: str, *shape: str | int) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    inner = helper.make_graph(
        [helper.make_node("Exp", ["c"], ["i"]), helper.make_node("Neg", ["i"], ["j"]),
         helper.make_node("Neg", ["j"], ["k"]), helper.make_node("ReduceSum", ["k"], ["s"], keepdims=0)],
        "inner", [], [info("s")],
    )  # fmt: skip
    other = helper.make_graph(
        [helper.make_node("ReduceSum", ["c"], ["t"], keepdims=0)], "other", [], [info("t")]
    )
    nodes = [
        helper.make_node("Exp", ["x"], ["a"], name="a"),
        helper.make_node("Neg", ["a"], ["b"], name="b"),
        helper.make_node("Relu", ["b"], ["r"], name="r"),
        helper.make_node("Neg", ["r"], ["c"], name="c"),
        helper.make_node("If", ["yes"], ["y"], name="y", then_branch=inner, else_branch=other),
    ]
    yes = helper.make_tensor_value_info("yes", TensorProto.BOOL, [])
    graph = helper.make_graph(nodes, "chain", [info("x", rows, 4), yes], [info("y")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def separated(model: onnx.ModelProto) -> onnx.ModelProto:
    shapes = infer_shapes(view_model(model))
    prepared = prepare(shapes.graph.view, from_written(shapes.graph), PlanOptions(), default_order)
    plan = prepared.plan(default_order(shapes.graph.view))
    return separate_buffers(write_dims(model, shapes), shapes, plan)


def dims(graph: onnx.GraphProto) -> dict[str, str | int]:
    first = {info.name: info.type.tensor_type.shape.dim for info in graph.value_info}
    return {name: d[0].dim_param or d[0].dim_value for name, d in first.items() if d}


def test_every_buffer_has_its_own_text() -> None:
    model = separated(chain())
    found = dims(model.graph)
    assert found["b"] == found["r"]
    assert len({found["a"], found["b"], found["c"]}) == 3
    assert found["a"] == "batch size"
    assert found["c"] == "sym('batch size') + 0*3"
    assert str(parse(str(found["c"]))) == "sym('batch size')"
    branch = next(a.g for n in model.graph.node for a in n.attribute if a.name == "then_branch")
    assert len(set(dims(branch).values())) == 3


def test_numbers_stay() -> None:
    assert set(dims(separated(chain(5)).graph).values()) == {5}


def test_onnx_runtime_reuses_nothing_then() -> None:
    """Bytes with reuse on are those with reuse off at every node, and dims are inferred as before."""
    feeds = {"yes": np.array(True)}
    settings = SessionSettings(execution_order="default", mem_reuse=True)
    for rows in (1, 50):
        shape = {"batch size": rows}

        def bytes_of(model: onnx.ModelProto, under: SessionSettings, at: dict[str, int] = shape) -> list[int]:
            found = measure(model, at, settings=under, overrides=feeds, latency_runs=0)
            assert found.nodes_equal == 1.0
            assert found.wrong_dims == ()
            return [node.measured for node in found.nodes]

        without = bytes_of(chain(), replace(settings, mem_reuse=False))
        assert bytes_of(separated(chain()), settings) == without
        assert bytes_of(chain(), settings) != without
    loaded = load_model(separated(chain()))
    shapes = infer_shapes(loaded.view())
    assert keys_at_load(loaded, shapes.graph) == from_declared(loaded.view().graph)
    assert [str(d) for d in shapes.graph.dims[loaded.view().graph.index["c"]]] == ["sym('batch size')", "4"]
