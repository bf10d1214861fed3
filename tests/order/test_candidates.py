"""What a search under a limit starts from."""

import numpy as np

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


def test_under_a_limit_the_best_order_that_keeps_it_and_the_first_one_are_searched_around(monkeypatch):
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
    peaks = {run: live_bytes(search.graph, search.table, run).max(axis=0) for run in search.runs}
    best = min(float((peak / search.floor).max()) for peak in peaks.values() if (peak <= most).all())
    assert next(iter(search.runs)) in started
    assert any(np.isclose((peaks[s] / search.floor).max(), best) for s in started if (peaks[s] <= most).all())
