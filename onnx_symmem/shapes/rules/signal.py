"""Signal processing: Fourier transforms, windows, mel filter banks."""

from __future__ import annotations

from onnx import TensorProto

from onnx_symmem.expr.expression import Expr
from onnx_symmem.shapes.context import DimLike, NodeContext, Unknown, Unresolved
from onnx_symmem.shapes.registry import MICROSOFT, rule

__all__: list[str] = []


def _half(ctx: NodeContext, size: DimLike) -> DimLike:
    """Number of non-redundant frequencies of a real signal."""
    if isinstance(size, Unknown):
        return Unknown(size.reason)
    return ctx.simplify(Expr.lift(size) // 2 + 1)


@rule("DFT")
def _dft(ctx: NodeContext) -> None:
    dims = ctx.need(0)
    rank = len(dims)
    axis = int(ctx.attr("axis", 1)) if ctx.version < 20 else -2
    if ctx.version >= 20 and ctx.has(2):
        given = ctx.ints(2)
        if given is None:
            raise Unresolved("the axis of the DFT is computed from data")
        axis = given[0]
    axis = axis + rank if axis < 0 else axis
    onesided, inverse = bool(ctx.attr("onesided", 0)), bool(ctx.attr("inverse", 0))
    size: DimLike
    if ctx.has(1):
        size = ctx.item(1, 0)
    else:
        size = (dims[axis] - 1) * 2 if onesided and inverse else dims[axis]
    result: list[DimLike] = list(dims)
    result[axis] = _half(ctx, size) if onesided and not inverse else size
    result[-1] = 1 if onesided and inverse else 2
    ctx.set(0, result)


@rule("STFT")
def _stft(ctx: NodeContext) -> None:
    signal, window = ctx.need(0), ctx.dims(2)
    step = ctx.item(1, 0)
    length: DimLike = signal[1]
    if ctx.has(3):
        length = ctx.item(3, 0)
    elif window is not None:
        length = window[0]
    frames: DimLike = Unknown("the frames are computed from data", signal[1])
    if isinstance(step, Expr) and isinstance(length, Expr):
        frames = ctx.simplify((signal[1] - length) // step + 1)
    ctx.set(0, (signal[0], frames, _half(ctx, length) if ctx.attr("onesided", 1) else length, 2))


@rule("HannWindow", "HammingWindow", "BlackmanWindow")
def _window(ctx: NodeContext) -> None:
    ctx.set(0, (ctx.item(0, 0),), int(ctx.attr("output_datatype", TensorProto.FLOAT)))


@rule("MelWeightMatrix")
def _mel(ctx: NodeContext) -> None:
    elem = int(ctx.attr("output_datatype", TensorProto.FLOAT))
    ctx.set(0, (_half(ctx, ctx.item(1, 0)), ctx.item(0, 0)), elem)


@rule("Rfft", domain=MICROSOFT)
def _rfft(ctx: NodeContext) -> None:
    dims = ctx.need(0)
    ctx.set(0, (*dims[:-1], _half(ctx, dims[-1]) if ctx.attr("onesided", 1) else dims[-1], 2))


@rule("Irfft", domain=MICROSOFT)
def _irfft(ctx: NodeContext) -> None:
    dims = ctx.need(0)
    size = (dims[-2] - 1) * 2 if ctx.attr("onesided", 1) else dims[-2]
    ctx.set(0, (*dims[:-2], size))
