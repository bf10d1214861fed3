"""Inferred dims against the shapes ONNX Runtime really produces, for every node of every model of a folder.

    python benchmarks/shapes_corpus.py MODELS_FOLDER CASES_JSON [NAME ...]

MODELS_FOLDER holds NAME.onnx or NAME/m.onnx with their weights; CASES_JSON gives per name the shapes to
run (`cases`) and how inputs are drawn (`fills`: ["randint", lo, hi], ["uniform", lo, hi], "ones"; others
are standard normal). Every output of every node of the main graph is fetched. A symbol for a
data-dependent dim takes the first size met and has to keep it, within its bounds.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from onnx_symmem.graph.load import LoadedModel, check_external_data, load_model
from onnx_symmem.shapes.engine import infer_shapes
from onnx_symmem.shapes.table import ModelShapes

__all__ = ["Comparison", "check_folder", "compare_shapes", "model_paths", "run_all_outputs"]


@dataclass
class Comparison:
    """What one model came to: tensors and dims compared, and those that differ."""

    name: str
    nodes: int = 0
    seconds: float = 0.0
    dims: int = 0
    constant: int = 0
    symbolic: int = 0
    fresh: int = 0
    no_rank: int = 0
    cases: int = 0
    tensors: int = 0
    wrong: list[str] = field(default_factory=list)
    note: str = ""


def model_paths(folder: Path) -> dict[str, Path]:
    """Models of a folder by name: NAME.onnx or NAME/m.onnx."""
    flat = {path.stem: path for path in sorted(folder.glob("*.onnx"))}
    return flat | {path.parent.name: path for path in sorted(folder.glob("*/m.onnx"))}


def draw(kind: Any, shape: tuple[int, ...], dtype: np.dtype, rng: np.random.Generator) -> np.ndarray:
    """One input tensor."""
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


def run_all_outputs(
    model: LoadedModel, feeds: Mapping[str, np.ndarray], session: ort.InferenceSession | None = None
) -> tuple[dict[str, tuple[int, ...]], ort.InferenceSession]:
    """Real shapes of all node outputs of the main graph, optimisations off."""
    if session is None:
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
            options.add_session_config_entry(
                "session.model_external_initializers_file_folder_path", model.folder
            )
        session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    arrays = session.run(None, dict(feeds))
    shapes = {n: tuple(a.shape) for n, a in zip(names, arrays, strict=True) if isinstance(a, np.ndarray)}
    return shapes, session


def compare_shapes(
    shapes: ModelShapes, real: Mapping[str, tuple[int, ...]], at: Mapping[str, int]
) -> Iterator[str]:
    """One line per tensor of the main graph whose inferred dims are not the real ones."""
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


def count_dims(shapes: ModelShapes, into: Comparison) -> None:
    """How the dims of all node outputs ended, subgraphs included."""
    fresh = {u.symbol for u in shapes.unknowns}
    for graph in shapes.graph.walk():
        for value, dims in zip(graph.view.values, graph.dims, strict=True):
            if value.kind != "node":
                continue
            if dims is None:
                into.no_rank += 1
                continue
            for dim in dims:
                into.dims += 1
                if dim.is_const:
                    into.constant += 1
                elif dim.symbols() & fresh:
                    into.fresh += 1
                else:
                    into.symbolic += 1


def check_folder(folder: Path, cases: Mapping[str, Any], only: tuple[str, ...] = ()) -> Iterator[Comparison]:
    """Compare every model of a folder at all its cases."""
    for name, path in model_paths(folder).items():
        if only and name not in only:
            continue
        model = load_model(path)
        view = model.view()
        result = Comparison(name, len(view.graph.nodes))
        start = time.perf_counter()
        shapes = infer_shapes(view)
        result.seconds = time.perf_counter() - start
        count_dims(shapes, result)
        try:
            check_external_data(model)
        except Exception as error:
            result.note = f"not run: {error}"
            yield result
            continue
        session = None
        for number, case in enumerate(cases[name]["cases"]):
            rng = np.random.default_rng(number)
            feeds = {}
            for index in view.graph.inputs:
                value = view.graph.values[index]
                dims = shapes.graph.dims[index] or ()
                shape = tuple(d.evaluate(shapes.domain.completed(case)) for d in dims)
                dtype = onnx.helper.tensor_dtype_to_np_dtype(value.elem_type)
                feeds[value.name] = draw(cases[name]["fills"].get(value.name), shape, dtype, rng)
            real, session = run_all_outputs(model, feeds, session)
            result.cases += 1
            result.tensors += len(real)
            result.wrong.extend(f"{case}: {line}" for line in compare_shapes(shapes, real, case))
        yield result


def main(arguments: list[str]) -> int:
    """Print the table; 1 where a dim is wrong."""
    if len(arguments) < 2:
        print(__doc__)
        return 2
    cases = json.loads(Path(arguments[1]).read_text())
    heads = ("model", "nodes", "s", "constant", "expression", "data-dependent", "no rank", "run", "wrong")
    print("| " + " | ".join(heads) + " |")
    print("|---" * len(heads) + "|")
    bad = 0
    for row in check_folder(Path(arguments[0]), cases, tuple(arguments[2:])):
        print(
            f"| {row.name} | {row.nodes} | {row.seconds:.2f} | {row.constant} | {row.symbolic} | {row.fresh} "
            f"| {row.no_rank} | {row.tensors} | {len(row.wrong)} {row.note} |",
            flush=True,
        )
        for line in row.wrong[:5]:
            print(f"    {line}")
        bad += len(row.wrong)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
