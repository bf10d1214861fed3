"""Models that this ONNX Runtime cannot run at all are unsupported (exit code 3), not failed."""

from __future__ import annotations

import onnx
import pytest

from onnx_symmem.errors import RunFailed, UnsupportedModel
from onnx_symmem.run.session import create_session
from tests.shapes.building import FLOAT, graph, model, node, value

X = value("x", FLOAT, ["n", 8])


def of(op: str, domain: str = "", opset: int = 18, inputs: str = "x", **domains: int) -> onnx.ModelProto:
    one = node(op, inputs, "y")
    one.domain = domain
    proto = model(graph([one], [X], "y"), opset, **domains)
    proto.graph.output[0].type.tensor_type.elem_type = FLOAT
    return proto


@pytest.mark.parametrize(
    "proto",
    [
        of("Foo", "my.ops", my_ops=1),
        of("Foo", "com.microsoft", com_microsoft=1),
        of("Foo"),
        of("BiasAdd", "com.microsoft", inputs="x x x", com_microsoft=1),  # has no kernel for the CPU
        of("Neg", opset=99),
    ],
    ids=["domain", "contrib", "onnx", "kernel", "opset"],
)
def test_unknown_ops_are_unsupported(proto: onnx.ModelProto) -> None:
    with pytest.raises(UnsupportedModel, match="cannot run the model") as caught:
        create_session(proto)
    assert caught.value.exit_code == 3
    assert "\n" not in str(caught.value)


def test_a_node_with_too_many_inputs_is_refused() -> None:
    with pytest.raises(RunFailed, match="refused"):
        create_session(of("Neg", inputs="x x"))
