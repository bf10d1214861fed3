"""Reductions over axes: Reduce*, ArgMax, ArgMin; integer contents are reduced as well."""

from __future__ import annotations

from math import prod

import numpy as np

from onnx_symmem.expr.expression import ONE, Expr
from onnx_symmem.shapes.arithmetic import BINARY
from onnx_symmem.shapes.context import DimLike, NodeContext, Unknown, Unresolved
from onnx_symmem.shapes.registry import rule
from onnx_symmem.shapes.rules.movement import axes_input, normal_axes
from onnx_symmem.shapes.values import Item, PartialValue

__all__: list[str] = []

_FOLDS = {"ReduceSum": "Add", "ReduceProd": "Mul", "ReduceMax": "Max", "ReduceMin": "Min"}


@rule(*(
    f"Reduce{kind}"
    for kind in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
))  # fmt: skip
def _reduce(ctx: NodeContext) -> None:
    keep = bool(ctx.attr("keepdims", 1))
    dims = ctx.need(0)
    try:
        axes = axes_input(ctx, 1)
    except Unresolved as reason:
        _unknown_axes(ctx, keep, str(reason))
        return
    if not axes:
        if ctx.attr("noop_with_empty_axes", 0):
            ctx.set(0, dims, value=ctx.value(0))
            return
        axes = tuple(range(len(dims)))
    reduced = set(normal_axes(axes, len(dims)))
    if keep:
        result = tuple(ONE if k in reduced else dim for k, dim in enumerate(dims))
    else:
        result = tuple(dim for k, dim in enumerate(dims) if k not in reduced)
    ctx.set(0, result, value=_value(ctx, tuple(sorted(reduced)), keep))


def _unknown_axes(ctx: NodeContext, keep: bool, reason: str) -> None:
    """Axes that depend on data: with keepdims each dim stays or becomes 1, else the rank is lost as well."""
    dims = ctx.need(0)
    given = ctx.dims(1)
    count = given[0].as_int() if given is not None and len(given) == 1 else None
    if keep:
        result: list[DimLike] = [dim if dim == 1 else Unknown(reason, dim, 1) for dim in dims]
    elif count is not None and 0 < count <= len(dims):
        result = [Unknown(reason)] * (len(dims) - count)
    else:
        raise Unresolved(reason)
    ctx.set(0, result)


def _value(ctx: NodeContext, axes: tuple[int, ...], keep: bool) -> PartialValue | None:
    value = ctx.value(0)
    function = BINARY.get(_FOLDS.get(ctx.node.op, ""))
    if value is None or function is None or not value.items:
        return None
    facts, elem = ctx.facts, ctx.elem(0)
    kept = [k for k in range(len(value.dims)) if k not in axes]
    rows = value.array().transpose((*kept, *axes)).reshape((-1, prod(value.dims[a] for a in axes)))
    if rows.size == 0:
        return None
    items: list[Item] = []
    for row in rows:
        total = row[0]
        for item in row[1:]:
            total = function(facts, elem, total, item)
        items.append(total)
    shape = tuple(1 if k in axes else d for k, d in enumerate(value.dims) if keep or k not in axes)
    return PartialValue(shape, tuple(items))


@rule("ArgMax", "ArgMin")
def _arg(ctx: NodeContext) -> None:
    dims = ctx.need(0)
    axis = ctx.axis(len(dims))
    middle = (ONE,) if ctx.attr("keepdims", 1) else ()
    result = (*dims[:axis], *middle, *dims[axis + 1 :])
    value = ctx.value(0)
    fixed = value.items if value is not None and len(value.dims) == 1 else ()
    numbers = [item.as_int() if isinstance(item, Expr) else None for item in fixed]
    if numbers and None not in numbers and not ctx.attr("select_last_index", 0):
        pick = np.argmax if ctx.node.op == "ArgMax" else np.argmin
        found = Expr.const(int(pick([n or 0 for n in numbers])))
        ctx.set(0, result, value=PartialValue((1,) * len(middle), (found,)))
    else:
        ctx.set(0, result)
