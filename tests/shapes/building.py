"""Small models for the tests of shapes, and the comparison of inferred dims with those of a real run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.real_shapes import compare_shapes, run_all_outputs
from onnx_symmem.expr.domain import Domain
from onnx_symmem.graph.load import load_model
from onnx_symmem.shapes.engine import infer_shapes
from onnx_symmem.shapes.table import ModelShapes

FLOAT, INT64, INT32, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL
UINT8, INT8 = TensorProto.UINT8, TensorProto.INT8
Dims = Sequence[int | str | None]


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    """A node; names are separated by blanks, `-` stands for one left out."""
    names = [[("" if name == "-" else name) for name in text.split()] for text in (inputs, outputs)]
    return helper.make_node(op, *names, name=f"{names[1][0]}_node", **attributes)


def value(name: str, elem: int = FLOAT, dims: Dims | None = None) -> onnx.ValueInfoProto:
    """A typed value; without dims its shape is not declared."""
    return helper.make_tensor_value_info(name, elem, dims)


def graph(
    nodes: Sequence[onnx.NodeProto], inputs: Sequence[onnx.ValueInfoProto], outputs: str, **constants: Any
) -> onnx.GraphProto:
    """A graph whose outputs are declared by name only; arrays and lists become initializers (ints: int64)."""
    tensors = []
    for name, content in constants.items():
        array = np.asarray(content)
        if array.dtype == np.float64:
            array = array.astype(np.float32)
        tensors.append(numpy_helper.from_array(array, name))
    results = [onnx.ValueInfoProto(name=name) for name in outputs.split()]
    return helper.make_graph(nodes, "small", inputs, results, tensors)


def model(of: onnx.GraphProto, opset: int = 18, **domains: int) -> onnx.ModelProto:
    """A model of a graph; `domains` are further opsets, with `_` for `.`."""
    imports = [helper.make_opsetid("", opset)]
    imports += [helper.make_opsetid(name.replace("_", "."), version) for name, version in domains.items()]
    return helper.make_model(of, opset_imports=imports, ir_version=10)


def infer(
    of: onnx.GraphProto | onnx.ModelProto, opset: int = 18, domain: Domain | None = None
) -> ModelShapes:
    """Shapes of a graph or model. No rule may have failed."""
    proto = of if isinstance(of, onnx.ModelProto) else model(of, opset)
    shapes = infer_shapes(load_model(proto).view(), domain)
    assert not [u for u in shapes.unknowns if u.reason.startswith("the rule failed")]
    return shapes


def texts(shapes: ModelShapes, name: str) -> list[str] | None:
    """Dims of a value of the main graph as texts."""
    dims = shapes.graph.of(name)
    return None if dims is None else [str(dim) for dim in dims]


def feeds(
    proto: onnx.ModelProto, at: Mapping[str, int], given: Mapping[str, Any] | None = None, seed: int = 0
) -> dict[str, np.ndarray]:
    """Inputs of a model at a shape: `given` ones, else small random numbers."""
    rng = np.random.default_rng(seed)
    arrays: dict[str, np.ndarray] = {}
    for info in proto.graph.input:
        tensor = info.type.tensor_type
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        if given is not None and info.name in given:
            arrays[info.name] = np.asarray(given[info.name], dtype)
            continue
        dims = [at[d.dim_param] if d.dim_param else d.dim_value for d in tensor.shape.dim]
        if np.issubdtype(dtype, np.floating):
            arrays[info.name] = rng.standard_normal(dims).astype(dtype)
        else:
            arrays[info.name] = rng.integers(0, 2, dims).astype(dtype)
    return arrays


def assert_right(
    proto: onnx.ModelProto,
    *cases: Mapping[str, int],
    given: Mapping[str, Any] | None = None,
    domain: Domain | None = None,
) -> ModelShapes:
    """Every output of every node has the inferred dims, on ONNX Runtime at each of the shapes."""
    loaded = load_model(proto)
    shapes = infer(proto, domain=domain)
    session = None
    for seed, at in enumerate(cases):
        shapes.domain.check(at)
        real, session = run_all_outputs(loaded, feeds(proto, at, given, seed), session)
        assert not list(compare_shapes(shapes, real, at)), at
        assert not [name for name in real if shapes.graph.of(name) is None]
    return shapes


def assert_true_at(proto: onnx.ModelProto, *cases: Mapping[str, int], domain: Domain | None = None) -> int:
    """Where ONNX Runtime runs, dims are as inferred and no limit excludes the shape; elsewhere one does.

    Returns how many of the shapes run.
    """
    loaded = load_model(proto)
    shapes = infer(proto, domain=domain)
    session, ran = None, 0
    for seed, at in enumerate(cases):
        try:
            real, session = run_all_outputs(loaded, feeds(proto, at, seed=seed), session)
        except Exception:  # what ONNX Runtime raises has no type of its own
            assert not shapes.domain.contains(at), f"{dict(at)} is refused"
            continue
        shapes.domain.check(at)
        assert not list(compare_shapes(shapes, real, at)), at
        ran += 1
    return ran
