"""Ops of com.microsoft.nchwc: convolutions over blocks of channels, made by ONNX Runtime at level `all`.

Blocks have 8 or 16 channels, as the processor that saved the file likes it, and channels are padded to whole
blocks. The file does not say which; weights are stored padded, so that convolutions give it away, and a
multiple of 16 needs no pad. What is left is a bounded unknown.
"""

from __future__ import annotations

from onnx_symmem.expr.expression import ONE, ceildiv
from onnx_symmem.shapes.context import DimLike, NodeContext, Unknown, Unresolved
from onnx_symmem.shapes.registry import NCHWC, rule
from onnx_symmem.shapes.rules.conv import Window, conv_dims
from onnx_symmem.shapes.rules.pool import pool_spatial

__all__: list[str] = []

BLOCK = 16  # the largest; the other one, 8, divides it


@rule("ReorderInput", domain=NCHWC)
def _reorder_input(ctx: NodeContext) -> None:
    dims = ctx.need(0)
    last = bool(ctx.attr("channels_last", 0))
    channels = dims[-1] if last else dims[1]
    spatial = dims[1:-1] if last else dims[2:]
    padded: DimLike = channels
    if ctx.simplify(channels - channels // BLOCK * BLOCK) != 0:
        reason = "channels are padded to whole blocks, whose size depends on the processor"
        most = ctx.simplify(ceildiv(channels, BLOCK) * BLOCK)
        least = ctx.facts.bounds(channels)[0] or 0
        padded = Unknown(reason, most, max(least, 0), ("blocks", channels))
    ctx.set(0, (dims[0], padded, *spatial), ctx.elem(0))


@rule("ReorderOutput", domain=NCHWC)
def _reorder_output(ctx: NodeContext) -> None:
    dims = ctx.need(0)
    channels = ctx.attr("channels")
    if channels is None:
        raise Unresolved("the number of channels is missing")
    last = bool(ctx.attr("channels_last", 0))
    ctx.set(0, (dims[0], *dims[2:], channels) if last else (dims[0], channels, *dims[2:]), ctx.elem(0))


@rule("Conv", domain=NCHWC)
def _conv(ctx: NodeContext) -> None:
    ctx.set(0, conv_dims(ctx, ctx.need(0), ctx.need(1)), ctx.elem(0))


@rule("MaxPool", "AveragePool", domain=NCHWC)
def _pool(ctx: NodeContext) -> None:
    dims = ctx.need(0)
    ctx.set(
        0, (*dims[:2], *pool_spatial(ctx, dims[2:], Window(ctx, ctx.attr("kernel_shape", ())))), ctx.elem(0)
    )


@rule("GlobalMaxPool", "GlobalAveragePool", domain=NCHWC)
def _global_pool(ctx: NodeContext) -> None:
    dims = ctx.need(0)
    ctx.set(0, (*dims[:2], *((ONE,) * (len(dims) - 2))), ctx.elem(0))


@rule("Upsample", domain=NCHWC)
def _upsample(ctx: NodeContext) -> None:
    dims, scales = ctx.need(0), ctx.attr("scales")
    if scales is None or len(scales) != len(dims):
        raise Unresolved("the scales are missing")
    ctx.set(0, [dim * int(scale) for dim, scale in zip(dims, scales, strict=True)], ctx.elem(0))
