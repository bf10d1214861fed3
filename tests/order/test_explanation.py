from onnx_symmem.expr.domain import Domain
from onnx_symmem.graph.view import view_model
from onnx_symmem.memory.execution_order import default_order, priority_order
from onnx_symmem.memory.plan import prepare
from onnx_symmem.memory.profile import profile
from onnx_symmem.memory.sizes import from_written, value_sizes
from onnx_symmem.order.buffers import buffer_graph
from onnx_symmem.order.explanation import explain_order
from onnx_symmem.order.limits import within_budget
from onnx_symmem.order.planner import plan_order
from onnx_symmem.shapes.engine import infer_shapes
from tests.order.test_planner import branches

SAMPLES = ({"batch": 1, "seq": 1}, {"batch": 64, "seq": 64})


def explained(model, budget=20.0):
    view = view_model(model)
    shapes = infer_shapes(view, Domain())
    sizes, keys = value_sizes(shapes.graph), from_written(shapes.graph)
    prepared = {
        "default": prepare(view.graph, keys, None, default_order),
        "priority": prepare(view.graph, keys, None, priority_order),
    }
    file = tuple(range(len(view.graph.nodes)))
    before = profile(prepared["priority"].plan(file), sizes)
    limits = within_budget(budget)
    found = plan_order(prepared, sizes, shapes.domain, SAMPLES, before, {"file": file}, limits)
    graph = buffer_graph(prepared["priority"])
    return found, explain_order(found.choice, graph, sizes, SAMPLES, found.floor)


def test_what_is_held_adds_up_to_the_peak_and_what_was_spared_is_named():
    found, told = explained(branches([(1, 8), (1, 8), (1, 8)]))
    assert sum(len(r.shapes) for r in told.regions) == 2
    for region in told.regions:
        peak = found.choice.after.at(region.shapes[-1])
        assert sum(t.bytes for t in region.tensors) == region.bytes == peak
        assert region.before == found.choice.before.at(region.shapes[-1]) > region.bytes
        assert any(t.name.startswith("wide") for t in region.spared)


def test_the_way_down_is_a_bound_and_says_whether_it_is_the_nodes_own():
    _, told = explained(branches([(1, 8), (1, 8), (1, 8)]))
    for region in told.regions:
        way = region.way_down
        assert way.bytes == sum(t.bytes for t in way.tensors)
        assert way.bytes <= way.floor <= region.bytes
        assert way.own == all(t.name.startswith(("wide", "sum")) for t in way.tensors)
        assert way.reached == (way.floor == region.bytes)


def test_the_json_form_has_only_plain_values():
    import json

    _, told = explained(branches([(1, 8), (3, 3)]), budget=0)
    again = json.loads(json.dumps(told.to_json()))
    assert again["found_by"] == told.found_by
    assert again["regions"][0]["tensors"][0]["bytes"] == told.regions[0].tensors[0].bytes
