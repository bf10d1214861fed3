"""Order of nodes -> new model: the same graph with its nodes in the order that is to run."""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from onnx_symmem.errors import UsageError
from onnx_symmem.memory.execution_order import RULES

__all__ = ["DELIVERIES", "DELIVERY", "EXECUTION_ORDER", "delivery_of", "execution_order_of", "reorder_nodes"]

EXECUTION_ORDER = "onnx_symmem.execution_order"
"""Key of the model's metadata that names the traversal under which it runs as planned."""

DELIVERY = "onnx_symmem.delivery"
"""Key of the model's metadata that says what keeps its plan; models without it are kept by the session."""

DELIVERIES = ("order", "anchors")
"""What keeps a plan: the session, which follows the order of the file, or anchors in the file, which is
planned with memory reuse then, for only Python can switch that off."""


def reorder_nodes(
    model: onnx.ModelProto, order: Sequence[int], rule: str = "priority", delivery: str = "order"
) -> onnx.ModelProto:
    """A copy of `model` whose main graph lists its nodes in `order` (a permutation of node positions).

    `rule` is the traversal under which the file runs as planned, with optimisations off: priority (file
    order, Shape and Size hoisted) or default (`memory.execution_order`). It is written into the metadata,
    and so is a `delivery` by anchors.
    """
    if sorted(order) != list(range(len(model.graph.node))):
        raise UsageError(
            f"order has {len(order)} entries; expected a permutation of {len(model.graph.node)} nodes"
        )
    result = onnx.ModelProto()
    result.CopyFrom(model)
    del result.graph.node[:]
    result.graph.node.extend(model.graph.node[k] for k in order)
    kept = [entry for entry in model.metadata_props if entry.key not in (EXECUTION_ORDER, DELIVERY)]
    del result.metadata_props[:]
    result.metadata_props.extend(kept)
    result.metadata_props.add(key=EXECUTION_ORDER, value=rule)
    if delivery != DELIVERIES[0]:
        result.metadata_props.add(key=DELIVERY, value=delivery)
    return result


def execution_order_of(model: onnx.ModelProto) -> str:
    """The traversal a model was planned for; priority where it does not say."""
    for entry in model.metadata_props:
        if entry.key == EXECUTION_ORDER and entry.value in RULES:
            return entry.value
    return "priority"


def delivery_of(model: onnx.ModelProto) -> str:
    """What keeps the plan of a model; order where it does not say."""
    for entry in model.metadata_props:
        if entry.key == DELIVERY and entry.value in DELIVERIES:
            return entry.value
    return DELIVERIES[0]
