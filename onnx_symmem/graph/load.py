"""File, proto or gs.Graph -> a model ready to be viewed; weights stay on disk."""

from __future__ import annotations

import heapq
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import onnx
import onnx.inliner
from google.protobuf.message import DecodeError
from onnx import AttributeProto, TensorProto

from onnx_symmem.errors import ModelFileError, UnsupportedModel, UsageError
from onnx_symmem.graph.view import ModelView, view_model

__all__ = [
    "LoadedModel",
    "check_external_data",
    "external_entry",
    "graphs_of",
    "load_model",
    "read_tensor_bytes",
]

MOST_NODES = (
    2_000_000  # once local functions are inlined; twenty-five that each call another twice make 2**25
)


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model proto without external weights, and where it came from.

    Treat `proto` as read-only; copy it before changing it. Local functions are inlined and nodes are
    sorted. `path` is None for models given as objects; `folder` is where external data lies.
    """

    proto: onnx.ModelProto
    path: Path | None
    folder: str | None

    @property
    def label(self) -> str:
        """How messages name the model."""
        return str(self.path) if self.path is not None else (self.proto.graph.name or "model")

    def view(self) -> ModelView:
        """Frozen, index-based view."""
        return view_model(self.proto, self.folder)


def load_model(source: Any) -> LoadedModel:
    """Load a path, an `onnx.ModelProto`, or an `onnx_graphsurgeon.Graph`.

    External data is not read. Raises ModelFileError for files that are missing, empty, truncated, not
    ONNX, or that refer to data outside their folder; UnsupportedModel for cyclic graphs.
    """
    path: Path | None = None
    if isinstance(source, LoadedModel):
        return source
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        proto = _read(path)
    elif isinstance(source, onnx.ModelProto):
        proto = onnx.ModelProto()
        proto.CopyFrom(source)
    elif hasattr(source, "nodes") and hasattr(source, "tensors"):
        import onnx_graphsurgeon as gs

        proto = gs.export_onnx(source)
    else:
        raise UsageError(f"{type(source).__name__}: expected a path, an onnx.ModelProto, or a gs.Graph")
    label = str(path) if path is not None else "model"
    if not proto.HasField("graph") or not proto.opset_import:
        raise ModelFileError(f"{label}: not an ONNX model (no graph or no opset); expected a .onnx file")
    folder = str(path.resolve().parent) if path is not None else None
    _check_locations(proto, label)
    if proto.functions:
        _check_calls(proto, label)
        proto = onnx.inliner.inline_local_functions(proto)
    _check_names(proto.graph, frozenset(), label)
    for graph in graphs_of(proto.graph):
        _sort(graph, label)
    return LoadedModel(proto, path, folder)


def _check_calls(proto: onnx.ModelProto, label: str) -> None:
    """Raise UnsupportedModel where local functions call themselves, or come to too many nodes."""
    bodies = {(f.domain, f.name, f.overload): f.node for f in proto.functions}
    sizes: dict[tuple[str, str, str], int] = {}
    open_calls: list[tuple[str, str, str]] = []

    def size(nodes: Iterable[onnx.NodeProto]) -> int:
        total = 0
        for node in nodes:
            total += 1 + sum(size(graph.node) for graph in _graphs_in(node))
            key = node.domain, node.op_type, node.overload
            if key not in bodies:
                continue
            if key in open_calls:
                raise UnsupportedModel(f"{label}: local function '{node.op_type}' calls itself")
            if key not in sizes:
                open_calls.append(key)
                sizes[key] = size(bodies[key])
                open_calls.pop()
            total += sizes[key]
        return total

    count = size(proto.graph.node)
    if count > MOST_NODES:
        raise UnsupportedModel(
            f"{label}: {count} nodes once its local functions are inlined; expected at most {MOST_NODES}"
        )


def _read(path: Path) -> onnx.ModelProto:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise ModelFileError(f"{path}: no such file") from None
    except OSError as error:
        raise ModelFileError(f"{path}: cannot be read ({error.strerror or error})") from None
    if not data:
        raise ModelFileError(f"{path}: the file is empty; expected an ONNX model")
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except DecodeError:
        raise ModelFileError(f"{path}: not an ONNX model, or truncated ({len(data)} bytes)") from None
    return proto


def graphs_of(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """The graph and every graph inside its nodes' attributes, outer first."""
    yield graph
    for node in graph.node:
        for sub in _graphs_in(node):
            yield from graphs_of(sub)


def _graphs_in(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs


def _tensors_of(graph: onnx.GraphProto) -> Iterator[TensorProto]:
    for g in graphs_of(graph):
        yield from g.initializer
        for node in g.node:
            for attribute in node.attribute:
                if attribute.type == AttributeProto.TENSOR:
                    yield attribute.t


def external_entry(tensor: TensorProto) -> tuple[str, int, int | None] | None:
    """(location, offset, length) in bytes of a tensor kept outside the file, else None."""
    if tensor.data_location != TensorProto.EXTERNAL:
        return None
    entries = {e.key: e.value for e in tensor.external_data}
    length = entries.get("length")
    return entries.get("location", ""), int(entries.get("offset", 0)), int(length) if length else None


def _check_locations(proto: onnx.ModelProto, label: str) -> None:
    for tensor in _tensors_of(proto.graph):
        entry = external_entry(tensor)
        if entry is None:
            continue
        where = PurePosixPath(entry[0].replace("\\", "/"))
        if not entry[0] or where.is_absolute() or ".." in where.parts or where.parts[0][1:2] == ":":
            raise ModelFileError(
                f"{label}: tensor '{tensor.name}' refers to external data at '{entry[0]}'; "
                "expected a path inside the model's folder"
            )


def check_external_data(model: LoadedModel) -> None:
    """Raise ModelFileError where external data is missing or shorter than the model says."""
    sizes: dict[str, int] = {}
    for tensor in _tensors_of(model.proto.graph):
        entry = external_entry(tensor)
        if entry is None:
            continue
        location, offset, length = entry
        if model.folder is None:
            raise ModelFileError(
                f"tensor '{tensor.name}' lies in external file '{location}', but a model given as an object "
                "has no folder; give the path, or load the weights first"
            )
        if location not in sizes:
            file = Path(model.folder, location)
            if not file.resolve().is_relative_to(Path(model.folder).resolve()):
                raise ModelFileError(
                    f"{model.label}: external data '{location}' links outside the model's folder"
                )
            sizes[location] = file.stat().st_size if file.is_file() else -1
        if sizes[location] < 0:
            raise ModelFileError(
                f"{model.label}: external data '{location}' of tensor '{tensor.name}' is missing"
            )
        if offset + (length or 0) > sizes[location]:
            raise ModelFileError(
                f"{model.label}: external data '{location}' is truncated: tensor '{tensor.name}' ends at "
                f"byte {offset + (length or 0)}, the file has {sizes[location]}"
            )


def read_tensor_bytes(tensor: TensorProto, folder: str | None) -> bytes | None:
    """Raw little-endian bytes of an external tensor, None where the file is not there."""
    entry = external_entry(tensor)
    if entry is None or folder is None:
        return None
    location, offset, length = entry
    file = Path(folder, location)
    if not file.is_file():
        return None
    with file.open("rb") as stream:
        stream.seek(offset)
        return stream.read(length if length is not None else -1)


def _check_names(graph: onnx.GraphProto, outer: frozenset[str], label: str) -> None:
    """Raise ModelFileError where a name is made twice, or read and made nowhere."""
    inputs = Counter(i.name for i in graph.input)
    for name, times in inputs.items():
        if times > 1:
            raise ModelFileError(f"{label}: {times} inputs are called '{name}'")
    own = inputs.keys() | {t.name for t in graph.initializer}
    own |= {t.values.name for t in graph.sparse_initializer}
    for node in graph.node:
        for name in node.output:
            if name and name in own:
                raise ModelFileError(
                    f"{label}: node '{node.name or node.op_type}' makes '{name}' a second time"
                )
            own.add(name)
    known = outer | own | {""}
    for node in graph.node:
        for name in node.input:
            if name not in known:
                raise ModelFileError(
                    f"{label}: node '{node.name or node.op_type}' reads '{name}', which nothing makes"
                )
        for sub in _graphs_in(node):
            _check_names(sub, known, label)
    for info in graph.output:
        if info.name not in known:
            raise ModelFileError(f"{label}: output '{info.name}' is made by no node")


def _sort(graph: onnx.GraphProto, label: str) -> None:
    """Sort nodes in place, stable, where a node stands before one it depends on (captures included)."""
    producer = {name: k for k, node in enumerate(graph.node) for name in node.output if name}
    before = [{producer[n] for n in _reads(node) if n in producer} for node in graph.node]
    if all(p < k for k, deps in enumerate(before) for p in deps):
        return
    after: list[list[int]] = [[] for _ in before]
    waiting = [len(deps) for deps in before]
    for k, deps in enumerate(before):
        for p in deps:
            after[p].append(k)
    ready = [k for k, count in enumerate(waiting) if not count]
    order: list[int] = []
    while ready:
        k = heapq.heappop(ready)
        order.append(k)
        for s in after[k]:
            waiting[s] -= 1
            if not waiting[s]:
                heapq.heappush(ready, s)
    if len(order) < len(before):
        stuck = next(k for k, count in enumerate(waiting) if count)
        node = graph.node[stuck]
        raise UnsupportedModel(f"{label}: node '{node.name or node.op_type}' is part of a cycle")
    nodes = [graph.node[k] for k in order]
    copies = []
    for node in nodes:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copies.append(copy)
    del graph.node[:]
    graph.node.extend(copies)


def _reads(node: onnx.NodeProto) -> Iterator[str]:
    yield from (n for n in node.input if n)
    for sub in _graphs_in(node):
        own = {i.name for i in sub.input} | {t.name for t in sub.initializer}
        own.update(name for inner in sub.node for name in inner.output)
        for inner in sub.node:
            yield from (n for n in _reads(inner) if n not in own)
        yield from (o.name for o in sub.output if o.name not in own)
