"""Attention of the ONNX domain: Attention, FlexAttention, LinearAttention, RotaryEmbedding.

Y                 [batch, q_heads, q_len, v_size], or [batch, q_len, q_heads*v_size] for packed inputs
present_*         [batch, kv_heads, past + kv_len, size]
qk_matmul_output  [batch, q_heads, q_len, past + kv_len]
"""

from __future__ import annotations

from dataclasses import dataclass

from onnx_symmem.expr.expression import Expr
from onnx_symmem.shapes.context import NodeContext, Unresolved
from onnx_symmem.shapes.registry import MICROSOFT, rule
from onnx_symmem.shapes.table import Dims

__all__: list[str] = []


@dataclass(frozen=True, slots=True)
class _Heads:
    """One of query, key and value: batch, heads, length, size of a head."""

    batch: Expr
    heads: Expr
    length: Expr
    size: Expr


def _heads(ctx: NodeContext, dims: Dims, count: int | None) -> _Heads:
    """The parts of a [batch, heads, length, size] or [batch, length, heads*size] tensor."""
    if len(dims) == 4:
        return _Heads(*dims)
    if len(dims) != 3 or not count:
        raise Unresolved(f"rank {len(dims)} and {count} heads do not make an attention input")
    ctx.same(dims[2], dims[2] // count * count, "heads share the hidden size evenly")
    return _Heads(dims[0], Expr.const(count), dims[1], ctx.simplify(dims[2] // count))


@rule("Attention")
def _attention(ctx: NodeContext) -> None:
    dims = ctx.need(0)
    packed = len(dims) == 3
    query = _heads(ctx, dims, ctx.attr("q_num_heads"))
    key = _heads(ctx, ctx.need(1), ctx.attr("kv_num_heads"))
    value = _heads(ctx, ctx.need(2), ctx.attr("kv_num_heads"))
    batch = ctx.same(query.batch, key.batch, "batch of query and key")
    batch = ctx.same(batch, value.batch, "batch of query and value")
    ctx.same(query.size, key.size, "size of a head of query and key")
    ctx.same(key.heads, value.heads, "heads of key and value")
    total = ctx.same(key.length, value.length, "length of key and value")
    past = ctx.dims(4)
    if past is not None:
        total = past[2] + total
    if packed:
        ctx.set(0, (batch, query.length, query.heads * value.size))
    else:
        ctx.set(0, (batch, query.heads, query.length, value.size))
    ctx.set(1, (batch, key.heads, total, key.size))
    ctx.set(2, (batch, value.heads, total, value.size))
    ctx.set(3, (batch, query.heads, query.length, total))


@rule("FlexAttention", domain="ai.onnx.preview")
def _flex_attention(ctx: NodeContext) -> None:
    query, value = ctx.need(0), ctx.need(2)
    ctx.set(0, (*query[:3], value[-1]))


@rule("LinearAttention")
@rule("LinearAttention", domain=MICROSOFT)
def _linear_attention(ctx: NodeContext) -> None:
    query, value = ctx.need(0), ctx.need(2)
    heads, states = int(ctx.attr("q_num_heads")), int(ctx.attr("kv_num_heads"))
    past = ctx.dims(3)
    if past is not None and len(past) == 4:
        size, width = past[2], past[3]
    else:
        size, width = ctx.simplify(query[-1] // heads), ctx.simplify(value[-1] // states)
    ctx.same(value[-1], width * states, "heads share the hidden size evenly")
    ctx.set(0, (query[0], query[1], width * heads))
    ctx.set(1, (query[0], states, size, width), ctx.elem(3) or ctx.elem(0))


@rule("RotaryEmbedding")
@rule("RotaryEmbedding", "MRotaryEmbedding", domain=MICROSOFT)
def _rotary(ctx: NodeContext) -> None:
    ctx.set(0, ctx.need(0))


@rule("SwiGLU")
def _swiglu(ctx: NodeContext) -> None:
    a, b = ctx.need(0), ctx.need(1)
    if len(a) != len(b):
        raise Unresolved(f"gate of rank {len(a)}, value of rank {len(b)}")
    ctx.set(0, tuple(ctx.same(x, y, "gate and value have the same dims") for x, y in zip(a, b, strict=True)))
