from dataclasses import replace
from itertools import permutations
from types import SimpleNamespace

import numpy as np
import pytest

from onnx_symmem.expr.domain import Domain, SymbolRange
from onnx_symmem.expr.grid import Grid
from onnx_symmem.graph.load import load_model
from onnx_symmem.memory.execution_order import default_order, priority_order
from onnx_symmem.memory.plan import PlanOptions, prepare
from onnx_symmem.memory.profile import profile
from onnx_symmem.memory.sizes import from_written, value_sizes
from onnx_symmem.order import version_search
from onnx_symmem.order.candidates import CandidateSearch
from onnx_symmem.order.cover import CoverLimits, cover
from onnx_symmem.order.limits import SearchLimits
from onnx_symmem.order.moments import Moments
from onnx_symmem.order.regret import Nearer
from onnx_symmem.order.steering import usual_shapes
from onnx_symmem.order.version_search import version_orders
from onnx_symmem.shapes.engine import infer_shapes
from tests.order.graphs import buffers, in_parts
from tests.run.towers import towers

COUNT = 3


def _searched(limits: SearchLimits | None = None):
    """A search for towers that was steered at one shape only, and orders of whole towers."""
    shapes = infer_shapes(
        load_model(towers(COUNT, 160)).view(), Domain({f"n{k}": SymbolRange(1, 512) for k in range(COUNT)})
    )
    keys, sizes = from_written(shapes.graph), value_sizes(shapes.graph)
    prepared = {
        rule: prepare(shapes.graph.view, keys, PlanOptions(), order)
        for rule, order in (("default", default_order), ("priority", priority_order))
    }
    file = tuple(range(len(shapes.graph.view.nodes)))
    search = CandidateSearch(prepared, sizes, {"file": file}, limits)
    search.steer([{f"n{k}": 512 - 200 * k for k in range(COUNT)}])
    whole = [
        (*(3 * k + j for k in first for j in range(3)), 3 * COUNT, 3 * COUNT + 1)
        for first in permutations(range(COUNT))
    ]
    exact = [profile(prepared["priority"].plan(order), sizes) for order in whole]
    return search, shapes.domain, exact


def test_orders_are_found_for_shapes_unlike_those_that_steered():
    search, domain, whole = _searched()
    grid = Grid(usual_shapes(domain, [f"n{k}" for k in range(COUNT)], 200, seed=11))
    before = np.array([c.profile.peaks(grid) for c in search.candidates()]).min(axis=0)
    best = np.array([found.peaks(grid) for found in whole]).min(axis=0)
    assert (before > best * 1.05).any()
    found = np.array([c.profile.peaks(grid) for c in version_orders(search, domain)])
    assert (found.min(axis=0) <= best).mean() > 0.95
    assert (found.min(axis=0) <= best * 1.01).all()
    picked = cover(found, CoverLimits(), free=True)
    assert len(picked) > 1
    assert (found[list(picked)].min(axis=0) <= found.min(axis=0) * 1.002).mean() > 0.95


@pytest.mark.parametrize("way", ["crossings", "nearer", "neither"])
def test_two_versions_are_made_to_do_for_three_shapes(way, monkeypatch):
    """Each order known is good where one part is large; by each way alone one is made that is so at two."""
    reads, sizes = [], []
    for part in range(3):
        for k in range(10):
            for size, read in ((60 + 3 * k, [21 * part - 1] if part else []), (5, [len(reads)])):
                reads.append(read)
                sizes.append([size if column == part else 1 for column in range(3)])
        reads.append([21 * part + 2 * k + 1 for k in range(10)])
        sizes.append([1, 1, 1])
    if way != "crossings":
        monkeypatch.setattr(version_search, "crossings", lambda *_: ())
    if way != "nearer":
        monkeypatch.setattr(
            version_search, "nearer", lambda moments, order, limits: Nearer(tuple(order), 1.0, 0)
        )
    limits = replace(SearchLimits(), versions=2, unlike=0)
    graph, table = buffers(reads), np.array(sizes, dtype=np.float64)
    search = SimpleNamespace(
        graph=graph, limits=limits, shapes=[{}] * 3, tick=lambda *_: None,
        floor_at=lambda table: np.zeros(table.shape[1]),
    )  # fmt: skip
    known = [in_parts(3, {0, 1, 2} - {part}) for part in range(3)]
    found = known + version_search._Parts(search, table, known).found()
    moments = Moments(graph, table)
    peaks = np.array([moments.along(order).max(axis=0) for order in found])
    best = moments.along(in_parts(3, set())).max(axis=0)
    picked = peaks[list(cover(peaks, CoverLimits(2), free=True))].min(axis=0)
    if way == "neither":
        assert len(found) == 3
        assert (picked > 1.5 * best).any()
    else:
        assert (picked < 1.1 * best).all()


def test_the_same_input_gives_the_same_orders():
    first, second = (
        [c.order for c in version_orders(search, domain)] for search, domain, _ in (_searched(), _searched())
    )
    assert first == second


def test_without_search_only_what_is_known_is_returned():
    search, domain, _ = _searched(SearchLimits(segmented=0, improved=0))
    known = set(search.runs)
    assert {c.order for c in version_orders(search, domain)} <= known


def test_few_shapes_are_enough():
    search, _, whole = _searched()
    domain = Domain({f"n{k}": SymbolRange(500 - 200 * k, 501 - 200 * k) for k in range(COUNT)})
    shape = {f"n{k}": 500 - 200 * k for k in range(COUNT)}
    found = [c.profile.peaks(Grid([shape]))[0] for c in version_orders(search, domain)]
    assert min(found) == min(exact.peaks(Grid([shape]))[0] for exact in whole)
