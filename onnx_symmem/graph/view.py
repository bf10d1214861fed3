"""The model as frozen data: nodes, values and subgraphs by index, nothing of ONNX Runtime yet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any

import onnx
from onnx import AttributeProto, TensorProto

__all__ = ["GraphView", "ModelView", "Node", "Value", "view_model"]

INPUT, INITIALIZER, NODE, OUTER = "input", "initializer", "node", "outer"

DeclaredDims = tuple[int | str | None, ...]


@dataclass(frozen=True, slots=True)
class Value:
    """One named value of one graph.

    `kind` is input, initializer, node (made by `producer`), or outer (captured from the enclosing
    graph). `elem_type` is a TensorProto data type, 0 where undeclared; `dims` are the declared dims
    (int, dim_param text, or None per dim), None where no shape is declared. `type` is the declared
    TypeProto (needed for sequences and optionals), None where undeclared.
    """

    index: int
    name: str
    kind: str
    producer: int = -1
    elem_type: int = 0
    dims: DeclaredDims | None = None
    type: onnx.TypeProto | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Node:
    """One node; `inputs` and `outputs` are value indices of its graph, -1 where left out.

    `captured` are the values of this graph that the node's subgraphs read (implicit inputs, sorted by
    index). `attributes` maps names to int, float, str, TensorProto, TypeProto, or tuples of those;
    graph attributes are in `subgraphs`.
    """

    index: int
    name: str
    op: str
    domain: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    captured: tuple[int, ...]
    attributes: Mapping[str, Any]
    subgraphs: Mapping[str, GraphView]

    def label(self) -> str:
        """How messages name the node: `MatMul 'encoder/q'` or `MatMul #17`."""
        kind = f"{self.domain}.{self.op}" if self.domain else self.op
        return f"{kind} '{self.name}'" if self.name else f"{kind} #{self.index}"

    def reads(self) -> Iterator[int]:
        """Every value the node reads, explicit inputs first, then captured; left-out inputs skipped."""
        yield from (i for i in self.inputs if i >= 0)
        yield from self.captured


@dataclass(frozen=True)
class GraphView:
    """One graph. Node order is the file's; `initializers` maps value index to its TensorProto.

    `outer` maps each outer value's index to its index in the enclosing graph.
    """

    name: str
    values: tuple[Value, ...]
    nodes: tuple[Node, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    initializers: Mapping[int, TensorProto]
    outer: Mapping[int, int]

    @cached_property
    def index(self) -> Mapping[str, int]:
        """Value index by name."""
        return MappingProxyType({v.name: v.index for v in self.values})

    @cached_property
    def consumers(self) -> tuple[tuple[int, ...], ...]:
        """Per value: indices of the nodes that read it (explicitly or captured), ascending, once each."""
        readers: list[list[int]] = [[] for _ in self.values]
        for node in self.nodes:
            for value in dict.fromkeys(node.reads()):
                readers[value].append(node.index)
        return tuple(map(tuple, readers))

    @cached_property
    def predecessors(self) -> tuple[tuple[int, ...], ...]:
        """Per node: indices of the nodes whose outputs it reads, ascending, once each."""
        made_by = [v.producer for v in self.values]
        return tuple(tuple(sorted({made_by[v] for v in n.reads() if made_by[v] >= 0})) for n in self.nodes)

    @cached_property
    def successors(self) -> tuple[tuple[int, ...], ...]:
        """Per node: indices of the nodes that read one of its outputs, ascending, once each."""
        after: list[list[int]] = [[] for _ in self.nodes]
        for node, before in enumerate(self.predecessors):
            for p in before:
                after[p].append(node)
        return tuple(map(tuple, after))

    def walk(self) -> Iterator[GraphView]:
        """This graph and all subgraphs below it, outer before inner."""
        yield self
        for node in self.nodes:
            for sub in node.subgraphs.values():
                yield from sub.walk()


@dataclass(frozen=True)
class ModelView:
    """A whole model: its main graph, opset versions by domain, and the folder of its external data."""

    graph: GraphView
    opsets: Mapping[str, int]
    ir_version: int
    folder: str | None


def view_model(model: onnx.ModelProto, folder: str | None = None) -> ModelView:
    """Frozen view of a model whose local functions are inlined and whose nodes are sorted.

    `folder` is where external data lies (None: nowhere). See `graph.load` for such models.
    """
    opsets = {("" if o.domain == "ai.onnx" else o.domain): o.version for o in model.opset_import}
    graph, _ = _view_graph(model.graph, None, model.ir_version)
    return ModelView(graph, MappingProxyType(opsets), model.ir_version, folder)


def declared_dims(type_proto: onnx.TypeProto) -> DeclaredDims | None:
    """Dims written in a tensor type: int, dim_param text, or None per dim; None without a shape."""
    which = type_proto.WhichOneof("value")
    if which not in ("tensor_type", "sparse_tensor_type"):
        return None
    tensor = getattr(type_proto, which)
    if not tensor.HasField("shape"):
        return None
    return tuple(
        d.dim_value if d.WhichOneof("value") == "dim_value" else (d.dim_param or None)
        for d in tensor.shape.dim
    )


def decode_attribute(attribute: AttributeProto) -> Any:
    """Python value of a non-graph attribute (strings decoded, lists as tuples)."""
    kind = attribute.type
    if kind == AttributeProto.INT:
        return attribute.i
    if kind == AttributeProto.INTS:
        return tuple(attribute.ints)
    if kind == AttributeProto.FLOAT:
        return attribute.f
    if kind == AttributeProto.FLOATS:
        return tuple(attribute.floats)
    if kind == AttributeProto.STRING:
        return attribute.s.decode("utf-8", "replace")
    if kind == AttributeProto.STRINGS:
        return tuple(s.decode("utf-8", "replace") for s in attribute.strings)
    if kind == AttributeProto.TENSOR:
        return attribute.t
    if kind == AttributeProto.TENSORS:
        return tuple(attribute.tensors)
    if kind == AttributeProto.SPARSE_TENSOR:
        return attribute.sparse_tensor
    if kind == AttributeProto.TYPE_PROTO:
        return attribute.tp
    if kind == AttributeProto.TYPE_PROTOS:
        return tuple(attribute.type_protos)
    return None


class _Builder:
    """Collects one graph's values while its nodes are read in order."""

    def __init__(self, graph: onnx.GraphProto, parent: _Builder | None) -> None:
        self.parent = parent
        self.values: list[Value] = []
        self.index: dict[str, int] = {}
        self.outer: dict[int, int] = {}
        self.types: dict[str, onnx.TypeProto] = {
            info.name: info.type
            for infos in (graph.value_info, graph.output, graph.input)
            for info in infos
            if info.HasField("type")
        }

    def define(self, name: str, kind: str, producer: int = -1, tensor: TensorProto | None = None) -> int:
        index = len(self.values)
        declared = self.types.get(name)
        if tensor is not None:
            elem_type, dims = tensor.data_type, tuple(tensor.dims)
        elif declared is None:
            elem_type, dims = 0, None
        else:
            elem_type, dims = declared.tensor_type.elem_type, declared_dims(declared)
        self.values.append(Value(index, name, kind, producer, elem_type, dims, declared))
        self.index[name] = index
        return index

    def use(self, name: str) -> int:
        """Index of a value read here; a name not made here is captured from outside."""
        if not name:
            return -1
        found = self.index.get(name)
        if found is not None:
            return found
        index = self.define(name, OUTER)
        if self.parent is not None:
            self.outer[index] = self.parent.use(name)
        return index


def _view_graph(
    graph: onnx.GraphProto, parent: _Builder | None, ir_version: int
) -> tuple[GraphView, tuple[int, ...]]:
    """The view, and the indices in the parent of what the graph captures."""
    builder = _Builder(graph, parent)
    tensors = {t.name: t for t in graph.initializer}
    # Up to IR 3 every initializer is also an input; later such an input has an overridable default.
    inputs = [i.name for i in graph.input if ir_version >= 4 or i.name not in tensors]
    for name in inputs:
        builder.define(name, INPUT, tensor=None)
    initializers: dict[int, TensorProto] = {}
    for name, tensor in tensors.items():
        at = builder.index.get(name)
        initializers[builder.define(name, INITIALIZER, tensor=tensor) if at is None else at] = tensor
    for sparse in graph.sparse_initializer:
        shape = TensorProto(name=sparse.values.name, data_type=sparse.values.data_type, dims=sparse.dims)
        builder.define(shape.name, INITIALIZER, tensor=shape)
    nodes: list[Node] = []
    for position, proto in enumerate(graph.node):
        reads = tuple(builder.use(name) for name in proto.input)
        subgraphs: dict[str, GraphView] = {}
        attributes: dict[str, Any] = {}
        captured: set[int] = set()
        for attribute in proto.attribute:
            if attribute.type == AttributeProto.GRAPH:
                subgraphs[attribute.name], taken = _view_graph(attribute.g, builder, ir_version)
                captured.update(taken)
            else:
                attributes[attribute.name] = decode_attribute(attribute)
        outputs = tuple(builder.define(o, NODE, position) if o else -1 for o in proto.output)
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        nodes.append(
            Node(
                position, proto.name, proto.op_type, domain, reads, outputs,
                tuple(sorted(captured)), MappingProxyType(attributes), MappingProxyType(subgraphs),
            )
        )  # fmt: skip
    results = tuple(builder.use(o.name) for o in graph.output)
    view = GraphView(
        graph.name, tuple(builder.values), tuple(nodes), tuple(builder.index[n] for n in inputs), results,
        MappingProxyType(initializers), MappingProxyType(dict(builder.outer)),
    )  # fmt: skip
    return view, tuple(sorted(builder.outer.values()))
