"""Multidirectional broadcasting of symbolic dims, right for every shape at which the model runs.

Two dims broadcast if they are equal or one of them is 1. The result is then

    the other dim                       if one is the constant 1
    the dim known to be at least 2      the other is equal to it, or 1
    max(a, b)                           if both are at least 1
    max(a, b)*min(a, 1)*min(b, 1)       otherwise: a dim of size 0 wins over 1
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from onnx_symmem.expr.expression import ONE, Expr, maximum, minimum
from onnx_symmem.shapes.table import Dims

if TYPE_CHECKING:
    from onnx_symmem.shapes.context import DimLike, NodeContext

__all__ = ["broadcast", "broadcast_dim", "onto"]


def broadcast(context: NodeContext, shapes: Sequence[Dims]) -> tuple[DimLike, ...]:
    """Dims of the broadcast of all shapes."""
    result = shapes[0]
    for dims in shapes[1:]:
        if dims is result or dims == result:
            continue
        if len(dims) > len(result):
            dims, result = result, dims
        lead = len(result) - len(dims)
        merged = list(result)
        for k, dim in enumerate(dims):
            merged[lead + k] = broadcast_dim(context, result[lead + k], dim)
        result = tuple(merged)
    return result


def onto(context: NodeContext, dims: Dims | None, target: Dims, reason: str) -> None:
    """What the node needs so that `dims` broadcast to `target` itself: each is equal there, or 1."""
    if dims is None or len(dims) > len(target):
        return
    for dim, size in zip(dims, target[len(target) - len(dims) :], strict=True):
        if dim in (size, ONE):
            continue
        if context.at_least(dim, 2):
            context.same(size, dim, reason)
        else:
            context.scope.assume(context, size, dim, reason, "equal_or_one")


def broadcast_dim(context: NodeContext, a: Expr, b: Expr) -> Expr:
    """The common size of two dims of one axis."""
    if a is b or a == b or b is ONE or b == ONE:
        return a
    if a is ONE or a == ONE:
        return b
    x, y = a.as_int(), b.as_int()
    if x is not None or y is not None:
        constant, other = (a, b) if x is not None else (b, a)
        if context.at_least(other, 2):
            return context.same(constant, other, "broadcast of dims that are not 1")
        context.scope.assume(context, constant, other, "broadcast", "equal_or_one")
        return constant
    gap = context.simplify(a - b)
    if not gap.terms:
        return min(a, b, key=Expr.sort_key)
    wide_a, wide_b = context.at_least(a, 2), context.at_least(b, 2)
    if wide_a and wide_b:
        return context.same(a, b, "broadcast of dims that are not 1")
    _limits(context, a, b)
    context.scope.assume(context, a, b, "broadcast", "equal_or_one")
    if wide_a or wide_b:
        return a if wide_a else b
    # One dim is never below the other: it is the larger one.
    result: Expr
    if context.at_least(gap, 0):
        result = a
    elif context.at_least(-gap, 0):
        result = b
    else:
        result = maximum(a, b)
    for dim in (a, b):
        if dim is not result and not context.at_least(dim, 1):
            result = result * minimum(dim, 1)
    return context.simplify(result)


def _limits(context: NodeContext, a: Expr, b: Expr) -> None:
    """Broadcasting x with min(x, c), c >= 2, needs x <= c: a table of c rows bounds the length x."""
    for x, y in ((a, b), (b, a)):
        atom = y.as_atom()
        if atom is None or atom.kind != "min" or x not in atom.args:
            continue
        others = [o for o in atom.args if o != x]
        if all(context.at_least(o, 2) for o in others):
            for other in others:
                context.limit(other - x, "broadcast with a dim that is cut there")
