"""A model of constant dims, written so that ONNX Runtime does not know them before the run.

Where all dims are numbers it gives every freed buffer to the next tensor of the same size, and no text keeps
it from that (rewrite/separation.py): a text in the file counts only where it infers no number itself. So the
inputs are read through `Reshape(input, zeros)`, the same memory and dims, and constant vectors that say what
dims to make are listed among the inputs, with themselves as default. Nobody has to feed either.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx
from onnx import NodeProto, helper

from onnx_symmem.graph.load import graphs_of
from onnx_symmem.rewrite.apart import add_defaults, zero_vector
from onnx_symmem.rewrite.free_names import FreeNames

__all__ = ["with_unknown_dims"]

# Where an operator reads what dims to make.
_TARGETS = {"Reshape": 1, "Expand": 1, "ConstantOfShape": 0, "Tile": 1}
_OLDEST_OPSET = 5  # from which on Reshape takes its dims as an input, of every type


def with_unknown_dims(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of `model` whose main graph reads its inputs and targets so; what subgraphs read is left."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 0)
    if opset < _OLDEST_OPSET:
        return result
    inner = (name for g in graphs_of(graph) for n in g.node for name in (n.name, *n.output, *n.input))
    fresh = FreeNames(graph, inner).fresh
    weights = {t.name: t for t in graph.initializer}
    ranks = {
        i.name: len(i.type.tensor_type.shape.dim)
        for i in graph.input
        if i.name not in weights and i.type.tensor_type.HasField("shape")
    }
    zeros: dict[int, str] = {}
    alias: dict[str, str] = {}
    nodes: list[NodeProto] = []
    for node in graph.node:
        for at, name in enumerate(node.input):
            rank = ranks.get(name, 0)
            if rank and name not in alias:
                if rank not in zeros:
                    zeros[rank] = fresh(f"symmem/unknown/{rank}")
                alias[name] = fresh(f"{name}/unknown")
                read = [name, zeros[rank]]
                nodes.append(helper.make_node("Reshape", read, [alias[name]], alias[name]))
            node.input[at] = alias.get(name, name)
        nodes.append(NodeProto.FromString(node.SerializeToString()))
    infos = {i.name: i.type for i in graph.input}
    graph.value_info.extend(onnx.ValueInfoProto(name=alias[name], type=infos[name]) for name in alias)
    del graph.node[:]
    graph.node.extend(nodes)
    add_defaults(result, [zero_vector(name, rank) for rank, name in sorted(zeros.items())])
    listed = {i.name for i in graph.input}
    for name in dict.fromkeys(_targets(graph)):
        tensor = weights.get(name)
        if tensor is not None and name not in listed:
            kind = tensor.data_type
            graph.input.append(helper.make_tensor_value_info(name, kind, list(tensor.dims)))
    return result


def _targets(graph: onnx.GraphProto) -> Iterator[str]:
    """Vectors that operators read as dims to make, and nothing else reads."""
    others = {
        name for g in graphs_of(graph) for n in g.node for k, name in enumerate(n.input) if _port(n) != k
    }
    for node in graph.node:
        at = _port(node)
        if 0 <= at < len(node.input) and node.input[at] not in others:
            yield node.input[at]


def _port(node: NodeProto) -> int:
    return _TARGETS.get(node.op_type, -1) if node.domain in ("", "ai.onnx") else -1
