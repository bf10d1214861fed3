import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from onnx_symmem.expr.domain import Domain, SymbolRange
from onnx_symmem.expr.expression import Expr
from onnx_symmem.expr.grid import evaluate
from onnx_symmem.graph.view import view_model
from onnx_symmem.memory.execution_order import default_order, priority_order
from onnx_symmem.memory.plan import prepare
from onnx_symmem.memory.profile import profile
from onnx_symmem.memory.sizes import from_written, value_sizes
from onnx_symmem.order.baselines import inductor, reverse_list, symbolic_greedy, xla
from onnx_symmem.order.buffers import BufferGraph
from onnx_symmem.order.heuristics import forward_greedy, reverse_greedy
from onnx_symmem.order.moments import live_bytes
from onnx_symmem.order.planner import plan_order
from onnx_symmem.shapes.engine import infer_shapes
from tests.order.graphs import peak, random_graph

S0, S1 = Expr.symbol("S0"), Expr.symbol("S1")


@pytest.mark.parametrize("seed", range(12))
def test_with_one_symbol_the_symbolic_schedulers_are_the_numeric_ones(seed):
    graph, widths = random_graph(seed, 30)
    sizes = [w * S1 for w in widths]
    order, tally = symbolic_greedy(graph, sizes, Domain())
    assert peak(graph, widths, order) == peak(graph, widths, forward_greedy(graph, widths))
    assert set(tally.by_kind()) <= {"LE", "GE", "EQ"}
    order, _ = reverse_list(graph, sizes, Domain())
    assert peak(graph, widths, order) == peak(graph, widths, reverse_greedy(graph, widths))


def two_wide(first, second):
    """Two sources of the given sizes, each reduced to its own small result, then joined."""
    graph = BufferGraph(
        predecessors=((), (), (0,), (1,), (2, 3)),
        successors=((2,), (3,), (4,), (4,), ()),
        producer=(0, 1, 2, 3, 4),
        readers=((2,), (3,), (4,), (4,), ()),
        pinned=(False, False, False, False, True),
        optional_share=(),
    )
    return graph, [first, second, Expr.const(4), Expr.const(4), Expr.const(4)]


def test_incomparable_sizes_leave_the_graphs_order():
    graph, sizes = two_wide(100 * S0, 100 * S1)
    order, tally = symbolic_greedy(graph, sizes, Domain())
    assert order == (0, 2, 1, 3, 4)
    assert tally.by_kind()["INCOMPARABLE"] == 1


def test_the_papers_relation_decides():
    """S0 = 12*S1: 10996*S1 is less than 4096*S0 = 49152*S1."""
    graph, sizes = two_wide(4096 * S0, 10996 * S1)
    assert symbolic_greedy(graph, sizes, Domain())[0][0] == 0
    tied = Domain().with_equality("S0", 12 * S1)
    order, tally = symbolic_greedy(graph, [tied.solved(s) for s in sizes], tied)
    assert order[0] == 1
    assert "INCOMPARABLE" not in tally.by_kind()


@pytest.mark.parametrize("seed", range(10))
def test_minimum_of_several_is_no_worse_than_each(seed):
    graph, sizes = random_graph(seed, 30)
    file = tuple(range(graph.size))
    for order in (inductor(graph, sizes, file), xla(graph, sizes)):
        assert sorted(order) == list(file)
    assert peak(graph, sizes, inductor(graph, sizes, file)) <= peak(graph, sizes, file)
    assert peak(graph, sizes, xla(graph, sizes)) <= peak(graph, sizes, forward_greedy(graph, sizes))


def halves() -> onnx.ModelProto:
    """A relation that no ratio expresses: one branch is wide over S0 = floor(S1 / 2), the other over S1."""
    tile = [helper.make_tensor(n, TensorProto.INT64, [3], [1, r, 1]) for n, r in (("ra", 1024), ("rb", 300))]
    whole = {"axis": 1, "second": 2, "two": 2, "far": 1 << 62}
    axes = [helper.make_tensor(name, TensorProto.INT64, [1], [n]) for name, n in whole.items()]
    nodes = [
        helper.make_node("Slice", ["x", "axis", "far", "second", "two"], ["half"], name="half"),
        helper.make_node("Tile", ["x", "rb"], ["b"], name="b"),
        helper.make_node("Tile", ["half", "ra"], ["a"], name="a"),
        helper.make_node("ReduceSum", ["b", "axis"], ["sb"], name="sb"),
        helper.make_node("ReduceSum", ["a", "axis"], ["sa"], name="sa"),
        helper.make_node("Concat", ["sa", "sb"], ["y"], name="y", axis=2),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, "S1"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [y], [*tile, *axes])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def orders_of(view):
    """Every topological order of a small graph."""
    found = [()]
    for _ in view.nodes:
        found = [
            (*order, n)
            for order in found
            for n in range(len(view.nodes))
            if n not in order and all(p in order for p in view.predecessors[n])
        ]
    return found


def test_the_order_for_a_floor_is_the_optimum_at_every_size():
    view = view_model(halves())
    shapes = infer_shapes(view, Domain({"S1": SymbolRange(1, 4096)}))
    sizes, keys = value_sizes(shapes.graph), from_written(shapes.graph)
    prepared = {
        "default": prepare(view.graph, keys, None, default_order),
        "priority": prepare(view.graph, keys, None, priority_order),
    }
    file = tuple(range(len(view.graph.nodes)))
    before = profile(prepared["priority"].plan(file), sizes)
    samples = ({"S1": 1}, {"S1": 64}, {"S1": 4096})
    found = plan_order(prepared, sizes, shapes.domain, samples, before, {"file": file})
    every = [{"S1": n} for n in range(1, 4097)]
    chosen = evaluate(found.choice.after.members, every).max(axis=0)
    plans = (prepared["priority"].plan(order) for order in orders_of(view.graph))
    optimum = np.min([profile(plan, sizes).in_use.evaluate(every).max(axis=0) for plan in plans], axis=0)
    np.testing.assert_array_equal(chosen, optimum)
    assert found.choice.never_worse == "proved"
    assert (evaluate(found.choice.before.members, every).max(axis=0) > optimum).any()


def test_live_bytes_of_a_minimum_are_those_of_its_order():
    graph, sizes = random_graph(3, 20)
    table = np.array([sizes], dtype=np.float64).T
    assert live_bytes(graph, table, xla(graph, sizes)).max() == peak(graph, sizes, xla(graph, sizes))
