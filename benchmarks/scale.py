"""Planning time by node count: `python -m benchmarks.scale [nodes ...]`.

The graphs are transformers with their backward pass and one update per weight, without weights' data: layers
of 40 nodes forward and backward, kept activations between them, and as many ready updates at the end as there
are weights. Shapes are inferred, then the order is planned and its bound taken as in `optimize`.
"""

from __future__ import annotations

import sys
import time

import onnx
from onnx import TensorProto, helper

from onnx_symmem.expr.domain import Domain
from onnx_symmem.graph.view import view_model
from onnx_symmem.memory.execution_order import default_order, priority_order
from onnx_symmem.memory.peak import peak_of
from onnx_symmem.memory.plan import prepare
from onnx_symmem.memory.profile import profile
from onnx_symmem.memory.sizes import from_written, value_sizes
from onnx_symmem.order.bound import lower_bound
from onnx_symmem.order.planner import plan_order
from onnx_symmem.order.steering import steering_shapes
from onnx_symmem.shapes.engine import infer_shapes

__all__ = ["main", "training_graph"]

_NODES = (1_000, 10_000, 100_000)
_WIDTH = 64


class _Net:
    """Nodes and weights of a graph that is built front to back."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.ValueInfoProto] = []

    def op(self, kind: str, *inputs: str, **attributes: int | list[int]) -> str:
        """Append a node; its result."""
        name = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name, **attributes))
        return name

    def weight(self, *dims: int) -> str:
        """A graph input that stands for a weight, so that no data is needed."""
        name = f"w{len(self.weights)}"
        self.weights.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, list(dims)))
        return name


def training_graph(nodes: int) -> onnx.ModelProto:
    """A model of about so many nodes over `batch` and `seq`."""
    net = _Net()
    h: str = "x"
    kept: list[tuple[str, str, str, str, str, str]] = []
    while len(net.nodes) < nodes * 0.4:
        wide, narrow = net.weight(_WIDTH, 4 * _WIDTH), net.weight(4 * _WIDTH, _WIDTH)
        scores = net.op("Softmax", net.op("MatMul", h, net.op("Transpose", h, perm=[0, 2, 1])), axis=-1)
        mixed = net.op("Add", h, net.op("MatMul", scores, h))
        inner = net.op("Sigmoid", net.op("MatMul", mixed, wide))
        out = net.op("Add", mixed, net.op("MatMul", inner, narrow))
        kept.append((h, scores, mixed, inner, wide, narrow))
        h = out
    gradient = net.op("Mul", h, h)
    updates: list[str] = []
    for h, scores, mixed, inner, wide, narrow in reversed(kept):
        back = net.op("MatMul", gradient, net.op("Transpose", narrow, perm=[1, 0]))
        step = net.op("MatMul", net.op("Transpose", inner, perm=[0, 2, 1]), gradient)
        updates.append(net.op("Sub", narrow, net.op("ReduceSum", step, "axes", keepdims=0)))
        slope = net.op("Mul", back, net.op("Mul", inner, inner))
        step = net.op("MatMul", net.op("Transpose", mixed, perm=[0, 2, 1]), slope)
        updates.append(net.op("Sub", wide, net.op("ReduceSum", step, "axes", keepdims=0)))
        gradient = net.op("Add", gradient, net.op("MatMul", slope, net.op("Transpose", wide, perm=[1, 0])))
        turned = net.op("Transpose", scores, perm=[0, 2, 1])
        gradient = net.op("Add", gradient, net.op("Mul", net.op("MatMul", turned, gradient), h))
    value = helper.make_tensor_value_info
    x = value("x", TensorProto.FLOAT, ["batch", "seq", _WIDTH])
    results = [value(name, TensorProto.FLOAT, None) for name in updates]
    axes = helper.make_tensor("axes", TensorProto.INT64, [1], [0])
    graph = helper.make_graph(net.nodes, "training", [x, *net.weights], results, [axes])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def main(arguments: list[str]) -> None:
    """Print one line per node count."""
    print("nodes  shapes  plan  bound  peak/bound before  after  s")
    for nodes in [int(a) for a in arguments] or _NODES:
        view = view_model(training_graph(nodes))
        start = time.perf_counter()
        shapes = infer_shapes(view, Domain())
        sizes, keys = value_sizes(shapes.graph), from_written(shapes.graph)
        inferred = time.perf_counter()
        samples = steering_shapes(shapes.domain, shapes.input_symbols)
        prepared = {
            "default": prepare(view.graph, keys, None, default_order),
            "priority": prepare(view.graph, keys, None, priority_order),
        }
        order = default_order(view.graph)
        before = profile(prepared["default"].plan(order), sizes)
        given = {"onnxruntime": order, "file": tuple(range(len(order)))}
        found = plan_order(prepared, sizes, shapes.domain, samples, before, given)
        planned = time.perf_counter()
        orders = [c.order for c in found.candidates]
        bound = peak_of(
            lower_bound(prepared["priority"], sizes, shapes.domain, orders, samples), shapes.domain
        )
        ended = time.perf_counter()
        peaks = (found.choice.before, found.choice.after)
        ratios = [max(p.at(s) / max(bound.at(s), 1) for s in samples) for p in peaks]
        print(
            f"{len(order)}  {inferred - start:.1f}  {planned - inferred:.1f}  {ended - planned:.1f}  "
            f"{ratios[0]:.3f}  {ratios[1]:.3f}  {found.choice.never_worse} {found.choice.chosen.name}",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
