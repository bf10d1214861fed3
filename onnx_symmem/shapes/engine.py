"""A view -> an expression for every dim of every tensor, over all shapes the model accepts.

Nodes are visited once, in the view's order. A rule per op states the dims of its outputs; the contents
of small integer tensors are followed on the way, so that shape arithmetic ends in expressions of the
input dims. What a rule cannot say becomes a fresh symbol with a reason and, where known, a bound. What a
node needs in order to run (equal inner dims of a MatMul, a kernel not larger than its input) is entailed
by every run: it is listed, and may be used for the dims of all other nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType
from typing import cast

from onnx_symmem.expr.domain import Domain
from onnx_symmem.expr.expression import ONE, Expr
from onnx_symmem.graph.view import NODE, ModelView
from onnx_symmem.shapes.context import NodeContext, Unknown
from onnx_symmem.shapes.declared import DeclaredDims
from onnx_symmem.shapes.facts import Facts, FactsMark, strongest
from onnx_symmem.shapes.growth import is_grown
from onnx_symmem.shapes.scope import Scope
from onnx_symmem.shapes.states import State
from onnx_symmem.shapes.table import Assumption, Dims, GraphShapes, ModelShapes, Relation, UnknownDim
from onnx_symmem.shapes.values import Item, PartialValue, follows

__all__ = ["Run", "infer_shapes"]

MAX_PASSES = 4


def infer_shapes(view: ModelView, domain: Domain | None = None) -> ModelShapes:
    """Infer all shapes; `domain` says what the caller knows of the input dims (by default: at least 1)."""
    run = Run(view, domain or Domain())
    run.main.infer()
    for _ in range(MAX_PASSES - 1):
        # What late nodes need may decide what early shape arithmetic left open.
        if not run.has_learnt():
            break
        run = run.again()
        run.main.infer()
    return run.result()


class Run:
    """One inference: what is shared between the graphs of a model."""

    def __init__(self, view: ModelView, domain: Domain) -> None:
        self.view = view
        self.opsets = view.opsets
        self.folder = view.folder
        self.declared = DeclaredDims(view.graph)
        self.unknowns: list[UnknownDim] = []
        self.assumptions: dict[tuple[Expr, Expr, str, str], Assumption] = {}
        self.relations: dict[tuple[str, Dims, Dims], Relation] = {}
        self.failures: list[tuple[str, str]] = []
        self.shared: dict[object, Expr] = {}
        self.fitting: set[Expr] = set()
        self._declared_ok: set[tuple[Expr, int | str | None]] = set()
        self._symbol_count = 0
        self._fresh_names: dict[str, None] = {}
        inputs = [view.graph.values[index] for index in view.graph.inputs]
        dims = {v.index: self.declared.input_dims(v.name, v.dims) for v in inputs if v.dims is not None}
        self.facts = Facts(domain, tuple(self.declared.symbols))
        self.main = Scope(self, view.graph)
        for value in inputs:
            known = dims.get(value.index)
            self.main.put(
                value.index,
                self.main.declared_state(value.index) if known is None else State(known, value.elem_type),
            )

    def has_learnt(self) -> bool:
        """Whether nodes narrowed the domain, and something is left open that this might decide."""
        return bool(self.unknowns or self.assumptions) and self.facts.has_grown()

    def again(self) -> Run:
        """A new run that starts with what this one learnt of the input dims."""
        domain, limits = self.facts.about_inputs()
        run = Run(self.view, domain)
        run.facts.limits.extend(limits)
        eliminated = domain.equalities.keys()
        for key, assumption in self.assumptions.items():
            if assumption.kind == "equal" and (key[0].symbols() | key[1].symbols()) & eliminated:
                run.assumptions[key] = assumption
        return run

    # -- notes -------------------------------------------------------------------------------------
    def note(self, left: Expr, right: Expr, node: str, reason: str, kind: str = "equal") -> None:
        """Record an assumption, once however many nodes need it."""
        key = (left, right, kind, reason if left == right else "")
        if key not in self.assumptions:
            self.assumptions[key] = Assumption(left, right, node, reason, kind)

    def unknown_rank(self, tensor: str, op: str, node: str, reason: str) -> None:
        """Record that not even the rank of a tensor is known."""
        self.unknowns.append(UnknownDim(tensor, -1, op, node, reason, ""))

    def fresh(
        self, unknown: Unknown, tensor: str, axis: int, op: str, node: str, hint: object = None
    ) -> Expr:
        """A symbol for a dim that cannot be expressed; `hint` is a name the file has for it."""
        name = hint if isinstance(hint, str) and self._is_free(hint) else ""
        while not name:
            candidate = f"u{self._symbol_count}"
            self._symbol_count += 1
            if not self.declared.is_reserved(candidate):
                name = candidate
        self.facts.declare(name, unknown.lo, unknown.bound)
        self._fresh_names[name] = None
        self.unknowns.append(UnknownDim(tensor, axis, op, node, unknown.reason, name, unknown.bound))
        symbol = Expr.symbol(name)
        self.fitting.add(symbol)
        return symbol

    def _is_free(self, name: str) -> bool:
        return name.isidentifier() and name not in self._fresh_names and name not in self.declared.symbols

    def compare_declared(self, context: NodeContext, dim: Expr, declared: int | str | None) -> None:
        """Note where the file declares another size than the inferred one, which wins."""
        key = (dim, declared)
        if key in self._declared_ok:
            return
        self._declared_ok.add(key)
        expected = self.declared.dim(declared)
        if expected is not None and expected != dim and self.facts.simplify(expected - dim).terms:
            self.note(dim, expected, context.label, "declared in the file", "declared")

    def mark(self) -> tuple[object, ...]:
        """A point to return to with `reset`, for a subgraph that has to be inferred again."""
        return (
            self.facts.mark(), len(self.unknowns), dict(self.assumptions), dict(self.relations),
            len(self.failures), dict(self.shared), self._symbol_count,
        )  # fmt: skip

    def reset(self, mark: tuple[object, ...]) -> None:
        """Forget what was noted since the mark."""
        facts, unknowns, assumptions, relations, failures, shared, count = mark
        self._symbol_count = cast("int", count)
        self.facts.reset(cast("FactsMark", facts))
        del self.unknowns[cast("int", unknowns) :]
        self._fresh_names = dict.fromkeys(u.symbol for u in self.unknowns if u.symbol)
        # The mark may be used again: hand out copies.
        self.assumptions = dict(cast("dict[tuple[Expr, Expr, str, str], Assumption]", assumptions))
        self.relations = dict(cast("dict[tuple[str, Dims, Dims], Relation]", relations))
        del self.failures[cast("int", failures) :]
        self.shared = dict(cast("dict[object, Expr]", shared))

    # -- growth --------------------------------------------------------------------------------------
    def fit(self, expr: Expr) -> Expr | Unknown:
        """The expression itself, or a bounded unknown where it has grown beyond use."""
        if is_grown(expr):
            lo, hi = self.facts.bounds(expr)
            bound = None if hi is None else Expr.const(hi)
            return Unknown("its expression grew too long", bound, max(lo or 0, 0), ("grown", expr))
        value = expr.as_int()
        if value is not None and value < 0:
            return Unknown("its size would be negative: the node cannot run")
        self.fitting.add(expr)
        return expr

    def fit_value(self, value: PartialValue) -> PartialValue:
        """The value without items that have grown beyond use."""

        def fitting(item: Item) -> Item:
            return None if isinstance(item, Expr) and item not in self.fitting and is_grown(item) else item

        items = tuple(map(fitting, value.items))
        return value if items == value.items else PartialValue(value.dims, items)

    # -- result ------------------------------------------------------------------------------------
    def result(self) -> ModelShapes:
        """Everything, frozen; dims found before a later node narrowed the domain are simplified again."""
        simplified: dict[Dims, Dims] = {}
        used: set[str] = set()
        domain = self.facts.domain

        def settle(dims: Dims | None) -> Dims | None:
            if dims is None:
                return None
            found = simplified.get(dims)
            if found is None:
                found = simplified[dims] = tuple(map(self.facts.simplify, dims))
                used.update(*(d.symbols() for d in found))
            return found

        graph = self._freeze(self.main, settle)
        kept = tuple(u for u in self.unknowns if not u.symbol or u.symbol in used)
        assumptions = tuple(map(self._settled, self.assumptions.values()))
        return ModelShapes(
            self.view, domain, graph, kept, tuple(self.relations.values()), assumptions,
            strongest(self.facts.limits), tuple(self.declared.symbols),
        )  # fmt: skip

    def _settled(self, assumption: Assumption) -> Assumption:
        """The assumption, as a contradiction of the model where no shape of the domain meets it."""
        kinds = {"equal": "never", "equal_or_one": "never", "declared": "contradicted"}
        kind, facts = kinds.get(assumption.kind), self.facts
        if kind is None or not facts.differ(assumption.left, assumption.right):
            return assumption
        sides = (assumption.left, assumption.right)
        if assumption.kind == "equal_or_one" and not all(facts.differ(side, ONE) for side in sides):
            return assumption
        left, right = (facts.simplify(side) if kind == "never" else side for side in sides)
        return replace(assumption, left=left, right=right, kind=kind)

    def _freeze(self, scope: Scope, settle: Callable[[Dims | None], Dims | None]) -> GraphShapes:
        values = {
            index: value
            for index, value in sorted(scope.values.items())
            if value is not None and follows(scope.elems[index]) and scope.view.values[index].kind == NODE
        }
        children = {key: self._freeze(child, settle) for key, child in scope.children.items()}
        return GraphShapes(
            scope.view, tuple(map(settle, scope.dims)), tuple(scope.elems), MappingProxyType(values),
            MappingProxyType(children),
        )  # fmt: skip
