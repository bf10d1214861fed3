"""Small graphs that ask ONNX Runtime one question each; all weights are in the file.

`branches`: Ifs in a row, so that what a branch costs is a slope. `round_trips`: a tensor goes to the host and
back again and again, for the speed of copies. `offload`: a tensor waits on the host while another of its size
is in use. `pinned`: after each way back, the CPU writes a tensor of the same size into the same arena of
pinned memory, which spoils the copy if it was still under way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from onnx_symmem.graph.view import GraphView
from onnx_symmem.memory.anchoring import anchored_file

__all__ = ["anchored_model", "branches", "interleaved", "offload", "pinned", "round_trips"]

_OPSET, _IR = 18, 10


def _model(
    name: str,
    nodes: Sequence[NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    weights: Sequence[TensorProto] = (),
) -> onnx.ModelProto:
    graph = helper.make_graph(list(nodes), name, list(inputs), list(outputs), list(weights))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR)


def _floats(name: str, *dims: int | str | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, list(dims))


def _node(op: str, inputs: Sequence[str], output: str) -> NodeProto:
    return helper.make_node(op, list(inputs), [output], name=output)


def branches(count: int, width: int) -> onnx.ModelProto:
    """Ifs under the inputs c0, c1, ...: a product and its Relu, or a product and its Tanh."""
    square = np.random.default_rng(0).standard_normal((width, width), dtype=np.float32) / width
    nodes = []
    for k in range(count):
        source = f"h{k - 1}" if k else "x"
        inner = []
        for way, op in enumerate(("Relu", "Tanh")):
            made = f"p{k}_{way}", f"r{k}_{way}"
            body = [_node("MatMul", [source, "square"], made[0]), _node(op, [made[0]], made[1])]
            inner.append(helper.make_graph(body, f"way{k}_{way}", [], [_floats(made[1], "n", width)]))
        nodes.append(
            helper.make_node(
                "If", [f"c{k}"], [f"h{k}"], name=f"if{k}", then_branch=inner[0], else_branch=inner[1]
            )
        )
    conditions = [helper.make_tensor_value_info(f"c{k}", TensorProto.BOOL, []) for k in range(count)]
    weights = [numpy_helper.from_array(square, "square")]
    return _model(
        "branches",
        nodes,
        [_floats("x", "n", width), *conditions],
        [_floats(f"h{count - 1}", "n", width)],
        weights,
    )


def _away_and_back(source: str, number: int) -> Iterator[NodeProto]:
    yield _node("MemcpyToHost", [source], f"host{number}")
    yield _node("MemcpyFromHost", [f"host{number}"], f"back{number}")


def round_trips(count: int) -> onnx.ModelProto:
    """x (n) goes to the host and back `count` times; y is its largest number."""
    nodes = [_node("Neg", ["x"], "start")]
    last = "start"
    for k in range(count):
        nodes += _away_and_back(last, k)
        last = f"back{k}"
    nodes.append(helper.make_node("ReduceMax", [last], ["y"], name="y", keepdims=0))
    return _model("round_trips", nodes, [_floats("x", "n")], [_floats("y")])


def offload(moved: bool) -> onnx.ModelProto:
    """y = |neg(x)| + neg(x), where neg(x) waits on the host (or in its place) while x is worked on."""
    nodes = [_node("Neg", ["x"], "kept")]
    nodes += [_node("MemcpyToHost", ["kept"], "host0")] * moved
    nodes += [_node("Exp", ["x"], "a"), _node("Neg", ["a"], "b"), _node("Exp", ["b"], "between")]
    nodes += [_node("MemcpyFromHost", ["host0"], "back0")] * moved
    nodes.append(_node("Add", ["back0" if moved else "kept", "between"], "y"))
    return _model("offload", nodes, [_floats("x", "n")], [_floats("y", "n")])


def pinned(count: int) -> onnx.ModelProto:
    """`count` times: x away and back, then noise made on the CPU goes to the device: y = sum of all.

    Noise is Mean(c, size of what came back), which has no CUDA kernel and cannot run before the way back was
    begun. x and c (n) are as large as each other, so noise takes the pinned memory that x leaves.
    """
    nodes = [_node("Neg", ["x"], "start")]
    total = "start"
    for k in range(count):
        nodes += _away_and_back(total, k)
        nodes += [
            _node("Size", [f"back{k}"], f"size{k}"),
            helper.make_node("Cast", [f"size{k}"], [f"number{k}"], name=f"number{k}", to=TensorProto.FLOAT),
            _node("Mean", ["c", f"number{k}"], f"noise{k}"),
            _node("MemcpyFromHost", [f"noise{k}"], f"there{k}"),
            _node("Add", [f"back{k}", f"there{k}"], f"sum{k}"),
        ]
        total = f"sum{k}"
    nodes.append(_node("Identity", [total], "y"))
    return _model("pinned", nodes, [_floats("x", "n"), _floats("c", "n")], [_floats("y", "n")])


def interleaved(view: GraphView, seed: int) -> tuple[int, ...]:
    """A topological order that no depth-first search follows: the next node is drawn among those ready."""
    rng = np.random.default_rng(seed)
    waiting = [len(p) for p in view.predecessors]
    ready = [n for n, count in enumerate(waiting) if not count]
    constants = [n for n in ready if view.nodes[n].op == "Constant"]
    order: list[int] = []
    while ready:
        node = constants.pop(0) if constants else ready[int(rng.integers(len(ready)))]
        ready.remove(node)
        order.append(node)
        for follower in view.successors[node]:
            waiting[follower] -= 1
            if not waiting[follower]:
                ready.append(follower)
    return tuple(order)


def anchored_model(model: onnx.ModelProto, view: GraphView, order: Sequence[int]) -> onnx.ModelProto | None:
    """The model with anchors (dangling Size nodes) that make DEFAULT follow `order`; None where none do."""
    found = anchored_file(view, order)
    if found is None:
        return None
    result = onnx.ModelProto()
    result.CopyFrom(model)
    del result.graph.node[:]
    for number in found.file:
        if number >= 0:
            result.graph.node.append(model.graph.node[number])
            continue
        node = view.nodes[~number]
        value = next(v for v in node.outputs if v >= 0)
        name = f"{view.values[value].name}/anchor"
        result.graph.node.append(helper.make_node("Size", [view.values[value].name], [name], name=name))
    return result
