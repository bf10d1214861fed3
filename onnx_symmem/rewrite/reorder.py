"""Order of nodes -> new model: the same graph with its nodes in the order that is to run."""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from onnx_symmem.errors import UsageError

__all__ = ["reorder_nodes"]


def reorder_nodes(model: onnx.ModelProto, order: Sequence[int]) -> onnx.ModelProto:
    """A copy of `model` whose main graph lists its nodes in `order` (a permutation of node positions).

    ONNX Runtime runs such a file exactly in file order under PRIORITY_BASED execution with optimisations
    off, where Shape and Size already stand as early as they can (facts in `memory.execution_order`).
    """
    if sorted(order) != list(range(len(model.graph.node))):
        raise UsageError(
            f"order has {len(order)} entries; expected a permutation of {len(model.graph.node)} nodes"
        )
    result = onnx.ModelProto()
    result.CopyFrom(model)
    del result.graph.node[:]
    result.graph.node.extend(model.graph.node[k] for k in order)
    return result
