"""Profiles worked out by hand; whatever runs is compared with ONNX Runtime's profiler as well."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from onnx_symmem.expr.expression import Expr
from onnx_symmem.expr.grid import Grid
from onnx_symmem.expr.text import parse
from onnx_symmem.graph.view import view_model
from onnx_symmem.memory.plan import PlanOptions, plan
from onnx_symmem.memory.profile import profile
from onnx_symmem.memory.sizes import ValueSizes, from_declared
from tests.memory.runtime import BOOL, FLOAT, INT64, bytes_by_node, info, measured, model, number, predicted

N = Expr.symbol("N")
X = info("x", [1, "N"])


def node(text, **attributes):
    head, tail = text.split(">")
    op, *reads = head.split()
    return helper.make_node(op, reads, tail.split(), name=tail.split()[0], **attributes)


def branch(name, nodes, results, infos=(), weights=()):
    return helper.make_graph(nodes, name, [], results, list(weights), value_info=list(infos))


def eight(v, out):
    return node("Concat " + f"{v} " * 8 + f"> {out}", axis=0)


def test_rows_are_polynomials_sampled_before_the_release():
    proto = model(
        [node("Concat x x > a", axis=0), node("Neg a > b"), node("ReduceMax b > y", axes=[0])],
        [X],
        [info("y", [1, "N"])],
        [number("w", [1.0, 2.0], FLOAT)],
        [info("a", [2, "N"]), info("b", [2, "N"])],
    )
    result = predicted(proto)
    assert result.in_use.exprs() == [8 * N, 16 * N, 12 * N]
    assert result.outputs.exprs() == [0, 0, 4 * N]
    assert result.inputs == 4 * N
    assert result.weights == 8
    assert result.label == "exact"
    assert result.step_rows == (0, 1, 2)
    assert [(t.name, t.scope, str(t.bytes)) for t in result.live(2)] == [
        ("b", "activation", "8*N"), ("y", "output", "4*N"),
    ]  # fmt: skip
    assert result.where(2) == "ReduceMax 'y'"


def choice(results, then, other, infos=()):
    """x -> t of 8 rows; an If that reads t in its then branch; o reads the If's output."""
    return model(
        [
            eight("x", "t"),
            node("If yes > z", then_branch=then, else_branch=other),
            node("ReduceMax z > o", axes=[0]),
        ],
        [X],
        [info("o", [1, "N"])],
        [number("yes", True, BOOL)],
        [info("t", [8, "N"]), info("z", results), *infos],
    )


def test_a_branch_runs_inside_what_surrounds_it():
    then = branch(
        "then",
        [node("ReduceMax t > b1", axes=[0]), node("Add x b1 > b2"), eight("b2", "b3")],
        [info("b3", [8, "N"])],
        [info("b1", [1, "N"]), info("b2", [1, "N"])],
    )
    other = branch("other", [eight("x", "e")], [info("e", [8, "N"])])
    proto = choice([8, "N"], then, other)
    result = predicted(proto)
    expected = bytes_by_node(result, {"N": 5})
    # t is kept until the If ends, though only the branch's first node reads it.
    assert {k: v / 20 for k, v in expected.items()} == {
        "t": 8, "b1": 9, "b2": 10, "b3": 8 + 9, "e": 16, "z": 16, "o": 9,
    }  # fmt: skip
    found = measured(proto, {"x": np.ones((1, 5), np.float32)})
    assert {name: expected[name] for name in found} == found
    assert [m.path for m in result.moments if m.step == 1] == [
        (("else_branch", 0),), (("then_branch", 0),), (("then_branch", 1),), (("then_branch", 2),), (),
    ]  # fmt: skip
    assert result.where(4) == "If 'z' / then_branch / Concat 'b3'"
    assert [t.name for t in result.live(3)] == ["t", "z/then_branch/b1", "z/then_branch/b2"]


@pytest.mark.parametrize("static", [False, True])
def test_branch_outputs_with_numbers_for_dims_exist_before_the_branch(static):
    dims = [8, 5] if static else [8, "N"]
    then = branch(
        "then",
        [eight("x", "b1"), node("ReduceMax b1 > b2", axes=[0]), eight("b2", "b3")],
        [info("b3", dims)],
        [info("b1", dims), info("b2", [1, dims[1]])],
    )
    other = branch("other", [eight("x", "e")], [info("e", dims)])
    proto = model(
        [node("If yes > z", then_branch=then, else_branch=other), node("ReduceMax z > o", axes=[0])],
        [info("x", [1, dims[1]])],
        [info("o", [1, dims[1]])],
        [number("yes", True, BOOL)],
        [info("z", dims)],
    )
    expected = bytes_by_node(predicted(proto), {"N": 5})
    early = 8 if static else 0
    assert {k: v / 20 for k, v in expected.items()} == {
        "b1": 8 + early, "b2": 9 + early, "b3": 9, "e": 8, "z": 8, "o": 9,
    }  # fmt: skip
    found = measured(proto, {"x": np.ones((1, 5), np.float32)})
    assert {name: expected[name] for name in found} == found


def test_identity_of_an_outer_value_is_a_copy():
    then = branch("then", [eight("x", "again")], [info("again", [8, "N"])])
    other = branch("other", [node("Identity t > same")], [info("same", [8, "N"])])
    expected = bytes_by_node(predicted(choice([8, "N"], then, other)), {"N": 1})
    assert {k: v / 4 for k, v in expected.items()} == {"t": 8, "again": 16, "same": 16, "z": 16, "o": 9}


def test_outputs_of_an_if_that_leave_the_graph_are_outputs_inside_it():
    then = branch("then", [node("Neg x > a")], [info("a", [1, "N"])])
    other = branch("other", [node("Exp x > b")], [info("b", [1, "N"])])
    proto = model(
        [node("If yes > z", then_branch=then, else_branch=other)], [X], [info("z", [1, "N"])],
        [number("yes", True, BOOL)],
    )  # fmt: skip
    assert predicted(proto).outputs.exprs() == [4 * N, 4 * N, 4 * N]


def loop(trips):
    """A Loop that carries c of N and collects sc of 2N, per trip."""
    body = helper.make_graph(
        [
            node("Neg c > c1"),
            node("Concat c1 c1 > d", axis=0),
            node("Exp d > sc"),
            node("Abs c1 > c2"),
            node("Identity go > on"),
        ],
        "body",
        [info("i", [], INT64), info("go", [], BOOL), info("c", [1, "N"])],
        [info("on", [], BOOL), info("c2", [1, "N"]), info("sc", [2, "N"])],
        value_info=[info("c1", [1, "N"]), info("d", [2, "N"])],
    )
    return model(
        [
            node("Neg x > a"),
            helper.make_node("Loop", ["trips", "yes", "a"], ["l", "s"], name="l", body=body),
            node("Size l > n1"),
            node("Size s > n2"),
        ],
        [X],
        [info("n1", [], INT64), info("n2", [], INT64)],
        [number("trips", trips), number("yes", True, BOOL)],
        [info("a", [1, "N"]), info("l", [1, "N"]), info("s", [trips, 2, "N"])],
    )


def test_a_loop_body_is_bounded_for_every_trip():
    proto = loop(3)
    result = predicted(proto)
    assert result.label == "bound"
    assert [m.bound for m in result.moments] == [False] + 6 * [True] + 3 * [False]
    expected = bytes_by_node(result, {"N": 100})
    found = measured(proto, {"x": np.ones((1, 100), np.float32)})
    for name in ("a", "l", "n1", "n2"):
        assert expected[name] == found[name]
    for name in ("c1", "d", "sc", "c2", "on"):
        assert expected[name] >= found[name]
    assert result.where(6) == "Loop 'l' / body / end"


def test_a_loop_hands_on_what_it_only_passes_without_a_copy():
    body = helper.make_graph(
        [node("Identity go > on"), node("Identity c > same"), node("Identity i > count")],
        "body",
        [info("i", [], INT64), info("go", [], BOOL), info("c", [1, "N"])],
        [info("on", [], BOOL), info("same", [1, "N"]), info("count", [], INT64)],
    )
    proto = model(
        [helper.make_node("Loop", ["trips", "", "x"], ["y", "z"], name="l", body=body)], [X],
        [info("y", [1, "N"]), info("z", [2], INT64)], [number("trips", 2)],
    )  # fmt: skip
    view = view_model(proto).graph
    inner = plan(view, (0,), from_declared(view)).subplans[0, "body"]
    names = [v.name for v in inner.view.values]
    assert [[names[v] for v in step] for step in inner.allocations] == [[], [], ["count"]]


def test_types_below_a_byte_are_packed():
    nodes = [node("QuantizeLinear x s z > b"), node("DequantizeLinear b s z > c"), node("Size c > n")]
    zero = helper.make_tensor("z", TensorProto.INT4, [], [0])
    infos = [info("b", [1, "N"], TensorProto.INT4), info("c", [1, "N"])]
    proto = model(nodes, [X], [info("n", [], INT64)], [number("s", 1.0, FLOAT), zero], infos, 21)
    result = predicted(proto)
    assert result.in_use.exprs()[0] == parse("(N + 1)//2")
    for n in (5, 6):
        assert measured(proto, {"x": np.ones((1, n), np.float32)}) == bytes_by_node(result, {"N": n})


def test_empty_tensors_take_nothing():
    proto = model(
        [node("Neg x > a"), node("Relu a > y")], [X], [info("y", [1, "N"])], (), [info("a", [1, "N"])]
    )
    found = measured(proto, {"x": np.ones((1, 0), np.float32)})
    assert found == bytes_by_node(predicted(proto), {"N": 0}) == {"a": 0, "y": 0}


def test_what_is_not_counted_is_named():
    proto = model(
        [node("Cast x > a", to=TensorProto.STRING), node("Cast a > b", to=FLOAT), node("Neg b > y")],
        [X], [info("y", [1, "N"])], (), [info("a", [1, "N"], TensorProto.STRING), info("b", [1, "N"])],
    )  # fmt: skip
    view = view_model(proto).graph
    sizes = ValueSizes((4 * N, None, 4 * N, 4 * N), {1: "strings are not modelled"}, {})
    result = profile(plan(view, (0, 1, 2), from_declared(view)), sizes)
    assert result.label == "unknown"
    assert [(m.name, m.reason) for m in result.not_counted] == [("a", "strings are not modelled")]
    assert result.in_use.exprs() == [0, 4 * N, 8 * N]
    assert [(t.name, t.bytes) for t in result.live(1)] == [("a", None), ("b", 4 * N)]


def test_huge_coefficients_stay_exact():
    big = 1 << 61
    proto = model([node("Neg x > a"), node("Neg a > y")], [X], [info("y", [1, "N"])])
    view = view_model(proto).graph
    result = profile(plan(view, (0, 1), from_declared(view)), ValueSizes((N, N * big, N * big), {}, {}))
    assert result.in_use.exprs() == [N * big, N * (2 * big)]


def test_a_graph_without_nodes_has_no_rows():
    proto = model([], [X], [info("x", [1, "N"])])
    result = predicted(proto)
    assert (len(result.moments), len(result.in_use), result.inputs) == (0, 0, 4 * N)


def test_rows_of_a_device_leave_out_what_lies_on_the_host():
    proto = model(
        [node("Neg x > a"), node("Shape a > s"), node("Neg a > y")], [X], [info("y", [1, "N"])],
        (), [info("a", [1, "N"]), info("s", [2], INT64)],
    )  # fmt: skip
    view = view_model(proto).graph
    keys, sizes = from_declared(view), ValueSizes((4 * N, 4 * N, Expr.const(16), 4 * N), {}, {})
    rows = {
        provider: profile(plan(view, (0, 1, 2), keys, PlanOptions(provider)), sizes).in_use.exprs()
        for provider in ("cpu", "cuda")
    }
    assert rows == {"cpu": [4 * N, 4 * N + 16, 8 * N + 16], "cuda": [4 * N, 4 * N, 8 * N]}


def test_peaks_are_the_largest_rows_at_small_and_at_huge_shapes():
    proto = model(
        [node("Concat x x > a", axis=0), node("ReduceMax a > r", axes=[0]), node("MatMul r w > y")],
        [info("x", ["M", "K"]), info("w", ["K", "N"])],
        [info("y", [1, "N"])],
        infos=[info("a", ["M2", "K"]), info("r", [1, "K"])],
    )
    found = predicted(proto)
    sizes = [(1, 1, 1), (3, 50, 2), (2**40, 2**41 + 1, 7), (9, 1, 2**61)]
    shapes = [{"M": m, "M2": 2 * m, "K": k, "N": n} for m, k, n in sizes]
    rows = found.in_use.evaluate(shapes)
    assert rows.dtype == object
    assert found.peaks(Grid(shapes)) == tuple(max(column) for column in rows.T.tolist())
    assert len({int(row.argmax()) for row in rows.T}) > 1
