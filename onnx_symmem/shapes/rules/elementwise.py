"""Elementwise ops: outputs have the dims of the input, or of the broadcast of all inputs."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
from onnx import TensorProto

from onnx_symmem.expr.expression import Expr
from onnx_symmem.shapes.arithmetic import BINARY, COMPARE, UNARY, cast, choose, fmod
from onnx_symmem.shapes.context import DimLike, NodeContext, Unknown, Unresolved
from onnx_symmem.shapes.registry import rule
from onnx_symmem.shapes.table import Dims
from onnx_symmem.shapes.values import MAX_FOLLOWED, Item, PartialValue

__all__ = ["broadcast_inputs", "combine", "same_as_first"]


@rule(
    "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Celu", "Cos", "Cosh", "CumProd",
    "CumSum", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish", "Hardmax", "IsInf", "IsNaN",
    "LRN", "LeakyRelu", "Log", "LogSoftmax", "LpNormalization", "MeanVarianceNormalization", "Mish",
    "Relu", "ReverseSequence", "Round", "Selu", "Shrink", "Sigmoid", "Sin", "Sinh", "Softmax", "Softplus",
    "Softsign", "Swish", "Tan", "Tanh", "ThresholdedRelu", "Trilu",
)  # fmt: skip
def same_as_first(ctx: NodeContext) -> None:
    """The output has the dims of the first input."""
    ctx.set(0, ctx.need(0))


@rule("PRelu")
def _prelu(ctx: NodeContext) -> None:
    """ONNX broadcasts the slope to the input alone, ONNX Runtime each to the other."""
    ctx.set(0, ctx.broadcast(ctx.need(0), ctx.need(1)), ctx.elem(0))


@rule("Neg", "Abs", "Not", "Sign", "Floor", "Ceil", "Sqrt", "Reciprocal")
def _unary(ctx: NodeContext) -> None:
    function, elem = UNARY[ctx.node.op], ctx.elem(0)
    facts = ctx.facts
    ctx.set(0, ctx.need(0), value=ctx.map_value(0, lambda item: function(facts, elem, item)))


@rule("Clip")
def _clip(ctx: NodeContext) -> None:
    dims = ctx.need(0)
    facts, elem = ctx.facts, ctx.elem(0)
    value = ctx.value(0)
    for name, k, op in (("min", 1, "Max"), ("max", 2, "Min")):
        bound: Item = ctx.attr(name)
        if bound is None and ctx.has(k) and value is not None:
            given = ctx.value(k)
            bound = given.items[0] if given is not None and given.items else None
        elif bound is None:
            continue
        if value is not None:
            items = (None if bound is None else BINARY[op](facts, elem, item, bound) for item in value.items)
            value = PartialValue(value.dims, tuple(items))
    ctx.set(0, dims, value=value)


@rule("Cast")
def _cast(ctx: NodeContext) -> None:
    source, target, facts = ctx.elem(0), int(ctx.attr("to", 0)), ctx.facts
    ctx.set(0, ctx.need(0), target, ctx.map_value(0, lambda item: cast(facts, source, target, item)))


@rule("CastLike")
def _cast_like(ctx: NodeContext) -> None:
    source, target, facts = ctx.elem(0), ctx.elem(1), ctx.facts
    ctx.set(0, ctx.need(0), target, ctx.map_value(0, lambda item: cast(facts, source, target, item)))


@rule("BitCast")
def _bit_cast(ctx: NodeContext) -> None:
    ctx.set(0, ctx.need(0), int(ctx.attr("to", 0)))


@rule("Identity")
def _identity(ctx: NodeContext) -> None:
    state = ctx.scope.state(ctx.node.inputs[0])
    if state.sequence is None:
        ctx.need(0)
    ctx.set_state(0, state)


def broadcast_inputs(ctx: NodeContext) -> tuple[DimLike, ...]:
    """Dims of the broadcast of all inputs. One input of unknown rank still tells the largest known one."""
    return ctx.broadcast(*(ctx.need(k) for k in range(ctx.count)))


def combine(ctx: NodeContext, function: Callable[..., Item], *positions: int) -> PartialValue | None:
    """The function applied elementwise to the broadcast contents of inputs, where they are followed."""
    values = []
    for k in positions:
        value = ctx.value(k)
        if value is None:
            return None
        values.append(value)
    try:
        dims = np.broadcast_shapes(*(v.dims for v in values))
    except ValueError:
        return None
    if prod(dims) > MAX_FOLLOWED:
        return None
    if all(v.dims == dims for v in values):
        columns = [v.items for v in values]
    else:
        columns = [tuple(np.broadcast_to(v.array(), dims).reshape(-1)) for v in values]
    return PartialValue(dims, tuple(function(*row) for row in zip(*columns, strict=True)))


@rule(
    "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Mean",
    *(op for op in (*BINARY, *COMPARE) if op not in ("Max", "Min", "Sum", "Mod")),
)  # fmt: skip
def _binary(ctx: NodeContext) -> None:
    if "broadcast" in ctx.node.attributes and ctx.version < 7:
        ctx.set(0, ctx.need(0))
        return
    function = BINARY.get(ctx.node.op) or COMPARE.get(ctx.node.op)
    value = None
    if function is not None and ctx.count == 2:
        facts, elem, apply = ctx.facts, ctx.elem(0), function
        value = combine(ctx, lambda a, b: apply(facts, elem, a, b), 0, 1)
    ctx.set(0, broadcast_inputs(ctx), value=value)


@rule("Mod")
def _mod(ctx: NodeContext) -> None:
    function = fmod if ctx.attr("fmod", 0) else BINARY["Mod"]
    facts, elem = ctx.facts, ctx.elem(0)
    ctx.set(0, broadcast_inputs(ctx), value=combine(ctx, lambda a, b: function(facts, elem, a, b), 0, 1))


@rule("Max", "Min", "Sum")
def _variadic(ctx: NodeContext) -> None:
    function, facts, elem = BINARY[ctx.node.op], ctx.facts, ctx.elem(0)

    def fold(*items: Item) -> Item:
        total = items[0]
        for item in items[1:]:
            total = function(facts, elem, total, item)
        return total

    if ctx.version < 8:
        _all_alike(ctx)
    ctx.set(0, broadcast_inputs(ctx), value=combine(ctx, fold, *range(ctx.count)))


def _all_alike(ctx: NodeContext) -> None:
    """Before opset 8 an op of many inputs takes them with the same dims only."""
    first = ctx.need(0)
    for k in range(1, ctx.count):
        dims = ctx.need(k)
        if len(dims) == len(first):
            for a, b in zip(first, dims, strict=True):
                ctx.same(a, b, "inputs have the same dims")


@rule("Where")
def _where(ctx: NodeContext) -> None:
    facts = ctx.facts
    value = combine(ctx, lambda c, a, b: choose(facts, c, a, b), 0, 1, 2)
    ctx.set(0, broadcast_inputs(ctx), value=value)


@rule("Dropout")
def _dropout(ctx: NodeContext) -> None:
    dims = ctx.need(0)
    ctx.set(0, dims)
    ctx.set(1, dims, TensorProto.BOOL if ctx.version >= 10 else None)


@rule("Expand")
def _expand(ctx: NodeContext) -> None:
    dims = ctx.need(0)
    sizes = ctx.exprs(1)
    if sizes is None:
        length = ctx.need(1)[0].as_int()
        if length is None:
            raise Unresolved(f"the length of '{ctx.input_name(1)}' is unknown")
        sizes = (None,) * length
    lead = max(len(dims), len(sizes))
    padded: Dims = (Expr.const(1),) * (lead - len(dims)) + dims
    wanted = (Expr.const(1),) * (lead - len(sizes)) + sizes
    result: list[DimLike] = []
    for k, (have, want) in enumerate(zip(padded, wanted, strict=True)):
        if want is not None:
            result.extend(ctx.broadcast((have,), (want,)))
        elif ctx.at_least(have, 2):
            result.append(have)
        else:
            unknown = Unknown(f"the contents of '{ctx.input_name(1)}' are computed from data")
            result.append(ctx.item(1, k - (lead - len(sizes))) if have == 1 else unknown)
    ctx.set(0, result, value=_spread(ctx.value(0), result))


def _spread(value: PartialValue | None, dims: list[DimLike]) -> PartialValue | None:
    """Followed contents, repeated to fill the dims."""
    fixed = tuple(d.as_int() if isinstance(d, Expr) else None for d in dims)
    shape = tuple(d for d in fixed if d is not None)
    if value is None or len(shape) < len(fixed) or prod(shape) > MAX_FOLLOWED:
        return None
    try:
        return PartialValue.of(np.broadcast_to(value.array(), shape))
    except ValueError:  # the sizes contradict each other: the node cannot run
        return None
