"""Which ops have a rule: all of onnx at any opset, and all of ONNX Runtime but a few opaque ones."""

from __future__ import annotations

import onnx.defs
from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

from onnx_symmem.shapes.registry import find_rule
from tests.shapes.building import FLOAT, graph, infer, model, node, value

OPAQUE = {"EPContext", "Snpe"}  # compiled elsewhere: their dims are those that the file declares


def test_every_op_of_onnx_has_a_rule() -> None:
    missing = {
        (schema.domain, schema.name, schema.since_version)
        for schema in onnx.defs.get_all_schemas_with_history()
        if find_rule(schema.domain, schema.name) is None
    }
    assert not missing


def test_every_op_of_onnx_runtime_has_a_rule() -> None:
    known = {(schema.domain, schema.name) for schema in get_all_operator_schema()}
    assert {op for domain, op in known if find_rule(domain, op) is None} == OPAQUE


def test_an_op_without_a_rule_does_not_spoil_the_model() -> None:
    """Its outputs are as declared, else unknown with the reason; what others make stays exact."""
    strange = node("Strange", "x", "y z")
    strange.domain = "my.ops"
    of = graph(
        [strange, node("Add", "y x", "sum"), node("Relu", "x", "r")], [value("x", FLOAT, ["n", 8])], "sum r"
    )
    of.value_info.append(value("y", FLOAT, [None, 8]))
    shapes = infer(model(of, my_ops=1))
    assert {u.reason for u in shapes.unknowns} == {"no rule for this op"}
    assert shapes.graph.of("z") is None
    assert [str(d) for d in shapes.graph.of("r") or ()] == ["n", "8"]
    assert [str(d) for d in shapes.graph.of("sum") or ()][1] == "8"
