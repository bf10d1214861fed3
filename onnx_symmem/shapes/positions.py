"""The largest element of an index tensor, where every run makes the same one: positions that look up a table.

A table of 512 positions that is looked up at 0 .. length - 1 limits the length to 512. Positions come from a
Range, and through ops that move or repeat elements but drop none.
"""

from __future__ import annotations

from onnx_symmem.expr.expression import Expr, ceildiv
from onnx_symmem.shapes.context import NodeContext

__all__ = ["largest_element", "largest_per_column"]

KEEPING = frozenset({"Cast", "Expand", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
MOST_STEPS = 16


def largest_element(ctx: NodeContext, index: int) -> Expr | None:
    """The largest element of a value, provided that it has elements at all; None where nothing is known."""
    scope, added = ctx.scope, Expr.const(0)
    for _ in range(MOST_STEPS):
        only = _scalar(ctx, index)
        if only is not None:
            return only + added
        producer = scope.view.values[index].producer
        if producer < 0:
            return None
        node = scope.view.nodes[producer]
        if node.domain == "" and node.op in KEEPING:
            index = node.inputs[0]
        elif node.domain == "" and node.op == "Add":
            left, right = (_scalar(ctx, term) for term in node.inputs)
            shift = right if left is None else left
            if shift is None:
                return None
            index, added = node.inputs[0 if left is None else 1], added + shift
        elif node.domain == "" and node.op == "Range":
            last = _last_of_range(ctx, node.inputs)
            return None if last is None else last + added
        else:
            return None
    return None


def largest_per_column(ctx: NodeContext, index: int) -> list[Expr | None]:
    """The same for every position on the last axis of a value that is put together along it."""
    view = ctx.scope.view
    producer = view.values[index].producer
    dims = ctx.scope.dims[index]
    if producer < 0 or dims is None or view.nodes[producer].op != "Concat":
        return []
    node = view.nodes[producer]
    columns = [ctx.scope.dims[part] for part in node.inputs]
    if node.attributes.get("axis") not in (-1, len(dims) - 1) or any(
        d is None or d[-1] != 1 for d in columns
    ):
        return []
    return [largest_element(ctx, part) for part in node.inputs]


def _scalar(ctx: NodeContext, index: int) -> Expr | None:
    """The one element of a tensor, where it is followed."""
    value = ctx.scope.value(index)
    if value is None or len(value.items) != 1 or not isinstance(value.items[0], Expr):
        return None
    return value.items[0]


def _last_of_range(ctx: NodeContext, inputs: tuple[int, ...]) -> Expr | None:
    start, limit, delta = (_scalar(ctx, index) for index in inputs)
    step = None if delta is None else delta.as_int()
    if start is None or limit is None or step is None or step < 1:
        return None
    return start + (ceildiv(limit - start, step) - 1) * step
