"""Inferred shapes -> the figures of `shapes`: every tensor with its dims as expressions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from onnx import TensorProto

from onnx_symmem.expr.expression import Expr
from onnx_symmem.memory.sizes import tensor_bytes
from onnx_symmem.report.findings import shape_findings
from onnx_symmem.report.results import SCHEMA_VERSION, ShapeFindings
from onnx_symmem.shapes.table import GraphShapes, ModelShapes

__all__ = ["ShapeTable", "TensorFigures", "shape_table"]

_TYPES = {number: name.lower() for name, number in TensorProto.DataType.items()}


@dataclass(frozen=True, slots=True)
class TensorFigures:
    """One tensor.

    `graph` is empty in the main graph, else where the subgraph lies, e.g. `If 'pick' / then_branch`. `kind`
    is input, weight, output, or node (made and used inside). `dims` hold numbers and expressions, None where
    not even the rank is known; `bytes` is the formula of the size, None where it has none.
    """

    name: str
    graph: str
    kind: str
    op: str
    node: str
    type: str
    dims: tuple[int | str, ...] | None
    bytes: str | None

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "graph": self.graph,
            "kind": self.kind,
            "op": self.op,
            "node": self.node,
            "type": self.type,
            "dims": None if self.dims is None else list(self.dims),
            "bytes": self.bytes,
        }


@dataclass(frozen=True, slots=True)
class RelationFigures:
    """A fact that an operator states about dims; see `shapes.table.Relation`."""

    kind: str
    text: str
    node: str

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "text": self.text, "node": self.node}


@dataclass(frozen=True, slots=True)
class ShapeTable:
    """Result of `shapes`."""

    model: str
    nodes: int
    findings: ShapeFindings
    tensors: tuple[TensorFigures, ...]
    relations: tuple[RelationFigures, ...]
    written: str | None
    seconds: Mapping[str, float]

    def to_json(self) -> dict[str, Any]:
        """The documented JSON form."""
        return {
            "schema": "onnx-symmem/shapes",
            "version": SCHEMA_VERSION,
            "model": self.model,
            "nodes": self.nodes,
            **self.findings.to_json(),
            "tensors": [t.to_json() for t in self.tensors],
            "relations": [r.to_json() for r in self.relations],
            "written": self.written,
            "seconds": {stage: round(s, 3) for stage, s in self.seconds.items()},
        }


def shape_table(
    model: str, shapes: ModelShapes, written: str | None, seconds: Mapping[str, float]
) -> ShapeTable:
    """The figures of the inferred shapes of the model called `model`."""
    return ShapeTable(
        model,
        sum(len(graph.view.nodes) for graph in shapes.graph.walk()),
        shape_findings(shapes),
        tuple(_tensors(shapes.graph, "")),
        tuple(RelationFigures(r.kind, r.text, r.node) for r in shapes.relations),
        written,
        seconds,
    )


def _number_or_formula(dim: Expr) -> int | str:
    """A dim as all formulas are written, with a name such as `N-1` quoted, so that it reads as that name."""
    value = dim.as_int()
    return str(dim) if value is None else value


def _tensors(graph: GraphShapes, place: str) -> Iterator[TensorFigures]:
    """Tensors in the order in which they come to be; a subgraph's before the outputs of its node."""
    view = graph.view
    outputs = frozenset(view.outputs)

    def figures(index: int, kind: str) -> TensorFigures:
        value, dims, elem_type = view.values[index], graph.dims[index], graph.elem_types[index]
        node = view.nodes[value.producer] if value.producer >= 0 else None
        size = None if dims is None or not elem_type else tensor_bytes(dims, elem_type)
        return TensorFigures(
            value.name,
            place,
            kind,
            "" if node is None else node.op if not node.domain else f"{node.domain}.{node.op}",
            "" if node is None else node.label(),
            _TYPES.get(elem_type, "undefined") if elem_type else "unknown",
            None if dims is None else tuple(_number_or_formula(dim) for dim in dims),
            None if size is None else str(size),
        )

    for index in view.inputs:
        yield figures(index, "input")
    for value in view.values:
        if value.index in view.initializers and value.index not in view.inputs:
            yield figures(value.index, "weight")
    for node in view.nodes:
        for name in node.subgraphs:
            inner = graph.subgraphs.get((node.index, name))
            if inner is not None:
                where = f"{node.label()} / {name}"
                yield from _tensors(inner, f"{place} / {where}" if place else where)
        for index in node.outputs:
            if index >= 0:
                yield figures(index, "output" if index in outputs else "node")
