"""Quantisation: dims stay; the zero point, the scale, or an attribute gives the element type."""

from __future__ import annotations

from onnx import TensorProto

from onnx_symmem.shapes.context import NodeContext
from onnx_symmem.shapes.registry import MICROSOFT, rule

__all__: list[str] = []


@rule("QuantizeLinear")
@rule("QuantizeLinear", domain=MICROSOFT)
def _quantize(ctx: NodeContext) -> None:
    given = int(ctx.attr("output_dtype", 0))
    ctx.set(0, ctx.need(0), ctx.elem(2) or given or int(TensorProto.UINT8))


@rule("DequantizeLinear")
@rule("DequantizeLinear", domain=MICROSOFT)
def _dequantize(ctx: NodeContext) -> None:
    given = int(ctx.attr("output_dtype", 0))
    ctx.set(0, ctx.need(0), given or ctx.elem(1) or int(TensorProto.FLOAT))


@rule("DynamicQuantizeLinear")
def _dynamic(ctx: NodeContext) -> None:
    ctx.set(0, ctx.need(0), TensorProto.UINT8)
    ctx.set(1, (), TensorProto.FLOAT)
    ctx.set(2, (), TensorProto.UINT8)
