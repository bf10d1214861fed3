"""Fused ops of com.microsoft that ONNX Runtime's optimiser emits around convolutions, products and norms."""

from __future__ import annotations

from onnx import TensorProto

from onnx_symmem.expr.expression import ONE, ceildiv
from onnx_symmem.shapes.context import NodeContext, Unknown, Unresolved
from onnx_symmem.shapes.registry import MICROSOFT, rule
from onnx_symmem.shapes.rules.conv import conv_dims
from onnx_symmem.shapes.rules.matmul import matmul_dims
from onnx_symmem.shapes.rules.shape_arithmetic import product
from onnx_symmem.shapes.table import Dims

__all__: list[str] = []


@rule(
    "BiasAdd", "BiasGelu", "BiasSoftmax", "FastGelu", "GatedAdd", "Gelu", "GroupNorm", "Inverse", "QuickGelu",
    "BranchwiseRMSNorm", "GatedRMSNorm", "HyperConnectionPostMix", "SampleOp", "ScaledSiLU", "Trilu",
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


@rule("BitmaskDropout", "BitmaskBiasDropout", domain=MICROSOFT)
def _bitmask_dropout(ctx: NodeContext) -> None:
    """The mask has one bit per element, packed into 32-bit words."""
    dims = ctx.need(0)
    ctx.set(0, dims, ctx.elem(0))
    ctx.set(1, (ctx.simplify(ceildiv(product(dims), 32)),), TensorProto.UINT32)


@rule("HyperConnectionPreMix", domain=MICROSOFT)
def _hyper_connection(ctx: NodeContext) -> None:
    dims = ctx.need(0)
    branches = int(ctx.attr("num_branches", 0))
    result = (*dims[:-1], ctx.simplify(dims[-1] // branches)) if branches else (*dims[:-2], dims[-1])
    ctx.set(0, result, ctx.elem(0))


@rule("ComplexMul", "ComplexMulConj", domain=MICROSOFT)
def _complex_product(ctx: NodeContext) -> None:
    ctx.set(0, ctx.broadcast(ctx.need(0), ctx.need(1)), ctx.elem(0))


@rule("IsAllFinite", domain=MICROSOFT)
def _is_all_finite(ctx: NodeContext) -> None:
    ctx.set(0, (), TensorProto.BOOL)


@rule("UnfoldTensor", domain=MICROSOFT)
def _unfold(ctx: NodeContext) -> None:
    dims, size, step = ctx.need(0), int(ctx.attr("size")), int(ctx.attr("step", 1))
    axis = ctx.axis(len(dims), -1, "dim")
    ctx.limit(dims[axis] - size, "a slice fits into the unfolded dim")
    count = ctx.simplify((dims[axis] - size) // step + 1)
    ctx.set(0, (*dims[:axis], count, *dims[axis + 1 :], size), ctx.elem(0))


@rule("TorchEmbedding", domain=MICROSOFT)
def _embedding(ctx: NodeContext) -> None:
    ctx.set(0, (*ctx.need(1), ctx.need(0)[1]), ctx.elem(0))


@rule("Unique", domain=MICROSOFT)
def _unique(ctx: NodeContext) -> None:
    (size,) = ctx.need(0)
    count = Unknown(
        "the number of distinct elements depends on data", size, 0, ("unique", ctx.node.inputs[0], True)
    )
    ctx.set(0, (count,), ctx.elem(0))
    ctx.set(1, (size,), TensorProto.INT64)
    ctx.set(2, (count,), TensorProto.INT64)


@rule("DynamicTimeWarping", domain=MICROSOFT)
def _time_warping(ctx: NodeContext) -> None:
    """A path through a matrix of costs: at least as long as its longer side, shorter than both together."""
    rows, columns = ctx.need(0)[-2:]
    bound = ctx.simplify(rows + columns - 1)
    ctx.set(0, (2, Unknown("the length of the path depends on data", bound)), TensorProto.INT32)


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


@rule("SparseToDenseMatMul", domain=MICROSOFT)
def _sparse_matmul(ctx: NodeContext) -> None:
    a = _turned(ctx.need(0), False, bool(ctx.attr("transA", 0)))
    b = _turned(ctx.need(1), False, bool(ctx.attr("transB", 0)))
    ctx.set(0, matmul_dims(ctx, a, b), ctx.elem(1))


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
