"""What a rule sees of its node: dims, types and contents of inputs; what is known; where outputs go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onnx_symmem.expr.expression import Expr
from onnx_symmem.graph.view import Node
from onnx_symmem.shapes import broadcast
from onnx_symmem.shapes.table import Dims, Relation
from onnx_symmem.shapes.values import Between, Item, PartialValue

if TYPE_CHECKING:
    from onnx_symmem.shapes.facts import Facts
    from onnx_symmem.shapes.scope import Scope
    from onnx_symmem.shapes.states import State

__all__ = ["DimLike", "NodeContext", "Unknown", "Unresolved"]


class Unresolved(Exception):
    """A rule cannot say anything about the outputs of its node; the text is the reason."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A dim that a rule cannot express: between `lo` and, where known, `bound`.

    Equal `key`s within a graph stand for the same size, whatever it is.
    """

    reason: str
    bound: Expr | None = None
    lo: int = 0
    key: object = None


DimLike = Expr | int | Unknown


class NodeContext:
    """One node while its rule runs. Inputs and outputs are named by their position on the node."""

    __slots__ = ("_inputs", "node", "scope", "version")

    def __init__(self, scope: Scope, node: Node, version: int) -> None:
        self.scope = scope
        self.node = node
        self.version = version
        self._inputs = node.inputs

    @property
    def facts(self) -> Facts:
        """What is known about symbols."""
        return self.scope.run.facts

    # -- inputs ------------------------------------------------------------------------------------
    @property
    def count(self) -> int:
        """Number of inputs, left-out ones in the middle included."""
        return len(self._inputs)

    def has(self, k: int) -> bool:
        """Whether input k is there."""
        return k < len(self._inputs) and self._inputs[k] >= 0

    def dims(self, k: int) -> Dims | None:
        """Dims of input k, None where it is left out or its rank is unknown."""
        return self.scope.dims[self._inputs[k]] if self.has(k) else None

    def need(self, k: int) -> Dims:
        """Dims of input k; the node stays unresolved without them."""
        dims = self.dims(k)
        if dims is None:
            if not self.has(k):
                raise Unresolved(f"input {k} is left out")
            raise Unresolved(f"the rank of '{self.input_name(k)}' is unknown")
        return dims

    def elem(self, k: int) -> int:
        """Element type of input k, 0 where unknown or left out."""
        return self.scope.elems[self._inputs[k]] if self.has(k) else 0

    def input_name(self, k: int) -> str:
        """Name of input k."""
        return self.scope.view.values[self._inputs[k]].name

    def value(self, k: int) -> PartialValue | None:
        """Followed contents of input k."""
        return self.scope.value(self._inputs[k]) if self.has(k) else None

    def exprs(self, k: int) -> tuple[Expr | None, ...] | None:
        """Contents of the integer input k as a flat tuple, None where the tensor is not followed."""
        value = self.value(k)
        return None if value is None else value.exprs

    def ints(self, k: int) -> tuple[int, ...] | None:
        """Contents of input k where all of them are constants, else None."""
        value = self.value(k)
        if value is None:
            return None
        found = []
        for item in value.items:
            number = item.as_int() if isinstance(item, Expr) else None
            if number is None:
                return None
            found.append(number)
        return tuple(found)

    def floats(self, k: int) -> tuple[float, ...] | None:
        """Contents of the float input k where all of them are constants, else None."""
        value = self.value(k)
        if value is None or not all(isinstance(item, float) for item in value.items):
            return None
        return tuple(float(item) for item in value.items if isinstance(item, float))

    def attr(self, name: str, default: Any = None) -> Any:
        """An attribute of the node."""
        return self.node.attributes.get(name, default)

    def axis(self, rank: int, default: int = 0, name: str = "axis") -> int:
        """The attribute `axis`, counted from the front."""
        axis = int(self.attr(name, default))
        if not -rank <= axis < max(rank, 1):
            raise Unresolved(f"{name} {axis} does not fit rank {rank}")
        return axis + rank if axis < 0 else axis

    # -- outputs -----------------------------------------------------------------------------------
    @property
    def results(self) -> int:
        """Number of outputs, left-out ones in the middle included."""
        return len(self.node.outputs)

    def wants(self, k: int) -> bool:
        """Whether output k is there."""
        return k < len(self.node.outputs) and self.node.outputs[k] >= 0

    def set(
        self,
        k: int,
        dims: Sequence[DimLike] | None,
        elem: int | None = None,
        value: PartialValue | None = None,
    ) -> None:
        """Say what output k is. Without `elem` the op's schema decides the element type."""
        if k < len(self.node.outputs) and self.node.outputs[k] >= 0:
            self.scope.assign(self, k, dims, elem, value)

    def set_value(self, k: int, value: PartialValue, elem: int | None = None) -> None:
        """Output k is a followed tensor; its dims are the value's."""
        self.set(k, value.dims, elem, value)

    def set_state(self, k: int, state: State) -> None:
        """Output k is what `state` says (branches, loops, optionals)."""
        if self.wants(k):
            self.scope.assign_state(self, k, state)

    # -- facts -------------------------------------------------------------------------------------
    @property
    def label(self) -> str:
        """How messages name the node."""
        return self.node.label()

    def simplify(self, expr: Expr) -> Expr:
        """The expression, with what is known applied."""
        return self.facts.simplify(expr)

    def at_least(self, expr: Expr, least: int) -> bool:
        """Whether expr >= least is proved."""
        return self.facts.at_least(expr, least)

    def same(self, left: Expr, right: Expr, reason: str) -> Expr:
        """The simpler of two dims that are equal in every run that gets through the node."""
        if left == right:
            return left
        return self.scope.require_equal(self, left, right, reason)

    def limit(self, expr: Expr, reason: str) -> None:
        """expr >= 0 in every run that gets through the node."""
        self.scope.require_nonneg(self, expr, reason)

    def apart(self, key: object, k: int, axis: int, most: Expr) -> None:
        """A dim of output k counts what no other one with that key counts; all add up to at most `most`."""
        dims = self.scope.dims[self.node.outputs[k]] if self.wants(k) else None
        if dims is not None:
            self.facts.apart((id(self.scope), key), dims[axis], most)

    def broadcast(self, *dims: Dims) -> tuple[DimLike, ...]:
        """Dims of the multidirectional broadcast."""
        return broadcast.broadcast(self, dims)

    def relate(self, kind: str, left: Dims, right: Dims) -> None:
        """Report what the operator says about dims."""
        self.scope.run.relations.setdefault((kind, left, right), Relation(kind, left, right, self.label))

    def item(self, k: int, position: int, lo: int = 0) -> DimLike:
        """Element `position` of the integer input k as a dim, an unknown shared by all uses if need be."""
        value = self.value(k)
        found = value.items[position] if value is not None and position < len(value.items) else None
        if isinstance(found, Expr):
            return found
        if isinstance(found, Between):
            reason = "it is computed in floats that are rounded several times"
            return Unknown(reason, found.hi, lo, ("item", self._inputs[k], position))
        reason = f"the contents of '{self.input_name(k)}' are computed from data"
        return Unknown(reason, None, lo, ("item", self._inputs[k], position))

    def map_value(self, k: int, function: Callable[[Item], Item]) -> PartialValue | None:
        """Contents of input k with a function applied to each item."""
        value = self.value(k)
        return None if value is None else value.map(function)
