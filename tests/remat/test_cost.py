"""Operations and bytes of nodes, and what is never repeated."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from models.build import build
from onnx_symmem.remat.cost import Machine, keep_reason
from tests.remat.training import Ground, chain


def _ground(nodes, inputs, outputs, weights=()):
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [info(n, TensorProto.FLOAT, d) for n, d in inputs],
        [info(n, TensorProto.FLOAT, None) for n in outputs], list(weights),
    )  # fmt: skip
    return Ground(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9))


@pytest.mark.parametrize(
    ("node", "inputs", "operations"),
    [
        (helper.make_node("MatMul", ["a", "b"], ["o"]), [("a", ["n", 4, 8]), ("b", [8, 5])], "160*n"),
        (helper.make_node("Gemm", ["a", "b"], ["o"], transA=1), [("a", [8, "n"]), ("b", [8, 5])], "40*n"),
        (
            helper.make_node("Conv", ["a", "b"], ["o"], pads=[1, 1, 1, 1]),
            [("a", ["n", 4, 6, 6]), ("b", [8, 4, 3, 3])],
            "10368*n",
        ),
        (
            helper.make_node("ConvTranspose", ["a", "b"], ["o"]),
            [("a", ["n", 4, 6, 6]), ("b", [4, 8, 3, 3])],
            "10368*n",
        ),
        (helper.make_node("Softmax", ["a"], ["o"]), [("a", ["n", 7])], "28*n"),
        (helper.make_node("ReduceSum", ["a"], ["o"], keepdims=0), [("a", ["n", 7])], "7*n"),
        (helper.make_node("Transpose", ["a"], ["o"]), [("a", ["n", 7])], "0"),
        (
            helper.make_node("Einsum", ["a", "b"], ["o"], equation="bij,bjk->bik"),
            [("a", ["n", 2, 3]), ("b", ["n", 3, 5])],
            "30*n",
        ),
    ],
)
def test_operations(node, inputs, operations):
    ground = _ground([node], inputs, ["o"])
    assert str(ground.costs.operations[0]) == operations
    assert not ground.costs.unknown


def test_bytes_are_those_read_and_written_and_none_for_aliases():
    ground = _ground(
        [helper.make_node("Exp", ["a"], ["e"]), helper.make_node("Flatten", ["e"], ["f"]),
         helper.make_node("Neg", ["f"], ["o"])],
        [("a", ["n", 3])], ["o"],
    )  # fmt: skip
    assert [str(e) for e in ground.costs.moved] == ["24*n", "0", "24*n"]


def test_total_and_seconds_agree():
    ground = Ground(build("mlp_train"))
    nodes = [0, 1, 1, 2]
    operations, moved = ground.costs.total(nodes)
    shape = {"batch": 7}
    machine = Machine(operations=10.0, bandwidth=3.0)
    seconds = ground.costs.seconds([shape], machine)[nodes].sum()
    assert np.isclose(seconds, operations.evaluate(shape) / 10 + moved.evaluate(shape) / 3)


def test_what_is_never_repeated():
    ground = _ground(
        [
            helper.make_node("RandomNormalLike", ["a"], ["r"]),
            helper.make_node("ScatterElements", ["a", "i", "r"], ["s"], reduction="add"),
            helper.make_node("Add", ["r", "s"], ["t"]),
            helper.make_node("Exp", ["t"], ["o"]),
        ],
        [("a", ["n", 3])],
        ["o"],
        [helper.make_tensor("i", TensorProto.INT64, [1, 3], [0, 0, 0])],
    )
    reasons = [keep_reason(ground.view, node) for node in ground.view.nodes]
    assert reasons[0] == "it is random"
    assert "differ" in reasons[1]
    assert reasons[2] == ""
    assert reasons[3]


def test_chain_costs_one_operation_per_element():
    assert {str(e) for e in Ground(chain(3)).costs.operations} == {"n"}
