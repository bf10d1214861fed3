"""If, Loop and Scan: what is known after them, and what stays inside."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import helper

from onnx_symmem.expr.domain import Domain, SymbolRange
from tests.shapes.building import BOOL, FLOAT, INT64, assert_right, graph, infer, model, node, texts, value

X = value("x", FLOAT, ["n", 8])
FLAG = value("flag", BOOL, [])
ANY_LENGTH = Domain({"k": SymbolRange(0)})


def body(
    nodes: Sequence[onnx.NodeProto], inputs: Sequence[onnx.ValueInfoProto], outputs: str
) -> onnx.GraphProto:
    return helper.make_graph(nodes, "body", inputs, [onnx.ValueInfoProto(name=o) for o in outputs.split()])


def either(yes: onnx.NodeProto, no: onnx.NodeProto, condition: str = "flag") -> onnx.NodeProto:
    return node(
        "If",
        condition,
        "y",
        then_branch=body([yes], [], yes.output[0]),
        else_branch=body([no], [], no.output[0]),
    )


def test_what_both_branches_say_holds() -> None:
    of = graph([either(node("Relu", "x", "p"), node("Neg", "x", "q"))], [X, FLAG], "y")
    shapes = infer(of)
    assert texts(shapes, "y") == ["n", "8"]
    assert not shapes.unknowns


def test_differing_branches_give_a_bounded_unknown() -> None:
    of = graph([either(node("Relu", "x", "p"), node("Concat", "x x", "q", axis=0))], [X, FLAG], "y")
    (unknown,) = infer(of).unknowns
    assert (unknown.axis, str(unknown.bound)) == (0, "2*n")


def test_a_constant_condition_decides() -> None:
    one = either(node("Relu", "x", "p"), node("Concat", "x x", "q", axis=0), "c")
    assert texts(infer(graph([one], [X], "y", c=True)), "y") == ["n", "8"]
    assert texts(infer(graph([one], [X], "y", c=False)), "y") == ["2*n", "8"]


def test_a_condition_on_sizes_is_part_of_the_expression() -> None:
    nodes = [
        node("Shape", "x", "s", end=1),
        node("Squeeze", "s", "k"),
        node("Less", "k five", "c"),
        either(node("Relu", "x", "p"), node("Concat", "x x", "q", axis=0), "c"),
    ]
    shapes = assert_right(model(graph(nodes, [X], "y", five=5)), *({"n": n} for n in (1, 4, 5, 6, 9)))
    assert not shapes.unknowns


def test_sizes_made_in_a_branch_do_not_get_out() -> None:
    found = node("NonZero", "x", "p")
    other = node("Constant", "", "q", value=helper.make_tensor("v", INT64, [2, 0], []))
    shapes = infer(graph([either(found, other)], [X, FLAG], "y"))
    outside = texts(shapes, "y")
    inner = shapes.graph.subgraphs[0, "then_branch"].of("p")
    assert inner is not None
    assert outside is not None
    assert outside[1] != str(inner[1])
    assert {u.symbol: str(u.bound) for u in shapes.unknowns}[outside[1]] == "8*n"


def test_branches_read_outer_values_and_weights() -> None:
    nodes = [node("Relu", "x", "t"), either(node("MatMul", "t w", "p"), node("Neg", "t", "q"))]
    shapes = infer(graph(nodes, [X, FLAG], "y", w=[[1.0] * 8] * 8))
    assert texts(shapes, "y") == ["n", "8"]
    then = shapes.graph.subgraphs[1, "then_branch"]
    assert [str(d) for d in then.of("w") or ()] == ["8", "8"]


def looped(nodes: Sequence[onnx.NodeProto], outputs: str, trips: int | None, results: str) -> onnx.GraphProto:
    inputs = [value("k", INT64, []), value("go", BOOL, []), value("v", FLOAT)]
    one = node(
        "Loop", "m go0 x", results, body=body([node("Identity", "go", "on"), *nodes], inputs, f"on {outputs}")
    )
    constants = {"go0": True} if trips is None else {"go0": True, "m": trips}
    given = [X, value("m", INT64, [])] if trips is None else [X]
    return graph([one], given, results, **constants)


def test_an_unchanged_carried_value_keeps_its_dims() -> None:
    shapes = infer(looped([node("Relu", "v", "w")], "w", None, "y"))
    assert texts(shapes, "y") == ["n", "8"]
    assert not shapes.unknowns


def test_steady_growth_is_counted() -> None:
    of = looped([node("Concat", "v x", "w", axis=0), node("Relu", "x", "s")], "w s", 3, "y q")
    shapes = assert_right(model(of), {"n": 1}, {"n": 4})
    assert texts(shapes, "y") == ["4*n", "8"]
    assert texts(shapes, "q") == ["3", "n", "8"]


def test_growth_by_an_unknown_number_of_iterations_is_unknown() -> None:
    shapes = infer(looped([node("Concat", "v x", "w", axis=0)], "w", None, "y"))
    (dim, channels) = texts(shapes, "y") or ("", "")
    assert channels == "8"
    assert dim in {u.symbol for u in shapes.unknowns}


def test_a_loop_that_may_not_run_leaves_scanned_sizes_open() -> None:
    shapes = infer(looped([node("Relu", "v", "w"), node("Relu", "x", "s")], "w s", None, "y q"))
    first, *rest = texts(shapes, "q") or []
    bounds = {u.symbol: u.bound for u in shapes.unknowns}
    assert first in bounds
    assert [str(bounds[dim]) for dim in rest] == ["n", "8"]


def test_scan_stacks_along_its_axes() -> None:
    one = node(
        "Scan",
        "start x",
        "last all",
        num_scan_inputs=1,
        scan_input_axes=[0],
        scan_output_axes=[-1],
        body=body([node("Add", "a b", "c"), node("Identity", "c", "d")], [value("a"), value("b")], "c d"),
    )
    of = graph([one], [value("start", FLOAT, [8]), X], "last all")
    shapes = assert_right(model(of), {"n": 1}, {"n": 5})
    assert texts(shapes, "last") == ["8"]
    assert texts(shapes, "all") == ["8", "n"]


def test_the_number_of_an_iteration_has_the_rank_that_the_body_declares() -> None:
    for declared, dims in (([], ["3"]), ([1], ["3", "1"])):
        inputs = [value("k", INT64, declared), value("go", BOOL, []), value("v", FLOAT)]
        nodes = [node("Identity", "go", "on"), node("Relu", "v", "w"), node("Identity", "k", "s")]
        one = node("Loop", "m go0 x", "y q", body=body(nodes, inputs, "on w s"))
        proto = model(graph([one], [X], "y q", go0=True, m=3))
        assert texts(assert_right(proto, {"n": 2}), "q") == dims


def scanned(nodes: Sequence[onnx.NodeProto], outputs: str, start: onnx.ValueInfoProto) -> onnx.GraphProto:
    """A Scan over the rows of x (n of 8) with one state `a`, from `start`, and one row `b`."""
    inside = body(nodes, [value("a"), value("b")], outputs)
    results = "last all" if " " in outputs else "last"
    return graph(
        [node("Scan", f"{start.name} x", results, num_scan_inputs=1, body=inside)], [start, X], results
    )


def test_the_state_of_a_scan_keeps_its_dims() -> None:
    """ONNX Runtime writes every state into the place of the one before: the sum has the state's dims."""
    of = scanned([node("Add", "a b", "c"), node("Neg", "c", "d")], "c d", value("start", FLOAT, ["p", "q"]))
    shapes = assert_right(model(of), {"n": 1, "p": 3, "q": 8}, {"n": 5, "p": 1, "q": 8})
    assert texts(shapes, "last") == ["p", "8"]
    assert texts(shapes, "all") == ["n", "p", "8"]
    assert not shapes.unknowns


def test_a_size_made_inside_a_scan_is_explained_by_the_state() -> None:
    """The count of what is not zero must be that of the state in every run that gets through."""
    nodes = [
        node("NonZero", "b", "found"),
        node("Squeeze", "found zero", "flat"),
        node("Cast", "flat", "c", to=FLOAT),
        node("Neg", "c", "d"),
    ]
    of = scanned(nodes, "c d", value("start", FLOAT, ["p"]))
    of.initializer.append(onnx.numpy_helper.from_array(np.array([0]), "zero"))
    shapes = assert_right(model(of), {"n": 2, "p": 8}, given={"x": np.ones((2, 8))})
    assert texts(shapes, "last") == ["p"]
    assert texts(shapes, "all") == ["n", "p"]


def test_nested_graphs_have_shapes_of_their_own() -> None:
    inner = either(node("Neg", "t", "p"), node("Relu", "t", "q"))
    inner.output[0] = "z"
    outer = node(
        "If",
        "flag",
        "y",
        then_branch=body([node("Relu", "x", "t"), inner], [], "z"),
        else_branch=body([node("Identity", "x", "r")], [], "r"),
    )
    shapes = infer(graph([outer], [X, FLAG], "y"))
    assert [g.view.name for g in shapes.graph.walk()] == ["small", "body", "body", "body", "body"]
    assert texts(shapes, "y") == ["n", "8"]


def repeated(
    inputs: str, scanned: list[int | str] | None, trips: int, start: bool = True, grows: bool = False
) -> onnx.ModelProto:
    """y, all = a Loop over x[n, 3] whose body hands its condition on and scans the transposed state."""
    step = node("Concat", "a a", "ao", axis=0) if grows else node("Relu", "a", "ao")
    results = [value("co", BOOL, []), value("ao"), value("turned", FLOAT, scanned)]
    body = helper.make_graph(
        [node("Identity", "c", "co"), step, node("Transpose", "a", "turned")],
        "body", [value("i", INT64, []), value("c", BOOL, []), value("a")], results,
    )  # fmt: skip
    of = graph(
        [node("Loop", inputs, "y all", body=body)], [value("x", FLOAT, ["n", 3])], "y all",
        m=np.array(trips, np.int64), start=np.array(start),
    )  # fmt: skip
    return model(of)


@pytest.mark.parametrize("grows", [False, True])
@pytest.mark.parametrize(
    ("inputs", "trips", "start"), [("m - x", 0, True), ("m - x", -2, True), ("- start x", 5, False)]
)
def test_a_loop_that_never_runs_hands_its_states_on(
    inputs: str, trips: int, start: bool, grows: bool
) -> None:
    proto = repeated(inputs, [3, "rows"], trips, start, grows)
    shapes = assert_right(proto, {"n": 2}, {"n": 5})
    assert texts(shapes, "y") == ["n", "3"]
    assert texts(shapes, "all") == ["0", "3", "0"]
    # Without a declared shape ONNX Runtime does not even know the rank.
    assert infer(repeated(inputs, None, trips, start, grows)).graph.of("all") is None


def test_a_condition_that_is_left_out_does_not_end_a_loop() -> None:
    for trips in (1, 3):
        shapes = assert_right(repeated("m - x", None, trips), {"n": 2}, {"n": 5})
        assert texts(shapes, "all") == [str(trips), "3", "n"]
    assert texts(assert_right(repeated("m - x", None, 1, grows=True), {"n": 2}), "y") == ["2*n", "3"]


def test_what_a_loop_scans_has_its_rank_if_it_runs() -> None:
    proto = repeated("m - x", None, 0)
    proto.graph.input.append(value("m", INT64, []))
    del proto.graph.initializer[:]
    (needed,) = (a for a in infer(proto).assumptions if a.kind == "nonempty")
    assert (needed.text, needed.node) == ("u0 >= 1", "Loop 'y_node'")
    assert not infer(repeated("m - x", None, 2)).assumptions


@pytest.mark.parametrize("flag", [False, True])
def test_a_known_condition_decides_between_branches_of_different_rank(flag: bool) -> None:
    yes = helper.make_graph([node("Relu", "x", "p")], "yes", [], [onnx.ValueInfoProto(name="p")])
    no = helper.make_graph(
        [node("ReduceSum", "x", "q", keepdims=0)], "no", [], [onnx.ValueInfoProto(name="q")]
    )
    x = value("x", FLOAT, ["n", 3])
    constant = [node("If", "f", "y", then_branch=yes, else_branch=no)]
    shaped = [node("Shape", "x", "s"), node("Size", "s", "r"), node("Equal", "r two", "f"), *constant]
    for given in (np.array(flag), np.array([flag])):
        shapes = assert_right(model(graph(constant, [x], "y", f=given)), {"n": 4})
        assert texts(shapes, "y") == (["n", "3"] if flag else [])
    shapes = assert_right(model(graph(shaped, [x], "y", two=np.array(2 if flag else 3))), {"n": 4})
    assert texts(shapes, "y") == (["n", "3"] if flag else [])


def test_a_scan_of_opset_8_may_run_not_at_all() -> None:
    inside = body([node("Add", "s e", "t"), node("Identity", "t", "u")], [value("s"), value("e")], "t u")
    inputs = [value("x", FLOAT, ["n", "w"]), value("all", FLOAT, ["n", "k", "w"])]
    of = graph([node("Scan", "- x all", "y z", num_scan_inputs=1, body=inside)], inputs, "y z")
    shapes = assert_right(model(of, 8), *({"n": 1, "k": k, "w": 3} for k in (0, 1, 4)), domain=ANY_LENGTH)
    assert not shapes.limits
