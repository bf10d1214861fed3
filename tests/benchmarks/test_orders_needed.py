"""Shapes that exclude one another's orders, and how many orders that asks for."""

from itertools import combinations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from benchmarks import orders_needed
from benchmarks.families import GraphSource
from onnx_symmem.graph.load import load_model
from onnx_symmem.order.kept_search import KeptSearch, result_nodes
from tests.order.graphs import all_orders, peak, training, training_bytes


def model() -> onnx.ModelProto:
    """Two results at any time: one holds what grows with n, the other what grows with m, until it is made."""

    def value(name: str, shape: list[str | int]) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    nodes = [helper.make_node("Exp", ["x"], ["a"]), helper.make_node("Exp", ["y"], ["b"])]
    for name in "ab":
        nodes.append(helper.make_node("ReduceMax", [name], [f"{name}1"], keepdims=0))
        nodes.append(helper.make_node("Concat", [name, name], [f"{name}2"], axis=0))
    outputs = [value("a1", []), value("b1", []), value("a2", ["p"]), value("b2", ["q"])]
    graph = helper.make_graph(nodes, "g", [value("x", ["n"]), value("y", ["m"])], outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_model_that_needs_its_larger_part_first_needs_two_orders(monkeypatch):
    # 2n stays behind the first part, 3m is held in the second: 2n + 3m is less than 2m + 3n where n > m.
    source = GraphSource("x", "corpus", lambda: (load_model(model()), "all"))
    monkeypatch.setattr(orders_needed, "graph_sources", lambda *_: {"x": source})
    page = orders_needed.run(["x"])
    assert not page.wrong
    assert [(f.what, f.found) for f in page.findings] == [("orders that x needs at least", "2")]
    ((_, shape, _, other, _, nearest, refuted, *_),) = page.tables[0].rows
    sizes = [dict(part.split("=") for part in words.split(", ")) for words in (shape, other)]
    (n, m), (k, j) = ((int(s["n"]), int(s["m"])) for s in sizes)
    assert (n > m) != (k > j)
    assert 1.002 <= refuted < nearest


@pytest.mark.parametrize("seed", range(20))
def test_largest_clique(seed):
    rng = np.random.default_rng(seed)
    count = 8
    adjacent = {k: set() for k in range(count)}
    for one, other in combinations(range(count), 2):
        if rng.random() < 0.5:
            adjacent[one].add(other)
            adjacent[other].add(one)
    found = orders_needed.largest_clique({k: frozenset(v) for k, v in adjacent.items()})
    assert all(other in adjacent[one] for one, other in combinations(found, 2))
    larger = combinations(range(count), len(found) + 1)
    assert not any(all(b in adjacent[a] for a, b in combinations(nodes, 2)) for nodes in larger)


def test_shapes_are_apart_where_other_orders_are_good():
    peaks = np.array([[10.0, 10.0, 20.0, 20.0], [20.0, 20.0, 10.0, 10.0]])
    first, second = orders_needed.apart_by_orders(peaks, 2)
    assert {first // 2, second // 2} == {0, 1}
    assert len(orders_needed.apart_by_orders(peaks, 9)) <= 4


@pytest.mark.parametrize("seed", range(12))
def test_what_two_shapes_exclude_no_order_does(seed):
    rng = np.random.default_rng(seed)
    graph = training(2)
    weights = [float(w) for w in rng.integers(1, 9, 2)]
    table = np.array([training_bytes(2, float(a), weights) for a in rng.integers(1, 9, 2)]).T
    orders = list(all_orders(graph))
    peaks = np.array([[peak(graph, column, order) for column in table.T] for order in orders])
    best = peaks.min(axis=0)
    refuted = 0
    for ratio in (0.9, 1.0, 1.05, 1.2):
        caps = np.floor(best * ratio) + 1
        search = KeptSearch(graph, table, best, result_nodes(graph), 2.0**-15)
        found = search.below(caps, 1_000_000)
        if found.order is None and found.exact:
            refuted += 1
            assert not (peaks < caps).all(axis=1).any()
    assert refuted
