"""Gathering, scattering, searching: Gather*, Scatter*, TopK, NonZero, OneHot, Compress, Unique ..."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from onnx_symmem.expr.expression import ONE, Expr, maximum, minimum
from onnx_symmem.shapes.context import DimLike, NodeContext, Unknown, Unresolved
from onnx_symmem.shapes.masks import one_value
from onnx_symmem.shapes.positions import largest_element, largest_per_column
from onnx_symmem.shapes.registry import MICROSOFT, ML, rule
from onnx_symmem.shapes.rules.shape_arithmetic import product
from onnx_symmem.shapes.table import Dims
from onnx_symmem.shapes.values import MAX_FOLLOWED, PartialValue

__all__: list[str] = []

INT64 = TensorProto.INT64
MAX_LOOKED_UP = 64  # indices that are looked at one by one


def _indices(ctx: NodeContext, k: int) -> np.ndarray | None:
    """Constant contents of an index tensor, in its dims."""
    numbers, value = ctx.ints(k), ctx.value(k)
    if numbers is None or value is None or len(numbers) > MAX_FOLLOWED:
        return None
    return np.array(numbers, dtype=np.int64).reshape(value.dims)


@rule("Gather")
def _gather(ctx: NodeContext) -> None:
    dims, chosen = ctx.need(0), ctx.need(1)
    axis = ctx.axis(len(dims))
    _limit_rows(ctx, dims[axis], chosen)
    value = ctx.value(0)
    if value is not None:
        indices = _indices(ctx, 1)
        if indices is not None and _inside(indices, value.dims[axis]):
            value = PartialValue.of(np.asarray(np.take(value.array(), indices, axis=axis), dtype=object))
        else:
            value = None
    ctx.set(0, (*dims[:axis], *chosen, *dims[axis + 1 :]), value=value)


def _limit_rows(ctx: NodeContext, rows: Expr, chosen: Dims) -> None:
    """What is looked up is there: constant indices, sizes, or the last of a range of positions."""
    value = ctx.value(1)
    found = () if value is None else tuple(i for i in value.items[:MAX_LOOKED_UP] if isinstance(i, Expr))
    if not found and all(ctx.at_least(dim, 1) for dim in chosen):
        last = largest_element(ctx, ctx.node.inputs[1])
        found = () if last is None else (last,)
    constants = [number for number in (index.as_int() for index in found) if number is not None]
    if constants:
        ctx.limit(rows - 1 - max(0, *constants), "indices are within the axis")
        ctx.limit(rows + min(-1, *constants), "indices are within the axis")
    for index in found:
        if not index.is_const and ctx.at_least(index, 0):
            ctx.limit(rows - 1 - index, "indices are within the axis")


def _inside(indices: np.ndarray, size: int) -> bool:
    return bool(((indices >= -size) & (indices < size)).all())


@rule("GatherElements")
def _gather_elements(ctx: NodeContext) -> None:
    value, indices = ctx.value(0), None
    if value is not None:
        indices = _indices(ctx, 1)
    if value is not None and indices is not None:
        axis = ctx.axis(len(value.dims))
        if _inside(indices, value.dims[axis]):
            taken = np.take_along_axis(value.array(), indices % value.dims[axis], axis=axis)
            ctx.set(0, ctx.need(1), value=PartialValue.of(taken))
            return
    ctx.set(0, ctx.need(1))


@rule("GatherND")
@rule("GatherND", domain=MICROSOFT)
def _gather_nd(ctx: NodeContext) -> None:
    dims, indices = ctx.need(0), ctx.need(1)
    batch = int(ctx.attr("batch_dims", 0))
    depth = indices[-1].as_int()
    if depth is None:
        raise Unresolved("the last dim of the indices is not constant")
    lead = tuple(
        ctx.same(a, b, "batch dims of GatherND") for a, b in zip(dims[:batch], indices[:batch], strict=True)
    )
    result = (*lead, *indices[batch:-1], *dims[batch + depth :])
    if all(ctx.at_least(dim, 1) for dim in indices):
        for rows, last in zip(dims[batch:], largest_per_column(ctx, ctx.node.inputs[1]), strict=False):
            if last is not None and ctx.at_least(last, 0):
                ctx.limit(rows - 1 - last, "indices are within the axis")
    value, at = ctx.value(0), None if ctx.value(0) is None else _indices(ctx, 1)
    if value is not None and at is not None and batch == 0 and depth <= len(value.dims):
        taken = value.array()[tuple(at[..., k] for k in range(depth))]
        ctx.set(0, result, value=PartialValue.of(np.asarray(taken, dtype=object)))
    else:
        ctx.set(0, result)


@rule("Scatter", "ScatterElements")
def _scatter_elements(ctx: NodeContext) -> None:
    value = None
    data, updates = ctx.value(0), ctx.value(2)
    indices = _indices(ctx, 1) if data is not None else None
    if data is not None and updates is not None and indices is not None:
        if len(data.dims) == 1 and ctx.attr("reduction", "none") == "none" and _inside(indices, data.dims[0]):
            items = list(data.items)
            for at, item in zip(indices.reshape(-1), updates.items, strict=True):
                items[int(at)] = item
            value = PartialValue(data.dims, tuple(items))
    ctx.set(0, ctx.need(0), value=value)


@rule("ScatterND")
def _scatter_nd(ctx: NodeContext) -> None:
    value = None
    data, updates = ctx.value(0), ctx.value(2)
    indices = _indices(ctx, 1) if data is not None else None
    if data is not None and updates is not None and indices is not None:
        if ctx.attr("reduction", "none") == "none" and indices.shape[-1] == len(data.dims):
            cells = data.array()
            for at, item in zip(indices.reshape(-1, len(data.dims)), updates.items, strict=True):
                cells[tuple(int(i) for i in at)] = item
            value = PartialValue.of(cells)
    ctx.set(0, ctx.need(0), value=value)


@rule("TensorScatter")
def _tensor_scatter(ctx: NodeContext) -> None:
    ctx.set(0, ctx.need(0))


@rule("TopK")
def _topk(ctx: NodeContext) -> None:
    dims = ctx.need(0)
    axis = ctx.axis(len(dims), -1)
    given = ctx.attr("k")
    size: DimLike = given if given is not None else ctx.item(1, 0)
    if isinstance(size, Unknown):
        size = Unknown("k of TopK is computed from data", dims[axis], 0, size.key)
    else:
        ctx.limit(dims[axis] - size, "TopK finds k elements")
    result = (*dims[:axis], size, *dims[axis + 1 :])
    ctx.set(0, result)
    ctx.set(1, result, INT64)


@rule("NonZero")
def _non_zero(ctx: NodeContext) -> None:
    dims = ctx.need(0)
    mask = one_value(ctx.scope, ctx.node.inputs[0])
    most: Expr = product(dims)
    key: tuple[object, ...] = ("nonzero", ctx.node.inputs[0])
    if mask is not None:
        most, key = mask.most, ("one value", mask.source, mask.kind, mask.number)
    found = Unknown("the number of nonzero elements depends on data", most, 0, key)
    ctx.set(0, (max(len(dims), 1), found), INT64)
    if mask is not None:
        ctx.apart((mask.source, mask.kind), 0, 1, mask.size)


@rule("OneHot")
def _one_hot(ctx: NodeContext) -> None:
    dims = ctx.need(0)
    axis = ctx.axis(len(dims) + 1, -1)
    value = ctx.value(1)
    depth = value.items[0] if value is not None and value.items else None
    size = int(depth) if isinstance(depth, float) else ctx.item(1, 0)
    ctx.set(0, (*dims[:axis], size, *dims[axis:]), ctx.elem(2))


@rule("Compress")
def _compress(ctx: NodeContext) -> None:
    dims = ctx.need(0)
    chosen = ctx.exprs(1)
    size, lead, tail = product(dims), dims[:0], dims[:0]
    if "axis" in ctx.node.attributes:
        axis = ctx.axis(len(dims))
        size, lead, tail = dims[axis], dims[:axis], dims[axis + 1 :]
    # Flags beyond the axis are ignored.
    if chosen is not None and None not in chosen:
        total = Expr.const(0)
        for place, item in enumerate(chosen):
            there = ONE if ctx.at_least(size, place + 1) else minimum(1, maximum(0, size - place))
            total = total + (item or 0) * there
        count: DimLike = ctx.simplify(total)
    else:
        flags = ctx.dims(1)
        bound = size if flags is None else ctx.simplify(minimum(size, flags[0]))
        all_used = flags is not None and ctx.at_least(size - flags[0], 0)
        count = Unknown(
            "the number of chosen elements depends on data",
            bound,
            0,
            ("count", ctx.node.inputs[1], None if all_used else size),
        )
    ctx.set(0, (*lead, count, *tail))


@rule("Unique")
def _unique(ctx: NodeContext) -> None:
    dims = ctx.need(0)
    whole = "axis" not in ctx.node.attributes
    axis = 0 if whole else ctx.axis(len(dims))
    size = product(dims) if whole else dims[axis]
    count = Unknown(
        "the number of distinct elements depends on data",
        size,
        0,
        ("unique", ctx.node.inputs[0], whole or axis),
    )
    ctx.set(0, (count,) if whole else (*dims[:axis], count, *dims[axis + 1 :]))
    for k in (1, 3):
        ctx.set(k, (count,), INT64)
    ctx.set(2, (size,), INT64)


@rule("NonMaxSuppression")
def _non_max_suppression(ctx: NodeContext) -> None:
    bound = None
    boxes, scores = ctx.dims(0), ctx.dims(1)
    if boxes is not None and scores is not None:
        per_class, most = boxes[1], ctx.exprs(2)
        if most and most[0] is not None:
            per_class = ctx.simplify(minimum(per_class, most[0]))
        bound = scores[0] * scores[1] * per_class
    ctx.set(0, (Unknown("the number of kept boxes depends on data", bound), 3), INT64)


@rule("EyeLike")
def _eye_like(ctx: NodeContext) -> None:
    ctx.set(0, ctx.need(0), ctx.attr("dtype") or ctx.elem(0))


@rule("Det")
def _det(ctx: NodeContext) -> None:
    ctx.set(0, ctx.need(0)[:-2])


@rule("ArrayFeatureExtractor", domain=ML)
def _array_feature_extractor(ctx: NodeContext) -> None:
    dims, chosen = ctx.need(0), ctx.need(1)
    lead = dims[:-1] if len(dims) > 1 else (ONE,)
    ctx.set(0, (*lead, product(chosen)))
