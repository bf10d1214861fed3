"""Ops of the default domain that onnx does not have: retired ones, and plugins of TensorRT."""

from __future__ import annotations

from onnx import TensorProto

from onnx_symmem.shapes.context import NodeContext, Unresolved
from onnx_symmem.shapes.registry import rule
from onnx_symmem.shapes.rules.shape_arithmetic import sizes_from_input

__all__: list[str] = []


@rule(
    "Affine", "DisentangledAttention_TRT", "GRUUnit", "ImageScaler", "ParametricSoftplus", "Scale",
    "ScaledTanh",
)  # fmt: skip
def _as_first(ctx: NodeContext) -> None:
    ctx.set(0, ctx.need(0), ctx.elem(0))


@rule("Crop")
def _crop(ctx: NodeContext) -> None:
    """Borders are cut off; with a scale the result has that size, whatever is left on the far side."""
    n, c, h, w = ctx.need(0)
    left, top, right, bottom = ctx.attr("border", (0, 0, 0, 0))
    scale = tuple(ctx.attr("scale", ()))
    size = scale or (ctx.simplify(h - top - bottom), ctx.simplify(w - left - right))
    ctx.set(0, (n, c, *size), ctx.elem(0))


@rule("GivenTensorFill")
def _given_fill(ctx: NodeContext) -> None:
    if ctx.attr("input_as_shape", 0):
        dims = sizes_from_input(ctx, 0)
    elif ctx.has(0):
        dims = list(ctx.need(0))
    elif ctx.attr("shape"):
        dims = list(ctx.attr("shape"))
    else:
        raise Unresolved("no shape is given")
    ctx.set(0, (*dims, *ctx.attr("extra_shape", ())), TensorProto.FLOAT)


@rule("EfficientNMS_TRT")
def _efficient_nms(ctx: NodeContext) -> None:
    batch, most = ctx.need(0)[0], int(ctx.attr("max_output_boxes", 100))
    ctx.set(0, (batch, 1), TensorProto.INT32)
    ctx.set(1, (batch, most, 4), ctx.elem(0))
    ctx.set(2, (batch, most), ctx.elem(0))
    ctx.set(3, (batch, most), TensorProto.INT32)


@rule("MultilevelCropAndResize_TRT", "PyramidROIAlign_TRT")
def _crops(ctx: NodeContext) -> None:
    boxes, image, size = ctx.need(0), ctx.need(1), int(ctx.attr("pooled_size"))
    ctx.set(0, (boxes[0], boxes[1], image[1], size, size), ctx.elem(0))
