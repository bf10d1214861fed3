"""Resampling of images: Resize, Upsample, GridSample, AffineGrid, Col2Im, ImageDecoder.

ONNX Runtime multiplies sizes and scales in float32 and rounds down, which `scaled_floor` states.
"""

from __future__ import annotations

from onnx import TensorProto

from onnx_symmem.expr.expression import ONE, Expr, maximum, minimum, scaled_floor
from onnx_symmem.expr.scaled import is_scale
from onnx_symmem.shapes.context import DimLike, NodeContext, Unknown, Unresolved
from onnx_symmem.shapes.estimates import estimate_of, whole_of
from onnx_symmem.shapes.registry import MICROSOFT, rule
from onnx_symmem.shapes.rules.movement import normal_axes
from onnx_symmem.shapes.rules.shape_arithmetic import sizes_from_input
from onnx_symmem.shapes.values import Item, Real

__all__ = ["resized"]


def resized(ctx: NodeContext, size: Expr, scale: Item) -> DimLike:
    """floor(size * scale) as ONNX Runtime computes it."""
    if isinstance(scale, float):
        usable = scale == 0 or is_scale(scale)
        return ctx.simplify(scaled_floor(size, scale)) if usable else Unknown("no image has such a scale")
    if isinstance(scale, Real) and scale.scale == 1.0 and scale.den == 1:
        return ctx.simplify(size * scale.num)
    estimate = estimate_of(ctx.facts, TensorProto.FLOAT, scale)
    whole = None if estimate is None else whole_of(ctx.facts, estimate, (size, ONE))
    if whole is None:
        return Unknown("the scale is computed from data or rounded")
    return whole


@rule("Upsample")
def _upsample(ctx: NodeContext) -> None:
    dims = ctx.need(0)
    scales = ctx.attr("scales")
    if scales is None:
        value = ctx.value(1)
        scales = value.items if value is not None else (None,) * len(dims)
    ctx.set(0, [resized(ctx, size, scale) for size, scale in zip(dims, scales, strict=True)])


@rule("Resize")
def _resize(ctx: NodeContext) -> None:
    dims = ctx.need(0)
    given = ctx.attr("axes")
    axes = tuple(range(len(dims))) if given is None else normal_axes(given, len(dims))
    result: list[DimLike] = list(dims)
    scales_at = 1 if ctx.version < 11 else 2
    if ctx.has(3) and not _is_empty(ctx, 3):
        sizes = [ctx.item(3, k) for k in range(len(axes))]
        policy = ctx.attr("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            sizes = _kept_ratio(ctx, [dims[a] for a in axes], sizes, policy)
        filled = policy == "stretch" and all(ctx.at_least(dim, 1) for dim in dims)
        for k, axis in enumerate(axes):
            size = sizes[k]
            if filled and isinstance(size, Expr):
                ctx.limit(size - 1, "an image with elements is not resized to none")
            result[axis] = size
    else:
        value = ctx.value(scales_at)
        for k, axis in enumerate(axes):
            scale = value.items[k] if value is not None and k < len(value.items) else None
            result[axis] = resized(ctx, dims[axis], scale)
    ctx.set(0, result)


def _is_empty(ctx: NodeContext, k: int) -> bool:
    """An empty tensor stands for an argument that is left out."""
    dims = ctx.dims(k)
    return dims is not None and len(dims) == 1 and dims[0] == 0


def _kept_ratio(ctx: NodeContext, dims: list[Expr], sizes: list[DimLike], policy: str) -> list[DimLike]:
    """round(scale * d) with the smallest (not_larger) or largest ratio size / d of all resized axes.

    Rounding is monotone, so the extremum may be taken after it: round(s*d/e) = (2*s*d + e) // (2*e).
    """
    known = [size for size in sizes if isinstance(size, Expr)]
    if len(known) < len(sizes) or policy not in ("not_larger", "not_smaller"):
        return [Unknown("the ratio is computed from data")] * len(sizes)
    pick = minimum if policy == "not_larger" else maximum
    result: list[DimLike] = []
    for dim in dims:
        choices = [
            size if other == dim else (size * dim * 2 + other) // (other * 2)
            for size, other in zip(known, dims, strict=True)
        ]
        result.append(ctx.simplify(pick(*choices)))
    return result


@rule("GridSample")
@rule("GridSample", domain=MICROSOFT)
def _grid_sample(ctx: NodeContext) -> None:
    dims, grid = ctx.need(0), ctx.need(1)
    batch = ctx.same(dims[0], grid[0], "one grid per image")
    ctx.same(Expr.const(len(dims) - 2), grid[-1], "one coordinate per spatial axis")
    ctx.set(0, (batch, dims[1], *grid[1:-1]))


@rule("CropAndResize", domain=MICROSOFT)
def _crop_and_resize(ctx: NodeContext) -> None:
    image, regions = ctx.need(0), ctx.need(1)
    which = ctx.dims(2)
    count = ctx.same(regions[0], which[0], "one batch index per region") if which else regions[0]
    ctx.set(0, (count, image[1], ctx.item(3, 0), ctx.item(3, 1)), ctx.elem(0))


@rule("AffineGrid")
def _affine_grid(ctx: NodeContext) -> None:
    size = sizes_from_input(ctx, 1)
    ctx.set(0, (size[0], *size[2:], len(size) - 2))


@rule("Col2Im")
def _col2im(ctx: NodeContext) -> None:
    dims = ctx.need(0)
    block, image = ctx.exprs(2), ctx.dims(1)
    axes = image[0].as_int() if image else None
    if axes is None:
        raise Unresolved("the rank of the image is unknown")
    channels: DimLike = Unknown("the block shape is computed from data")
    if block is not None and None not in block:
        cells = Expr.const(1)
        for size in block:
            cells = cells * size if size is not None else cells
        channels = ctx.simplify(dims[1] // cells)
    ctx.set(0, (dims[0], channels, *(ctx.item(1, k) for k in range(axes))))


@rule("ImageDecoder")
def _image_decoder(ctx: NodeContext) -> None:
    unknown = Unknown("the size of the image is in the data")
    channels = 1 if ctx.attr("pixel_format", "RGB") == "Grayscale" else 3
    ctx.set(0, (unknown, unknown, channels), TensorProto.UINT8)
