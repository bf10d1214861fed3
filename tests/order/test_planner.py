import onnx
from onnx import TensorProto, helper

from onnx_symmem.expr.domain import Domain
from onnx_symmem.expr.expression import Expr
from onnx_symmem.graph.view import view_model
from onnx_symmem.memory.execution_order import default_order, priority_order
from onnx_symmem.memory.plan import prepare
from onnx_symmem.memory.profile import profile
from onnx_symmem.memory.sizes import from_written, value_sizes
from onnx_symmem.order.planner import plan_order, whole_shape
from onnx_symmem.order.steering import shapes_of_members
from onnx_symmem.shapes.engine import infer_shapes
from tests.run.towers import towers


def branches(widths):
    """Branches that widen x by Tile, reduce the wide tensor, and are summed up; the file runs all wide ones
    first. `widths` are (repeats of seq, repeats of batch)."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "seq"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    first, last, constants = [], [], []
    for k, repeats in enumerate(widths):
        constants.append(helper.make_tensor(f"r{k}", TensorProto.INT64, [2], repeats))
        first.append(helper.make_node("Tile", ["x", f"r{k}"], [f"wide{k}"], name=f"tile{k}"))
        last.append(helper.make_node("ReduceSum", [f"wide{k}"], [f"sum{k}"], name=f"sum{k}"))
    ends = [f"sum{k}" for k in range(len(widths))]
    nodes = [*first, *last, helper.make_node("Sum", ends, ["y"], name="all")]
    graph = helper.make_graph(nodes, "g", [x], [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


SAMPLES = ({"batch": 1, "seq": 1}, {"batch": 64, "seq": 64})


def planned(model: onnx.ModelProto, domain=None, samples=SAMPLES):
    view = view_model(model)
    shapes = infer_shapes(view, domain)
    sizes, keys = value_sizes(shapes.graph), from_written(shapes.graph)
    prepared = {
        "default": prepare(view.graph, keys, None, default_order),
        "priority": prepare(view.graph, keys, None, priority_order),
    }
    file = tuple(range(len(view.graph.nodes)))
    before = profile(prepared["priority"].plan(file), sizes)
    return plan_order(prepared, sizes, shapes.domain, samples, before, {"file": file})


def test_one_wide_tensor_at_a_time_is_proved_and_checked():
    found = planned(branches([(1, 8), (8, 1), (3, 3)]), Domain())
    choice = found.choice
    assert choice.never_worse == "proved"
    assert choice.proof.check()
    for shape in ({"batch": 1, "seq": 1}, {"batch": 3, "seq": 50}, {"batch": 64, "seq": 2}):
        size = 4 * shape["batch"] * shape["seq"]
        assert choice.before.at(shape) >= 25 * size
        # The widest runs beside its own sum only, the next wide one beside one more.
        assert choice.after.at(shape) == max(9 * size + 4, 8 * size + 12)
    assert all(len(t.peaks) == 2 for t in choice.tried)


def test_names_of_candidates_are_unique():
    found = planned(branches([(1, k) for k in range(1, 7)]))
    names = [c.name for c in found.candidates]
    assert len(names) == len(set(names))


def test_the_same_input_gives_the_same_choice():
    model = branches([(2, 2), (1, 9), (5, 1), (4, 4)])
    one, two = planned(model), planned(model)
    assert one.choice.chosen.order == two.choice.chosen.order
    assert [c.peaks for c in one.candidates] == [c.peaks for c in two.candidates]


def test_shapes_between_the_given_ones_are_looked_at_before_the_search_ends():
    found = planned(branches([(1, 8), (8, 1), (3, 3)]), Domain())
    more = found.shapes[len(SAMPLES) :]
    assert found.shapes[: len(SAMPLES)] == SAMPLES
    assert len(more) >= 4
    assert len({tuple(shape.items()) for shape in found.shapes}) == len(found.shapes)
    assert any(1 < shape["batch"] < 512 and shape["batch"] != shape["seq"] for shape in more)
    assert all(len(c.peaks) == len(found.shapes) for c in found.candidates)


def test_a_witness_keeps_its_sizes_and_the_others_follow():
    n, m = Expr.symbol("n"), Expr.symbol("m")
    domain = Domain().with_inequality(m - 2 * n)
    shapes = [{"n": 1, "m": 2}]
    assert whole_shape(domain, {"n": 10}, shapes) == {"n": 10, "m": 20}
    assert whole_shape(domain, {"m": 10}, shapes) == {"n": 1, "m": 10}
    assert whole_shape(domain, {"m": 1}, shapes) is None
    equal = domain.with_equality("k", n + 1)
    assert whole_shape(equal, {"n": 10, "k": 11}, shapes) == {"n": 10, "m": 20, "k": 11}
    assert whole_shape(equal, {"n": 10, "k": 12}, shapes) is None


def test_every_member_of_the_peak_that_stands_out_has_a_shape():
    equal = tuple({f"n{k}": size for k in range(3)} for size in (1, 64))
    found = planned(towers(3), samples=equal)
    members = found.choice.after.members
    assert found.shapes[:2] == equal
    assert len(members) > 2
    assert shapes_of_members(members, Domain(), equal, 9) != ()
    assert shapes_of_members(members, Domain(), found.shapes, 9) == ()
    assert len(found.floor) == 2
