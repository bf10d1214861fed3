"""Reductions over axes: Reduce*, ArgMax, ArgMin; integer contents are reduced as well."""

from __future__ import annotations

from math import prod

import numpy as np

from onnx_symmem.expr.expression import ONE, Expr, minimum
from onnx_symmem.shapes.arithmetic import BINARY
from onnx_symmem.shapes.context import DimLike, NodeContext, Unknown, Unresolved
from onnx_symmem.shapes.registry import rule
from onnx_symmem.shapes.rules.movement import axes_input, normal_axes
from onnx_symmem.shapes.table import Dims
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
            ctx.set(0, dims, value=ctx.value(0) if ctx.node.op in _FOLDS else None)
            return
        axes = tuple(range(len(dims)))
    reduced, result = _reduced(ctx, dims, axes, keep)
    ctx.set(0, result, value=_value(ctx, reduced, keep))


def _reduced(
    ctx: NodeContext, dims: Dims, axes: tuple[int, ...], keep: bool
) -> tuple[tuple[int, ...], tuple[Expr, ...]]:
    """(axes that are reduced, counted from the front; dims of the output).

    ONNX Runtime leaves the negative axes of an empty tensor as they are, so that even the rank is another
    one; with keepdims that is an expression of the dims, without, the tensor is taken not to be empty.
    """
    normal = normal_axes(axes, len(dims))
    always = {axis for axis in axes if axis >= 0}
    sometimes = set(normal) - always
    filled = ONE
    for dim in dims if sometimes else ():
        if not ctx.at_least(dim, 1):
            filled = filled * minimum(1, dim)
    filled = ctx.simplify(filled)
    if filled == 0:
        sometimes = set()
    elif filled == 1 or not keep:
        if filled != 1:
            ctx.scope.assume(ctx, filled, ONE, "negative axes of an empty tensor are not reduced", "nonempty")
        always, sometimes = always | sometimes, set()
    result = []
    for k, dim in enumerate(dims):
        if k in sometimes:
            result.append(ctx.simplify(filled + (1 - filled) * dim))
        elif k not in always:
            result.append(dim)
        elif keep:
            result.append(ONE)
    return tuple(sorted(always | sometimes)), tuple(result)


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
    keep = bool(ctx.attr("keepdims", 1))
    _, result = _reduced(ctx, dims, (int(ctx.attr("axis", 0)),), keep)
    value = ctx.value(0)
    fixed = value.items if value is not None and len(value.dims) == 1 else ()
    numbers = [item.as_int() if isinstance(item, Expr) else None for item in fixed]
    if numbers and None not in numbers and not ctx.attr("select_last_index", 0):
        pick = np.argmax if ctx.node.op == "ArgMax" else np.argmin
        found = Expr.const(int(pick([n or 0 for n in numbers])))
        ctx.set(0, result, value=PartialValue((1,) * keep, (found,)))
    else:
        ctx.set(0, result)
