"""Where the nodes of a model of versions stand so that ONNX Runtime's own traversal runs each as planned."""

from __future__ import annotations

import onnx
from onnx import GraphProto, NodeProto

from onnx_symmem.errors import UnsupportedModel
from onnx_symmem.graph.view import GraphView, view_model
from onnx_symmem.memory.execution_order import file_for_default

__all__ = ["sort_versions"]


def sort_versions(model: onnx.ModelProto, prefix: str) -> None:
    """Put the nodes of every schedule where the DEFAULT traversal runs them in the order they have now."""
    view = view_model(model).graph
    branches = [node for node in view.nodes if node.name.startswith(prefix)]
    if not branches:
        _sort_for_default(model.graph, view)
    for node in branches:
        for attribute in model.graph.node[node.index].attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                _sort_branch(attribute.g, node.subgraphs[attribute.name], prefix)


def _sort_branch(graph: GraphProto, view: GraphView, prefix: str) -> None:
    for proto, node in zip(graph.node, view.nodes, strict=True):
        for attribute in proto.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH and node.name.startswith(prefix):
                _sort_branch(attribute.g, node.subgraphs[attribute.name], prefix)
    _sort_for_default(graph, view)


def _sort_for_default(graph: GraphProto, view: GraphView) -> None:
    file = file_for_default(view, range(len(view.nodes)))
    if file is None:
        raise UnsupportedModel("no file makes ONNX Runtime's default traversal run a version as planned")
    nodes = [NodeProto.FromString(graph.node[k].SerializeToString()) for k in file]
    del graph.node[:]
    graph.node.extend(nodes)
