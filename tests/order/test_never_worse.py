"""The least of orders that are never worse, against all orders of small graphs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from onnx_symmem.expr.domain import Domain, SymbolRange
from onnx_symmem.expr.plan_order import plan_le
from onnx_symmem.graph.view import view_model
from onnx_symmem.memory.execution_order import priority_order
from onnx_symmem.memory.peak import Peak, peak
from onnx_symmem.memory.plan import prepare
from onnx_symmem.memory.profile import profile
from onnx_symmem.memory.sizes import from_written, value_sizes
from onnx_symmem.order.buffers import buffer_graph
from onnx_symmem.order.never_worse import least_never_worse
from onnx_symmem.shapes.engine import infer_shapes
from tests.order.graphs import all_orders

DOMAIN = Domain({"a": SymbolRange(64, None), "b": SymbolRange(64, None)})
SHAPES = ({"a": 64, "b": 64}, {"a": 64, "b": 512}, {"a": 512, "b": 64})
FAR = ({"a": 64, "b": 1 << 16}, {"a": 1 << 16, "b": 64}, {"a": 300, "b": 300})


def chains(widths: list[tuple[int, int]]) -> onnx.ModelProto:
    """Two inputs by turns are widened, and a part of what was made is kept: chains that go in any order.

    Which one goes first best depends on the sizes: what it keeps is there while the others are wide.
    """
    nodes, constants, ends = [], [], []
    for k, (wide, kept) in enumerate(widths):
        for name, values in (("r", [1, wide]), ("s", [0]), ("e", [kept]), ("axis", [1])):
            constants.append(helper.make_tensor(f"{name}{k}", TensorProto.INT64, [len(values)], values))
        nodes += [
            helper.make_node("Tile", ["xy"[k % 2], f"r{k}"], [f"wide{k}"], name=f"tile{k}"),
            helper.make_node(
                "Slice", [f"wide{k}", f"s{k}", f"e{k}", f"axis{k}"], [f"kept{k}"], name=f"slice{k}"
            ),
            helper.make_node("Flatten", [f"kept{k}"], [f"flat{k}"], name=f"flat{k}", axis=0),
        ]
        ends.append(f"flat{k}")
    nodes.append(helper.make_node("Concat", ends, ["y_all"], name="all", axis=1))
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "chains",
        [value("x", TensorProto.FLOAT, ["a", 1]), value("y", TensorProto.FLOAT, ["b", 1])],
        [value("y_all", TensorProto.FLOAT, None)], constants,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


class Case:
    """A graph, its orders with their exact peaks, and which of them are never worse than a base."""

    def __init__(self, widths: list[tuple[int, int]]) -> None:
        view = view_model(chains(widths))
        shapes = infer_shapes(view, DOMAIN)
        self.domain, self.sizes = shapes.domain, value_sizes(shapes.graph)
        self.prepared = prepare(view.graph, from_written(shapes.graph), None, priority_order)
        self.graph = buffer_graph(self.prepared)
        self.every = [(order, self.peak(order)) for order in all_orders(self.graph)]
        self.floor = np.min([[p.at(s) for s in SHAPES] for _, p in self.every], axis=0)

    def peak(self, order: tuple[int, ...]) -> Peak:
        return peak(profile(self.prepared.plan(order), self.sizes), self.domain)

    def best_at(self, shape: Mapping[str, int]) -> tuple[tuple[int, ...], Peak]:
        return min(self.every, key=lambda item: (item[1].at(shape), item[0]))

    def is_never_worse(self, found: Peak, base: Peak, allowed: int) -> bool:
        return plan_le(found.members, [m + allowed for m in base.members], self.domain).proved

    def ratio(self, found: Peak) -> float:
        return max(found.at(s) / f for s, f in zip(SHAPES, self.floor, strict=True))


@pytest.mark.parametrize(("seed", "far"), [(0, 0), (1, 1), (2, 0), (2, 1), (17, 0), (21, 0)])
def test_no_order_that_is_never_worse_is_nearer(seed: int, far: int) -> None:
    rng = np.random.default_rng(seed)
    case = Case([(int(kept * wide), int(kept)) for wide, kept in rng.integers(2, 9, (3, 2))])
    order, base = case.best_at(FAR[far])
    found = least_never_worse(
        case.graph, case.prepared, case.sizes, case.domain, base, order, SHAPES, case.floor
    )
    kept = [p for _, p in case.every if case.is_never_worse(p, base, found.allowed)]
    least = min(map(case.ratio, kept))
    assert least > min(case.ratio(p) for _, p in case.every) * 1.01  # being never worse has its price
    assert found.ratio <= least * (1 + 1e-12)
    if found.order is None:
        assert found.ratio >= least / 1.005
    else:
        assert case.is_never_worse(case.peak(found.order), base, found.allowed)
