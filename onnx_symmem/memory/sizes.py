"""Bytes of every value, and the dims that ONNX Runtime compares when it looks for an equal buffer.

Bytes are exact: elements times element size, rounded up once per tensor for types below one byte.
What has no size that shapes determine (strings, sequences, optionals) and what has unknown dims is
None; the profile lists such values by name.

ONNX Runtime compares dims as constants or as texts. At load it merges what a file declares with
its own inference: a constant it infers replaces a text, a declared text replaces an inferred one, an
undeclared dim is filled in, and two different constants make the dim unknown. A file with all inferred
dims written is compared by what is written, as long as every dim that is a constant is written as one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import onnx
import onnx.shape_inference
from onnx import TensorProto

from onnx_symmem.expr.expression import ONE, ZERO, Expr, ceildiv
from onnx_symmem.graph.load import graphs_of
from onnx_symmem.graph.view import NODE, OUTER, GraphView, view_model

if TYPE_CHECKING:
    from onnx_symmem.shapes.table import GraphShapes

__all__ = [
    "DimKeys",
    "SizeKey",
    "ValueSizes",
    "element_bits",
    "from_declared",
    "from_model",
    "from_written",
    "tensor_bytes",
    "value_sizes",
]

SizeKey = tuple[int, tuple[int | str, ...]]
"""(bytes of one element in ONNX Runtime, dims): equal keys are equal sizes to its planner."""

_TYPES_BY_BITS = {
    2: "UINT2 INT2",
    4: "UINT4 INT4 FLOAT4E2M1",
    8: "UINT8 INT8 BOOL FLOAT8E4M3FN FLOAT8E4M3FNUZ FLOAT8E5M2 FLOAT8E5M2FNUZ FLOAT8E8M0",
    16: "UINT16 INT16 FLOAT16 BFLOAT16",
    32: "FLOAT INT32 UINT32",
    64: "INT64 UINT64 DOUBLE COMPLEX64",
    128: "COMPLEX128",
}
_TYPES = dict(TensorProto.DataType.items())
# Names an older onnx does not know yet are left out: its models cannot use them.
_BITS = {_TYPES[n]: bits for bits, names in _TYPES_BY_BITS.items() for n in names.split() if n in _TYPES}


def element_bits(elem_type: int) -> int | None:
    """Bits of one element of a TensorProto data type, None for strings and undefined types."""
    return _BITS.get(elem_type)


def tensor_bytes(dims: Iterable[Expr | int], elem_type: int) -> Expr | None:
    """Bytes of a tensor; None where the type has no fixed element size."""
    bits = element_bits(elem_type)
    if bits is None:
        return None
    count = ONE
    for dim in dims:
        count = count * dim
    return count * (bits // 8) if bits >= 8 else ceildiv(count, 8 // bits)


@dataclass(frozen=True, slots=True)
class ValueSizes:
    """Bytes per value of one graph and of its subgraphs; None where they are not known.

    `why` holds the reason for every None.
    """

    bytes: tuple[Expr | None, ...]
    why: Mapping[int, str]
    subgraphs: Mapping[tuple[int, str], ValueSizes]


@dataclass(frozen=True, slots=True)
class DimKeys:
    """What ONNX Runtime compares per value of one graph and of its subgraphs; None equals nothing."""

    values: tuple[SizeKey | None, ...]
    subgraphs: Mapping[tuple[int, str], DimKeys]


def value_sizes(shapes: GraphShapes, rounding: int = 1) -> ValueSizes:
    """Bytes per value; `rounding` rounds every tensor up to a multiple, as an allocator may do."""
    inner = {at: value_sizes(sub, rounding) for at, sub in shapes.subgraphs.items()}
    for node in shapes.view.nodes:
        for name, sub in node.subgraphs.items():
            inner.setdefault(
                (node.index, name), _unknown_sizes(sub, f"{node.label()} is not followed inside")
            )
    return ValueSizes(*_sizes(shapes.view, shapes.dims, shapes.elem_types, rounding), MappingProxyType(inner))


def _unknown_sizes(view: GraphView, reason: str) -> ValueSizes:
    """Sizes of a subgraph that inference did not get into."""
    return ValueSizes(
        (None,) * len(view.values),
        MappingProxyType({value.index: reason for value in view.values}),
        MappingProxyType(
            {
                (node.index, name): _unknown_sizes(sub, reason)
                for node in view.nodes
                for name, sub in node.subgraphs.items()
            }
        ),
    )


def _sizes(
    view: GraphView, dims: Sequence[tuple[Expr, ...] | None], elem_types: Sequence[int], rounding: int
) -> tuple[tuple[Expr | None, ...], Mapping[int, str]]:
    sizes: list[Expr | None] = []
    why: dict[int, str] = {}
    known: dict[tuple[int, tuple[Expr, ...]], Expr | None] = {}
    for value in view.values:
        shape, elem_type = dims[value.index], elem_types[value.index]
        size = None
        if value.kind == NODE and view.nodes[value.producer].op == "SequenceEmpty":
            size = ZERO  # a sequence of no tensors
        elif value.type is not None and value.type.WhichOneof("value") not in ("tensor_type", None):
            why[value.index] = f"{value.type.WhichOneof('value')} is not modelled"
        elif elem_type == TensorProto.STRING:
            why[value.index] = "strings are not modelled"
        elif shape is None or not elem_type:
            why[value.index] = "its rank is unknown" if shape is None else "its element type is unknown"
        else:
            at = (elem_type, shape)
            if at not in known:
                known[at] = _rounded(tensor_bytes(shape, elem_type), rounding)
            size = known[at]
            if size is None:
                why[value.index] = f"element type {elem_type} is not modelled"
        sizes.append(size)
    return tuple(sizes), MappingProxyType(why)


def _rounded(size: Expr | None, multiple: int) -> Expr | None:
    return size if size is None or multiple == 1 else ceildiv(size, multiple) * multiple


def _key(elem_type: int, dims: Sequence[int | str | None] | None) -> SizeKey | None:
    bits = element_bits(elem_type)
    if bits is None or dims is None:
        return None
    written = tuple(d for d in dims if d is not None and d != "")
    return (max(bits // 8, 1), written) if len(written) == len(dims) else None


def from_declared(view: GraphView) -> DimKeys:
    """Keys by the dims that inputs, outputs and value_info declare; exact where they declare all."""
    return DimKeys(
        tuple(None if v.kind == OUTER else _key(v.elem_type, v.dims) for v in view.values),
        MappingProxyType(
            {(n.index, name): from_declared(sub) for n in view.nodes for name, sub in n.subgraphs.items()}
        ),
    )


def from_model(model: onnx.ModelProto) -> DimKeys:
    """Keys of a model as it is: declared dims, and what inference op by op adds to them.

    Index for index those of the model's view. Dims behind operators that onnx does not know stay
    unknown, where ONNX Runtime may know them.
    """
    texts = {d.dim_param for t in _types(model.graph) for d in t.shape.dim}
    try:
        inferred = onnx.shape_inference.infer_shapes(model)
    except (onnx.shape_inference.InferenceError, ValueError):
        return from_declared(view_model(model).graph)
    for tensor in _types(inferred.graph):
        for dim in tensor.shape.dim:
            # onnx names dims it does not know; ONNX Runtime leaves them unknown.
            if dim.dim_param not in texts:
                dim.ClearField("dim_param")
    return from_declared(view_model(inferred).graph)


def _types(graph: onnx.GraphProto) -> Iterator[onnx.TypeProto.Tensor]:
    for sub in graphs_of(graph):
        for infos in (sub.input, sub.output, sub.value_info):
            yield from (info.type.tensor_type for info in infos if info.type.HasField("tensor_type"))


def from_written(shapes: GraphShapes) -> DimKeys:
    """Keys of a model into which all inferred dims are written: constants, and printed expressions."""
    texts: dict[Expr, int | str] = {}
    keys: list[SizeKey | None] = []
    for dims, elem_type in zip(shapes.dims, shapes.elem_types, strict=True):
        if dims is None:
            keys.append(None)
            continue
        for dim in dims:
            if dim not in texts:
                value = dim.as_int()
                texts[dim] = str(dim) if value is None else value
        keys.append(_key(elem_type, [texts[d] for d in dims]))
    return DimKeys(
        tuple(keys), MappingProxyType({at: from_written(sub) for at, sub in shapes.subgraphs.items()})
    )
