"""Matrix products: MatMul, Gemm, Einsum and their integer forms."""

from __future__ import annotations

from onnx_symmem.expr.expression import ONE, Expr, minimum
from onnx_symmem.shapes.broadcast import onto
from onnx_symmem.shapes.context import DimLike, NodeContext, Unresolved
from onnx_symmem.shapes.registry import rule
from onnx_symmem.shapes.table import Dims

__all__ = ["matmul_dims"]


def matmul_dims(ctx: NodeContext, a: Dims, b: Dims) -> tuple[DimLike, ...]:
    """Dims of numpy's matmul; the inner dims are equal in every run."""
    if not a or not b:
        raise Unresolved("a scalar has no matrix product")
    vector_a, vector_b = len(a) == 1, len(b) == 1
    if vector_a:
        a = (ONE, *a)
    if vector_b:
        b = (*b, ONE)
    ctx.same(a[-1], b[-2], "inner dims of a matrix product")
    lead = _batch(ctx, a, b)
    rows = () if vector_a else (a[-2],)
    columns = () if vector_b else (b[-1],)
    return (*lead, *rows, *columns)


def _batch(ctx: NodeContext, a: Dims, b: Dims) -> tuple[DimLike, ...]:
    """Broadcast batch dims. Where no inner element is left, ONNX Runtime takes those of the higher rank."""
    lead = ctx.broadcast(a[:-2], b[:-2])
    if ctx.at_least(a[-1], 1) or ctx.at_least(b[-2], 1):
        return lead
    given = a[:-2] if len(a) >= len(b) else b[:-2]
    inner = minimum(1, a[-1])
    return tuple(
        y if x == y or not isinstance(x, Expr) else ctx.simplify(inner * x + (1 - inner) * y)
        for x, y in zip(lead, given, strict=True)
    )


@rule("MatMul", "MatMulInteger")
def _matmul(ctx: NodeContext) -> None:
    ctx.set(0, matmul_dims(ctx, ctx.need(0), ctx.need(1)))


@rule("QLinearMatMul")
def _qlinear_matmul(ctx: NodeContext) -> None:
    ctx.set(0, matmul_dims(ctx, ctx.need(0), ctx.need(3)), ctx.elem(7) or None)


@rule("Gemm")
def _gemm(ctx: NodeContext) -> None:
    a, b = ctx.need(0), ctx.need(1)
    if len(a) != 2 or len(b) != 2:
        raise Unresolved(f"expected two matrices, found rank {len(a)} and {len(b)}")
    if ctx.attr("transA", 0):
        a = a[::-1]
    if ctx.attr("transB", 0):
        b = b[::-1]
    ctx.same(a[1], b[0], "inner dims of a matrix product")
    onto(ctx, ctx.dims(2), (a[0], b[1]), "bias of a matrix product")
    ctx.set(0, (a[0], b[1]))


@rule("Einsum")
def _einsum(ctx: NodeContext) -> None:
    equation = str(ctx.attr("equation", "")).replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != ctx.count:
        raise Unresolved(f"the equation has {len(terms)} operands, the node {ctx.count}")
    sizes: dict[str, Expr] = {}
    ellipses: list[Dims] = []
    for k, term in enumerate(terms):
        dims = ctx.need(k)
        before, dots, after = term.partition("...")
        if len(before) + len(after) > len(dims) or (not dots and len(term) != len(dims)):
            raise Unresolved(f"'{term}' does not fit rank {len(dims)}")
        ellipses.append(dims[len(before) : len(dims) - len(after)] if dots else ())
        for letter, dim in (
            *zip(before, dims, strict=False),
            *zip(after, dims[len(dims) - len(after) :], strict=True),
        ):
            if letter in sizes and sizes[letter] != dim:
                merged = ctx.broadcast((sizes[letter],), (dim,))[0]
                if not isinstance(merged, Expr):
                    raise Unresolved(f"the sizes of '{letter}' do not agree")
                dim = merged
            sizes[letter] = dim
    if not arrow:
        once = sorted(c for c in sizes if left.count(c) == 1)
        right = ("..." if "..." in left else "") + "".join(once)
    before, dots, after = right.partition("...")
    shared = ctx.broadcast(*ellipses) if dots else ()
    try:
        result = (*(sizes[c] for c in before), *shared, *(sizes[c] for c in after))
    except KeyError as error:
        raise Unresolved(f"the output names {error}, no input does") from None
    ctx.set(0, result)
