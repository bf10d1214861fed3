"""Slice with constant or symbolic starts, ends and steps.

Along an axis of size d, a bound b means b + d where it is negative; both bounds are then clamped, and
the size is the number of steps between them:

    step > 0:  start, end clamped to [0, d];          max(0, ceil((end - start) / step))
    step < 0:  start to [0, d-1], end to [-1, d-1];   max(0, ceil((start - end) / -step))

Where the sign of a bound depends on the shape (x[-n:] with n = 0), b + d*[b < 0] states it exactly.
"""

from __future__ import annotations

from onnx_symmem.expr.expression import ZERO, Expr, ceildiv, maximum, minimum
from onnx_symmem.shapes.arithmetic import truth
from onnx_symmem.shapes.context import DimLike, NodeContext, Unknown, Unresolved
from onnx_symmem.shapes.registry import rule
from onnx_symmem.shapes.rules.movement import normal_axes
from onnx_symmem.shapes.values import PartialValue

__all__: list[str] = []

ENDLESS = 2**31 - 1  # bounds from here on mean "to the end"; no dim is that large


@rule("Slice", "DynamicSlice")
def _slice(ctx: NodeContext) -> None:
    dims = ctx.need(0)
    starts, ends, axes, steps = _arguments(ctx)
    if starts is None or ends is None:
        raise Unresolved("the number of sliced axes is unknown")
    if axes is None:
        axes = tuple(range(len(starts)))
    axes = normal_axes(axes, len(dims))
    result: list[DimLike] = list(dims)
    cuts: list[slice | None] = [slice(None)] * len(dims)
    for k, axis in enumerate(axes):
        start, end = starts[k], ends[k]
        step = Expr.const(1) if steps is None else steps[k]
        dim = dims[axis]
        result[axis] = _size(ctx, dim, start, end, step)
        cuts[axis] = _cut(start, end, step)
    value = ctx.value(0)
    if value is not None and None not in cuts:
        ctx.set(0, result, value=PartialValue.of(value.array()[tuple(c for c in cuts if c is not None)]))
    else:
        ctx.set(0, result)


Bounds = tuple[Expr | None, ...] | None


def _arguments(ctx: NodeContext) -> tuple[Bounds, Bounds, tuple[int, ...] | None, Bounds]:
    if "starts" in ctx.node.attributes:
        first, last = ctx.attr("starts"), ctx.attr("ends")
        return tuple(map(Expr.const, first)), tuple(map(Expr.const, last)), ctx.attr("axes"), None
    starts, ends = _bounds(ctx, 1), _bounds(ctx, 2)
    axes = ctx.ints(3) if ctx.has(3) else None
    if ctx.has(3) and axes is None:
        rank = len(ctx.need(0))
        ctx.set(
            0, [Unknown(f"the axes in '{ctx.input_name(3)}' are computed from data", d) for d in ctx.need(0)]
        )
        raise Unresolved(f"the sliced axes of rank {rank} are unknown")
    return starts, ends, axes, _bounds(ctx, 4) if ctx.has(4) else None


def _bounds(ctx: NodeContext, k: int) -> Bounds:
    found = ctx.exprs(k)
    if found is None:
        dims = ctx.dims(k)
        length = dims[0].as_int() if dims is not None and len(dims) == 1 else None
        return None if length is None else (None,) * length
    return found


def _cut(start: Expr | None, end: Expr | None, step: Expr | None) -> slice | None:
    if start is None or end is None or step is None:
        return None
    s, e, t = start.as_int(), end.as_int(), step.as_int()
    return None if s is None or e is None or not t else slice(s, e if t > 0 or e > -ENDLESS else None, t)


def _from_front(ctx: NodeContext, bound: Expr, dim: Expr) -> Expr:
    """The bound counted from the front, not yet clamped."""
    value = bound.as_int()
    if value is not None:
        return bound if value >= 0 else bound + dim
    if ctx.at_least(bound, 0):
        return bound
    if ctx.at_least(-bound, 1):
        return bound + dim
    return bound + dim * truth(ctx.facts, -bound)


def _clamp(ctx: NodeContext, bound: Expr, lo: Expr | int, hi: Expr) -> Expr:
    return ctx.simplify(minimum(ctx.simplify(maximum(bound, lo)), hi))


def _size(ctx: NodeContext, dim: Expr, start: Expr | None, end: Expr | None, step: Expr | None) -> DimLike:
    unknown = Unknown("the bounds of the Slice are computed from data", dim)
    if start is None or end is None or step is None:
        return unknown
    stride, first, last = step.as_int(), start.as_int(), end.as_int()
    if stride is None or stride == 0:
        return unknown
    if stride > 0:
        if first is not None and first <= -ENDLESS:
            first, start = 0, ZERO
        whole = last is not None and last >= ENDLESS
        low = ZERO if first == 0 else _clamp(ctx, _from_front(ctx, start, dim), 0, dim)
        high = dim if whole else _clamp(ctx, _from_front(ctx, end, dim), 0, dim)
        return ctx.simplify(maximum(0, ceildiv(high - low, stride)))
    high = dim - 1
    if first is None or first < ENDLESS:
        high = _clamp(ctx, _from_front(ctx, start, dim), 0, dim - 1)
    low = Expr.const(-1)
    if last is None or last > -ENDLESS:
        low = _clamp(ctx, _from_front(ctx, end, dim), -1, dim - 1)
    return ctx.simplify(maximum(0, ceildiv(high - low, -stride)))
