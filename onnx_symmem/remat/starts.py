"""Orders that a search for levels starts from, besides the chosen one.

The order of least peak is careless wherever it is not at its peak, and a schedule with repeats is at its peak
nearly everywhere. So orders that hold little at every moment are tried too: the file's, which in exported
training graphs makes every gradient next to its use, and forward greedy ones, each also with growing nodes
moved late and shrinking ones early.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from onnx_symmem.memory.execution_order import priority_order
from onnx_symmem.memory.plan import PlanInput
from onnx_symmem.order.buffers import buffer_graph
from onnx_symmem.order.heuristics import forward_greedy
from onnx_symmem.order.moments import Moments
from onnx_symmem.order.sinking import run_early, run_late
from onnx_symmem.remat.tables import Tables

__all__ = ["start_orders"]

_PASSES = 3


def start_orders(
    prepared: PlanInput, tables: Tables, chosen: Sequence[int], shape: int
) -> Mapping[str, tuple[int, ...]]:
    """Distinct orders by name, as PRIORITY_BASED runs them; `shape` is the sample that steers."""
    view = prepared.view
    graph = buffer_graph(prepared)
    sizes = tables.bytes[list(graph.values)] if graph.values else np.zeros((0, tables.shapes))
    moments = Moments(graph, sizes)
    file = priority_order(view)
    greedy = forward_greedy(graph, [int(b) for b in sizes[:, shape]])
    found: dict[str, tuple[int, ...]] = {}
    for name, order in (("chosen", tuple(chosen)), ("file", file), ("greedy", greedy)):
        tidy = order
        for _ in range(_PASSES):
            tidy = run_late(moments, run_early(moments, tidy, shape), shape)
        for label, candidate in ((name, order), (f"{name} tidied", tidy)):
            ran = priority_order(view, candidate)
            if ran not in found.values():
                found[label] = ran
    return found
