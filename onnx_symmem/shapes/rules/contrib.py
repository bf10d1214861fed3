"""Fused ops of com.microsoft that ONNX Runtime's optimiser emits around convolutions, products and norms."""

from __future__ import annotations

from onnx import TensorProto

from onnx_symmem.expr.expression import ONE
from onnx_symmem.shapes.context import NodeContext, Unresolved
from onnx_symmem.shapes.registry import MICROSOFT, rule
from onnx_symmem.shapes.rules.conv import conv_dims
from onnx_symmem.shapes.rules.matmul import matmul_dims
from onnx_symmem.shapes.table import Dims

__all__: list[str] = []


@rule(
    "BiasAdd", "BiasGelu", "BiasSoftmax", "FastGelu", "GatedAdd", "Gelu", "GroupNorm", "Inverse", "QuickGelu",
    "ScaledSiLU", "Trilu",
    domain=MICROSOFT,
)  # fmt: skip
def _as_first(ctx: NodeContext) -> None:
    ctx.set(0, ctx.need(0), ctx.elem(0))


@rule("MemcpyFromHost", "MemcpyToHost")
def _copy(ctx: NodeContext) -> None:
    """Copies between host and device, which a model file may hold though onnx does not know them."""
    ctx.set(0, ctx.need(0), ctx.elem(0))


@rule("BiasSplitGelu", domain=MICROSOFT)
def _bias_split_gelu(ctx: NodeContext) -> None:
    dims = ctx.need(0)
    ctx.set(0, (*dims[:-1], ctx.simplify(dims[-1] // 2)))


@rule("BiasDropout", domain=MICROSOFT)
def _bias_dropout(ctx: NodeContext) -> None:
    dims = ctx.need(0)
    ctx.set(0, dims)
    ctx.set(1, dims, TensorProto.BOOL)


@rule("FusedConv", domain=MICROSOFT)
def _fused_conv(ctx: NodeContext) -> None:
    ctx.set(0, conv_dims(ctx, ctx.need(0), ctx.need(1)))


@rule("FusedGemm", domain=MICROSOFT)
def _fused_gemm(ctx: NodeContext) -> None:
    a, b = ctx.need(0), ctx.need(1)
    if len(a) != 2 or len(b) != 2:
        raise Unresolved(f"expected two matrices, found rank {len(a)} and {len(b)}")
    a = a[::-1] if ctx.attr("transA", 0) else a
    b = b[::-1] if ctx.attr("transB", 0) else b
    ctx.same(a[1], b[0], "inner dims of a matrix product")
    ctx.set(0, (a[0], b[1]))


def _turned(dims: Dims, batch: bool, last: bool) -> Dims:
    """Dims of a FusedMatMul operand as MatMul sees it: transBatch moves the first dim before the last two."""
    if len(dims) < 2:
        return dims
    if batch:
        dims = (*dims[1:-1], dims[0], dims[-1])
    return (*dims[:-2], dims[-1], dims[-2]) if last else dims


@rule("FusedMatMul", "TransposeMatMul", "FusedMatMulActivation", domain=MICROSOFT)
def _fused_matmul(ctx: NodeContext) -> None:
    a = _turned(ctx.need(0), bool(ctx.attr("transBatchA", 0)), bool(ctx.attr("transA", 0)))
    b = _turned(ctx.need(1), bool(ctx.attr("transBatchB", 0)), bool(ctx.attr("transB", 0)))
    ctx.set(0, matmul_dims(ctx, a, b))


@rule("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def _skip_layer(ctx: NodeContext) -> None:
    dims = ctx.need(0)
    ctx.set(0, dims)
    statistics = (*dims[:-1], ONE)
    ctx.set(1, statistics, TensorProto.FLOAT)
    ctx.set(2, statistics, TensorProto.FLOAT)
    ctx.set(3, dims)


@rule("SkipGroupNorm", domain=MICROSOFT)
def _skip_group(ctx: NodeContext) -> None:
    ctx.set(0, ctx.need(0))
    ctx.set(1, ctx.need(0))


@rule("EmbedLayerNormalization", domain=MICROSOFT)
def _embed_layer(ctx: NodeContext) -> None:
    ids, words = ctx.need(0), ctx.need(2)
    dims = (*ids, words[1])
    ctx.set(0, dims, ctx.elem(2))
    ctx.set(1, (ids[0],), TensorProto.INT32)
    ctx.set(2, dims, ctx.elem(2))
