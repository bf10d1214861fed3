"""Planning time by node count.

The graphs are transformers with their backward pass and one update per weight, without weights' data: layers
of 40 nodes forward and backward, kept activations between them, and as many ready updates at the end as there
are weights. Shapes are inferred, then the order is planned and its bound taken as in `optimize`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import onnx
from onnx import TensorProto, helper

from benchmarks.case import case_of, ratios
from benchmarks.document import Cell, Finding, Page, Table
from benchmarks.environment import Progress
from onnx_symmem.graph.load import load_model
from onnx_symmem.order.limits import SearchLimits

__all__ = ["run", "training_graph"]

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


def run(only: Sequence[str] = (), limits: SearchLimits | None = None) -> Page:
    """Seconds per stage by node count; `only` are other counts, `limits` other than the usual ones."""
    counts = {f"{int(text):,} nodes": int(text) for text in only or map(str, _NODES)}
    rows: list[tuple[Cell, ...]] = []
    findings: list[Finding] = []
    for words, nodes in Progress("scale").each(counts):
        model = load_model(training_graph(nodes))
        start = time.perf_counter()
        case = case_of(model)
        ready = time.perf_counter()
        planned = case.planned(limits or SearchLimits())
        found = time.perf_counter()
        bound = case.bound(planned)
        ended = time.perf_counter()
        before = [planned.found.choice.before.at(shape) for shape in case.shapes]
        after = [planned.at(shape) for shape in case.shapes]
        stages = (ready - start, found - ready, ended - found)
        worst = max(ratios(before, bound)), max(ratios(after, bound))
        rows.append((case.nodes, *stages, sum(stages), *worst, planned.never_worse))
        target = _TARGETS.get(nodes)
        findings.append(
            Finding(
                f"seconds for {words}", f"{sum(stages):.1f}", "" if target is None else f"<= {target}",
                None if target is None else sum(stages) <= target,
            )
        )  # fmt: skip
    return Page(
        "scale",
        "Planning time by node count",
        """Transformers with their backward pass and one update per weight: many activations that are kept, as
        many ready updates at the end as there are weights. Nothing is run.""",
        tuple(findings),
        (
            Table(
                "scale",
                "Seconds",
                ("nodes", "shapes and profile", "plan", "bound", "together", "onnxruntime / bound",
                 "ours / bound", "never worse"),
                tuple(rows),
                digits=2,
            ),
        ),
    )  # fmt: skip
