"""Small graphs whose peak repeats can lower, prepared, and the optimum of the smallest by exhaustion."""

import heapq

import onnx
from onnx import TensorProto, helper

from onnx_symmem.expr.domain import Domain
from onnx_symmem.graph.load import load_model
from onnx_symmem.memory.execution_order import priority_order
from onnx_symmem.memory.plan import PlanOptions, prepare
from onnx_symmem.memory.sizes import from_written, value_sizes
from onnx_symmem.remat.cost import node_costs
from onnx_symmem.remat.tables import tables_of
from onnx_symmem.shapes.engine import infer_shapes


class Ground:
    """A model with everything that the search for levels needs."""

    def __init__(self, proto: onnx.ModelProto, provider: str = "cpu") -> None:
        model = load_model(proto).view()
        shapes = infer_shapes(model, Domain())
        self.opsets, self.domain, self.shapes = model.opsets, shapes.domain, shapes.graph
        self.view = model.graph
        self.keys, self.sizes = from_written(shapes.graph), value_sizes(shapes.graph)
        self.prepared = prepare(self.view, self.keys, PlanOptions(provider))
        self.costs = node_costs(self.shapes, self.sizes)
        self.order = priority_order(self.view)

    def tables(self, samples):
        return tables_of(self.prepared, self.sizes, self.costs, samples, self.order, opsets=self.opsets)


def chain(length: int) -> onnx.ModelProto:
    """Forward: x_k = Exp(x_k-1); backward: g = g * x_k, from the last to the first; 4n bytes each."""
    nodes = [helper.make_node("Exp", [f"x{k}"], [f"x{k + 1}"]) for k in range(length)]
    grad = f"x{length}"
    for k in reversed(range(length)):
        made = f"g{k}" if k else "out"
        nodes.append(helper.make_node("Mul", [grad, f"x{k}"], [made]))
        grad = made
    graph = helper.make_graph(
        nodes, "chain",
        [helper.make_tensor_value_info("x0", TensorProto.FLOAT, ["n"])],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, ["n"])],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def least_runs(view, tensors: int) -> int | None:
    """Fewest node runs with at most so many tensors of equal size at once; None where there is no way.

    Every set of tensors in memory and of nodes that have run is a state; a run needs its inputs and room for
    what it makes. In-place is not modelled: the graphs have none.
    """
    outputs = set(view.outputs)
    inputs = set(view.inputs)
    start = (frozenset(), frozenset())
    best = {start: 0}
    queue = [(0, 0, start)]
    number = 0
    while queue:
        runs, _, state = heapq.heappop(queue)
        if runs > best[state]:
            continue
        held, ran = state
        if len(ran) == len(view.nodes):
            return runs
        for node in view.nodes:
            if not set(node.inputs) <= held | inputs or set(node.outputs) <= held:
                continue
            during = held | set(node.outputs)
            if len(during) > tensors:
                continue
            # What is dropped afterwards: any subset; one at a time is enough, as a state of its own.
            for after in (during, *(during - {v} for v in during if v not in outputs)):
                _push(best, queue, (frozenset(after), ran | {node.index}), runs + 1, number := number + 1)
        for value in held - outputs:
            _push(best, queue, (held - {value}, ran), runs, number := number + 1)
    return None


def _push(best, queue, state, runs, number):
    if runs < best.get(state, 1 << 30):
        best[state] = runs
        heapq.heappush(queue, (runs, number, state))
