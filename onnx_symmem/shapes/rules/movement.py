"""Ops that move elements without changing them: Transpose, Concat, Split, Squeeze, Tile, Pad ..."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from onnx_symmem.expr.expression import ONE, Expr, ceildiv
from onnx_symmem.shapes.context import DimLike, NodeContext, Unknown, Unresolved
from onnx_symmem.shapes.registry import rule
from onnx_symmem.shapes.table import Dims
from onnx_symmem.shapes.values import MAX_FOLLOWED, PartialValue, follows

__all__ = ["axes_input", "common_dim", "normal_axes", "split_sizes"]


def normal_axes(axes: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """Axes counted from the front, checked."""
    for axis in axes:
        if not -rank <= axis < rank:
            raise Unresolved(f"axis {axis} does not fit rank {rank}")
    return tuple(a + rank if a < 0 else a for a in axes)


def axes_input(ctx: NodeContext, k: int, name: str = "axes") -> tuple[int, ...] | None:
    """Axes from the attribute, or from input k; None where neither is given."""
    given = ctx.attr(name)
    if given is not None:
        return tuple(given) if isinstance(given, tuple) else (given,)
    if not ctx.has(k):
        return None
    axes = ctx.ints(k)
    if axes is None:
        raise Unresolved(f"the axes in '{ctx.input_name(k)}' are computed from data")
    return axes


@rule("Transpose")
def _transpose(ctx: NodeContext) -> None:
    dims = ctx.need(0)
    perm = ctx.attr("perm", tuple(range(len(dims) - 1, -1, -1)))
    if len(perm) != len(dims):
        raise Unresolved(f"perm has {len(perm)} axes, the input {len(dims)}")
    value = ctx.value(0)
    moved = None if value is None else PartialValue.of(value.array().transpose(perm))
    ctx.set(0, tuple(dims[p] for p in perm), value=moved)


@rule("Squeeze")
def _squeeze(ctx: NodeContext) -> None:
    dims = ctx.need(0)
    axes = axes_input(ctx, 1)
    if axes is None:
        for dim in dims:
            if dim != 1 and not ctx.at_least(dim, 2) and dim.as_int() is None:
                raise Unresolved(f"Squeeze without axes: whether {dim} is 1 is not known")
        gone = {k for k, dim in enumerate(dims) if dim == 1}
    else:
        gone = set(normal_axes(axes, len(dims)))
        for k in sorted(gone):
            ctx.same(ONE, dims[k], "a squeezed dim is 1")
    value = ctx.value(0)
    kept = tuple(dim for k, dim in enumerate(dims) if k not in gone)
    if value is not None:
        value = PartialValue(tuple(d for k, d in enumerate(value.dims) if k not in gone), value.items)
    ctx.set(0, kept, value=value)


@rule("Unsqueeze")
def _unsqueeze(ctx: NodeContext) -> None:
    dims = ctx.need(0)
    axes = axes_input(ctx, 1)
    if axes is None:
        raise Unresolved("Unsqueeze without axes")
    rank = len(dims) + len(axes)
    new = set(normal_axes(axes, rank))
    rest = iter(dims)
    result = tuple(ONE if k in new else next(rest) for k in range(rank))
    value = ctx.value(0)
    if value is not None:
        inner = iter(value.dims)
        value = PartialValue(tuple(1 if k in new else next(inner) for k in range(rank)), value.items)
    ctx.set(0, result, value=value)


@rule("Concat")
def _concat(ctx: NodeContext) -> None:
    shapes = [ctx.dims(k) for k in range(ctx.count)]
    known = [dims for dims in shapes if dims is not None]
    if not known:
        raise Unresolved("the rank of all inputs is unknown")
    rank = len(known[0])
    axis = ctx.axis(rank)
    result: list[DimLike] = []
    for k in range(rank):
        if k == axis:
            if len(known) < len(shapes):
                result.append(Unknown("the rank of an input is unknown"))
                continue
            total = known[0][k]
            for dims in known[1:]:
                total = total + dims[k]
            result.append(total)
            if len(known) > 1 and not total.is_const:
                ctx.relate("sum", (total,), tuple(dims[k] for dims in known))
        else:
            result.append(common_dim(ctx, known, k, len(known) == len(shapes)))
    ctx.set(0, result, value=_concat_value(ctx, axis))


def common_dim(ctx: NodeContext, shapes: list[Dims], k: int, complete: bool) -> DimLike:
    """A dim on which all parts of a Concat agree; ONNX Runtime does not look at those of empty parts."""
    reason = "Concat of dims besides the axis"
    first = shapes[0][k]
    if complete and all(dims[k] == first for dims in shapes):
        return first
    filled = [dims for dims in shapes if all(ctx.at_least(dim, 1) for dim in dims)]
    if not filled:
        return Unknown("the parts may be empty, and then need not agree")
    common = filled[0][k]
    for dims in shapes:
        if dims in filled:
            common = ctx.same(common, dims[k], reason)
        elif dims[k] != common:
            ctx.scope.assume(ctx, common, dims[k], f"{reason}, unless empty")
    return common


def _concat_value(ctx: NodeContext, axis: int) -> PartialValue | None:
    """Contents of a Concat; a part that is not followed but has a known size counts as unknown items."""
    if not follows(ctx.elem(0)):
        return None
    parts: list[np.ndarray] = []
    size, any_known = 0, False
    for k in range(ctx.count):
        dims = ctx.dims(k)
        if dims is None:
            return None
        fixed = tuple(d.as_int() for d in dims)
        if None in fixed:
            return None
        shape = tuple(d or 0 for d in fixed)
        size += prod(shape)
        if size > MAX_FOLLOWED:
            return None
        value = ctx.value(k)
        any_known = any_known or value is not None
        parts.append(np.full(shape, None, dtype=object) if value is None else value.array())
    return PartialValue.of(np.concatenate(parts, axis=axis)) if any_known else None


def split_sizes(ctx: NodeContext, dim: Expr, count: int) -> Sequence[DimLike]:
    """Sizes of the parts of a Split: as given, or equal, the last one smaller."""
    given = ctx.attr("split")
    if given is not None:
        if len(given) == count:
            ctx.same(dim, Expr.const(sum(given)), "Split takes all of an axis")
        return list(given)
    if ctx.has(1):
        parts = [ctx.item(1, k) for k in range(count)]
        known = [part for part in parts if isinstance(part, Expr)]
        if len(known) == count:
            ctx.same(dim, sum(known, start=Expr.const(0)), "Split takes all of an axis")
        return parts
    if "num_outputs" in ctx.node.attributes:
        part = ctx.simplify(ceildiv(dim, count))
        last = dim - part * (count - 1)
        ctx.limit(dim - count, "every part of a Split has an element")
        ctx.limit(last - 1, "every part of a Split has an element")
        return [part] * (count - 1) + [ctx.simplify(last)]
    part = dim // count
    ctx.same(dim, part * count, "Split into equal parts")
    return [ctx.simplify(part)] * count


@rule("Split")
def _split(ctx: NodeContext) -> None:
    dims = ctx.need(0)
    axis = ctx.axis(len(dims))
    sizes = split_sizes(ctx, dims[axis], ctx.results)
    value = ctx.value(0)
    start: int | None = 0
    for k, size in enumerate(sizes[: ctx.results]):
        part = None
        length = size if isinstance(size, int) else size.as_int() if isinstance(size, Expr) else None
        if value is not None and start is not None and length is not None:
            cut = [slice(None)] * len(dims)
            cut[axis] = slice(start, start + length)
            part = PartialValue.of(value.array()[tuple(cut)])
        start = None if start is None or length is None else start + length
        ctx.set(k, (*dims[:axis], size, *dims[axis + 1 :]), value=part)


@rule("Tile")
def _tile(ctx: NodeContext) -> None:
    dims = ctx.need(0)
    result: list[DimLike] = []
    for k, dim in enumerate(dims):
        times = ctx.item(1, k)
        if isinstance(times, Unknown):
            result.append(times if dim == 1 else Unknown(times.reason))
        elif ctx.at_least(-Expr.lift(times), 1):
            result.append(Unknown("a repeat is negative: the node cannot run"))
        else:
            result.append(dim * times)
    value, repeats = ctx.value(0), ctx.ints(1)
    if value is not None and repeats is not None and len(value.items) * prod(repeats) <= MAX_FOLLOWED:
        ctx.set(0, result, value=PartialValue.of(np.tile(value.array(), repeats)))
    else:
        ctx.set(0, result)


@rule("Pad")
def _pad(ctx: NodeContext) -> None:
    dims = ctx.need(0)
    rank = len(dims)
    attribute = ctx.attr("pads", ctx.attr("paddings"))
    axes: tuple[int, ...] | None = None
    if attribute is None and ctx.has(3):
        axes = ctx.ints(3)
        if axes is None:
            ctx.set(0, [Unknown(f"the axes in '{ctx.input_name(3)}' are computed from data")] * rank)
            return
    padded = normal_axes(axes, rank) if axes is not None else tuple(range(rank))
    pads: tuple[Expr | None, ...] | None
    pads = tuple(map(Expr.const, attribute)) if attribute is not None else ctx.exprs(1)
    result: list[DimLike] = list(dims)
    for k, axis in enumerate(padded):
        before = pads[k] if pads is not None else None
        after = pads[k + len(padded)] if pads is not None else None
        if before is None or after is None:
            result[axis] = Unknown(f"the contents of '{ctx.input_name(1)}' are computed from data")
        else:
            result[axis] = ctx.simplify(dims[axis] + before + after)
            _limit_pads(ctx, dims, axis, before, after)
    ctx.set(0, result)


def _limit_pads(ctx: NodeContext, dims: Dims, axis: int, before: Expr, after: Expr) -> None:
    """Where elements are taken from the tensor, it has them; ONNX Runtime looks only if it has any at all."""
    mode = ctx.attr("mode", "constant")
    if mode == "constant" or not all(ctx.at_least(dim, 1) for dim in dims):
        return
    ends = [end for end in (before, after) if not end.is_const or end != 0]
    cut = sum((end for end in ends if ctx.at_least(-end, 1)), start=Expr.const(0))
    if all(ctx.at_least(end, 1) or ctx.at_least(-end, 1) for end in ends):
        ctx.limit(dims[axis] + cut - 1, "padding takes elements that are there")
    if mode == "reflect":
        for end in ends:
            if ctx.at_least(end, 1):
                ctx.limit(dims[axis] + cut - 1 - end, "padding reflects elements that are there")


def _blocks(ctx: NodeContext) -> tuple[Dims, int]:
    dims = ctx.need(0)
    if len(dims) != 4:
        raise Unresolved(f"expected rank 4, found {len(dims)}")
    return dims, int(ctx.attr("blocksize", 1))


@rule("DepthToSpace")
def _depth_to_space(ctx: NodeContext) -> None:
    (n, c, h, w), block = _blocks(ctx)
    depth = block * block
    ctx.same(c, c // depth * depth, "DepthToSpace takes whole blocks of channels")
    ctx.set(0, (n, ctx.simplify(c // depth), h * block, w * block))


@rule("SpaceToDepth")
def _space_to_depth(ctx: NodeContext) -> None:
    (n, c, h, w), block = _blocks(ctx)
    for dim in (h, w):
        ctx.same(dim, dim // block * block, "SpaceToDepth cuts whole blocks")
    ctx.set(0, (n, c * (block * block), ctx.simplify(h // block), ctx.simplify(w // block)))


@rule("CenterCropPad")
def _center_crop_pad(ctx: NodeContext) -> None:
    dims = ctx.need(0)
    axes = ctx.attr("axes")
    result: list[DimLike] = list(dims)
    for k, axis in enumerate(range(len(dims)) if axes is None else normal_axes(axes, len(dims))):
        result[axis] = ctx.item(1, k)
    ctx.set(0, result)
