"""Random schedules of a graph: its order, with nodes run again and values sent to the host and back."""

import numpy as np

from onnx_symmem.graph.view import NODE, GraphView
from onnx_symmem.memory.execution_order import priority_order
from onnx_symmem.remat.schedule import Schedule, Step, never_again, schedule_of


def with_repeats(view: GraphView, count: int, seed: int, moves: int = 0) -> Schedule:
    """The priority order with `count` recomputes before later nodes, and `moves` values offloaded."""
    rng = np.random.default_rng(seed)
    steps = list(schedule_of(priority_order(view)))
    nodes = [n.index for n in view.nodes if not never_again(view, n)]
    for _ in range(count if nodes else 0):
        node = nodes[int(rng.integers(len(nodes)))]
        first = steps.index(Step("run", node))
        steps.insert(int(rng.integers(first + 1, len(steps) + 1)), Step("run", node))
    read_later = [v.index for v in view.values if _can_move(view, v.index)]
    for value in rng.permutation(read_later)[:moves].tolist():
        made = steps.index(Step("run", view.values[value].producer))
        last = max(k for k, s in enumerate(steps) if s.kind == "run" and value in view.nodes[s.index].reads())
        away = int(rng.integers(made + 1, last + 1))
        back = int(rng.integers(away, last + 1))
        # The latest instance has to be the reloaded one for the last reader: no recompute in between.
        again = [k for k, s in enumerate(steps) if s == Step("run", view.values[value].producer)]
        if any(back <= k < last for k in again):
            continue
        steps.insert(back, Step("reload", value))
        steps.insert(away, Step("offload", value))
    return tuple(steps)


def _can_move(view: GraphView, value: int) -> bool:
    made = view.values[value].kind == NODE and view.nodes[view.values[value].producer].op != "Constant"
    return made and value not in view.outputs and bool(view.consumers[value])
