"""Ops that turn dims into numbers and numbers into dims: Shape, Size, Constant, Range, ConstantOfShape."""

from __future__ import annotations

from math import ceil, prod
from typing import Any

import numpy as np
from onnx import TensorProto

from onnx_symmem.expr.expression import ONE, Expr, ceildiv, maximum
from onnx_symmem.shapes.arithmetic import BINARY
from onnx_symmem.shapes.context import DimLike, NodeContext, Unknown, Unresolved
from onnx_symmem.shapes.registry import MICROSOFT, rule
from onnx_symmem.shapes.values import INTEGER_TYPES, MAX_FOLLOWED, Item, PartialValue, Real, read_tensor

__all__ = ["product", "sizes_from_input"]

INT64 = TensorProto.INT64


def product(dims: tuple[Expr, ...] | list[Expr]) -> Expr:
    """Number of elements."""
    total = ONE
    for dim in dims:
        total = total * dim
    return total


@rule("Shape")
def _shape(ctx: NodeContext) -> None:
    dims = ctx.dims(0)
    if dims is None:
        ctx.set(0, [Unknown(f"the rank of '{ctx.input_name(0)}' is unknown")], INT64)
        return
    ctx.set_value(0, PartialValue.vector(dims[slice(ctx.attr("start", 0), ctx.attr("end"))]), INT64)


@rule("Size")
def _size(ctx: NodeContext) -> None:
    dims = ctx.dims(0)
    ctx.set_value(0, PartialValue.scalar(None if dims is None else product(dims)), INT64)


@rule("Constant")
def _constant(ctx: NodeContext) -> None:
    attributes = ctx.node.attributes
    if "value" in attributes:
        tensor = attributes["value"]
        ctx.set(0, tuple(tensor.dims), tensor.data_type)
        if ctx.wants(0):
            ctx.scope.constants[ctx.node.outputs[0]] = tensor
        return
    if "sparse_value" in attributes:
        sparse = attributes["sparse_value"]
        ctx.set(0, tuple(sparse.dims), sparse.values.data_type)
        return
    for name, elem in (
        ("value_int", INT64), ("value_ints", INT64), ("value_float", TensorProto.FLOAT),
        ("value_floats", TensorProto.FLOAT), ("value_string", TensorProto.STRING),
        ("value_strings", TensorProto.STRING),
    ):  # fmt: skip
        if name not in attributes:
            continue
        content: Any = attributes[name]
        if elem == TensorProto.STRING:
            ctx.set(0, (len(content),) if name.endswith("s") else (), elem)
        elif name.endswith("s"):
            ctx.set_value(0, PartialValue.vector(tuple(map(_item, content))), elem)
        else:
            ctx.set_value(0, PartialValue.scalar(_item(content)), elem)
        return
    raise Unresolved("the Constant has no value")


def _item(number: float) -> Item:
    return number if isinstance(number, float) else Expr.const(number)


@rule("ConstantOfShape")
def _constant_of_shape(ctx: NodeContext) -> None:
    fill = ctx.attr("value")
    elem = TensorProto.FLOAT if fill is None else fill.data_type
    dims = sizes_from_input(ctx, 0)
    fixed = [d.as_int() if isinstance(d, Expr) else None for d in dims]
    value = None
    if None not in fixed and prod(d or 0 for d in fixed) <= MAX_FOLLOWED:
        content = PartialValue((1,), (0.0,)) if fill is None else read_tensor(fill, ctx.scope.run.folder)
        if content is not None and content.items:
            shape = tuple(d or 0 for d in fixed)
            value = PartialValue(shape, content.items[:1] * prod(shape))
    ctx.set(0, dims, elem, value)


def sizes_from_input(ctx: NodeContext, k: int) -> list[DimLike]:
    """The elements of the 1-D integer input k as dims."""
    if ctx.exprs(k) is not None:
        length = len(ctx.exprs(k) or ())
    else:
        known = ctx.need(k)
        fixed = known[0].as_int() if len(known) == 1 else None
        if fixed is None:
            raise Unresolved(f"the length of '{ctx.input_name(k)}' is unknown")
        length = fixed
    return [ctx.item(k, position) for position in range(length)]


@rule("Range")
@rule("Range", domain=MICROSOFT)
def _range(ctx: NodeContext) -> None:
    start, limit, delta = (
        value.items[0] if (value := ctx.value(k)) and value.items else None for k in range(3)
    )
    if not ctx.has(2):  # of com.microsoft
        delta = Expr.const(1) if ctx.elem(0) in INTEGER_TYPES else 1.0
    count = _range_length(ctx, start, limit, delta)
    if count is None:
        ctx.set(0, [Unknown("the limits of the Range are computed from data")])
        return
    fixed = count.as_int()
    value = None
    if fixed is not None and fixed <= MAX_FOLLOWED:
        add, multiply, elem = BINARY["Add"], BINARY["Mul"], ctx.elem(0)
        steps = (float(k) if isinstance(start, float) else Expr.const(k) for k in range(fixed))
        items = (add(ctx.facts, elem, start, multiply(ctx.facts, elem, delta, k)) for k in steps)
        value = PartialValue.vector(tuple(items))
    ctx.set(0, [count], value=value)


def _range_length(ctx: NodeContext, start: Item, limit: Item, delta: Item) -> Expr | None:
    """max(0, ceil((limit - start) / delta))."""
    if isinstance(start, float) and isinstance(limit, float) and isinstance(delta, float):
        kind = np.float64 if ctx.elem(0) == TensorProto.DOUBLE else np.float32
        if delta == 0.0:
            return None
        return Expr.const(max(0, ceil(float(kind(limit) - kind(start)) / delta)))
    parts = [_fraction(item) for item in (start, limit, delta)]
    if any(p is None for p in parts):
        return None
    (s, sd), (e, ed), (d, dd) = (p for p in parts if p is not None)
    # (e/ed - s/sd) / (d/dd), all denominators positive constants
    top, bottom = (e * sd - s * ed) * dd, d * (sd * ed)
    if not ctx.at_least(bottom, 1):
        if not ctx.at_least(-bottom, 1):
            return None
        top, bottom = -top, -bottom
    return ctx.simplify(maximum(0, ceildiv(top, bottom)))


def _fraction(item: Item) -> tuple[Expr, int] | None:
    if isinstance(item, Expr):
        return item, 1
    if isinstance(item, Real) and item.scale == 1.0:
        return item.num, item.den
    if isinstance(item, float) and abs(item) < 1 << 40:
        num, den = item.as_integer_ratio()
        return Expr.const(num), den
    return None
