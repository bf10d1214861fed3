"""Ops of com.microsoft with state between calls: paged and sparse attention, causal convolutions, hashes.

Most read packed tokens: the tokens of all requests of a batch along one axis, with the places where requests
begin in a tensor of batch + 1 numbers.
"""

from __future__ import annotations

from onnx import TensorProto

from onnx_symmem.expr.expression import Expr, maximum
from onnx_symmem.shapes.context import DimLike, NodeContext, Unknown, Unresolved
from onnx_symmem.shapes.registry import MICROSOFT, rule

__all__: list[str] = []

OPEN_CACHE = "the total length of the cache is in the data"


def _width(ctx: NodeContext, width: Expr, packed: bool) -> DimLike:
    """Width of the output, from that of the queries or of queries, keys and values side by side."""
    heads, groups = int(ctx.attr("num_heads")), int(ctx.attr("kv_num_heads", ctx.attr("num_heads")))
    return ctx.simplify(width // (heads + 2 * groups) * heads) if packed else width


@rule("PagedAttention", "SparsePagedAttention", domain=MICROSOFT)
def _paged(ctx: NodeContext) -> None:
    query = ctx.need(0)
    width = _width(ctx, query[1], not ctx.has(1))
    narrow = int(ctx.attr("v_head_size", 0))
    if str(ctx.attr("kv_cache_layout", "SEPARATE")) == "LATENT" and narrow:
        width = Expr.const(int(ctx.attr("num_heads")) * narrow)
    ctx.set(0, (query[0], width), ctx.elem(0))
    for k in (1, 2):
        if ctx.has(k + 2):
            ctx.set(k, ctx.dims(k + 2), ctx.elem(k + 2))


@rule("DynamicSparseAttention", domain=MICROSOFT)
def _dynamic_sparse(ctx: NodeContext) -> None:
    query = ctx.need(0)
    ctx.set(0, (*query[:2], _width(ctx, query[2], not ctx.has(1))), ctx.elem(0))
    past = ctx.dims(3)
    if past is not None and len(past) == 4:
        length = Unknown(OPEN_CACHE, None, 0, ("total", ctx.node.inputs[10] if ctx.has(10) else -1))
        for k in (1, 2):
            ctx.set(k, (*past[:2], length, past[3]), ctx.elem(3))


def _capacity(ctx: NodeContext) -> int:
    """Entries per query that an indexer of sparse attention selects."""
    if str(ctx.attr("policy_mode")) == "csa":
        return int(ctx.attr("index_topk"))
    return int(ctx.attr("token_budget")) + int(ctx.attr("compress_ratio")) - 1


@rule("SparseAttentionIndexer", domain=MICROSOFT)
def _indexer(ctx: NodeContext) -> None:
    query = ctx.need(0)
    ctx.set(0, (*query[:2], _capacity(ctx)), TensorProto.INT32)


@rule("PackedSparseAttentionIndexer", domain=MICROSOFT)
def _packed_indexer(ctx: NodeContext) -> None:
    tokens = ctx.need(0)[0]
    ctx.set(0, (tokens, _capacity(ctx)), TensorProto.INT32)
    ctx.set(1, (tokens,), TensorProto.INT32)
    for k, source in ((2, 12), (3, 13), (4, 14), (5, 15)):
        if ctx.has(source):
            ctx.set(k, ctx.dims(source), ctx.elem(source))


@rule("GatedDeltaNet", domain=MICROSOFT)
def _gated_delta(ctx: NodeContext) -> None:
    query, key, value, state = ctx.need(0), ctx.dims(1), ctx.dims(2), ctx.dims(6)
    if key is None or value is None:
        raise Unresolved("the numbers of heads of packed queries, keys and values are not in their shape")
    heads = ctx.simplify(maximum(query[1], value[1]))
    ctx.set(0, (query[0], heads, value[2]), ctx.elem(0))
    batch: DimLike = Unknown("the number of requests is in the data")
    bounds = ctx.dims(3)
    if state is not None:
        batch = state[0]
    elif bounds is not None:
        batch = bounds[0] - 1
    ctx.set(1, (batch, value[1], value[2], query[2]), ctx.elem(6) or ctx.elem(4) or ctx.elem(0))
    capacity = int(ctx.attr("state_update_capacity", 0))
    wide = value[1] + key[1] * query[2] + value[1] * value[2]
    ctx.set(2, (batch, wide * capacity), ctx.elem(6) or ctx.elem(4) or ctx.elem(0))


@rule("LinearAttentionGate", domain=MICROSOFT)
def _gate(ctx: NodeContext) -> None:
    ctx.set(0, ctx.need(0), ctx.elem(0))
    if ctx.has(3):
        ctx.set(1, ctx.dims(3), ctx.elem(0))


@rule("EngramGate", domain=MICROSOFT)
def _engram_gate(ctx: NodeContext) -> None:
    ctx.set(0, ctx.need(0), ctx.elem(0))
    ctx.set(1, ctx.need(0), ctx.elem(0))


@rule("CausalConvWithState", domain=MICROSOFT)
def _causal_conv(ctx: NodeContext) -> None:
    dims, weights = ctx.need(0), ctx.need(1)
    ctx.set(0, dims, ctx.elem(0))
    past = ctx.dims(3)
    if past is not None:
        ctx.set(1, past, ctx.elem(0))
    elif len(dims) == 3 and not ctx.attr("channels_last", 0) and not ctx.attr("state_window", 0):
        kept = (weights[2] - 1) * int(ctx.attr("dilation", 1))
        ctx.set(1, (*dims[:2], kept), ctx.elem(0))


@rule("VarlenCausalConvWithState", domain=MICROSOFT)
def _packed_causal_conv(ctx: NodeContext) -> None:
    dims, state = ctx.need(0), ctx.need(4)
    ctx.set(0, dims, ctx.elem(0))
    ctx.set(1, state, ctx.elem(0))
    ctx.set(2, (state[0], int(ctx.attr("state_update_capacity", 0)), dims[1]), ctx.elem(0))


@rule("NGramHashMapping", domain=MICROSOFT)
def _hash_mapping(ctx: NodeContext) -> None:
    ids = ctx.need(0)
    ctx.set(0, (*ids, ctx.need(2)[0]), ctx.elem(0))
    ctx.set(1, (ids[0], int(ctx.attr("max_ngram_size")) - 1), ctx.elem(0))


@rule("VarlenNGramHashMapping", domain=MICROSOFT)
def _packed_hash_mapping(ctx: NodeContext) -> None:
    ids, batch = ctx.need(0), ctx.need(3)[0] - 1
    window = int(ctx.attr("max_ngram_size")) - 1
    ctx.set(0, (ids[0], ctx.need(2)[0]), ctx.elem(0))
    ctx.set(1, (batch, window), ctx.elem(0))
    ctx.set(2, (batch, window), TensorProto.INT32)
    ctx.set(3, (batch, int(ctx.attr("state_update_capacity", 0)), window), ctx.elem(0))
