"""Normalisation and losses: the output has the input's dims; statistics have those of the kept axes."""

from __future__ import annotations

from collections.abc import Sequence

from onnx_symmem.expr.expression import ONE
from onnx_symmem.shapes.broadcast import onto
from onnx_symmem.shapes.context import NodeContext, Unresolved
from onnx_symmem.shapes.registry import rule
from onnx_symmem.shapes.table import Dims

__all__: list[str] = []


@rule("InstanceNormalization", "GroupNormalization", "RMSNormalization")
def _plain(ctx: NodeContext) -> None:
    dims = ctx.need(0)
    if ctx.node.op == "InstanceNormalization":
        _one_per_channel(ctx, dims, (1, 2))
    elif ctx.node.op == "RMSNormalization":
        onto(ctx, ctx.dims(1), dims[ctx.axis(len(dims), -1) :], "scale of a normalisation")
    ctx.set(0, dims)


def _one_per_channel(ctx: NodeContext, dims: Dims, inputs: Sequence[int]) -> None:
    """Some inputs are vectors with one element per channel."""
    for k in inputs:
        vector = ctx.dims(k)
        if vector is not None and len(vector) == 1 and len(dims) > 1:
            ctx.same(dims[1], vector[0], "one element per channel")


@rule("LayerNormalization", "SimplifiedLayerNormalization")
def _layer(ctx: NodeContext) -> None:
    dims = ctx.need(0)
    axis = ctx.axis(len(dims), -1)
    for k in (1, 2):
        onto(ctx, ctx.dims(k), dims[axis:], "scale of a normalisation")
    statistics = (*dims[:axis], *((ONE,) * (len(dims) - axis)))
    # SimplifiedLayerNormalization has no schema in onnx: the output has the type of the scale.
    ctx.set(0, dims, ctx.elem(1) if ctx.node.op.startswith("Simplified") else None)
    kind = int(ctx.attr("stash_type", 1))
    ctx.set(1, statistics, kind)
    ctx.set(2, statistics, kind)


@rule("BatchNormalization")
def _batch(ctx: NodeContext) -> None:
    dims = ctx.need(0)
    _one_per_channel(ctx, dims, (1, 2, 3, 4))
    ctx.set(0, dims)
    channels = dims[1:2] or (ONE,)
    for k in range(1, 5):
        ctx.set(k, channels, ctx.elem(3) or None)


@rule("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def _loss(ctx: NodeContext) -> None:
    scores, target = ctx.need(0), ctx.need(1)
    if len(scores) != len(target) + 1:
        raise Unresolved(f"scores of rank {len(scores)}, targets of rank {len(target)}")
    # Targets pick their scores as GatherElements does: there may be more scores than targets.
    for there, wanted in zip((scores[0], *scores[2:]), target, strict=True):
        ctx.limit(there - wanted, "every target has its scores")
    ctx.set(0, target if ctx.attr("reduction", "mean") == "none" else (), ctx.elem(0))
    ctx.set(1, scores, ctx.elem(0))
