"""How many elements of a mask are set, where it says which elements of a tensor have one value.

A mixture of experts looks for the tokens of every expert: NonZero(Equal(chosen, 3)), or a slice of a one-hot
tensor. How many they are is in the data, but an element has one value only, so all experts together find no
more than there are elements. Where the tensor has the positions that TopK found, which differ along its axis,
one of them finds at most one element in each row.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from onnx import TensorProto

from onnx_symmem.expr.expression import ONE, Expr
from onnx_symmem.graph.view import Node
from onnx_symmem.shapes.scope import Scope
from onnx_symmem.shapes.table import Dims

__all__ = ["OneValue", "one_value"]

MOST_STEPS = 16
_MOVING = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
_WHOLE = (TensorProto.INT32, TensorProto.INT64)


@dataclass(frozen=True, slots=True)
class OneValue:
    """A mask of the elements of value `source` that are `number`; `kind` says by which operator.

    Masks of one source and kind, and of different numbers, have no element in common. At most `most` elements
    of the `size` of the source are set.
    """

    source: int
    kind: str
    number: int | float
    size: Expr
    most: Expr


@dataclass(frozen=True, slots=True)
class _Part:
    """What is read of a tensor: all of it, or its elements at position `at` of an axis."""

    axis: int | None = None
    at: int = 0


def one_value(scope: Scope, index: int) -> OneValue | None:
    """What a mask is, traced back to where it was made; None where it is no such mask."""
    part = _Part()
    for _ in range(MOST_STEPS):
        node = _producer(scope, index)
        if node is None:
            return None
        if node.op == "Equal":
            return _compared(scope, node, part)
        if node.op == "OneHot":
            return _one_hot(scope, node, part)
        before = _read(scope, node, index, part)
        if before is None:
            return None
        index, part = node.inputs[0], before
    return None


def _producer(scope: Scope, index: int) -> Node | None:
    made_by = scope.view.values[index].producer
    node = scope.view.nodes[made_by] if made_by >= 0 else None
    return node if node is not None and node.domain == "" else None


def _read(scope: Scope, node: Node, index: int, part: _Part) -> _Part | None:
    """What a node reads of its first input for a part of its output `index`; None where elements get lost.

    Casts keep what is 0 and what is 1.
    """
    dims = scope.dims[node.inputs[0]] if node.inputs and node.inputs[0] >= 0 else None
    if dims is None:
        return None
    if node.op in ("Cast", "Identity"):
        return part
    if node.op == "Gather" and part.axis is None:
        return _gathered(scope, node, dims)
    if node.op == "Split":
        return _split(scope, node, index, part)
    if node.op == "Slice" and part.axis is None:
        return _sliced(scope, node, dims)
    if node.op in _MOVING and part.axis is None:
        return part
    if node.op == "Transpose" and part.axis is not None:
        order = node.attributes.get("perm") or tuple(reversed(range(len(dims))))
        return _Part(int(order[part.axis]), part.at)
    return None


def _gathered(scope: Scope, node: Node, dims: Dims) -> _Part | None:
    at = _constants(scope, node.inputs[1])
    axis = int(node.attributes.get("axis", 0))
    axis += len(dims) if axis < 0 else 0
    if at is None or len(at) != 1:
        return None
    return _at(axis, int(at[0]), dims)


def _at(axis: int, position: int, dims: Dims) -> _Part | None:
    """The elements at a position of an axis, counted from its end where negative."""
    count = dims[axis].as_int()
    if position < 0 and count is None:
        return None
    return _Part(axis, position + (count or 0) if position < 0 else position)


def _split(scope: Scope, node: Node, index: int, part: _Part) -> _Part | None:
    """A piece of one position, or one position of a piece. ONNX Runtime splits where several gather."""
    axis, before = int(node.attributes.get("axis", 0)), 0
    for value in node.outputs:
        dims = scope.dims[value] if value >= 0 else None
        if dims is None:
            return None
        axis += len(dims) if axis < 0 else 0
        length = dims[axis].as_int()
        if value == index and part.axis is None:
            return _Part(axis, before) if length == 1 else None
        if value == index:
            return _Part(axis, before + part.at) if part.axis == axis else None
        if length is None:
            return None
        before += length
    return None


def _sliced(scope: Scope, node: Node, dims: Dims) -> _Part | None:
    """A slice of one position of an axis, all others whole."""
    result = scope.dims[node.outputs[0]]
    cut = [] if result is None else [k for k, (a, b) in enumerate(zip(dims, result, strict=True)) if a != b]
    if result is None or len(cut) != 1 or result[cut[0]] != 1:
        return None
    starts, axes, steps = (
        _argument(scope, node, k, name) for k, name in ((1, "starts"), (3, "axes"), (4, ""))
    )
    if not starts or axes is None or steps is None or any(step != 1 for step in steps):
        return None
    places = [int(axis) % len(dims) for axis in axes or range(len(starts))]
    start = int(starts[places.index(cut[0])])
    count = dims[cut[0]].as_int()
    return _at(cut[0], start if count is None else max(start, -count), dims)


def _argument(scope: Scope, node: Node, k: int, name: str) -> tuple[int | float, ...] | None:
    """Constants that are an input, or an attribute in old opsets; none of them where neither is given."""
    if name in node.attributes:
        return tuple(node.attributes[name])
    return _constants(scope, node.inputs[k]) if k < len(node.inputs) and node.inputs[k] >= 0 else ()


def _compared(scope: Scope, node: Node, part: _Part) -> OneValue | None:
    """Equal(x, c): a constant of one element; or a part at one position of an axis that x is spread along."""
    for source, other in (node.inputs, node.inputs[::-1]):
        numbers, dims, result = _constants(scope, other), scope.dims[source], scope.dims[node.outputs[0]]
        if numbers is None or dims is None or result is None:
            continue
        if len(numbers) == 1:
            return None if part.axis is not None else _mask(scope, source, "equal", numbers[0])
        spread, shape = len(result) - len(dims), scope.dims[other]
        if part.axis is None or shape is None:
            continue
        # The constants stand along this axis, and no other is longer than that of x.
        along = part.axis - (len(result) - len(shape))
        here = part.axis - spread
        alone = along >= 0 and all(d == 1 for k, d in enumerate(shape) if k != along)
        if alone and (here < 0 or dims[here] == 1) and part.at < len(numbers):
            return _mask(scope, source, "equal", numbers[part.at])
    return None


def _one_hot(scope: Scope, node: Node, part: _Part) -> OneValue | None:
    result, values = scope.dims[node.outputs[0]], _constants(scope, node.inputs[2])
    if result is None or values is None or tuple(values) != (0, 1):
        return None
    axis = int(node.attributes.get("axis", -1))
    axis += len(result) if axis < 0 else 0
    return _mask(scope, node.inputs[0], "one-hot", part.at) if part.axis == axis else None


def _mask(scope: Scope, source: int, kind: str, number: int | float) -> OneValue | None:
    """The mask, with the tensor named that the elements of its source come from."""
    for _ in range(MOST_STEPS):
        dims, node = scope.dims[source], _producer(scope, source)
        if dims is None:
            return None
        size = prod(dims, start=ONE)
        if node is not None and node.op == "TopK" and source == node.outputs[1]:
            axis = int(node.attributes.get("axis", -1)) % len(dims)
            rows = prod(dims[:axis] + dims[axis + 1 :], start=ONE)
            return OneValue(source, kind, number, size, rows)
        if node is None or not _keeps_elements(scope, node):
            return OneValue(source, kind, number, size, size)
        source = node.inputs[0]
    return None


def _keeps_elements(scope: Scope, node: Node) -> bool:
    if node.op == "Cast":
        return scope.elems[node.inputs[0]] in _WHOLE and scope.elems[node.outputs[0]] == TensorProto.INT64
    return node.op in _MOVING and scope.dims[node.inputs[0]] is not None


def _constants(scope: Scope, index: int) -> tuple[int | float, ...] | None:
    """Contents of a constant, as a flat tuple."""
    value = scope.value(index) if index >= 0 else None
    if value is None or not value.items:
        return None
    found: list[int | float] = []
    for item in value.items:
        number = item.as_int() if isinstance(item, Expr) else item
        if not isinstance(number, int | float):
            return None
        found.append(number)
    return tuple(found)
