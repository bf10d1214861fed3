"""One graph while it is inferred: states of its values, its nodes in order, its subgraphs below it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING

from onnx import TypeProto

from onnx_symmem.expr.expression import ZERO, Expr
from onnx_symmem.graph.view import INITIALIZER, INPUT, OUTER, GraphView, Node, declared_dims
from onnx_symmem.shapes.context import DimLike, NodeContext, Unknown, Unresolved
from onnx_symmem.shapes.growth import is_grown
from onnx_symmem.shapes.registry import find_rule
from onnx_symmem.shapes.scales import FractionScale, as_fractions
from onnx_symmem.shapes.states import SequenceState, State
from onnx_symmem.shapes.table import OTHER_RANK, Dims
from onnx_symmem.shapes.types import FIXED, output_types
from onnx_symmem.shapes.types import INPUT as FOLLOWS_INPUT
from onnx_symmem.shapes.values import INTEGER_TYPES, PartialValue, read_tensor

if TYPE_CHECKING:
    from onnx_symmem.shapes.engine import Run

__all__ = ["Scope"]

SOLVABLE = (20, 3)  # (terms, depth) of an equation up to which it is worth solving


@dataclass(eq=False)
class Scope:
    """States of one graph's values. `certain` says whether its nodes run whenever the model does."""

    run: Run
    view: GraphView
    parent: Scope | None = None
    dims: list[Dims | None] = field(init=False)
    elems: list[int] = field(init=False)
    values: dict[int, PartialValue | None] = field(init=False, default_factory=dict)
    sequences: dict[int, SequenceState] = field(init=False, default_factory=dict)
    children: dict[tuple[int, str], Scope] = field(init=False, default_factory=dict)
    _live: bytearray = field(init=False)
    _set: set[int] = field(init=False, default_factory=set)

    def __post_init__(self) -> None:
        view = self.view
        self.dims = [None] * len(view.values)
        self.elems = [0] * len(view.values)
        self.constants = dict(view.initializers)
        for value in view.values:
            if value.kind == INITIALIZER:
                self.elems[value.index] = value.elem_type
                self.dims[value.index] = tuple(
                    map(Expr.const, (d for d in value.dims or () if isinstance(d, int)))
                )
            elif value.kind == OUTER and value.index in view.outer and self.parent is not None:
                self.put(value.index, self.parent.state(view.outer[value.index], contents=False))
        self._live = self._live_nodes() if self.parent is None else bytearray(len(view.nodes))

    def _live_nodes(self) -> bytearray:
        """1 for nodes that some graph output depends on: they run whenever the model does."""
        live = bytearray(len(self.view.nodes))
        stack = [self.view.values[o].producer for o in self.view.outputs]
        while stack:
            node = stack.pop()
            if node >= 0 and not live[node]:
                live[node] = 1
                stack.extend(self.view.predecessors[node])
        return live

    # -- states ------------------------------------------------------------------------------------
    def state(self, index: int, contents: bool = True) -> State:
        """All that is known of a value."""
        return State(
            self.dims[index],
            self.elems[index],
            self.value(index) if contents else None,
            self.sequences.get(index),
        )

    def put(self, index: int, state: State) -> None:
        """Say what a value is."""
        self.dims[index] = state.dims
        self.elems[index] = state.elem
        if state.value is not None:
            self.values[index] = state.value
        if state.sequence is not None:
            self.sequences[index] = state.sequence

    def value(self, index: int) -> PartialValue | None:
        """Followed contents; constants are read when first asked for."""
        found = self.values.get(index)
        if found is not None or index in self.values:
            return found
        tensor = self.constants.get(index)
        value = self.view.values[index]
        if tensor is not None:
            # A default of an input may be replaced by the caller, who hardly replaces a shape.
            if value.kind != INPUT:
                found = read_tensor(tensor, self.run.folder)
            elif len(tensor.dims) == 1 and tensor.data_type in INTEGER_TYPES:
                found = read_tensor(tensor, self.run.folder)
                self.run.note(
                    ZERO, ZERO, value.name, f"input '{value.name}' keeps its default value", "default"
                )
        elif value.kind == OUTER and self.parent is not None and index in self.view.outer:
            found = self.parent.value(self.view.outer[index])
        else:
            return None
        self.values[index] = found
        return found

    # -- inference ---------------------------------------------------------------------------------
    def infer(self) -> None:
        """Run the rule of every node, in order. Nothing that a rule raises gets out of here."""
        opsets = self.run.opsets
        for node in self.view.nodes:
            context = NodeContext(self, node, opsets.get(node.domain, 0))
            apply = find_rule(node.domain, node.op)
            if apply is None:
                self._degrade(context, "no rule for this op")
                continue
            self._set.clear()
            try:
                apply(context)
            except Unresolved as error:
                self._degrade(context, str(error))
                continue
            except Exception as error:  # one bad node must not spoil the model
                self.run.failures.append((node.label(), f"{type(error).__name__}: {error}"))
                self._degrade(context, f"the rule failed ({type(error).__name__}: {error})")
                continue
            if len(self._set) < len(node.outputs):
                self._degrade(context, "the rule does not cover this output")

    def child(self, node: Node, attribute: str, inputs: Sequence[State]) -> Scope:
        """The subgraph of a node, inferred with its inputs as given (missing ones as declared)."""
        view = node.subgraphs[attribute]
        scope = Scope(self.run, view, self)
        for k, index in enumerate(view.inputs):
            scope.put(index, inputs[k] if k < len(inputs) else scope.declared_state(index))
        scope.infer()
        self.children[node.index, attribute] = scope
        return scope

    def declared_state(self, index: int) -> State:
        """A value as the file declares it; what it does not declare is fresh."""
        value = self.view.values[index]
        if value.type is not None and value.type.WhichOneof("value") in ("sequence_type", "optional_type"):
            return self._declared_container(value.type, index)
        if value.dims is None:
            self.run.unknown_rank(value.name, "input", "", "its shape is not declared")
            return State(None, value.elem_type)
        dims = [self._adopt(dim, f"{value.name} of '{self.view.name}'") for dim in value.dims]
        unknown = Unknown("its size is not declared")
        return State(
            tuple(
                self.run.fresh(unknown, value.name, axis, "input", "") if d is None else d
                for axis, d in enumerate(dims)
            ),
            value.elem_type,
        )

    def _declared_container(self, kind: TypeProto, index: int) -> State:
        which = kind.WhichOneof("value")
        inner = kind.sequence_type.elem_type if which == "sequence_type" else kind.optional_type.elem_type
        dims = declared_dims(inner)
        common = None if dims is None else tuple(self.run.declared.dim(d) for d in dims)
        if which == "sequence_type":
            return State(None, 0, None, SequenceState(inner.tensor_type.elem_type, common))
        if inner.WhichOneof("value") == "sequence_type":
            return self._declared_container(inner, index)
        name = self.view.values[index].name
        unknown = Unknown("its size is not declared")
        if common is None:
            return State(None, inner.tensor_type.elem_type)
        exprs = tuple(
            self.run.fresh(unknown, name, axis, "input", "") if d is None else d
            for axis, d in enumerate(common)
        )
        return State(exprs, inner.tensor_type.elem_type)

    # -- outputs of nodes --------------------------------------------------------------------------
    def assign(
        self,
        context: NodeContext,
        k: int,
        dims: Sequence[DimLike] | None,
        elem: int | None,
        value: PartialValue | None,
    ) -> None:
        """Store output k of a node; unknown dims become what the file declares, or fresh symbols."""
        index = context.node.outputs[k]
        self._set.add(k)
        self.elems[index] = self._element(context, k) if elem is None else elem
        if dims is None:
            self._unknown_rank(context, index, "its rank depends on data")
            return
        run = self.run
        declared = self.view.values[index].dims
        if declared is not None and len(declared) != len(dims):
            ranks = Expr.const(len(dims)), Expr.const(len(declared))
            run.note(*ranks, context.label, OTHER_RANK, "contradicted")
            declared = None
        fitting = run.fitting
        result: list[Expr] = []
        for axis, dim in enumerate(dims):
            if type(dim) is Expr:
                if dim not in fitting:
                    dim = run.fit(self._fractions(context, dim))
            elif isinstance(dim, int):
                dim = Expr.const(dim)
            if isinstance(dim, Unknown):
                dim = self._materialize(
                    context, index, axis, dim, None if declared is None else declared[axis]
                )
            elif declared is not None and declared[axis] is not None:
                run.compare_declared(context, dim, declared[axis])
            result.append(dim)
        self.dims[index] = tuple(result)
        if value is not None and len(value.items) == prod(value.dims):
            self.values[index] = run.fit_value(
                value.map(
                    lambda i: self._fractions(context, i) if type(i) is Expr and i not in fitting else i
                )
            )

    def _fractions(self, context: NodeContext, expr: Expr) -> Expr:
        """A size with fractions for decimal scales, each of which limits the size that is scaled.

        Only nodes that always run may limit it, and never below a size that the caller asked for.
        """
        facts, certain = self.run.facts, self.certain(context.node)

        def allowed(size: Expr, fraction: FractionScale) -> bool:
            room = fraction.until - 1 - size
            if not facts.at_least(size, 0):
                return False
            if not facts.at_least(room, 0):
                if not certain or facts.is_asked_for(size, fraction.until):
                    return False
                reason = f"float32 rounds as {fraction.p}/{fraction.q} only below {fraction.until:,}"
                facts.require_nonneg(room, context.label, reason)
            return True

        return as_fractions(expr, allowed)

    def assign_state(self, context: NodeContext, k: int, state: State) -> None:
        """Store output k of a node as a whole state."""
        index = context.node.outputs[k]
        if state.sequence is not None:
            self._set.add(k)
            self.sequences[index] = state.sequence
            self.elems[index] = state.sequence.elem
            return
        self.assign(context, k, state.dims, state.elem or None, state.value)

    def _element(self, context: NodeContext, k: int) -> int:
        node = context.node
        kinds = output_types(node.op, node.domain, context.version)
        elem = 0
        if kinds:
            how, what = kinds[min(k, len(kinds) - 1)]
            elem = what if how == FIXED else context.elem(what) if how == FOLLOWS_INPUT else 0
        elif context.count:
            elem = context.elem(0)
        return elem or self.view.values[node.outputs[k]].elem_type

    def _materialize(
        self, context: NodeContext, index: int, axis: int, unknown: Unknown, declared: int | str | None
    ) -> Expr:
        name = self.view.values[index].name
        adopted = self._adopt(declared, f"{name}[{axis}] ({unknown.reason})")
        if adopted is not None:
            return adopted
        shared = None if unknown.key is None else (id(self), unknown.key)
        if shared is not None and shared in self.run.shared:
            return self.run.shared[shared]
        symbol = self.run.fresh(unknown, name, axis, context.node.op, context.label, declared)
        if shared is not None:
            self.run.shared[shared] = symbol
            self._fill_item(unknown.key, symbol)
        return symbol

    def _fill_item(self, key: object, symbol: Expr) -> None:
        """An unknown element that became a dim is known by that name from now on."""
        if not isinstance(key, tuple) or key[0] != "item":
            return
        _, index, position = key
        value = self.values.get(index)
        if value is not None and not isinstance(value.items[position], Expr):
            items = list(value.items)
            items[position] = symbol
            self.values[index] = PartialValue(value.dims, tuple(items))

    def _adopt(self, declared: int | str | None, where: str) -> Expr | None:
        found = self.run.declared.dim(declared)
        if found is not None:
            self.run.note(found, found, "", f"the size {found} declared for {where} is right", "adopted")
        return found

    def _degrade(self, context: NodeContext, reason: str) -> None:
        """Outputs that no rule has set: as declared, else fresh dims, else an unknown rank."""
        for k, index in enumerate(context.node.outputs):
            if index < 0 or k in self._set:
                continue
            value = self.view.values[index]
            self.elems[index] = self._element(context, k)
            if value.type is not None and value.type.WhichOneof("value") == "sequence_type":
                self.put(index, self._declared_container(value.type, index))
            elif value.dims is None:
                self._unknown_rank(context, index, reason)
            else:
                unknown = Unknown(reason)
                self.dims[index] = tuple(
                    self._materialize(context, index, axis, unknown, d) for axis, d in enumerate(value.dims)
                )
        self._set.clear()

    def _unknown_rank(self, context: NodeContext, index: int, reason: str) -> None:
        value = self.view.values[index]
        if value.dims is not None:
            self.dims[index] = tuple(
                self._materialize(context, index, axis, Unknown(reason), d)
                for axis, d in enumerate(value.dims)
            )
        else:
            self.run.unknown_rank(value.name, context.node.op, context.label, reason)

    # -- facts -------------------------------------------------------------------------------------
    def certain(self, node: Node) -> bool:
        """Whether the node runs in every run of the model."""
        return self.parent is None and bool(self._live[node.index])

    def assume(self, context: NodeContext, left: Expr, right: Expr, reason: str, kind: str = "equal") -> None:
        """Note what the node needs."""
        self.run.note(left, right, context.label, reason, kind)

    def require_equal(self, context: NodeContext, left: Expr, right: Expr, reason: str) -> Expr:
        """left == right or the node fails; the simpler one."""
        facts = self.run.facts
        a, b = facts.simplify(left), facts.simplify(right)
        if a != b:
            limited = False
            if self.certain(context.node) and not is_grown(a - b, *SOLVABLE):
                limited = facts.require_equal(a, b, context.label, reason)
            if not limited:
                self.assume(context, left, right, reason)
            a, b = facts.simplify(a), facts.simplify(b)
        return min(a, b, key=_simplicity)

    def require_nonneg(self, context: NodeContext, expr: Expr, reason: str) -> None:
        """expr >= 0 or the node fails."""
        if self.certain(context.node):
            self.run.facts.require_nonneg(expr, context.label, reason)

    def results(self) -> Iterable[State]:
        """States of the graph's outputs."""
        return [self.state(index) for index in self.view.outputs]


def _simplicity(expr: Expr) -> tuple[bool, int, tuple[int, str]]:
    return (not expr.is_const, len(expr.symbols()), expr.sort_key())
