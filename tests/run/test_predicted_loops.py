"""Loops beside their prediction: sizes that only the run tells are taken from it, nothing is called wrong."""

from __future__ import annotations

import onnx
import pytest
from onnx import helper

from onnx_symmem.run.measure import measure
from onnx_symmem.run.predict import Prediction
from tests.shapes.building import BOOL, FLOAT, INT64, graph, model, node, value

X = value("x", FLOAT, ["n", 8])


def looped(steps: list[onnx.NodeProto], rank: list[int] | None = None) -> onnx.ModelProto:
    """A Loop of `m` iterations (an input) that carries v into w and stacks q."""
    inputs = [value("k", INT64, rank or []), value("go", BOOL, []), value("v", FLOAT)]
    results = [onnx.ValueInfoProto(name=name) for name in ("on", "w", "q")]
    inside = helper.make_graph([node("Identity", "go", "on"), *steps], "body", inputs, results)
    one = node("Loop", "m first x", "last all", body=inside)
    return model(graph([one], [X, value("m", INT64, [])], "last all", first=True, one=[1], z=[0], eight=[8]))


def predicted(proto: onnx.ModelProto, iterations: int) -> Prediction:
    found = measure(proto, {"n": 3}, overrides={"m": f"value:{iterations}"}, latency_runs=0).prediction
    assert found is not None
    assert found.equal == found.compared > 0
    return found


@pytest.mark.parametrize("iterations", [0, 1, 3])
def test_outputs_that_grow_are_taken_from_the_run(iterations: int) -> None:
    steps = [node("Concat", "v x", "w", axis=0), node("ReduceSum", "v", "q", keepdims=0)]
    found = predicted(looped(steps), iterations)
    assert not found.wrong_dims
    assert sorted(found.taken.values()) == sorted([3 * (iterations + 1), iterations])


@pytest.mark.parametrize("iterations", [0, 2])
def test_outputs_of_a_loop_that_never_runs_are_not_wrong(iterations: int) -> None:
    """ONNX Runtime does not know the rank of q, and leaves an empty tensor of rank 1."""
    steps = [
        node("Shape", "v", "s"),
        node("Slice", "s z one", "rows"),
        node("Concat", "rows eight", "target", axis=0),
        node("Reshape", "v target", "w"),
        node("Relu", "w", "q"),
    ]
    assert not predicted(looped(steps), iterations).wrong_dims


def test_the_number_of_an_iteration_may_be_a_vector() -> None:
    steps = [node("Cast", "k", "f", to=FLOAT), node("Add", "v f", "w"), node("Identity", "k", "q")]
    for rank in ([], [1]):
        assert not predicted(looped(steps, rank), 2).wrong_dims
