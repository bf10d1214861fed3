"""Recurrent layers: RNN, GRU, LSTM, and causal convolution with a carried state."""

from __future__ import annotations

from onnx_symmem.expr.expression import Expr
from onnx_symmem.shapes.context import DimLike, NodeContext, Unresolved
from onnx_symmem.shapes.registry import MICROSOFT, rule

__all__ = ["recurrent"]


def recurrent(ctx: NodeContext, hidden: DimLike | None) -> None:
    """Outputs of a recurrent layer: all hidden states, the last one, and (LSTM) the last cell."""
    dims = ctx.need(0)
    if len(dims) != 3:
        raise Unresolved(f"expected rank 3, found {len(dims)}")
    size = ctx.attr("hidden_size", hidden)
    if size is None:
        raise Unresolved("the hidden size is unknown")
    directions = 2 if ctx.attr("direction", "forward") == "bidirectional" else 1
    if ctx.attr("layout", 0):
        batch, steps, _ = dims
        ctx.set(0, (batch, steps, directions, size))
        last: tuple[DimLike, ...] = (batch, directions, size)
    else:
        steps, batch, _ = dims
        ctx.set(0, (steps, directions, batch, size))
        last = (directions, batch, size)
    ctx.set(1, last)
    ctx.set(2, last)


GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


@rule("RNN", "GRU", "LSTM")
def _recurrent(ctx: NodeContext) -> None:
    dims, weights, again = ctx.need(0), ctx.dims(1), ctx.dims(2)
    hidden = again[-1] if again is not None else None
    if weights is not None and again is not None and len(weights) == len(again) == len(dims) == 3:
        size = Expr.lift(ctx.attr("hidden_size", hidden))
        directions = Expr.const(2 if ctx.attr("direction", "forward") == "bidirectional" else 1)
        rows = size * GATES[ctx.node.op]
        wanted = (directions, rows, dims[2], directions, rows, size)
        for right, found in zip(wanted, (*weights, *again), strict=True):
            ctx.same(right, found, "weights of a recurrent layer")
    recurrent(ctx, hidden)


@rule("DynamicQuantizeLSTM", domain=MICROSOFT)
def _quantized_lstm(ctx: NodeContext) -> None:
    weights = ctx.dims(2)  # [directions, hidden, 4*hidden]
    recurrent(ctx, weights[1] if weights is not None and len(weights) == 3 else None)


@rule("CausalConvWithState")
def _causal_conv(ctx: NodeContext) -> None:
    dims, weights = ctx.need(0), ctx.need(1)
    channels = ctx.same(dims[1], weights[0], "one kernel per channel")
    kept = weights[-1] - 1
    past = ctx.dims(3)
    if past is not None:
        kept = ctx.same(kept, past[-1], "the state holds kernel - 1 positions")
    ctx.set(0, (dims[0], channels, *dims[2:]))
    ctx.set(1, (dims[0], channels, kept))


@rule("AttnLSTM", domain=MICROSOFT)
def _attention_lstm(ctx: NodeContext) -> None:
    weights = ctx.dims(2)
    hidden: Expr | None = weights[-1] if weights is not None else None
    recurrent(ctx, hidden)
