"""Inferred shapes -> why a tensor has the dims it has: the figures of `shapes --why`.

Inference keeps no provenance. It is found afterwards, walking back from the tensor: for each dim to the dims
and sizes that its node takes it from, and so on to the inputs, the weights, or what nobody knows.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import onnx_symmem.report.origin_computing
import onnx_symmem.report.origin_moving  # noqa: F401  both register their rules
from onnx_symmem.errors import UsageError
from onnx_symmem.graph.view import INITIALIZER, INPUT, OUTER
from onnx_symmem.report.findings import bound_text
from onnx_symmem.report.inference import TensorFigures, shape_table
from onnx_symmem.report.origin import Level, Origin, Place, Site, origin
from onnx_symmem.report.results import SCHEMA_VERSION
from onnx_symmem.shapes.table import ModelShapes, UnknownDim

__all__ = ["DimReason", "Explanation", "Step", "explain"]

_NEAR = 5  # names that are offered for one that does not exist


@dataclass(frozen=True, slots=True)
class Step:
    """One place on the way from a dim back to the inputs.

    It is the dim `axis` of a tensor, or the number `item` that the tensor holds; the other is None. `value`
    is what is there, None where that is not known. `kind` is input, weight, constant, or unknown where the
    way ends, same where the value is taken over as it is, computed where it is not. `sources` are the steps,
    by their number, that it is taken from.
    """

    tensor: str
    graph: str
    axis: int | None
    item: int | None
    value: str | None
    kind: str
    op: str
    node: str
    reason: str
    sources: tuple[int, ...]

    @property
    def place(self) -> str:
        """The place in words."""
        return (
            f"{self.tensor}[{self.axis}]" if self.axis is not None else f"{self.tensor} element {self.item}"
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "tensor": self.tensor,
            "graph": self.graph,
            "axis": self.axis,
            "item": self.item,
            "value": self.value,
            "kind": self.kind,
            "op": self.op,
            "node": self.node,
            "reason": self.reason,
            "from": list(self.sources),
        }


@dataclass(frozen=True, slots=True)
class DimReason:
    """One dim with the steps back from it; the first step is the dim itself."""

    axis: int
    value: str
    steps: tuple[Step, ...]

    def to_json(self) -> dict[str, Any]:
        return {"axis": self.axis, "value": self.value, "steps": [s.to_json() for s in self.steps]}


@dataclass(frozen=True, slots=True)
class Explanation:
    """Result of `shapes --why`; `reason` says why not even the number of dims is known, else it is empty."""

    model: str
    tensor: TensorFigures
    dims: tuple[DimReason, ...]
    reason: str

    def to_json(self) -> dict[str, Any]:
        """The documented JSON form."""
        return {
            "schema": "onnx-symmem/why",
            "version": SCHEMA_VERSION,
            "model": self.model,
            "tensor": self.tensor.to_json(),
            "dims": [d.to_json() for d in self.dims],
            "reason": self.reason,
        }


def explain(model: str, shapes: ModelShapes, name: str) -> Explanation:
    """Explain the dims of the tensor called `name`; UsageError names near ones where there is none.

    Where branches have tensors of the same name, it is the first one.
    """
    main = Level(shapes.graph, shapes)
    for level in main.walk():
        value = level.shapes.view.index.get(name)
        if value is not None and level.shapes.view.values[value].kind != OUTER:
            break
    else:
        names = dict.fromkeys(v.name for level in main.walk() for v in level.shapes.view.values)
        near = difflib.get_close_matches(name, names, _NEAR, 0.5)
        hint = f"; did you mean {', '.join(near)}?" if near else ""
        raise UsageError(f"--why '{name}': {model} has no such tensor{hint}")
    walk = _Walk(shapes)
    dims = level.shapes.dims[value]
    reasons = [walk.steps(Place(level, value, axis)) for axis in range(len(dims or ()))]
    table = shape_table(model, shapes, None, {})
    figures = next(t for t in table.tensors if (t.name, t.graph) == (name, level.where))
    return Explanation(
        model,
        figures,
        tuple(
            DimReason(axis, str(d), s) for axis, (d, s) in enumerate(zip(dims or (), reasons, strict=True))
        ),
        "" if dims is not None else walk.no_rank(name),
    )


class _Walk:
    """Goes back from places; knows what inference said of dims that it could not express."""

    def __init__(self, shapes: ModelShapes) -> None:
        self.shapes = shapes
        self.unknowns: Mapping[tuple[str, int], UnknownDim] = {(u.tensor, u.axis): u for u in shapes.unknowns}
        self.by_symbol: Mapping[str, UnknownDim] = {u.symbol: u for u in shapes.unknowns if u.symbol}

    def no_rank(self, name: str) -> str:
        """Why the rank of a tensor is not known."""
        unknown = self.unknowns.get((name, -1))
        return f"{unknown.node or unknown.op}: {unknown.reason}" if unknown else "it is no tensor"

    def steps(self, start: Place) -> tuple[Step, ...]:
        """All places on the way back from one, each once, sources behind what is taken from them."""
        number: dict[Place, int] = {}
        found: list[tuple[Place, str, Origin]] = []
        stack = [start]
        while stack:
            place = stack.pop()
            if place in number:
                continue
            number[place] = len(found)
            kind, what = self._of(place)
            found.append((place, kind, what))
            stack.extend(reversed(what.sources))
        return tuple(
            self._step(place, kind, what, tuple(number[source] for source in what.sources))
            for place, kind, what in found
        )

    def _step(self, place: Place, kind: str, what: Origin, sources: tuple[int, ...]) -> Step:
        view = place.level.shapes.view
        producer = view.values[place.value].producer
        node = view.nodes[producer] if producer >= 0 else None
        return Step(
            tensor=place.tensor,
            graph=place.level.where,
            axis=place.axis,
            item=place.item,
            value=place.shown,
            kind=kind,
            op="" if node is None else node.op if not node.domain else f"{node.domain}.{node.op}",
            node="" if node is None else node.label(),
            reason=what.words,
            sources=sources,
        )

    def _of(self, place: Place) -> tuple[str, Origin]:
        """(kind, origin) of a place."""
        level, view = place.level, place.level.shapes.view
        value = view.values[place.value]
        if value.kind == OUTER and level.parent is not None and place.value in view.outer:
            outside = Place(level.parent, view.outer[place.value], place.axis, place.item)
            return "same", Origin("of the graph around", (outside,))
        if value.kind == INITIALIZER or (place.axis is None and place.value in view.initializers):
            return "weight", Origin("a weight of the model")
        if value.kind == INPUT:
            return self._of_input(place)
        node = view.nodes[value.producer]
        unknown = self._unknown(place, node.label())
        if unknown is not None:
            bound = "" if unknown.bound is None else f"; at most {bound_text(unknown.bound)}"
            return "unknown", Origin(f"{unknown.reason}{bound}")
        if node.op == "Constant" and not node.domain:
            return "constant", Origin("a constant of the model")
        what = origin(Site(place, node, node.outputs.index(place.value)))
        if place.expr is None:
            return "computed" if what.sources else "unknown", what
        if not what.sources:
            return "constant" if place.expr.is_const else "computed", what
        taken = len(what.sources) == 1 and what.sources[0].expr == place.expr
        return "same" if taken else "computed", what

    def _unknown(self, place: Place, node: str) -> UnknownDim | None:
        """What inference said where this very node gives a size that it could not express."""
        atom = None if place.expr is None else place.expr.as_atom()
        unknown = self.by_symbol.get(atom.name) if atom is not None and not atom.args else None
        here = unknown is not None and unknown.node == node
        return unknown if here else None

    def _of_input(self, place: Place) -> tuple[str, Origin]:
        level = place.level
        if level.parent is not None:
            return self._of_body_input(place)
        declared = level.shapes.view.values[place.value].dims
        given = declared[place.axis] if declared is not None and place.axis is not None else None
        if place.axis is None:
            return "unknown", Origin("the caller decides it")
        if not isinstance(given, str) or place.expr is None or given == str(place.expr):
            return "input", Origin(
                "a dim of an input" if given is not None else "a dim of an input, without a name"
            )
        why = [
            f"{a.text} ({a.node}: {a.reason})"
            for a in self.shapes.assumptions
            if a.kind == "equal" and given in a.left.symbols() | a.right.symbols()
        ]
        return "input", Origin("; ".join([f"a dim of an input, declared as {given}", *why[:2]]))

    def _of_body_input(self, place: Place) -> tuple[str, Origin]:
        level, parent, node = place.level, place.level.parent, place.level.node
        assert parent is not None
        assert node is not None
        at = level.shapes.view.inputs.index(place.value)
        if at < len(node.inputs) and node.inputs[at] >= 0 and place.axis is not None:
            outside = Place(parent, node.inputs[at], place.axis)
            if outside.expr is not None and outside.expr == place.expr:
                return "same", Origin(f"what {node.label()} is given", (outside,))
        return "input", Origin(f"what {node.label()} gives its subgraph")
