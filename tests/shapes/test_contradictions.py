"""What a model says of itself that can never hold: found, named, and kept out of the file that is written."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper

from benchmarks.real_shapes import run_all_outputs
from onnx_symmem.graph.load import load_model
from onnx_symmem.rewrite.value_info import write_dims
from onnx_symmem.shapes.engine import infer_shapes
from tests.shapes.building import FLOAT, graph, infer, model, node, texts, value


def written(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model with all dims, as `shapes --write` writes it."""
    loaded = load_model(proto)
    return write_dims(loaded.proto, infer_shapes(loaded.view()))


def output_dims(proto: onnx.ModelProto) -> list[int | str]:
    """Declared dims of the first output."""
    dims = proto.graph.output[0].type.tensor_type.shape.dim
    return [d.dim_param or d.dim_value for d in dims]


def doubled(claim: list[int | str]) -> onnx.ModelProto:
    """y = concat(x, x) of x[n], declared as claimed."""
    proto = model(graph([node("Concat", "x x", "y", axis=0)], [value("x", FLOAT, ["n"])], "y"))
    proto.graph.output[0].CopyFrom(value("y", FLOAT, claim))
    return proto


@pytest.mark.parametrize(
    ("claim", "kind", "text"),
    [
        (["n"], "contradicted", "declared n, inferred 2*n: never the same; the inferred size is used"),
        ([3], "contradicted", "declared 3, inferred 2*n: never the same; the inferred size is used"),
        (["n", 1], "contradicted", "declared with rank 2, inferred rank 1; the inferred one is used"),
        ([4], "declared", "2*n == 4"),
    ],
)
def test_a_declared_size_that_can_never_be_is_found_and_corrected(
    claim: list[int | str], kind: str, text: str
) -> None:
    proto = doubled(claim)
    (found,) = infer(proto).assumptions
    assert (found.kind, found.text, found.node) == (kind, text, "Concat 'y_node'")
    # A claim that holds at some shape is the caller's to make.
    assert output_dims(written(proto)) == (claim if kind == "declared" else ["2*n"])


def test_a_node_that_can_never_run_is_found() -> None:
    nodes = [node("MatMul", "x a", "t"), node("MatMul", "x b", "u")]
    of = graph(nodes, [value("x", FLOAT, ["n", "k"])], "t u", a=np.ones((2, 3)), b=np.ones((4, 3)))
    found = {a.kind: (a.text, a.node) for a in infer(of).assumptions}
    assert found["never"] == ("needs 2 == 4, which holds at no shape", "MatMul 'u_node'")
    assert found["equal"] == ("k == 2", "MatMul 't_node'")


def branches(outside: bool) -> onnx.ModelProto:
    """A branch that adds 2 elements to 4, which ONNX Runtime cannot see, and another one, which is taken."""
    add = [node("Expand", "one twice", "t"), node("Relu", "t", "t2"), node("Expand", "one four", "u")]
    last = [node("Add", "t2 u", "ty")]
    results = [onnx.ValueInfoProto(name="ty")], [onnx.ValueInfoProto(name="ey")]
    then = helper.make_graph(last if outside else add + last, "then", [], results[0])
    other = helper.make_graph([node("Relu", "x", "ey")], "other", [], results[1])
    nodes = [
        node("Shape", "x", "s"),
        node("Add", "s zero", "twice"),
        node("Mul", "s two", "four"),
        node("Squeeze", "s", "size"),
        node("Greater", "size many", "c"),
        *(add if outside else []),
        node("If", "c", "y", then_branch=then, else_branch=other),
    ]
    numbers = {"zero": [0], "two": [2], "many": np.array(100), "one": np.ones(1, np.float32)}
    return model(graph(nodes, [value("x", FLOAT, [2])], "y", **numbers))


@pytest.mark.parametrize("outside", [False, True])
def test_a_model_with_a_branch_that_cannot_run_stays_loadable(outside: bool) -> None:
    proto = branches(outside)
    (found,) = infer(proto).assumptions
    assert (found.kind, found.node) == ("never", "Add 'ty_node'")
    new = written(proto)
    session = ort.InferenceSession(new.SerializeToString(), providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {"x": np.ones(2, np.float32)})
    assert y.shape == (2,)
    # Dims that lead to no contradiction are written as ever.
    assert "size" in {info.name for info in new.graph.value_info}


def test_dims_that_agree_are_no_contradiction() -> None:
    nodes = [node("Relu", "x", "t"), node("Add", "t w", "y")]
    proto = model(graph(nodes, [value("x", FLOAT, ["n", 4])], "y", w=np.ones(4)))
    proto.graph.value_info.append(value("t", FLOAT, ["n", 4]))
    shapes = infer(proto)
    assert not shapes.assumptions
    assert texts(shapes, "y") == ["n", "4"]
    real, _ = run_all_outputs(load_model(written(proto)), {"x": np.ones((3, 4), np.float32)})
    assert real["y"] == (3, 4)
