"""ONNX's own node tests as symbolic models: sizes become symbols, real outputs say what they must come to.

Every dim of every input is a symbol of its own (mode "unique"), or equal sizes share one and sizes up to
1 stay as they are (mode "shared"). Inputs that carry a shape (a Reshape target, Slice bounds) become
initializers, as exporters write them. Declared output dims are removed.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

__all__ = ["MODES", "SymbolicTest", "symbolic_tests"]

MODES = ("shared", "unique")

# Inputs that are a shape, a size or an axis, by position.
SHAPE_INPUTS: Mapping[str, tuple[int, ...]] = {
    "AffineGrid": (1,),
    "BlackmanWindow": (0,),
    "CenterCropPad": (1,),
    "Col2Im": (1, 2),
    "ConstantOfShape": (0,),
    "DFT": (1, 2),
    "Expand": (1,),
    "HammingWindow": (0,),
    "HannWindow": (0,),
    "MaxUnpool": (2,),
    "MelWeightMatrix": (0, 1, 2, 3, 4),
    "OneHot": (1,),
    "Pad": (1, 3),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Resize": (1, 2, 3),
    "STFT": (1, 3),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "SplitToSequence": (1,),
    "Squeeze": (1,),
    "Tile": (1,),
    "TopK": (1,),
    "Unsqueeze": (1,),
    "Upsample": (1,),
    **{
        f"Reduce{kind}": (1,)
        for kind in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
    },
}
# Ops some of whose output sizes are in the data: no one can express them.
OF_DATA = {"Compress", "ImageDecoder", "Loop", "NonMaxSuppression", "NonZero", "StringSplit", "Unique"}


@dataclass(frozen=True)
class SymbolicTest:
    """A node test: the symbolic model, its symbols' sizes and inputs, real dims and types of its outputs."""

    name: str
    model: onnx.ModelProto
    sizes: Mapping[str, int]
    outputs: Mapping[str, tuple[int, ...]]
    types: Mapping[str, int]
    of_data: bool
    inputs: Mapping[str, np.ndarray]


@cache
def _node_tests() -> tuple[Any, ...]:
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tuple(load_model_tests(kind="node"))


@cache
def _shape_names() -> Mapping[str, frozenset[str]]:
    """Per test: names of the inputs that are shapes, from the test of the op before expansion."""
    found = {}
    for test in _node_tests():
        nodes = test.model.graph.node
        if len(nodes) == 1:
            positions = SHAPE_INPUTS.get(nodes[0].op_type, ())
            found[test.name] = frozenset(nodes[0].input[k] for k in positions if k < len(nodes[0].input))
    return found


def symbolic_tests(mode: str) -> list[SymbolicTest]:
    """All node tests whose inputs and outputs are tensors."""
    made = (_symbolic(test, mode) for test in _node_tests())
    return [test for test in made if test is not None]


def _array(content: Any) -> np.ndarray | None:
    if isinstance(content, TensorProto):
        return numpy_helper.to_array(content)
    return np.asarray(content) if isinstance(content, np.ndarray) or np.isscalar(content) else None


def _is_tensor(info: onnx.ValueInfoProto) -> bool:
    return info.type.WhichOneof("value") == "tensor_type"


def _symbolic(test: Any, mode: str) -> SymbolicTest | None:
    proto = onnx.ModelProto()
    proto.CopyFrom(test.model)
    graph = proto.graph
    given, wanted = test.data_sets[0]
    if not all(map(_is_tensor, (*graph.input, *graph.output))):
        return None
    stem = re.sub(r"_expanded.*$", "", test.name)
    shapes = _shape_names().get(stem) or _shape_names().get(test.name) or frozenset()
    sizes: dict[str, int] = {}
    shared: dict[int, str] = {}
    kept = []
    inputs: dict[str, np.ndarray] = {}
    for info, content in zip(graph.input, given, strict=True):
        array = _array(content)
        if array is None:
            return None
        if info.name in shapes and array.dtype != object:
            tensor = numpy_helper.from_array(array, info.name)
            tensor.data_type = info.type.tensor_type.elem_type
            graph.initializer.append(tensor)
            continue
        kept.append(info)
        inputs[info.name] = array
        shape = info.type.tensor_type.shape
        shape.Clear()
        shape.SetInParent()
        for size in array.shape:
            if mode == "shared" and size <= 1:
                shape.dim.add().dim_value = size
                continue
            name = shared.setdefault(size, f"s{len(shared)}") if mode == "shared" else f"s{len(sizes)}"
            shape.dim.add().dim_param = name
            sizes[name] = size
    del graph.input[:]
    graph.input.extend(kept)
    outputs = {}
    types = {info.name: info.type.tensor_type.elem_type for info in graph.output}
    for info, content in zip(graph.output, wanted, strict=True):
        array = _array(content)
        if array is None:
            return None
        outputs[info.name] = tuple(array.shape)
        info.ClearField("type")
    del graph.value_info[:]
    _forget_inner_shapes(graph)
    ops = {node.op_type for node in test.model.graph.node}
    return SymbolicTest(test.name, proto, sizes, outputs, types, bool(ops & OF_DATA), inputs)


def _forget_inner_shapes(graph: onnx.GraphProto) -> None:
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                for info in (*attribute.g.input, *attribute.g.output, *attribute.g.value_info):
                    if _is_tensor(info):
                        info.type.tensor_type.ClearField("shape")
                _forget_inner_shapes(attribute.g)
