"""Attention ops of com.microsoft: fused transformer layers with or without a key/value cache."""

from __future__ import annotations

from onnx import TensorProto

from onnx_symmem.expr.expression import Expr, maximum
from onnx_symmem.shapes.context import DimLike, NodeContext, Unknown, Unresolved
from onnx_symmem.shapes.registry import MICROSOFT, rule
from onnx_symmem.shapes.table import Dims

__all__: list[str] = []


def _value_width(ctx: NodeContext, weights: Dims) -> Expr:
    """Hidden size of the values, from the merged weights of query, key and value."""
    sizes = ctx.attr("qkv_hidden_sizes")
    return Expr.const(sizes[2]) if sizes else ctx.simplify(weights[-1] // 3)


def _present(ctx: NodeContext, past: Dims | None, axis: int, added: Expr) -> Dims | None:
    """Dims of a cache after `added` more positions along an axis; a shared buffer keeps its size."""
    if past is None or ctx.attr("past_present_share_buffer", 0):
        return past
    return (*past[:axis], past[axis] + added, *past[axis + 1 :])


def _merged(ctx: NodeContext, past_at: int, elem: int) -> None:
    dims, weights = ctx.need(0), ctx.need(1)
    width = _value_width(ctx, weights)
    ctx.set(0, (*dims[:-1], width), elem)
    if len(dims) != 3:
        return
    present = _present(ctx, ctx.dims(past_at), 3, dims[1])
    if present is None:
        heads = ctx.attr("num_heads")
        present = (Expr.const(2), dims[0], Expr.const(heads), dims[1], ctx.simplify(width // heads))
    ctx.set(1, present, elem)


@rule("Attention", "DecoderMaskedSelfAttention", domain=MICROSOFT)
def _attention(ctx: NodeContext) -> None:
    _merged(ctx, 4, ctx.elem(0))


@rule("QAttention", domain=MICROSOFT)
def _quantized_attention(ctx: NodeContext) -> None:
    _merged(ctx, 8, ctx.elem(2) or ctx.elem(3))


@rule("PackedAttention", domain=MICROSOFT)
def _packed_attention(ctx: NodeContext) -> None:
    ctx.set(0, (ctx.need(0)[0], _value_width(ctx, ctx.need(1))))


@rule("PackedMultiHeadAttention", domain=MICROSOFT)
def _packed_multi_head(ctx: NodeContext) -> None:
    query, value = ctx.need(0), ctx.dims(2)
    if len(query) == 4:  # [tokens, heads, 3, size]
        ctx.set(0, (query[0], query[1] * query[3]))
    else:
        ctx.set(0, (query[0], value[-1] if value is not None else query[-1]))


@rule("MultiHeadAttention", "DecoderMaskedMultiHeadAttention", domain=MICROSOFT)
def _multi_head(ctx: NodeContext) -> None:
    query, key, value = ctx.need(0), ctx.dims(1), ctx.dims(2)
    heads = int(ctx.attr("num_heads"))
    masked = ctx.node.op != "MultiHeadAttention"
    past_at = 5 if masked else 6
    batch, length = query[0], query[1]
    if len(query) == 5:  # packed [batch, length, heads, 3, size]
        width, steps, size = query[2] * query[4], query[1], query[4]
    elif key is not None and len(key) == 5:  # packed [batch, length, heads, 2, size]
        width, steps, size = query[2], key[1], key[4]
    elif value is not None and len(value) == 4:  # a cache of another layer
        width, steps, size = value[1] * value[3], value[2], value[3]
    elif value is not None and key is not None:
        width, steps, size = value[2], key[1], ctx.simplify(value[2] // heads)
    else:
        # Key and value packed behind the query: [batch, length, 2*hidden + v_hidden].
        width, steps, size = ctx.simplify(query[2] // 3), length, ctx.simplify(query[2] // (3 * heads))
    ctx.set(0, (batch, length, width))
    past, past_value = ctx.dims(past_at), ctx.dims(past_at + 1)
    total = steps
    for k, cache in ((1, past), (2, past_value)):
        present = _present(ctx, cache, 2, steps)
        if present is None:
            head = ctx.simplify(key[2] // heads) if k == 1 and key is not None and len(key) == 3 else size
            present = (batch, Expr.const(heads), steps, head)
        total = present[2]
        ctx.set(k, present)
    kind = {0: ctx.elem(0)}.get(int(ctx.attr("output_qk", 0)), int(TensorProto.FLOAT))
    ctx.set(3, (batch, heads, length, total), kind)


@rule("GroupQueryAttention", "SparseAttention", domain=MICROSOFT)
def _group_query(ctx: NodeContext) -> None:
    query = ctx.need(0)
    heads, groups = int(ctx.attr("num_heads")), int(ctx.attr("kv_num_heads"))
    past = ctx.dims(3)
    if past is not None and len(past) == 4:
        size = past[3]
    elif ctx.has(1):
        size = ctx.simplify(query[2] // heads)
    else:
        size = ctx.simplify(query[2] // (heads + 2 * groups))
    ctx.set(0, (query[0], query[1], query[2] if ctx.has(1) else size * heads))
    sparse = ctx.node.op == "SparseAttention"
    if sparse or ctx.attr("sliding_window_cache", 0):
        ctx.set(1, past, ctx.elem(3))
        ctx.set(2, ctx.dims(4) or past, ctx.elem(3))
        return
    total = ctx.exprs(6)
    length: DimLike
    scored: DimLike
    if total and total[0] is not None:
        scored = total[0]
        length = total[0] if past is None else ctx.simplify(maximum(past[2], total[0]))
    else:
        reason = "the total length of the cache is in the data"
        length = scored = Unknown(reason, None, 0, ("total", ctx.node.inputs[6]))
        if past is not None:  # which may have room for more than is in use
            length = Unknown(reason, None, 0, ("total", ctx.node.inputs[6], past[2]))
    present = (query[0], groups, length, size)
    ctx.set(1, present, ctx.elem(3) or ctx.elem(0))
    ctx.set(2, present, ctx.elem(3) or ctx.elem(0))
    ctx.set(3, (query[0], heads, query[1], scored))


@rule("QOrderedAttention", domain=MICROSOFT)
def _ordered_attention(ctx: NodeContext) -> None:
    ctx.set(0, (*ctx.need(0)[:-1], ctx.need(7)[1]), ctx.elem(0))


@rule("GemmaRotaryEmbedding", domain=MICROSOFT)
def _gemma_rotary(ctx: NodeContext) -> None:
    ctx.set(0, ctx.need(1), ctx.elem(1))
    ctx.set(1, ctx.need(3), ctx.elem(3))


@rule("DecoderAttention", domain=MICROSOFT)
def _decoder_attention(ctx: NodeContext) -> None:
    query = ctx.need(0)
    ctx.set(0, query)
    heads = int(ctx.attr("num_heads"))
    if len(query) != 3:
        raise Unresolved(f"expected rank 3, found {len(query)}")
    unknown = Unknown("whether the cache is used is in the data", None, 0, ("cache", ctx.node.index))
    for k in (1, 2):
        ctx.set(k, (query[1], heads, unknown, ctx.simplify(query[2] // heads)))


@rule(
    "LongformerAttention", "MoE", "NGramRepeatBlock", "QMoE", "QOrderedLongformerAttention", domain=MICROSOFT
)
def _as_input(ctx: NodeContext) -> None:
    source = 1 if ctx.node.op == "NGramRepeatBlock" else 0
    ctx.set(0, ctx.need(source), ctx.elem(source))


@rule("RelativePositionBias", domain=MICROSOFT)
def _relative_position(ctx: NodeContext) -> None:
    ctx.set(0, (1, ctx.need(0)[1], ctx.item(1, 0), ctx.item(2, 0)))


@rule("GatedRelativePositionBias", domain=MICROSOFT)
def _gated_relative_position(ctx: NodeContext) -> None:
    dims, bias = ctx.need(0), ctx.need(2)
    if len(dims) != 3:
        raise Unresolved("packed tokens: the batch is in the data")
    ctx.set(0, (dims[0], int(ctx.attr("num_heads")), dims[1], bias[-1]))


@rule("RemovePadding", domain=MICROSOFT)
def _remove_padding(ctx: NodeContext) -> None:
    dims = ctx.need(0)
    tokens = Unknown("the number of tokens is in the data", dims[0] * dims[1])
    ctx.set(0, (tokens, dims[-1]))
    ctx.set(1, dims[:2], TensorProto.INT32)
    ctx.set(2, (dims[0] + 1,), TensorProto.INT32)
    ctx.set(3, (1,), TensorProto.INT32)


@rule("RestorePadding", domain=MICROSOFT)
def _restore_padding(ctx: NodeContext) -> None:
    ctx.set(0, (*ctx.need(1), ctx.need(0)[-1]))
