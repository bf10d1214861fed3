"""Files with anchors run in any order under ONNX Runtime's default traversal."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from onnx_symmem.graph.view import GraphView, view_model
from onnx_symmem.memory.anchoring import AnchoredSearch, Anchoring, anchored_file, fewer_anchors
from onnx_symmem.memory.execution_order import file_for_default
from tests.memory.runtime import info, measured
from tests.memory.test_execution_order import chain, random_dag


def any_order(view: GraphView, rng: np.random.Generator) -> list[int]:
    """A random topological order."""
    waiting = [len(p) for p in view.predecessors]
    ready = [n for n, count in enumerate(waiting) if not count]
    order = []
    while ready:
        order.append(ready.pop(int(rng.integers(len(ready)))))
        for s in view.successors[order[-1]]:
            waiting[s] -= 1
            if not waiting[s]:
                ready.append(s)
    return order


def with_anchors(proto: onnx.ModelProto, found: Anchoring) -> onnx.ModelProto:
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    del made.graph.node[:]
    for n in found.file:
        if n >= 0:
            made.graph.node.append(proto.graph.node[n])
        else:
            value = proto.graph.node[~n].output[0]
            made.graph.node.append(helper.make_node("Size", [value], [f"{value}/anchor"], name=f"anchor{~n}"))
    return made


@pytest.mark.parametrize("seed", range(25))
def test_any_order_runs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    proto = random_dag(rng, int(rng.integers(3, 24)))
    view = view_model(proto).graph
    order = any_order(view, rng)
    found = anchored_file(view, order)
    assert found is not None
    ran = measured(with_anchors(proto, found), {"x": np.ones(3, np.float32)}, "DEFAULT")
    assert [n for n in ran if not n.startswith("anchor")] == [view.nodes[n].name for n in order]
    onnx.checker.check_model(with_anchors(proto, found))


@pytest.mark.parametrize("seed", range(40))
def test_no_anchor_where_none_is_needed(seed: int) -> None:
    rng = np.random.default_rng(100 + seed)
    view = view_model(random_dag(rng, 12)).graph
    order = any_order(view, rng)
    found = anchored_file(view, order)
    assert found is not None
    if file_for_default(view, order) is not None:
        assert found.anchored == ()
    else:
        assert 0 < len(found.anchored) < len(order)


def test_interleaved_chains_need_anchors_only_where_the_search_would_go_on() -> None:
    view = chain("Relu x > a1", "Relu x > b1", "Relu a1 > a2", "Relu b1 > b2", "Add a2 b2 > y")
    found = anchored_file(view, (0, 1, 2, 3, 4))
    assert found is not None
    assert set(found.anchored) < {0, 1, 2, 3}


def test_a_node_that_may_have_no_anchor_can_make_an_order_impossible() -> None:
    view = chain("Relu x > a1", "Relu x > b1", "Relu a1 > a2", "Relu b1 > b2", "Add a2 b2 > y")
    assert anchored_file(view, (0, 1, 2, 3, 4), anchorable=()) is None
    assert anchored_file(view, (1, 3, 0, 2, 4), anchorable=()) is not None


@pytest.mark.parametrize("seed", range(15))
def test_with_fewer_anchors_what_is_said_runs(seed: int) -> None:
    """Any order fits in which the first nodes are those of the wanted one."""
    rng = np.random.default_rng(200 + seed)
    proto = random_dag(rng, 20)
    view = view_model(proto).graph
    order = any_order(view, rng)
    found = anchored_file(view, order)
    assert found is not None
    assert AnchoredSearch(view, found.file).order(frozenset(found.anchored)) == tuple(order)
    runs, fewer = fewer_anchors(view, found, lambda other: list(other[:8]) == order[:8], 64)
    assert set(fewer.anchored) <= set(found.anchored)
    assert list(runs[:8]) == order[:8]
    ran = measured(with_anchors(proto, fewer), {"x": np.ones(3, np.float32)}, "DEFAULT")
    assert [n for n in ran if not n.startswith("anchor")] == [view.nodes[n].name for n in runs]
    assert fewer_anchors(view, found, lambda _: True, 64)[1].anchored == ()
    assert fewer_anchors(view, found, lambda _: False, 64) == (tuple(order), found)


def test_a_long_graph_is_quick() -> None:
    """Two chains of 20,000 nodes, run in turns: an anchor at almost every node."""
    half = 20_000
    nodes = [
        helper.make_node("Neg", [f"{c}{k}" if k else "x"], [f"{c}{k + 1}"], name=f"{c}{k}")
        for k in range(half)
        for c in "ab"
    ]
    graph = helper.make_graph(
        nodes, "g", [info("x", ["N"])], [info(f"a{half}", ["N"]), info(f"b{half}", ["N"])]
    )
    view = view_model(helper.make_model(graph)).graph
    found = anchored_file(view, range(2 * half))
    assert found is not None
    assert len(found.anchored) >= 2 * half - 4
