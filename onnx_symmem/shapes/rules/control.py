"""If and Loop: subgraphs are inferred with what is known of their inputs and of outer values.

An If runs one of two branches: what both say holds, and a known condition decides. The carried values of
a Loop start as given and are widened, dim by dim, until an iteration no longer changes them; a dim that
grows by the same amount in every iteration of a known number is stated exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from onnx import TensorProto

from onnx_symmem.expr.expression import ONE, ZERO, Expr, maximum
from onnx_symmem.shapes.context import DimLike, NodeContext, Unknown
from onnx_symmem.shapes.registry import rule
from onnx_symmem.shapes.scope import Scope
from onnx_symmem.shapes.states import SequenceState, State, merge_dims
from onnx_symmem.shapes.values import PartialValue

__all__ = ["outside", "scanned_dims"]


@rule("If")
def _if(ctx: NodeContext) -> None:
    condition = ctx.value(0)
    flag = condition.items[0] if condition is not None and condition.items else None
    truth = flag if isinstance(flag, Expr) else None
    decided = truth.as_int() if truth is not None else None
    before = len(ctx.scope.run.unknowns)
    yes = list(ctx.scope.child(ctx.node, "then_branch", ()).results())
    no = list(ctx.scope.child(ctx.node, "else_branch", ()).results())
    inner = {u.symbol: u.bound for u in ctx.scope.run.unknowns[before:]}
    for k in range(ctx.results):
        if decided is not None:
            ctx.set_state(k, yes[k] if decided else no[k])
        else:
            _merge(ctx, k, truth, yes[k], no[k], inner)


def _outer_bound(dim: Expr, inner: Mapping[str, Expr | None]) -> Expr | None:
    """An upper bound of a branch's dim without the symbols that exist only inside the branch."""
    if not dim.symbols() & inner.keys():
        return dim
    atom = dim.as_atom()
    bound = inner.get(atom.name) if atom is not None and atom.kind == "symbol" else None
    return None if bound is None else _outer_bound(bound, inner)


def _merge(
    ctx: NodeContext, k: int, truth: Expr | None, a: State, b: State, inner: Mapping[str, Expr | None]
) -> None:
    """Output k of an If whose condition is not a constant."""
    if a.sequence is not None or b.sequence is not None:
        left, right = a.sequence or SequenceState(0, None), b.sequence or SequenceState(0, None)
        length = left.length if left.length == right.length else None
        merged = SequenceState(left.elem or right.elem, merge_dims(left.common, right.common), length)
        ctx.set_state(k, State(None, 0, None, merged))
        return
    elem = a.elem or b.elem
    if a.dims is None or b.dims is None or len(a.dims) != len(b.dims):
        ctx.set(k, None, elem)
        return
    result: list[DimLike] = []
    for x, y in zip(a.dims, b.dims, strict=True):
        if x == y:
            result.append(x)
        elif truth is not None and not (x.symbols() | y.symbols()) & inner.keys():
            result.append(ctx.simplify(truth * x + (ONE - truth) * y))
        else:
            p, q = _outer_bound(x, inner), _outer_bound(y, inner)
            bound = None if p is None or q is None else ctx.simplify(maximum(p, q))
            result.append(Unknown("the branches of the If differ", bound))
    value = None
    if a.value is not None and b.value is not None and a.value.dims == b.value.dims:
        items = (x if x == y else None for x, y in zip(a.value.items, b.value.items, strict=True))
        value = PartialValue(a.value.dims, tuple(items))
    ctx.set(k, result, elem, value)


def _widen(ctx: NodeContext, start: State, end: State, what: str, lo: int) -> State:
    """A state that covers both: differing dims become fresh symbols of at least `lo`."""
    if start.sequence is not None or end.sequence is not None:
        a, b = start.sequence, end.sequence
        common = merge_dims(a.common, b.common) if a is not None and b is not None else None
        kind = a or b
        return State(None, 0, None, SequenceState(kind.elem if kind is not None else 0, common))
    elem = start.elem or end.elem
    if start.dims is None or end.dims is None or len(start.dims) != len(end.dims):
        return State(None, elem)
    run, dims = ctx.scope.run, []
    for axis, (x, y) in enumerate(zip(start.dims, end.dims, strict=True)):
        if x == y:
            dims.append(x)
        else:
            unknown = Unknown(f"{what} changes from one iteration to the next", None, lo)
            dims.append(run.fresh(unknown, what, axis, ctx.node.op, ctx.label))
    same = start.value is not None and start.value == end.value
    return State(tuple(dims), elem, start.value if same else None)


@dataclass(frozen=True, slots=True)
class _Iterations:
    """A loop's body, inferred for all iterations at once.

    `carried` holds before every iteration, `after` is its image; `settled`, where known, holds from the end
    of the first iteration on; `once` are the body's results of the first iteration alone, without dims
    where they need fresh symbols.
    """

    body: Scope
    carried: list[State]
    after: list[State]
    settled: list[State] | None
    once: list[State]


def _iterate(
    ctx: NodeContext, first: Sequence[State], start: list[State], rest: Sequence[State], results: slice
) -> _Iterations:
    """Infer the body with carried states that hold in every iteration.

    Changing dims are first tried as sizes of at least 1, which the body then has to keep up.
    """
    run = ctx.scope.run
    begin = run.mark()
    settled, once = _first_rounds(ctx, first, start, rest, results)
    for lo in (1, 0):
        run.reset(begin)
        carried, seen = start, len(run.unknowns)
        while True:
            mark = run.mark()
            body = ctx.scope.child(ctx.node, "body", [*first, *carried, *rest])
            after = list(body.results())[results]
            widened = frozenset(u.symbol for u in run.unknowns[seen:] if u.node == ctx.label)
            stable = [_covers(a, b, widened) for a, b in zip(carried, after, strict=True)]
            if all(stable):
                break
            run.reset(mark)
            carried = [
                before if ok else _widen(ctx, before, now, f"carried value {k}", lo)
                for k, (before, now, ok) in enumerate(zip(carried, after, stable, strict=True))
            ]
        if lo == 0 or all(map(partial(_keeps_positive, ctx, widened), start, carried, after)):
            break
    return _Iterations(body, carried, after, settled, once)


def _first_rounds(
    ctx: NodeContext, first: Sequence[State], start: list[State], rest: Sequence[State], results: slice
) -> tuple[list[State] | None, list[State]]:
    """(carried states from the first iteration on, where the second no longer changes them; results once)."""
    run = ctx.scope.run
    seen = len(run.unknowns)
    once = list(ctx.scope.child(ctx.node, "body", [*first, *start, *rest]).results())
    passing = {u.symbol for u in run.unknowns[seen:]}
    once = [
        s if s.dims is not None and not any(d.symbols() & passing for d in s.dims) else State(None)
        for s in once
    ]
    after = once[results]
    if any(s.dims is None for s in after):
        return None, once
    again = list(ctx.scope.child(ctx.node, "body", [*first, *after, *rest]).results())[results]
    same = all(a.dims == b.dims for a, b in zip(after, again, strict=True))
    return (after if same else None), once


def _keeps_positive(
    ctx: NodeContext, widened: frozenset[str], start: State, state: State, after: State
) -> bool:
    """Whether widened dims are at least 1 before and after an iteration."""
    if start.dims is None or state.dims is None or after.dims is None:
        return True
    return all(
        ctx.at_least(begin, 1) and ctx.at_least(image, 1)
        for begin, dim, image in zip(start.dims, state.dims, after.dims, strict=True)
        if dim.symbols() & widened
    )


def _covers(general: State, special: State, widened: frozenset[str]) -> bool:
    """Whether what `general` says of a carried value holds for `special` as well."""
    if general.sequence is not None:
        inner = special.sequence
        return (
            inner is not None
            and general.sequence.items is None
            and general.sequence.length is None
            and (general.sequence.common is None or general.sequence.common == inner.common)
        )
    if general.dims is None:
        return special.sequence is None
    if special.dims is None or len(general.dims) != len(special.dims):
        return False
    if general.value is not None and general.value != special.value:
        return False
    return all(
        x == y or (x.as_atom() is not None and x.symbols() <= widened)
        for x, y in zip(general.dims, special.dims, strict=True)
    )


def _trip_count(ctx: NodeContext, body: Scope) -> Expr | None:
    """The number of iterations where neither data nor the body can end the loop early."""
    limit = ctx.value(0)
    trips = limit.items[0] if limit is not None and limit.items else None
    start = ctx.value(1)
    first = start.items[:1] if start is not None else () if ctx.has(1) else (ONE,)
    if first == (ZERO,) or (isinstance(trips, Expr) and ctx.at_least(-trips, 0)):
        return ZERO
    if not isinstance(trips, Expr) or first != (ONE,):
        return None
    after = body.view.outputs[0]
    ends = body.value(after)
    if ends is not None and ends.items[:1] == (ONE,):
        return ctx.simplify(maximum(trips, 0))
    # The condition may be handed through unchanged; one that is left out is true.
    while body.view.values[after].producer >= 0:
        node = body.view.nodes[body.view.values[after].producer]
        if node.op != "Identity" or node.domain:
            return None
        after = node.inputs[0]
    return ctx.simplify(maximum(trips, 0)) if after == body.view.inputs[1] else None


def _scalar(ctx: NodeContext, k: int, elem: int) -> State:
    """The iteration's number or the condition as the body takes it: ONNX Runtime makes it 1-D on demand."""
    body = ctx.node.subgraphs["body"]
    declared = body.values[body.inputs[k]].dims if k < len(body.inputs) else None
    return State((ONE,) if declared is not None and len(declared) == 1 else (), elem)


@rule("Loop")
def _loop(ctx: NodeContext) -> None:
    given = (_scalar(ctx, 0, TensorProto.INT64), _scalar(ctx, 1, TensorProto.BOOL))
    start = [ctx.scope.state(k) for k in ctx.node.inputs[2:]]
    mark = len(ctx.scope.run.unknowns)
    count = len(start)
    loop = _iterate(ctx, given, start, (), slice(1, 1 + count))
    inner = {u.symbol: u.bound for u in ctx.scope.run.unknowns[mark:]}
    trips = _trip_count(ctx, loop.body)
    results = list(loop.body.results())
    for k, first in enumerate(start):
        if trips == 0:
            last = first
        elif trips == 1 and loop.once[1 + k].dims is not None:
            last = loop.once[1 + k]
        else:
            last = _after_loop(ctx, k, loop, first, trips, inner)
        ctx.set_state(k, last)
    most = ctx.value(0)
    bound = most.items[0] if most is not None and most.items and isinstance(most.items[0], Expr) else None
    length: DimLike
    if trips is None:
        length = Unknown("the number of iterations depends on data", bound, 0, ("trips", ctx.node.index))
    else:
        length = trips
    for k, state in enumerate(results[1 + count :], start=count):
        if trips == 0:
            ctx.set(k, _neverscanned_dims(loop.body, 1 + k, state), state.elem or None)
        else:
            ctx.set(k, scanned_dims(ctx, state, loop.once[1 + k], length, inner), state.elem or None)
            _needs_iteration(ctx, k, loop.body)


def _needs_iteration(ctx: NodeContext, k: int, body: Scope) -> None:
    """Note that a scanned output has its rank only if the loop runs, where the file does not declare it."""
    dims = ctx.scope.dims[ctx.node.outputs[k]] if ctx.wants(k) else None
    declared = body.view.values[body.view.outputs[1 + k]].dims
    if dims and declared is None and not ctx.at_least(dims[0], 1):
        ctx.scope.assume(ctx, dims[0], ONE, "a loop without an iteration gives no rank", "nonempty")


def _neverscanned_dims(body: Scope, k: int, state: State) -> list[DimLike] | None:
    """Dims of a scanned output without an iteration: what the body's output is declared as, names as 0.

    Without a declared shape ONNX Runtime makes it of rank 1, or of the rank that it can see by itself.
    """
    declared = body.view.values[body.view.outputs[k]].dims
    if declared is None:
        return None
    known = state.dims if state.dims is not None and len(state.dims) == len(declared) else None
    result: list[DimLike] = [0]
    for axis, dim in enumerate(declared):
        size = None if known is None else known[axis]
        if isinstance(dim, int):
            result.append(dim)
        elif size is not None and not size.is_const:
            result.append(0)
        else:
            result.append(Unknown("its size is open where the loop does not run at all", size))
    return result


def outside(dim: Expr, inner: Mapping[str, Expr | None]) -> DimLike:
    """A dim of the body as seen from outside: sizes that change with the iteration have no one value."""
    if not dim.symbols() & inner.keys():
        return dim
    return Unknown("its size is made inside the loop", _outer_bound(dim, inner))


def scanned_dims(
    ctx: NodeContext,
    state: State,
    once: State,
    length: DimLike,
    inner: Mapping[str, Expr | None],
    axis: int = 0,
) -> list[DimLike] | None:
    """Dims of a scanned output: `length` iterations stacked along an axis.

    All iterations agree with the first one. What remains where there is none is left open by ONNX, except
    that the output is empty.
    """
    if state.dims is None:
        return None
    certain = isinstance(length, Expr) and ctx.at_least(length, 1)
    result: list[DimLike]
    if certain and once.dims is not None and len(once.dims) == len(state.dims):
        result = list(once.dims)
    else:
        result = [outside(dim, inner) for dim in state.dims]
    if not certain:
        reason = "its size is open where the loop does not run at all"
        result = [Unknown(reason, d.bound if isinstance(d, Unknown) else Expr.lift(d)) for d in result]
    rank = len(result) + 1
    result.insert(axis + rank if axis < 0 else axis, length)
    return result


def _after_loop(
    ctx: NodeContext,
    k: int,
    loop: _Iterations,
    first: State,
    trips: Expr | None,
    inner: Mapping[str, Expr | None],
) -> State:
    """Carried value k after the loop."""
    state, last = loop.carried[k], loop.after[k]
    if state.dims is None or first.dims is None or last.dims is None:
        return state if state.sequence is not None else State(None, state.elem)
    settled = loop.settled[k].dims if loop.settled is not None else None
    if settled is not None and trips is not None and ctx.at_least(trips, 1):
        return State(settled, state.elem)
    dims: list[Expr] = []
    for axis, (begin, dim, image) in enumerate(zip(first.dims, state.dims, last.dims, strict=True)):
        step = image - dim
        if not dim.symbols() & inner.keys():
            dims.append(dim)
        elif trips is not None and not step.symbols() & inner.keys():
            dims.append(ctx.simplify(begin + trips * step))
        else:
            unknown = Unknown("its size is made inside the loop")
            out = ctx.scope.view.values[ctx.node.outputs[k]] if ctx.wants(k) else None
            name = f"carried value {k}" if out is None else out.name
            known = out.dims if out is not None and len(out.dims or ()) == len(last.dims) else None
            hint = None if known is None else known[axis]
            dims.append(ctx.scope.run.fresh(unknown, name, axis, ctx.node.op, ctx.label, hint))
    return State(tuple(dims), state.elem, state.value)
