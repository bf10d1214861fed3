"""What ONNX Runtime knows of computed dims when it loads a model, seen by what then works in place."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

from onnx_symmem.run.measure import measure

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
CONSTANTS = {
    "i0": 0, "i1": 1, "i2": 2, "v0": [0], "v1": [1], "v2": [2], "v3": [3], "v12": [1, 2], "axes": [0],
    "minus": [-1], "zeros": [0, 0, 0], "one": 1, "ones": [1], "twos": [2],
}  # fmt: skip
SINGLES = "Gather s v0 -> d0 ; Gather s v1 -> d1 ; Gather s v2 -> d2 ; "
SCALARS = "Gather s i0 -> d0 ; Gather s i1 -> d1 ; Gather s i2 -> d2 ; "

# Each makes the dims `t` of a result from s, the shape of an input.
PROGRAMS = [
    "Identity s -> t",
    "Shape x -> t",
    "Shape,start=1 x -> t",
    "Shape,start=-2,end=-1 x -> t",
    "Cast,to=7 s -> t",
    "Cast,to=1 s -> f ; Cast,to=7 f -> t",
    "Slice s v1 v3 -> t",
    "Gather s v12 -> t",
    "Gather s minus -> d ; Concat,axis=0 d -> t",
    "Gather s i0 -> d ; Unsqueeze d axes -> t",
    SINGLES + "Concat,axis=0 d0 d1 d2 -> t",
    SINGLES + "Concat,axis=0 d2 d1 -> t",
    SINGLES + "Concat,axis=0 d1 twos -> t",
    SCALARS + "Unsqueeze d1 axes -> e1 ; Unsqueeze d2 axes -> e2 ; Concat,axis=0 e1 e2 -> t",
    SCALARS + "Cast,to=7 d1 -> c ; Unsqueeze c axes -> t",
    SINGLES + "Cast,to=6 d1 -> c ; Cast,to=7 c -> e ; Concat,axis=0 e -> t",
    SINGLES + "Squeeze d1 axes -> c ; Unsqueeze c axes -> t",
    *(SINGLES + f"{op} d2 d0 -> p ; Concat,axis=0 p d1 -> t" for op in ("Add", "Sub", "Mul", "Div")),
    *(SINGLES + f"{op} d1 ones -> p ; Concat,axis=0 p d1 -> t" for op in ("Add", "Sub", "Mul", "Div")),
    *(SCALARS + f"{op} d2 d0 -> p ; Unsqueeze p axes -> t" for op in ("Add", "Sub", "Mul", "Div")),
    *(SCALARS + f"{op} d2 one -> p ; Unsqueeze p axes -> t" for op in ("Add", "Sub", "Mul", "Div")),
    *(f"{op} s s -> u ; Add u s -> t" for op in ("Add", "Sub", "Mul", "Div")),
    "Gather s v2 -> d ; Mul s d -> t",
    "Gather s v2 -> d ; Gather s i0 -> e ; Sub d e -> t",
    "Size x -> all ; Unsqueeze all axes -> t",
    "ReduceProd,keepdims=1 s -> t",
    "Equal s zeros -> e ; Where e zeros s -> t",
    "Split,axis=0 s -> a b c ; Concat,axis=0 a b c -> t",
]


# Each makes a result `w` of dims that follow from carried numbers: those of an input of 3 times 5.
CONSUMERS = [
    "Slice x v0 d0 v1 -> w0 ; Exp w0 -> w",
    "Slice x d0 d1 v1 -> w0 ; Exp w0 -> w",
    "Tile x t -> w",
    "Resize x _ _ t -> w",
    "TopK,axis=1 x d0 -> w at",
    "Range i0 e1 one -> r0 ; Cast,to=1 r0 -> w",
    "Cast,to=7 x -> i ; OneHot i d0 values -> w",
    "Concat,axis=0 d0 d0 d1 d1 -> p ; Pad x p -> w",
    "Expand x t -> w0 ; Exp w0 -> w",
    "Sub d1 d0 -> p ; Concat,axis=0 d0 p -> q ; Split,axis=1 x q -> w other",
    "Sub d0 d0 -> z ; ReduceSum,keepdims=1 x z -> w0 ; Exp w0 -> w",
    "Sub d0 d0 -> z ; Unsqueeze x z -> w0 ; Exp w0 -> w",
]


def _nodes(program: str) -> list[NodeProto]:
    nodes = []
    for line in program.split(" ; "):
        read, made = (part.split() for part in line.strip(" ;").split("->"))
        op, *attributes = read[0].split(",")
        given = {name: int(value) for name, value in (text.split("=") for text in attributes)}
        names = ["" if name == "_" else name for name in read[1:]]
        nodes.append(helper.make_node(op, names, made, **given))  # type: ignore[arg-type]
    return nodes


def _model(program: str, dims: Sequence[int | str], reshape: bool = False) -> onnx.ModelProto:
    """A tensor of the dims t, over which Relu works in place where they are known; else it is made anew."""
    head = [helper.make_node("Shape", ["x"], ["s"]), *_nodes(program)]
    head = head if any("s" in node.input for node in head) else head[1:]
    if reshape:  # t says all dims of x, perhaps with one to be found out
        made = [helper.make_node("Exp", ["x"], ["e"]), helper.make_node("Reshape", ["e", "t"], ["w"])]
    else:
        made = [
            helper.make_node("ConstantOfShape", ["t"], ["filled"]),
            helper.make_node("Exp", ["filled"], ["w"]),
        ]
    tail = [
        helper.make_node("Relu", ["w"], ["r"]),
        helper.make_node("Exp", ["r"], ["big"]),
        helper.make_node("ReduceSum", ["big"], ["sum"], keepdims=0),
        helper.make_node("ReduceSum", ["x"], ["rest"], keepdims=0),
        helper.make_node("Add", ["sum", "rest"], ["y"]),
    ]
    nodes = [*head, *made, *tail]
    read = {name for node in nodes for name in node.input}
    weights = [numpy_helper.from_array(np.array(v, np.int64), k) for k, v in CONSTANTS.items() if k in read]
    x = helper.make_tensor_value_info("x", FLOAT, list(dims))
    y = helper.make_tensor_value_info("y", FLOAT, [])
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("dims", [[4, 6, 8], ["a", 6, 8], ["a", "b", "c"]], ids=str)
@pytest.mark.parametrize("program", PROGRAMS)
def test_what_is_known_is_what_onnxruntime_knows(program: str, dims: list[int | str]) -> None:
    at = {name: size for name, size in zip("abc", (4, 6, 8), strict=True) if name in dims}
    found = measure(_model(program, dims), at, runs=1, latency_runs=0)
    assert found.prediction.mismatches() == ()
    assert found.nodes_equal == 1


@pytest.mark.parametrize("dims", [[3, 5], ["a", 5]], ids=str)
@pytest.mark.parametrize("program", CONSUMERS)
def test_whatever_an_operator_is_told_counts(program: str, dims: list[int | str]) -> None:
    head = "Shape x -> s ; Gather s v0 -> d0 ; Gather s v1 -> d1 ; Gather s i1 -> e1 ; "
    head += "Concat,axis=0 d0 d1 -> t ; "
    nodes = [*_nodes(head + program), *_nodes("Relu w -> r ; Exp r -> big ; ReduceSum,keepdims=0 big -> y")]
    read = {name for node in nodes for name in node.input}
    weights = [numpy_helper.from_array(np.array(v, np.int64), k) for k, v in CONSTANTS.items() if k in read]
    weights.append(numpy_helper.from_array(np.array([0, 1], np.float32), "values"))
    x = helper.make_tensor_value_info("x", FLOAT, list(dims))
    y = helper.make_tensor_value_info("y", FLOAT, [])
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    at = {"a": 3} if "a" in dims else {}
    found = measure(proto, at, runs=1, latency_runs=0)
    assert found.prediction.mismatches() == ()
    assert found.nodes_equal == 1


@pytest.mark.parametrize("dims", [[4, 6, 8], ["a", 6, 8]], ids=str)
@pytest.mark.parametrize(
    "program",
    [
        SINGLES + "Concat,axis=0 d0 d1 d2 -> t",
        SINGLES + "Mul d0 d1 -> p ; Concat,axis=0 p d2 -> t",
        SINGLES + "Concat,axis=0 d0 minus -> t",
        SINGLES + "Sub d0 d1 -> p ; Div p p -> q ; Sub p p -> z ; Sub z q -> m ; Concat,axis=0 d0 m -> t",
        "Shape,end=2 x -> p ; Concat,axis=0 p minus -> t",
    ],
)
def test_of_a_reshape_too(program: str, dims: list[int | str]) -> None:
    at = {name: 4 for name in dims if name == "a"}
    assert measure(_model(program, dims, reshape=True), at, runs=1, latency_runs=0).nodes_equal == 1


@pytest.mark.parametrize("dims", [[4, 6, 8], ["a", 6, 8]], ids=str)
@pytest.mark.parametrize("inside", [True, False])
def test_branches_carry_what_they_compute_themselves(dims: list[int | str], inside: bool) -> None:
    whole = _model("Gather s v2 -> d2 ; Gather s v1 -> d1 ; Concat,axis=0 d2 d1 -> t", dims).graph
    outside = [] if inside else [n for n in whole.node if n.output[0] in ("s", "d1", "d2", "t")]
    inner = [n for n in whole.node if inside or n.output[0] not in ("s", "d1", "d2", "t")]
    y = helper.make_tensor_value_info("y", FLOAT, [])
    other = helper.make_graph([helper.make_node("ReduceMax", ["x"], ["o"], keepdims=0)], "o", [], [
        helper.make_tensor_value_info("o", FLOAT, [])
    ])  # fmt: skip
    branch = helper.make_graph(inner, "t", [], [y])
    nodes = [*outside, helper.make_node("If", ["c"], ["out"], then_branch=branch, else_branch=other)]
    inputs = [*whole.input, helper.make_tensor_value_info("c", TensorProto.BOOL, [])]
    graph = helper.make_graph(
        nodes, "g", inputs, [helper.make_tensor_value_info("out", FLOAT, [])], whole.initializer
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    at = {name: 4 for name in dims if name == "a"}
    found = measure(proto, at, overrides={"c": "ones"}, runs=1, latency_runs=0)
    assert (found.nodes_equal, found.prediction.compared) == (1, len(inner) + len(outside) + 1)


def test_dims_that_follow_from_computed_ones() -> None:
    """Each Reshape asks for the shape of the one before."""
    nodes = [helper.make_node("Exp", ["x"], ["w0"])]
    for k in range(5):
        nodes += [
            helper.make_node("Shape", [f"w{k}"], [f"s{k}"]),
            helper.make_node("Gather", [f"s{k}", "v0"], [f"a{k}"]),
            helper.make_node("Gather", [f"s{k}", "v1"], [f"b{k}"]),
            helper.make_node("Concat", [f"b{k}", f"a{k}"], [f"t{k}"], axis=0),
            helper.make_node("Reshape", [f"w{k}", f"t{k}"], [f"u{k}"]),
            helper.make_node("Relu", [f"u{k}"], [f"r{k}"]),
            helper.make_node("Transpose", [f"r{k}"], [f"w{k + 1}"]),
        ]
    x = helper.make_tensor_value_info("x", FLOAT, [6, 4])
    y = helper.make_tensor_value_info("w5", FLOAT, None)
    weights = [numpy_helper.from_array(np.array(CONSTANTS[k]), k) for k in ("v0", "v1")]
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert measure(proto, {}, runs=1, latency_runs=0).nodes_equal == 1
