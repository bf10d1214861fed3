"""Scan: a body over slices of its inputs.

Its states keep their shapes: ONNX Runtime writes each iteration's into the place of the one before, and runs
at least one.
"""

from __future__ import annotations

from collections.abc import Mapping

from onnx_symmem.expr.expression import Expr
from onnx_symmem.shapes.context import DimLike, NodeContext, Unknown
from onnx_symmem.shapes.registry import rule
from onnx_symmem.shapes.rules.control import outside, scanned_dims
from onnx_symmem.shapes.states import State

__all__: list[str] = []


@rule("Scan")
def _scan(ctx: NodeContext) -> None:
    attribute = ctx.attr("num_scan_inputs")
    offset = 1 if ctx.version == 8 else 0  # opset 8 has sequence_lens first and a batch axis
    count = ctx.count - offset - int(attribute)
    start = [ctx.scope.state(k) for k in ctx.node.inputs[offset : offset + count]]
    scanned: list[State] = []
    length: Expr | None = None
    axes = ctx.attr("scan_input_axes", (0,) * int(attribute))
    for k in range(int(attribute)):
        dims, elem = ctx.dims(offset + count + k), ctx.elem(offset + count + k)
        if dims is None:
            scanned.append(State(None, elem))
            continue
        axis = axes[k] + len(dims) if axes[k] < 0 else axes[k]
        axis = 1 if offset else axis
        length = (
            dims[axis] if length is None else ctx.same(length, dims[axis], "Scan inputs are equally long")
        )
        rest = (*dims[:axis], *dims[axis + 1 :])
        scanned.append(State(rest[1:] if offset else rest, elem))
    if offset:
        start = [State(None if s.dims is None else s.dims[1:], s.elem) for s in start]
    if length is not None and not offset:
        ctx.limit(length - 1, "Scan runs at least once")
    run = ctx.scope.run
    mark = len(run.unknowns)
    body = ctx.scope.child(ctx.node, "body", [*(State(s.dims, s.elem) for s in start), *scanned])
    inner = {u.symbol: u.bound for u in run.unknowns[mark:]}
    results = list(body.results())
    batch = ctx.need(offset + count)[:1] if offset else ()
    kept: dict[Expr, Expr] = {}
    for k, (first, last) in enumerate(zip(start, results, strict=False)):
        final = _kept_state(ctx, first, last, inner, kept)
        ctx.set(k, None if final is None else (*batch, *final), first.elem or last.elem or None)
    out_axes = ctx.attr("scan_output_axes", (0,) * (len(results) - count))
    for k, state in enumerate(results[count:]):
        known = Unknown("the length of the scanned inputs is unknown") if length is None else length
        if state.dims is not None:
            state = State(tuple(_in_terms_of(ctx, dim, kept) for dim in state.dims), state.elem)
        dims_out = scanned_dims(ctx, state, State(None), known, inner, out_axes[k])
        ctx.set(count + k, None if dims_out is None else (*batch, *dims_out), state.elem or None)


def _in_terms_of(ctx: NodeContext, dim: Expr, kept: Mapping[Expr, Expr]) -> Expr:
    """A dim of the body with what equals a state's dim replaced by that."""
    if dim in kept:
        return kept[dim]
    named = {y.as_atom(): x for y, x in kept.items()}
    return ctx.simplify(dim.substitute({a.name: x for a, x in named.items() if a and a.kind == "symbol"}))


def _kept_state(
    ctx: NodeContext, first: State, last: State, inner: Mapping[str, Expr | None], kept: dict[Expr, Expr]
) -> list[DimLike] | None:
    """Dims of a Scan's state, which no iteration changes; `kept` collects other expressions of the same."""
    if first.dims is None or last.dims is None or len(first.dims) != len(last.dims):
        known = first.dims if first.dims is not None else last.dims
        return None if known is None else [outside(dim, inner) for dim in known]
    for x, y in zip(first.dims, last.dims, strict=True):
        if x != y:
            ctx.same(x, y, "a state of Scan keeps its shape")
            kept[y] = x
    return list(first.dims)
