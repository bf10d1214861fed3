"""Pooling: windows over an input, their number rounded down, or up with ceil_mode.

    floor   (in + pads - span) // stride + 1
    ceil    ceil((in + pads - span) / stride) + 1, minus 1 where the last window would start behind the
            input and its pad at the front

The second is the smaller of two floor divisions of the same size, so it is one of them: the one with the
smaller constant. A window may be larger than its input: ONNX Runtime divides towards zero, so the floor is
then one less than what it makes, and refuses only what comes out negative (room <= -2*stride).
"""

from __future__ import annotations

from onnx_symmem.expr.expression import ONE, Expr, ceildiv, maximum, minimum
from onnx_symmem.shapes.context import DimLike, NodeContext, Unresolved
from onnx_symmem.shapes.extrema import as_alternatives, through_extrema
from onnx_symmem.shapes.registry import rule
from onnx_symmem.shapes.rules.conv import Window
from onnx_symmem.shapes.table import Dims

__all__ = ["pool_spatial"]


def pool_spatial(ctx: NodeContext, spatial: Dims, window: Window) -> list[DimLike]:
    """Number of windows along each spatial axis."""
    if len(window.kernel) != len(spatial):
        raise Unresolved(f"kernel of rank {len(window.kernel)} on {len(spatial)} spatial axes")
    return [_windows(ctx, size, window, k) for k, size in enumerate(spatial)]


def _windows(ctx: NodeContext, size: Expr, window: Window, k: int) -> Expr:
    stride, span = window.strides[k], window.span(k)
    if window.same:
        # ONNX Runtime pads for the kernel without its dilation.
        room = (ceildiv(size, stride) - 1) * stride + window.kernel[k] - span
        return ctx.simplify((room // stride if ctx.at_least(room, 0) else _towards_zero(room, stride)) + 1)
    room = size + window.pad(k) - span
    ctx.limit(room + 2 * stride - 1, "the number of pooling windows is not negative")
    if ctx.attr("ceil_mode", 0):
        # What is added to the size is the same for all sizes.
        added = window.pad(k) - span + 2 * stride - 1
        start = Expr.const(window.pads[k] + stride - 1)
        added = added if ctx.at_least(start - added, 0) else start
        return _not_negative(ctx, through_extrema(size + added, lambda n: ctx.simplify(n // stride)))
    every = ctx.at_least(room, 0)

    def windows(room: Expr) -> Expr:
        """One where it is too large by less than the stride, none by less than two strides."""
        count = ctx.simplify(room // stride + 1)
        if stride == 1 or every or ctx.at_least(room, 0):
            return count
        one = 1 if ctx.at_least(room, 1 - stride) else minimum(1, (room + 2 * stride - 1) // stride)
        return ctx.simplify(maximum(count, one))

    # Pool after pool: max(1, x//4), not max(1, max(1, x//2)//2).
    return _not_negative(ctx, through_extrema(room, windows))


def _not_negative(ctx: NodeContext, windows: Expr) -> Expr:
    """The number itself, at least 0 where no limit says so."""
    if not ctx.at_least(windows, 0):
        windows = maximum(0, windows)
    return ctx.simplify(as_alternatives(windows, lambda size: ctx.at_least(size, 0)))


def _towards_zero(room: Expr, stride: int) -> Expr:
    """room / stride as ONNX Runtime's integers divide."""
    return maximum(0, room) // stride - maximum(0, -room) // stride


def _image(ctx: NodeContext) -> Dims:
    """Dims of the input. ONNX Runtime refuses images without elements, unless there is no image at all."""
    dims = ctx.need(0)
    if dims and ctx.at_least(dims[0], 1):
        for dim in dims[1:]:
            ctx.limit(dim - 1, "a pool takes no empty image")
    return dims


@rule("MaxPool", "AveragePool", "LpPool")
def _pool(ctx: NodeContext) -> None:
    dims = _image(ctx)
    window = Window(ctx, ctx.attr("kernel_shape", ()))
    result = (*dims[:2], *pool_spatial(ctx, dims[2:], window))
    ctx.set(0, result)
    ctx.set(1, result)


@rule("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def _global_pool(ctx: NodeContext) -> None:
    dims = _image(ctx)
    ctx.set(0, (*dims[:2], *((ONE,) * (len(dims) - 2))))


@rule("MaxUnpool")
def _max_unpool(ctx: NodeContext) -> None:
    dims = ctx.need(0)
    if ctx.has(2):
        ctx.set(0, [ctx.item(2, k) for k in range(len(dims))])
        return
    window = Window(ctx, ctx.attr("kernel_shape", ()))
    spatial = [
        (size - 1) * window.strides[k] + window.kernel[k] - window.pad(k) for k, size in enumerate(dims[2:])
    ]
    ctx.set(0, (*dims[:2], *spatial))


@rule("MaxRoiPool")
def _max_roi_pool(ctx: NodeContext) -> None:
    ctx.set(0, (ctx.need(1)[0], ctx.need(0)[1], *ctx.attr("pooled_shape", ())))


@rule("RoiAlign")
def _roi_align(ctx: NodeContext) -> None:
    rois = (
        ctx.same(ctx.need(1)[0], ctx.need(2)[0], "one batch index per region")
        if ctx.dims(2)
        else ctx.need(1)[0]
    )
    ctx.set(0, (rois, ctx.need(0)[1], ctx.attr("output_height", 1), ctx.attr("output_width", 1)))
