"""Ifs whose branch the shapes of the inputs decide: what is said of a shape is what a run takes there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnx_symmem.api import check, fit, report
from onnx_symmem.errors import DomainError
from onnx_symmem.graph.load import load_model
from onnx_symmem.run.decided import decided_ifs
from onnx_symmem.run.measure import measure
from onnx_symmem.run.shape_program import shape_program
from onnx_symmem.shapes.engine import infer_shapes

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def _branch(name: str, factor: int) -> onnx.GraphProto:
    """Makes a tensor `factor` times as large as x on the way."""
    nodes = [
        helper.make_node("Concat", ["x"] * factor, [f"{name}/wide"], axis=1, name=f"{name}/wide"),
        helper.make_node("ReduceSum", [f"{name}/wide"], [f"{name}/out"], name=f"{name}/out"),
    ]
    return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(f"{name}/out", FLOAT, None)])


def _if(number: int, condition: str, factors: Sequence[int]) -> onnx.NodeProto:
    branches = [_branch(f"{number}/{k}", factor) for k, factor in enumerate(factors)]
    return helper.make_node(
        "If",
        [condition],
        [f"r{number}"],
        name=f"if{number}",
        then_branch=branches[0],
        else_branch=branches[1],
    )


def _model(*ifs: Sequence[int], decided: bool = True, sign: str = "Less") -> onnx.ModelProto:
    """Ifs one after the other, number k by whether a dim is below 8 + 8 * k, or by a sum of data."""
    nodes = [
        helper.make_node("Shape", ["x"], ["n"], start=0, end=1),
        helper.make_node("ReduceSum", ["x"], ["data"], keepdims=0),
        helper.make_node("Cast", ["data"], ["whole"], to=INT64),
    ]
    constants = []
    for k, factors in enumerate(ifs):
        constants.append(numpy_helper.from_array(np.array([8 + 8 * k]), f"c{k}"))
        nodes.append(helper.make_node(sign, ["n" if decided else "whole", f"c{k}"], [f"small{k}"]))
        nodes.append(_if(k, f"small{k}", factors))
    nodes.append(helper.make_node("Sum", [f"r{k}" for k in range(len(ifs))], ["y"]))
    x = helper.make_tensor_value_info("x", FLOAT, ["n", 4])
    y = helper.make_tensor_value_info("y", FLOAT, None)
    graph = helper.make_graph(nodes, "ifs", [x], [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _taken(proto: onnx.ModelProto, n: int) -> tuple[str, ...]:
    model = load_model(proto)
    return decided_ifs(model, infer_shapes(model.view())).taken({"n": n})


@pytest.mark.parametrize("ifs", [[(9, 3)], [(3, 9)], [(9, 3), (2, 12)]])
def test_every_verb_says_what_a_run_takes(ifs: list[Sequence[int]]) -> None:
    proto = _model(*ifs)
    for n in (1, 7, 8, 15, 16, 40):
        ran = measure(proto, {"n": n}, runs=1, latency_runs=0)
        assert ran.nodes_equal == 1
        took = ran.runs[0].requested_peak
        (moment,) = report(proto, at={"n": n}).moments
        assert (moment.peak, moment.label) == (took, "exact")
        assert max(moment.timeline) == took
        (checked,) = check(proto, took, at={"n": n}, counts=("activations",)).checks
        assert (checked.label, checked.needed[0][1], checked.holds) == ("exact", took, True)
    assert report(proto, at={"n": 1}).peak.label == "bound"


def test_fit_counts_the_branch_that_runs() -> None:
    proto = _model((9, 3))
    peaks = {n: report(proto, at={"n": n}).moments[0].peak for n in range(1, 60)}
    for budget in (peaks[1] - 1, peaks[5], peaks[7], peaks[8], peaks[30], peaks[30] + 1):
        found = fit(proto, budget, ["n"], counts=("activations",))
        fitting = [n for n, peak in peaks.items() if peak <= budget]
        assert found.rows[0].found[0].size == max(fitting, default=None)
        assert found.labels == ("exact",)


def test_where_the_largest_size_is_far_from_what_one_branch_takes_a_bound_is_found() -> None:
    """Sizes of which each would have to be asked for are too many: what fits whatever runs is said."""
    proto = _model((2, 200), sign="Less")
    found = fit(proto, 10**9, ["n"], counts=("activations",))
    (capacity,) = found.rows[0].found
    assert found.labels == ("bound",)
    assert capacity.size is not None
    assert report(proto, at={"n": capacity.size}).moments[0].peak <= 10**9


def test_what_data_decides_is_a_bound() -> None:
    proto = _model((9, 3), decided=False)
    assert _taken(proto, 4) == ()
    (moment,) = report(proto, at={"n": 8}).moments
    assert moment.label == "bound"
    assert moment.peak > measure(proto, {"n": 8}, overrides={"x": "ones"}, runs=1).runs[0].requested_peak
    assert check(proto, 1, at={"n": 8}, counts=("activations",)).checks[0].label == "bound"


def test_what_depends_on_a_size_that_data_decides_is_not_decided() -> None:
    """At its largest one branch runs, at others the other."""
    proto = _model((9, 3))
    nodes = [helper.make_node("NonZero", ["x"], ["found"]), *proto.graph.node]
    nodes[1].CopyFrom(helper.make_node("Shape", ["found"], ["n"], start=1))
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    assert _taken(proto, 4) == ()


def test_a_constant_condition_leaves_one_branch() -> None:
    proto = _model((9, 3))
    proto.graph.initializer.append(numpy_helper.from_array(np.array(False), "never"))
    next(node for node in proto.graph.node if node.op_type == "If").input[0] = "never"
    assert _taken(proto, 1) == _taken(proto, 99) == ("else_branch",)
    model = load_model(proto)
    assert decided_ifs(model, infer_shapes(model.view())).ways() == (("else_branch",),)
    took = measure(proto, {"n": 3}, runs=1, latency_runs=0).runs[0].requested_peak
    found = check(proto, took, at={"n": 3}, counts=("activations",)).checks[0]
    assert (found.label, found.needed[0][1]) == ("exact", took)


def test_more_ifs_than_can_be_told_apart_are_a_bound_only_there(tmp_path: Path) -> None:
    proto = _model(*[(2 + k, 9 - k) for k in range(6)])
    took = measure(proto, {"n": 20}, runs=1, latency_runs=0).runs[0].requested_peak
    (moment,) = report(proto, at={"n": 20}).moments
    assert (moment.peak, moment.label) == (took, "exact")
    found = check(proto, took, at={"n": 20}, counts=("activations",)).checks[0]
    assert found.label == "bound"
    assert found.needed[0][1] >= took


@pytest.mark.parametrize(
    ("ends", "expected"),
    [({}, [3, 5, 7]), ({"start": 1}, [5, 7]), ({"end": -1}, [3, 5]), ({"start": -1}, [7])],
)
def test_values_are_those_of_a_run(ends: dict[str, Any], expected: list[int]) -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], **ends),
        helper.make_node("Size", ["x"], ["all"]),
        helper.make_node("Mul", ["s", "all"], ["p"]),
    ]
    x = helper.make_tensor_value_info("x", FLOAT, ["a", "b", 7])
    p = helper.make_tensor_value_info("p", INT64, None)
    graph = helper.make_graph(nodes, "g", [x], [p])
    model = load_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    program = shape_program(model, infer_shapes(model.view()), ["p"])
    assert program is not None
    assert program.at({"a": 3, "b": 5})[0].tolist() == [105 * n for n in expected]
    assert program.symbols == {"a", "b"}


def test_a_file_of_versions_still_asks_for_every_dim_that_decides(tmp_path: Path) -> None:
    with pytest.raises(DomainError):
        report(_model((9, 3)), at={"m": 1})


def test_branches_of_equal_operators_without_names_are_told_by_dims() -> None:
    """A profile names no branch: of both it has a Concat and a ReduceSum."""
    proto = _model((9, 3), (2, 12))
    for node in proto.graph.node:
        for attribute in node.attribute:
            for inner in attribute.g.node:
                inner.name = ""
    for n in (1, 7, 8, 15, 16, 40):
        found = measure(proto, {"n": n}, runs=1, latency_runs=0)
        assert found.nodes_equal == 1
        assert (
            found.prediction.peak
            == found.runs[0].requested_peak
            == report(proto, at={"n": n}).moments[0].peak
        )
