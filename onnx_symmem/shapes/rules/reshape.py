"""Reshape and Flatten: the same elements under other dims.

A target entry is a size, 0 (copy the input dim; with allowzero it is a size), or -1 (whatever keeps the
number of elements). An entry that is an expression is a size wherever it cannot be 0 or -1. The element
counts of both sides are equal in every run, which gives the -1 as an exact quotient, and facts such as
n == 343 for [batch, n] -> [batch, 7, 49].
"""

from __future__ import annotations

from onnx_symmem.expr.expression import Expr
from onnx_symmem.shapes.context import DimLike, NodeContext, Unknown, Unresolved
from onnx_symmem.shapes.registry import rule
from onnx_symmem.shapes.rules.shape_arithmetic import product
from onnx_symmem.shapes.table import Dims
from onnx_symmem.shapes.values import PartialValue

__all__: list[str] = []


@rule("Reshape")
def _reshape(ctx: NodeContext) -> None:
    dims = ctx.dims(0)
    target = _target(ctx)
    result: list[DimLike | None] = []
    for position, entry in enumerate(target):
        result.append(_entry(ctx, dims, position, entry))
    missing = [k for k, dim in enumerate(result) if dim is None]
    known = [dim for dim in result if isinstance(dim, Expr)]
    if len(missing) == 1 and dims is not None and _tells(ctx, target[missing[0]], known):
        result[missing[0]] = _quotient(ctx, dims, known)
    elif missing:
        # Without elements a target dim may be anything.
        whole = dims is not None and all(ctx.at_least(d, 1) for d in (*dims, *known))
        bound = product(dims) if dims is not None and whole else None
        several = "several target dims are computed from data"
        reason = several if len(missing) > 1 or dims is None else "a target dim may be 0, as may others"
        unknown = Unknown(reason, bound)
        result = [unknown if dim is None else dim for dim in result]
    final = [dim for dim in result if dim is not None]
    exact = tuple(dim for dim in final if isinstance(dim, Expr))
    if dims is not None and len(exact) == len(final):
        _relate(ctx, dims, exact)
    ctx.set(0, final, value=_value(ctx, final))


def _target(ctx: NodeContext) -> tuple[Expr | None, ...]:
    attribute = ctx.attr("shape")
    if attribute is not None:
        return tuple(map(Expr.const, attribute))
    entries = ctx.exprs(1)
    if entries is not None:
        return entries
    length = ctx.dims(1)
    fixed = length[0].as_int() if length is not None and len(length) == 1 else None
    if fixed is None:
        raise Unresolved(f"the length of '{ctx.input_name(1)}' is unknown")
    return (None,) * fixed


def _entry(ctx: NodeContext, dims: Dims | None, position: int, entry: Expr | None) -> DimLike | None:
    """The output dim that a target entry states; None where only the element count can tell."""
    if entry is None:
        return None
    value = entry.as_int()
    if value is not None and value < 0:
        return None
    copied = dims[position] if dims is not None and position < len(dims) else None
    if value == 0 and not ctx.attr("allowzero", 0):
        if copied is None:
            return Unknown("a 0 copies a dim of an input of unknown rank") if dims is None else Expr.const(0)
        return copied
    if value is not None or ctx.at_least(entry, 1):
        return entry
    if not ctx.at_least(entry, 0):
        return None
    # The entry may turn out to be 0, which copies the input's dim: the same size where that is 0 as well.
    if ctx.attr("allowzero", 0) or (copied is not None and copied.exact_quotient(entry) is not None):
        return entry
    return None


def _tells(ctx: NodeContext, entry: Expr | None, known: list[Expr]) -> bool:
    """Whether the element count tells the one remaining dim: -1 never stands beside a 0, a size may."""
    return entry == -1 or all(ctx.at_least(dim, 1) for dim in known)


def _quotient(ctx: NodeContext, dims: Dims, known: list[Expr]) -> Expr:
    """The one remaining dim: the element count divided by the other dims, common dims cancelled first."""
    left = list(dims)
    rest: list[Expr] = []
    cancelled: list[Expr] = []
    for dim in known:
        if dim in left:
            left.remove(dim)
            cancelled.append(dim)
        else:
            rest.append(dim)
    total, others = product(left), product(rest)
    if not others.terms:
        return Expr.const(0)
    exact = total.exact_quotient(others)
    if exact is not None:
        return exact
    quotient = ctx.simplify(total // others)
    filled = all(ctx.at_least(dim, 1) for dim in cancelled)  # else there may be no elements at all
    if others.is_const and len(total.symbols()) == 1 and filled:
        ctx.same(total, total // others * others, "Reshape keeps the number of elements")
    return quotient


def _relate(ctx: NodeContext, dims: Dims, result: Dims) -> None:
    """Equal element counts, as a relation, and as an equality where it is not one of form already."""
    if dims == result:
        return
    ctx.relate("elements", dims, result)
    left, right = list(dims), []
    for dim in result:
        if dim in left:
            left.remove(dim)
        else:
            right.append(dim)
    if all(ctx.at_least(d, 1) for d in dims if d not in left):
        before, after = product(left), product(right)
        if before != after and not any(a.kind == "floordiv" for a in after.atoms()):
            ctx.same(before, after, "Reshape keeps the number of elements")


def _value(ctx: NodeContext, dims: list[DimLike]) -> PartialValue | None:
    value = ctx.value(0)
    if value is None:
        return None
    fixed = [d.as_int() if isinstance(d, Expr) else None for d in dims]
    return None if None in fixed else PartialValue(tuple(d or 0 for d in fixed), value.items)


@rule("Flatten")
def _flatten(ctx: NodeContext) -> None:
    dims = ctx.need(0)
    axis = int(ctx.attr("axis", 1))
    if not -len(dims) <= axis <= len(dims):
        raise Unresolved(f"axis {axis} does not fit rank {len(dims)}")
    axis = axis + len(dims) if axis < 0 else axis
    result = (product(dims[:axis]), product(dims[axis:]))
    if dims != result:
        ctx.relate("elements", dims, result)
    ctx.set(0, result, value=_value(ctx, list(result)))
