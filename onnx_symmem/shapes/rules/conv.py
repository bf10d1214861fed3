"""Convolutions: Conv, ConvTranspose, ConvInteger, QLinearConv, DeformConv and their window arithmetic.

Conv            (in + pads - span) // stride + 1,  span = dilation*(kernel - 1) + 1
SAME_*          ceil(in / stride)
ConvTranspose   stride*(in - 1) + output_padding + span - pads
SAME_*          stride*in (what an odd stride cannot pad away stays)
"""

from __future__ import annotations

from collections.abc import Sequence

from onnx_symmem.expr.expression import Expr, ceildiv, minimum
from onnx_symmem.shapes.context import DimLike, NodeContext, Unresolved
from onnx_symmem.shapes.registry import rule
from onnx_symmem.shapes.table import Dims

__all__ = ["Window", "conv_dims", "window_of"]


class Window:
    """Kernel sizes, strides, dilations and pads of a node over its spatial axes."""

    __slots__ = ("auto_pad", "dilations", "kernel", "pads", "strides")

    def __init__(self, ctx: NodeContext, kernel: Sequence[Expr | int]) -> None:
        rank = len(kernel)
        self.kernel = tuple(map(Expr.lift, kernel))
        self.strides: tuple[int, ...] = tuple(ctx.attr("strides", ())) or (1,) * rank
        self.dilations: tuple[int, ...] = tuple(ctx.attr("dilations", ())) or (1,) * rank
        self.pads: tuple[int, ...] = tuple(ctx.attr("pads", ())) or (0,) * (2 * rank)
        self.auto_pad: str = ctx.attr("auto_pad", "NOTSET") or "NOTSET"
        if self.auto_pad != "NOTSET":
            self.pads = (0,) * (2 * rank)
        if not len(self.strides) == len(self.dilations) == rank or len(self.pads) != 2 * rank:
            raise Unresolved("strides, dilations, pads and kernel do not have the same rank")

    @property
    def same(self) -> bool:
        """Whether pads are chosen so that only the stride shrinks the input."""
        return self.auto_pad.startswith("SAME")

    def span(self, axis: int) -> Expr:
        """Extent of the dilated kernel."""
        return (self.kernel[axis] - 1) * self.dilations[axis] + 1

    def pad(self, axis: int) -> int:
        """Pads at both ends of an axis together."""
        return self.pads[axis] + self.pads[axis + len(self.kernel)]


def window_of(ctx: NodeContext, weights: Dims) -> Window:
    """The window of a convolution: its attribute, else the dims of the weights."""
    given = ctx.attr("kernel_shape")
    if given and len(given) == len(weights) - 2:
        for size, dim in zip(given, weights[2:], strict=True):
            ctx.same(Expr.const(size), dim, "the kernel has the size of its weights")
    return Window(ctx, tuple(given) if given else weights[2:])


def conv_dims(ctx: NodeContext, dims: Dims, weights: Dims) -> tuple[DimLike, ...]:
    """[N, M, out...] of a convolution in NCHW layout."""
    if len(dims) != len(weights) or len(dims) < 3:
        raise Unresolved(f"input of rank {len(dims)}, weights of rank {len(weights)}")
    window = window_of(ctx, weights)
    if len(window.kernel) != len(dims) - 2:
        raise Unresolved(f"kernel of rank {len(window.kernel)} on an input of rank {len(dims)}")
    ctx.same(dims[1], weights[1] * int(ctx.attr("group", 1)), "input channels of a convolution")
    return (dims[0], weights[0], *conv_spatial(ctx, dims[2:], window))


def conv_spatial(ctx: NodeContext, spatial: Dims, window: Window) -> list[DimLike]:
    """Output sizes of a convolution along its spatial axes."""
    result: list[DimLike] = []
    for k, size in enumerate(spatial):
        stride = window.strides[k]
        if window.same:
            result.append(ctx.simplify(ceildiv(size, stride)))
            continue
        room = size + window.pad(k) - window.span(k)
        ctx.limit(room, "the kernel fits into the padded input")
        result.append(ctx.simplify(room // stride + 1))
    return result


@rule("Conv", "ConvInteger")
def _conv(ctx: NodeContext) -> None:
    ctx.set(0, conv_dims(ctx, ctx.need(0), ctx.need(1)))


@rule("QLinearConv")
def _qlinear_conv(ctx: NodeContext) -> None:
    ctx.set(0, conv_dims(ctx, ctx.need(0), ctx.need(3)), ctx.elem(7) or None)


@rule("DeformConv")
def _deform_conv(ctx: NodeContext) -> None:
    ctx.set(0, conv_dims(ctx, ctx.need(0), ctx.need(1)))


@rule("ConvTranspose")
def _conv_transpose(ctx: NodeContext) -> None:
    dims, weights = ctx.need(0), ctx.need(1)
    if len(dims) != len(weights) or len(dims) < 3:
        raise Unresolved(f"input of rank {len(dims)}, weights of rank {len(weights)}")
    ctx.same(dims[1], weights[0], "input channels of a transposed convolution")
    ctx.set(0, (dims[0], weights[1] * int(ctx.attr("group", 1)), *transposed_spatial(ctx, dims[2:], weights)))


def transposed_spatial(ctx: NodeContext, spatial: Dims, weights: Dims) -> list[DimLike]:
    """Output sizes of a transposed convolution along its spatial axes."""
    window = window_of(ctx, weights)
    given = ctx.attr("output_shape", ())
    if given:
        return list(given[-len(spatial) :])
    extra = tuple(ctx.attr("output_padding", ())) or (0,) * len(spatial)
    result: list[DimLike] = []
    for k, size in enumerate(spatial):
        stride = window.strides[k]
        reach = window.span(k) + extra[k]
        whole = (size - 1) * stride + reach - window.pad(k)
        result.append(ctx.simplify(minimum(size * stride, whole)) if window.same else whole)
    return result
