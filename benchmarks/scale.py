"""Planning time by node count.

The graphs are without weights' data:

    training   a transformer with its backward pass and one update per weight: layers of 40 nodes forward and
               backward, kept activations between them, as many ready updates at the end as there are weights
    deep       a transformer of many layers, forward alone
    chain      element-wise nodes in a row
    wide       a third of the nodes reads the input and is ready at once; what they make is summed up

Shapes are inferred, then the order is planned and its bound taken as in `optimize`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import onnx
from onnx import TensorProto, helper

from benchmarks.case import case_of, ratios
from benchmarks.document import Cell, Finding, Page, Table
from benchmarks.environment import Progress
from onnx_symmem.graph.load import load_model
from onnx_symmem.order.limits import SearchLimits

__all__ = ["GRAPHS", "run", "training_graph"]

_NODES = (1_000, 10_000, 100_000)
_TARGETS = {1_000: 2, 10_000: 10, 100_000: 60}
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

    def model(self, results: Sequence[str], *initializers: TensorProto) -> onnx.ModelProto:
        """The model that reads x and the weights."""
        value = helper.make_tensor_value_info
        x = value("x", TensorProto.FLOAT, ["batch", "seq", _WIDTH])
        outputs = [value(name, TensorProto.FLOAT, None) for name in results]
        graph = helper.make_graph(self.nodes, "net", [x, *self.weights], outputs, list(initializers))
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


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
    return net.model(updates, helper.make_tensor("axes", TensorProto.INT64, [1], [0]))


def deep_graph(nodes: int) -> onnx.ModelProto:
    """A transformer of as many equal layers as it takes."""
    net = _Net()
    h: str = "x"
    wide, narrow = net.weight(_WIDTH, 4 * _WIDTH), net.weight(4 * _WIDTH, _WIDTH)
    while len(net.nodes) < nodes:
        scores = net.op("Softmax", net.op("MatMul", h, net.op("Transpose", h, perm=[0, 2, 1])), axis=-1)
        mixed = net.op("Add", h, net.op("MatMul", scores, h))
        h = net.op("Add", mixed, net.op("MatMul", net.op("Sigmoid", net.op("MatMul", mixed, wide)), narrow))
    return net.model([h])


def chain_graph(nodes: int) -> onnx.ModelProto:
    """Nodes in a row."""
    net = _Net()
    h: str = "x"
    for k in range(nodes):
        h = net.op(("Sigmoid", "Tanh", "Relu")[k % 3], h)
    return net.model([h])


def wide_graph(nodes: int) -> onnx.ModelProto:
    """Many nodes that are ready at once."""
    net = _Net()
    weights = [net.weight(_WIDTH, _WIDTH // 4 * k) for k in range(1, 5)]
    made = [net.op("MatMul", "x", weights[k % 4]) for k in range(nodes // 3)]
    first, *others = (net.op("ReduceMax", h, axes=[2], keepdims=1) for h in made)
    for other in others:
        first = net.op("Add", first, other)
    return net.model([first])


GRAPHS: Mapping[str, Callable[[int], onnx.ModelProto]] = {
    "training": training_graph, "deep": deep_graph, "chain": chain_graph, "wide": wide_graph,
}  # fmt: skip


def run(
    only: Sequence[str] = (), limits: SearchLimits | None = None, graphs: Sequence[str] = tuple(GRAPHS)
) -> Page:
    """Seconds per stage by graph and node count; `only` are other counts, `limits` other than the usual."""
    counts = [int(text) for text in only] or list(_NODES)
    tasks = {f"{nodes:,} nodes, {name}": (name, nodes) for name in graphs for nodes in counts}
    rows: list[tuple[Cell, ...]] = []
    slowest: dict[int, float] = {}
    for _, (name, nodes) in Progress("scale").each(tasks):
        proto = GRAPHS[name](nodes)
        start = time.process_time()
        model = load_model(proto)
        loaded = time.process_time()
        case = case_of(model)
        ready = time.process_time()
        planned = case.planned(limits or SearchLimits())
        found = time.process_time()
        bound = case.bound(planned)
        ended = time.process_time()
        before = [planned.found.choice.before.at(shape) for shape in case.shapes]
        after = [planned.at(shape) for shape in case.shapes]
        stages = (loaded - start, ready - loaded, found - ready, ended - found)
        worst = max(ratios(before, bound)), max(ratios(after, bound))
        rows.append((name, case.nodes, *stages, sum(stages), *worst, planned.never_worse))
        slowest[nodes] = max(slowest.get(nodes, 0.0), sum(stages))
    findings = [
        Finding(
            f"processor seconds, slowest graph of {nodes:,} nodes", f"{seconds:.1f}",
            f"<= {_TARGETS[nodes]}" if nodes in _TARGETS else "",
            seconds <= _TARGETS[nodes] if nodes in _TARGETS else None,
        )
        for nodes, seconds in slowest.items()
    ]  # fmt: skip
    return Page(
        "scale",
        "Planning time by node count",
        """Transformers with their backward pass and one update per weight (training) and without (deep),
        nodes in a row (chain), and a third of all nodes ready at once (wide). Nothing is run. From 4,000
        nodes on less is searched per node, and the command says so.""",
        tuple(findings),
        (
            Table(
                "scale",
                "Seconds of one processor",
                ("graph", "nodes", "load", "shapes and profile", "plan", "bound", "together",
                 "onnxruntime / bound", "ours / bound", "never worse"),
                tuple(rows),
                digits=2,
            ),
        ),
    )  # fmt: skip
