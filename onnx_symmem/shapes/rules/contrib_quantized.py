"""Quantised ops of com.microsoft: integer products, QLinear*, channels-last convolution."""

from __future__ import annotations

from onnx import TensorProto

from onnx_symmem.expr.expression import ONE, ZERO, Expr
from onnx_symmem.shapes.context import DimLike, NodeContext, Unknown, Unresolved
from onnx_symmem.shapes.registry import MICROSOFT, rule
from onnx_symmem.shapes.rules.conv import Window, conv_dims, conv_spatial, window_of
from onnx_symmem.shapes.rules.matmul import matmul_dims
from onnx_symmem.shapes.rules.movement import axes_input, normal_axes
from onnx_symmem.shapes.rules.pool import pool_spatial
from onnx_symmem.shapes.rules.shape_arithmetic import sizes_from_input
from onnx_symmem.shapes.table import Dims

__all__: list[str] = []


# -- products ----------------------------------------------------------------------------------------
@rule("DynamicQuantizeMatMul", "MatMulIntegerToFloat", "MatMulInteger16", domain=MICROSOFT)
def _integer_matmul(ctx: NodeContext) -> None:
    kinds = {"MatMulInteger16": int(TensorProto.INT32), "MatMulIntegerToFloat": ctx.elem(2)}
    ctx.set(0, matmul_dims(ctx, ctx.need(0), ctx.need(1)), kinds.get(ctx.node.op, ctx.elem(0)))


@rule("MatMulNBits", "MatMulBnb4", domain=MICROSOFT)
def _block_matmul(ctx: NodeContext) -> None:
    dims = ctx.need(0)
    rows, columns = int(ctx.attr("K")), int(ctx.attr("N"))
    if ctx.node.op == "MatMulBnb4" and not ctx.attr("transB", 1):
        rows, columns = columns, rows
    ctx.same(dims[-1], Expr.const(rows), "inner dims of a matrix product")
    ctx.set(0, (*dims[:-1], columns), ctx.elem(0))


@rule("MatMulFpQ4", domain=MICROSOFT)
def _packed_matmul(ctx: NodeContext) -> None:
    ctx.set(0, (*ctx.need(0)[:-1], ctx.item(2, 1)), ctx.elem(0))


@rule("MatMulBlockQuantizedFp4Weight", "MatMulBlockQuantizedFp8Weight", domain=MICROSOFT)
def _block_weight_matmul(ctx: NodeContext) -> None:
    ctx.set(0, (*ctx.need(0)[:-1], ctx.need(1)[0]), ctx.elem(0))


@rule("MatMulNBitsMlp", "MatMulNBitsQkv", domain=MICROSOFT)
def _block_projections(ctx: NodeContext) -> None:
    """Projections of one input, which comes last, with the residual added, where that is asked for."""
    dims = ctx.need(0)
    mlp = ctx.node.op == "MatMulNBitsMlp"
    widths = ("N",) if mlp else ("Nq", "Nkv", "Nkv")
    for k, width in enumerate(widths):
        ctx.set(k, (*dims[:-1], int(ctx.attr(width))), ctx.elem(0))
    ctx.set(len(widths), dims, ctx.elem(0))


@rule("GemmFloat8", domain=MICROSOFT)
def _gemm_float8(ctx: NodeContext) -> None:
    a, b = ctx.need(0), ctx.need(1)
    a = a[::-1] if ctx.attr("transA", 0) else a
    b = b[::-1] if ctx.attr("transB", 0) else b
    ctx.set(0, (a[0], b[1]), int(ctx.attr("dtype", TensorProto.FLOAT)))


@rule("QOrderedMatMul", domain=MICROSOFT)
def _ordered_matmul(ctx: NodeContext) -> None:
    ctx.set(0, matmul_dims(ctx, ctx.need(0), ctx.need(2)), ctx.elem(0))


@rule("QGemm", domain=MICROSOFT)
def _qgemm(ctx: NodeContext) -> None:
    a, b = ctx.need(0), ctx.need(3)
    a = a[::-1] if ctx.attr("transA", 0) else a
    b = b[::-1] if ctx.attr("transB", 0) else b
    ctx.same(a[1], b[0], "inner dims of a matrix product")
    ctx.set(0, (a[0], b[1]), ctx.elem(8) or int(TensorProto.FLOAT))


@rule("GemmFastGelu", domain=MICROSOFT)
def _gemm_fast_gelu(ctx: NodeContext) -> None:
    ctx.set(0, matmul_dims(ctx, ctx.need(0), ctx.need(1)))


@rule("GatherBlockQuantized", domain=MICROSOFT)
def _gather_block(ctx: NodeContext) -> None:
    data, chosen = ctx.need(0), ctx.need(1)
    axis = ctx.axis(len(data), 0, "gather_axis")
    last = ctx.axis(len(data), 1, "quantize_axis")
    packed = list(data)
    if ctx.elem(0) == TensorProto.UINT8:
        packed[last] = packed[last] * (8 // int(ctx.attr("bits", 4)))
    ctx.set(0, (*packed[:axis], *chosen, *packed[axis + 1 :]), ctx.elem(2))


# -- elementwise -------------------------------------------------------------------------------------
@rule("QLinearAdd", "QLinearMul", domain=MICROSOFT)
def _qlinear_binary(ctx: NodeContext) -> None:
    ctx.set(0, ctx.broadcast(ctx.need(0), ctx.need(3)), ctx.elem(0))


@rule("QLinearWhere", domain=MICROSOFT)
def _qlinear_where(ctx: NodeContext) -> None:
    ctx.set(0, ctx.broadcast(ctx.need(0), ctx.need(1), ctx.need(4)), ctx.elem(1))


@rule(
    "QLinearLeakyRelu", "QLinearSigmoid", "QLinearSoftmax", "QOrderedGelu", "QOrderedLayerNormalization",
    domain=MICROSOFT,
)  # fmt: skip
def _qlinear_unary(ctx: NodeContext) -> None:
    ctx.set(0, ctx.need(0), ctx.elem(0))


@rule("QuantizeWithOrder", "DequantizeWithOrder", domain=MICROSOFT)
def _reordered(ctx: NodeContext) -> None:
    quantize = ctx.node.op == "QuantizeWithOrder"
    ctx.set(0, ctx.need(0), int(TensorProto.INT8) if quantize else int(ctx.attr("to", TensorProto.FLOAT)))


@rule("QuantizeBFP", domain=MICROSOFT)
def _quantize_bfp(ctx: NodeContext) -> None:
    rank = len(ctx.need(0))
    ctx.set(0, (Unknown("the size of a block is the format's"),), TensorProto.UINT8)
    ctx.set(1, (rank,), TensorProto.INT64)
    ctx.set(2, (rank,), TensorProto.INT64)


@rule("DequantizeBFP", domain=MICROSOFT)
def _dequantize_bfp(ctx: NodeContext) -> None:
    ctx.set(0, sizes_from_input(ctx, 1), int(ctx.attr("dtype", TensorProto.FLOAT)))


@rule("MulInteger", domain=MICROSOFT)
def _mul_integer(ctx: NodeContext) -> None:
    ctx.set(0, ctx.broadcast(ctx.need(0), ctx.need(2)), TensorProto.INT32)


@rule("QLinearConcat", domain=MICROSOFT)
def _qlinear_concat(ctx: NodeContext) -> None:
    parts = [ctx.need(k) for k in range(2, ctx.count, 3)]
    axis = ctx.axis(len(parts[0]))
    result: list[Expr] = list(parts[0])
    for part in parts[1:]:
        for k, dim in enumerate(part):
            result[k] = (
                result[k] + dim if k == axis else ctx.same(result[k], dim, "Concat of dims besides the axis")
            )
    ctx.set(0, result, ctx.elem(1))


@rule("QLinearReduceMean", "ReduceSumInteger", domain=MICROSOFT)
def _qlinear_reduce(ctx: NodeContext) -> None:
    dims = ctx.need(0)
    axes = axes_input(ctx, 99)
    reduced = set(normal_axes(axes, len(dims)) if axes else range(len(dims)))
    keep = bool(ctx.attr("keepdims", 1))
    result = [ONE if k in reduced else d for k, d in enumerate(dims) if keep or k not in reduced]
    ctx.set(0, result, ctx.elem(0) if ctx.node.op.startswith("QLinear") else int(TensorProto.INT32))


# -- convolution and pooling -------------------------------------------------------------------------
def _channels_last(dims: Dims) -> Dims:
    """NHWC dims as NCHW."""
    return (dims[0], dims[-1], *dims[1:-1])


def _conv_nhwc(ctx: NodeContext, dims: Dims, weights: Dims) -> tuple[DimLike, ...]:
    if len(dims) != len(weights):
        raise Unresolved(f"input of rank {len(dims)}, weights of rank {len(weights)}")
    spatial = conv_spatial(ctx, dims[1:-1], window_of(ctx, weights))
    return (dims[0], *spatial, weights[0])


@rule("NhwcConv", "NhwcFusedConv", domain=MICROSOFT)
def _nhwc_conv(ctx: NodeContext) -> None:
    ctx.set(0, _conv_nhwc(ctx, ctx.need(0), ctx.need(1)))


@rule("QLinearConv", domain=MICROSOFT)
def _qlinear_conv(ctx: NodeContext) -> None:
    dims, weights = ctx.need(0), ctx.need(3)
    last = ctx.attr("channels_last", 0)
    ctx.set(
        0,
        _conv_nhwc(ctx, dims, weights) if last else conv_dims(ctx, dims, weights),
        ctx.elem(7) or ctx.elem(0),
    )


@rule("QLinearAveragePool", "NhwcMaxPool", "MaxpoolWithMask", domain=MICROSOFT)
def _pool(ctx: NodeContext) -> None:
    dims = ctx.need(0)
    last = ctx.node.op == "NhwcMaxPool" or ctx.attr("channels_last", 0)
    n, c, *spatial = _channels_last(dims) if last else dims
    sizes = pool_spatial(ctx, tuple(spatial), Window(ctx, ctx.attr("kernel_shape", ())))
    ctx.set(0, (n, *sizes, c) if last else (n, c, *sizes))


@rule("QLinearGlobalAveragePool", domain=MICROSOFT)
def _global_pool(ctx: NodeContext) -> None:
    dims = ctx.need(0)
    ones = (ONE,) * (len(dims) - 2)
    ctx.set(0, (dims[0], *ones, dims[-1]) if ctx.attr("channels_last", 0) else (*dims[:2], *ones))


@rule("ConvTransposeWithDynamicPads", domain=MICROSOFT)
def _conv_transpose_dynamic(ctx: NodeContext) -> None:
    dims, weights = ctx.need(0), ctx.need(1)
    window = window_of(ctx, weights)
    rank = len(window.kernel)
    pads = ctx.exprs(2) or (None,) * (2 * rank)
    extra = tuple(ctx.attr("output_padding", ())) or (0,) * rank
    result: list[DimLike] = [dims[0], weights[1] * int(ctx.attr("group", 1))]
    for k, size in enumerate(dims[2:]):
        before, after = pads[k], pads[k + rank]
        if before is None or after is None:
            raise Unresolved("the pads are computed from data")
        result.append((size - 1) * window.strides[k] + window.span(k) + extra[k] - before - after)
    ctx.set(0, result)


# -- the rest ----------------------------------------------------------------------------------------
@rule("ExpandDims", domain=MICROSOFT)
def _expand_dims(ctx: NodeContext) -> None:
    dims, axes = ctx.need(0), ctx.ints(1)
    if axes is None:
        raise Unresolved("the axis is computed from data")
    (axis,) = normal_axes(axes, len(dims) + 1)
    ctx.set(0, (*dims[:axis], ONE, *dims[axis:]), ctx.elem(0))


@rule("CDist", domain=MICROSOFT)
def _cdist(ctx: NodeContext) -> None:
    a, b = ctx.need(0), ctx.need(1)
    ctx.same(a[1], b[1], "points of one space")
    ctx.set(0, (a[0], b[0]))


@rule("Pad", domain=MICROSOFT)
def _pad(ctx: NodeContext) -> None:
    dims, pads = ctx.need(0), ctx.exprs(1)
    if pads is None or None in pads:
        raise Unresolved("the pads are computed from data")
    rank = len(dims)
    ctx.set(0, [d + (pads[k] or ZERO) + (pads[k + rank] or ZERO) for k, d in enumerate(dims)])


@rule("QEmbedLayerNormalization", domain=MICROSOFT)
def _qembed(ctx: NodeContext) -> None:
    ids, words = ctx.need(0), ctx.need(2)
    ctx.set(0, (*ids, words[1]), ctx.elem(8))
    ctx.set(1, (ids[0],), TensorProto.INT32)
