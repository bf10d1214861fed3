"""Order of nodes -> new model: the same graph with its nodes in the order that is to run."""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from onnx_symmem.errors import UsageError
from onnx_symmem.memory.execution_order import RULES

__all__ = ["EXECUTION_ORDER", "execution_order_of", "reorder_nodes"]

EXECUTION_ORDER = "onnx_symmem.execution_order"
"""Key of the model's metadata that names the traversal under which it runs as planned."""


def reorder_nodes(model: onnx.ModelProto, order: Sequence[int], rule: str = "priority") -> onnx.ModelProto:
    """A copy of `model` whose main graph lists its nodes in `order` (a permutation of node positions).

    `rule` is the traversal under which the file runs as planned, with optimisations off: priority (file
    order, Shape and Size hoisted) or default (`memory.execution_order`). It is written into the metadata.
    """
    if sorted(order) != list(range(len(model.graph.node))):
        raise UsageError(
            f"order has {len(order)} entries; expected a permutation of {len(model.graph.node)} nodes"
        )
    result = onnx.ModelProto()
    result.CopyFrom(model)
    del result.graph.node[:]
    result.graph.node.extend(model.graph.node[k] for k in order)
    kept = [entry for entry in model.metadata_props if entry.key != EXECUTION_ORDER]
    del result.metadata_props[:]
    result.metadata_props.extend(kept)
    result.metadata_props.add(key=EXECUTION_ORDER, value=rule)
    return result


def execution_order_of(model: onnx.ModelProto) -> str:
    """The traversal a model was planned for; priority where it does not say."""
    for entry in model.metadata_props:
        if entry.key == EXECUTION_ORDER and entry.value in RULES:
            return entry.value
    return "priority"
