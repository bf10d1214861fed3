"""What a search under a limit starts from."""

from onnx_symmem.graph.view import view_model
from onnx_symmem.memory.execution_order import default_order, priority_order
from onnx_symmem.memory.plan import prepare
from onnx_symmem.memory.sizes import from_written, value_sizes
from onnx_symmem.order import candidates
from onnx_symmem.order.candidates import CandidateSearch
from onnx_symmem.order.moments import live_bytes
from onnx_symmem.shapes.engine import infer_shapes
from tests.order.test_planner import branches

FIRST, SECOND = {"batch": 1, "seq": 64}, {"batch": 64, "seq": 1}


def test_under_a_limit_the_order_that_would_have_run_is_searched_around_in_every_round(monkeypatch):
    view = view_model(branches([(1, 8), (8, 1), (3, 3)]))
    shapes = infer_shapes(view)
    sizes, keys = value_sizes(shapes.graph), from_written(shapes.graph)
    prepared = {
        "default": prepare(view.graph, keys, None, default_order),
        "priority": prepare(view.graph, keys, None, priority_order),
    }
    file = tuple(range(len(view.graph.nodes)))
    search = CandidateSearch(prepared, sizes, {"file": file})
    started: list[tuple[int, ...]] = []

    def kept(_graph, _table, start, *_others, **_named):
        started.append(tuple(start))
        return tuple(start)

    monkeypatch.setattr(candidates, "improve_order", kept)
    search.steer([FIRST])
    most = [live_bytes(search.graph, search.table, file).max()] * 2
    started.clear()
    search.steer([SECOND], most)
    assert next(iter(search.runs)) in started
