"""Sequences and optionals: the elements' dims are tracked, one by one where the sequence is built here."""

from __future__ import annotations

from onnx import TensorProto

from onnx_symmem.expr.expression import ONE, ZERO, Expr, ceildiv, minimum
from onnx_symmem.graph.view import declared_dims
from onnx_symmem.shapes.context import DimLike, NodeContext, Unknown, Unresolved
from onnx_symmem.shapes.registry import rule
from onnx_symmem.shapes.rules.movement import common_dim, split_sizes
from onnx_symmem.shapes.states import SequenceState, State, merge_dims
from onnx_symmem.shapes.table import Dims
from onnx_symmem.shapes.values import PartialValue

__all__: list[str] = []


def _sequence(ctx: NodeContext, k: int) -> SequenceState:
    state = ctx.scope.state(ctx.node.inputs[k], contents=False)
    if state.sequence is None:
        raise Unresolved(f"nothing is known of the sequence '{ctx.input_name(k)}'")
    return state.sequence


def _tensor(ctx: NodeContext, k: int) -> State:
    return ctx.scope.state(ctx.node.inputs[k])


def _position(ctx: NodeContext, k: int) -> int | None:
    numbers = ctx.ints(k)
    return numbers[0] if numbers else None


def _set(ctx: NodeContext, sequence: SequenceState) -> None:
    ctx.set_state(0, State(None, 0, None, sequence))


@rule("SequenceConstruct")
def _construct(ctx: NodeContext) -> None:
    _set(ctx, SequenceState.of([_tensor(ctx, k) for k in range(ctx.count)]))


@rule("SequenceEmpty")
def _empty(ctx: NodeContext) -> None:
    _set(ctx, SequenceState.of([], int(ctx.attr("dtype", TensorProto.FLOAT))))


@rule("SequenceInsert")
def _insert(ctx: NodeContext) -> None:
    sequence, tensor = _sequence(ctx, 0), _tensor(ctx, 1)
    length = None if sequence.length is None else sequence.length + 1
    if sequence.items is not None and (not ctx.has(2) or _position(ctx, 2) is not None):
        items = list(sequence.items)
        at = len(items) if not ctx.has(2) else _position(ctx, 2) or 0
        items.insert(at + len(items) if at < 0 else at, tensor)
        _set(ctx, SequenceState.of(items))
        return
    common = tensor.dims if sequence.length == ZERO else merge_dims(sequence.common, tensor.dims)
    _set(ctx, SequenceState(sequence.elem or tensor.elem, common, length))


@rule("SequenceErase")
def _erase(ctx: NodeContext) -> None:
    sequence = _sequence(ctx, 0)
    if sequence.items is not None and (not ctx.has(1) or _position(ctx, 1) is not None):
        items = list(sequence.items)
        del items[-1 if not ctx.has(1) else _position(ctx, 1) or 0]
        _set(ctx, SequenceState.of(items, sequence.elem))
        return
    length = None if sequence.length is None else sequence.length - 1
    _set(ctx, SequenceState(sequence.elem, sequence.common, length))


@rule("SequenceAt")
def _at(ctx: NodeContext) -> None:
    sequence, position = _sequence(ctx, 0), _position(ctx, 1)
    if sequence.length is not None and position is not None:
        room = sequence.length + position if position < 0 else sequence.length - position - 1
        ctx.limit(room, "the sequence has an element there")
    if sequence.items is not None and position is not None:
        if not -len(sequence.items) <= position < len(sequence.items):
            raise Unresolved(f"position {position} in a sequence of {len(sequence.items)}")
        ctx.set_state(0, sequence.items[position])
    elif sequence.common is None:
        ctx.set(0, None, sequence.elem)
    else:
        unknown = Unknown("the elements of the sequence differ in size")
        if position is None:
            unknown = Unknown("which element of the sequence it is depends on data")
        dims: list[DimLike] = [unknown if dim is None else dim for dim in sequence.common]
        if sequence.cut is not None:
            axis, whole, part = sequence.cut
            number = Expr.const(position) if position is not None and position >= 0 else None
            if position is not None and position < 0 and sequence.length is not None:
                number = sequence.length + position
            dims[axis] = Unknown("which part it is depends on data", Expr.const(part), 0)
            if number is not None:
                dims[axis] = ctx.simplify(minimum(part, whole - number * part))
        ctx.set(0, dims, sequence.elem)


@rule("SequenceLength")
def _length(ctx: NodeContext) -> None:
    ctx.set_value(0, PartialValue.scalar(_sequence(ctx, 0).length), TensorProto.INT64)


@rule("SplitToSequence")
def _split_to_sequence(ctx: NodeContext) -> None:
    dims, elem = ctx.need(0), ctx.elem(0)
    axis = ctx.axis(len(dims))

    def part(size: Expr | None, keep: bool = True) -> tuple[Expr | None, ...]:
        return (*dims[:axis], *((size,) if keep else ()), *dims[axis + 1 :])

    if not ctx.has(1):
        keep = bool(ctx.attr("keepdims", 1))
        count = dims[axis].as_int()
        if count is None:
            _set(ctx, SequenceState(elem, part(ONE, keep), dims[axis]))
            return
        item = State(tuple(d for d in part(ONE, keep) if d is not None), elem)
        _set(ctx, SequenceState.of([item] * count, elem))
        return
    given = ctx.need(1)
    sizes: list[DimLike]
    if not given:
        size = _position(ctx, 1)
        whole = dims[axis].as_int()
        if size is None or size < 1:
            _set(ctx, SequenceState(elem, part(None)))
            return
        if whole is None:
            length = ctx.simplify(ceildiv(dims[axis], size))
            if ctx.simplify(dims[axis] % size).as_int() == 0:  # no part is smaller than others
                _set(ctx, SequenceState(elem, part(Expr.const(size)), length))
                return
            _set(ctx, SequenceState(elem, part(None), length, cut=(axis, dims[axis], size)))
            return
        sizes = [min(size, whole - start) for start in range(0, whole, size)]
    else:
        count = given[0].as_int()
        if count is None:
            _set(ctx, SequenceState(elem, part(None), given[0]))
            return
        sizes = list(split_sizes(ctx, dims[axis], count))
    if any(isinstance(cut, Unknown) for cut in sizes):
        _set(ctx, SequenceState(elem, part(None), Expr.const(len(sizes))))
        return
    items = []
    for cut in sizes:
        expr = cut if isinstance(cut, Expr) else Expr.const(cut) if isinstance(cut, int) else ZERO
        items.append(State((*dims[:axis], expr, *dims[axis + 1 :]), elem))
    _set(ctx, SequenceState.of(items, elem))


def _shapes(sequence: SequenceState) -> list[Dims] | None:
    """Dims of all elements, where all of them are known and there are any."""
    found = [item.dims for item in sequence.items or () if item.dims is not None]
    return found if found and len(found) == len(sequence.items or ()) else None


@rule("ConcatFromSequence")
def _concat_from_sequence(ctx: NodeContext) -> None:
    sequence = _sequence(ctx, 0)
    if sequence.common is None:
        ctx.set(0, None, sequence.elem)
        return
    unknown = Unknown("the elements of the sequence differ in size")
    common: list[DimLike] = [unknown if dim is None else dim for dim in sequence.common]
    shapes = _shapes(sequence)
    stack = bool(ctx.attr("new_axis", 0))
    if shapes is not None:
        along = -1 if stack else ctx.axis(len(common))
        common = [ZERO if k == along else common_dim(ctx, shapes, k, True) for k in range(len(common))]
    if stack:
        axis = ctx.axis(len(common) + 1)
        number: DimLike = Unknown("the length of the sequence is unknown")
        ctx.set(0, (*common[:axis], sequence.length or number, *common[axis:]), sequence.elem)
        return
    axis = ctx.axis(len(common))
    size = sequence.common[axis]
    if shapes is not None:
        common[axis] = sum((dims[axis] for dims in shapes), start=ZERO)
    elif sequence.cut is not None and sequence.cut[0] == axis:
        common[axis] = sequence.cut[1]
    elif size is not None and sequence.length is not None:
        common[axis] = size * sequence.length
    else:
        common[axis] = Unknown("the length of the sequence is unknown")
    ctx.set(0, common, sequence.elem)


@rule("SequenceMap")
def _map(ctx: NodeContext) -> None:
    sequence = _sequence(ctx, 0)
    others = [ctx.scope.state(k) for k in ctx.node.inputs[1:]]
    rounds = sequence.items or (_representative(ctx, sequence),)
    results: list[list[State]] = []
    for number, item in enumerate(rounds):
        states = [item]
        for other in others:
            if other.sequence is None:
                states.append(other)
            elif sequence.items and other.sequence.items:
                states.append(other.sequence.items[number])
            else:
                states.append(_representative(ctx, other.sequence))
        results.append(list(ctx.scope.child(ctx.node, "body", states).results()))
    for k in range(ctx.results):
        column = [row[k] for row in results]
        if sequence.items:
            made = SequenceState.of(column)
        else:
            made = SequenceState(column[0].elem, column[0].dims, sequence.length)
        ctx.set_state(k, State(None, 0, None, made))


def _representative(ctx: NodeContext, sequence: SequenceState) -> State:
    """A tensor that stands for any element of a sequence."""
    if sequence.common is None:
        return State(None, sequence.elem)
    unknown = Unknown("the elements of the sequence differ in size")
    run = ctx.scope.run
    dims = tuple(
        run.fresh(unknown, ctx.input_name(0), axis, ctx.node.op, ctx.label) if dim is None else dim
        for axis, dim in enumerate(sequence.common)
    )
    return State(dims, sequence.elem)


@rule("Optional")
def _optional(ctx: NodeContext) -> None:
    if ctx.has(0):
        ctx.set_state(0, _tensor(ctx, 0))
        return
    kind = ctx.attr("type")
    if kind is None or kind.WhichOneof("value") != "tensor_type":
        raise Unresolved("an empty optional without a tensor type")
    dims = declared_dims(kind) or ()
    known = [ctx.scope.run.declared.dim(dim) for dim in dims]
    ctx.set(
        0, [Unknown("the optional is empty") if d is None else d for d in known], kind.tensor_type.elem_type
    )


@rule("OptionalGetElement")
def _optional_get(ctx: NodeContext) -> None:
    state = _tensor(ctx, 0)
    if state.sequence is None:
        ctx.need(0)
    ctx.set_state(0, state)


@rule("OptionalHasElement")
def _optional_has(ctx: NodeContext) -> None:
    ctx.set(0, (), TensorProto.BOOL)
