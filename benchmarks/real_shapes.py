"""Inferred dims against the shapes that ONNX Runtime really makes: every output of every node, fetched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from onnx_symmem.expr.samples import legal_near
from onnx_symmem.graph.load import LoadedModel
from onnx_symmem.shapes.table import ModelShapes

__all__ = [
    "bytes_of_outputs",
    "compare_shapes",
    "draw_feeds",
    "random_shapes",
    "run_all_outputs",
    "session_of_all_outputs",
]

_TRIES = 60  # per wanted shape


def _draw(kind: Any, shape: tuple[int, ...], dtype: np.dtype, rng: np.random.Generator) -> np.ndarray:
    """One input tensor: "ones", ["randint", lo, hi], ["uniform", lo, hi], else standard normal."""
    if kind == "ones":
        return np.ones(shape, dtype)
    if isinstance(kind, list):
        how, low, high = kind
        if how == "randint":
            return rng.integers(low, high, shape).astype(dtype)
        return rng.uniform(low, high, shape).astype(dtype)
    if dtype == np.bool_:
        return rng.random(shape) > 0.5
    return rng.standard_normal(shape).astype(dtype)


def draw_feeds(
    shapes: ModelShapes, fills: Mapping[str, Any], at: Mapping[str, int], seed: int
) -> dict[str, np.ndarray]:
    """Inputs of the main graph at a shape."""
    rng = np.random.default_rng(seed)
    sizes = shapes.domain.completed(at)
    view = shapes.graph.view
    feeds = {}
    for index in view.inputs:
        value = view.values[index]
        shape = tuple(d.evaluate(sizes) for d in shapes.graph.dims[index] or ())
        dtype = onnx.helper.tensor_dtype_to_np_dtype(value.elem_type)
        feeds[value.name] = _draw(fills.get(value.name), shape, dtype, rng)
    return feeds


def random_shapes(
    shapes: ModelShapes, cases: Sequence[Mapping[str, int]], count: int, seed: int, most_bytes: int
) -> list[dict[str, int]]:
    """Legal shapes between half the smallest and the largest size of the cases, small enough to fetch."""
    rng = np.random.default_rng(seed)
    names = sorted({name for case in cases for name in case})
    low = {n: max(1, min(case[n] for case in cases) // 2) for n in names}
    high = {n: max(case[n] for case in cases) for n in names}
    rest = {n: shapes.domain.range_of(n).lo for n in shapes.domain.symbols()}  # sizes that are in the data
    found: dict[tuple[int, ...], dict[str, int]] = {}
    for _ in range(count * _TRIES):
        if len(found) == count:
            break
        wanted = {n: int(rng.integers(low[n], high[n] + 1)) for n in names}
        legal = legal_near(shapes.domain, rest | wanted)
        if legal is not None and bytes_of_outputs(shapes, legal) <= most_bytes:
            found.setdefault(tuple(legal[n] for n in names), {n: legal[n] for n in names})
    return list(found.values())


def bytes_of_outputs(shapes: ModelShapes, at: Mapping[str, int]) -> int:
    """Bytes of all node outputs of known size, 4 bytes an element."""
    total = 0
    for value, dims in zip(shapes.graph.view.values, shapes.graph.dims, strict=True):
        if value.kind == "node" and dims is not None and all(d.symbols() <= at.keys() for d in dims):
            total += 4 * prod(d.evaluate(at) for d in dims)
    return total


def session_of_all_outputs(model: LoadedModel) -> ort.InferenceSession:
    """A session whose outputs are those of all nodes of the main graph, optimisations off."""
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    known = {o.name for o in proto.graph.output}
    for node in proto.graph.node:
        for name in node.output:
            if name and name not in known:
                known.add(name)
                proto.graph.output.append(onnx.ValueInfoProto(name=name))
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    if model.folder is not None:
        # The copy with more outputs lives in memory; its weights still lie beside the file.
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", model.folder)
    return ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])


def run_all_outputs(
    model: LoadedModel, feeds: Mapping[str, np.ndarray], session: ort.InferenceSession | None = None
) -> tuple[dict[str, tuple[int, ...]], ort.InferenceSession]:
    """Real shapes of all node outputs of the main graph, optimisations off."""
    if session is None:
        session = session_of_all_outputs(model)
    names = [o.name for o in session.get_outputs()]
    arrays = session.run(None, dict(feeds))
    shapes = {n: tuple(a.shape) for n, a in zip(names, arrays, strict=True) if isinstance(a, np.ndarray)}
    return shapes, session


def compare_shapes(
    shapes: ModelShapes, real: Mapping[str, tuple[int, ...]], at: Mapping[str, int]
) -> Iterator[str]:
    """One line per tensor of the main graph whose inferred dims are not the real ones.

    A symbol for a data-dependent dim takes the first size met and has to keep it, within its bounds.
    """
    sizes = dict(shapes.domain.completed(at))
    bounds = {u.symbol: u.bound for u in shapes.unknowns if u.symbol}
    view = shapes.graph.view
    for value, dims in zip(view.values, shapes.graph.dims, strict=True):
        found = real.get(value.name)
        if found is None or dims is None:
            continue
        if len(dims) != len(found):
            yield f"{value.name}: rank {len(dims)} inferred, {len(found)} met"
            continue
        for axis, (dim, size) in enumerate(zip(dims, found, strict=True)):
            atom = dim.as_atom()
            if atom is not None and atom.kind == "symbol" and atom.name not in sizes:
                sizes[atom.name] = size
                bound = bounds.get(atom.name)
                if bound is not None and bound.symbols() <= sizes.keys() and bound.evaluate(sizes) < size:
                    yield f"{value.name}[{axis}]: {size} met above the bound {bound}"
                continue
            if not dim.symbols() <= sizes.keys():
                yield f"{value.name}[{axis}]: {dim} depends on a symbol not met before"
            elif dim.evaluate(sizes) != size:
                yield f"{value.name}[{axis}]: {dim} = {dim.evaluate(sizes)} inferred, {size} met"
