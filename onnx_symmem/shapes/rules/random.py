"""Random tensors: dims from an attribute or from another tensor."""

from __future__ import annotations

from onnx import TensorProto

from onnx_symmem.shapes.context import NodeContext
from onnx_symmem.shapes.registry import rule

__all__: list[str] = []


@rule("RandomNormal", "RandomUniform")
def _random(ctx: NodeContext) -> None:
    ctx.set(0, tuple(ctx.attr("shape", ())), int(ctx.attr("dtype", TensorProto.FLOAT)))


@rule("RandomNormalLike", "RandomUniformLike", "Bernoulli")
def _like(ctx: NodeContext) -> None:
    ctx.set(0, ctx.need(0), int(ctx.attr("dtype", 0)) or ctx.elem(0))


@rule("Multinomial")
def _multinomial(ctx: NodeContext) -> None:
    elem = int(ctx.attr("dtype", TensorProto.INT32))
    ctx.set(0, (ctx.need(0)[0], int(ctx.attr("sample_size", 1))), elem)
