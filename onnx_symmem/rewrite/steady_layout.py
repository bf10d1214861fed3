"""Convolutions and pools written so that ONNX Runtime does not lay them out anew when it loads the file.

At level `all`, its default on the CPU, it gives tensors of 4 dims blocks of channels, for the vectors of the
processor at hand. It does so with convolutions whose weights it holds for constant, and with pools of whose
input it knows the number of channels.

- A weight that is also listed among the inputs has a default that a caller might replace, so it is no
  constant. Nobody has to feed it, and APIs do not count it among the inputs. So are weights of float16 that
  Casts read: ONNX Runtime puts these in after it has computed what is constant, and would compute them ahead
  the next time, which holds the weights at twice their size and lets products take factors in.
- Where others than convolutions read the weight it stays a constant, for kernels that prepare it. There the
  convolution reads `Reshape(weight, Shape(x) * 0)`, x being its own input: the same memory and, as zeros
  stand for dims that stay, the same dims.
- What went through `Reshape(x, Shape(x))` is the same memory, of dims that are not known before the run.

`Shape` says where it ends, so that it is not merged with one of the model's own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import onnx
from onnx import NodeProto, TensorProto, helper

__all__ = ["BLOCKED_POOLS", "SteadyLayout", "cast_value", "convolution_weight", "steady", "unused_mark"]

BLOCKED_POOLS = frozenset(("MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool"))
_CONVOLUTIONS = frozenset((("", "Conv"), ("com.microsoft", "FusedConv")))
_RANK = 4
_DEFAULTS = 4  # from this version of the IR on an initializer among the inputs is a default
_ENDS = 15  # from this opset on Shape can say where it ends


@dataclass(frozen=True, slots=True)
class SteadyLayout:
    """What is to be no constant to ONNX Runtime: names of values of the main graph.

    `weights` are read by convolutions and Casts only, `shared` by others, too; `pooled` is what pools read.
    Nodes and values that are added have `mark` in their names.
    """

    mark: str
    weights: frozenset[str] = frozenset()
    shared: frozenset[str] = frozenset()
    pooled: frozenset[str] = frozenset()

    @property
    def unsaid(self) -> frozenset[str]:
        """Values whose dims are not to be said."""
        return frozenset(value + self.mark for value in self.pooled)

    def is_added(self, node: NodeProto) -> bool:
        """Whether a node was written to that end."""
        return self.mark in node.name


def unused_mark(model: onnx.ModelProto) -> str:
    """A mark that is in no name of a node of the model, or of a result."""
    names = [name for node in model.graph.node for name in (node.name, *node.output)]
    mark = "/as_it_is"
    while any(mark in name for name in names):
        mark += "_"
    return mark


def convolution_weight(node: NodeProto) -> str:
    """The name of the weight of a convolution; of other nodes nothing."""
    domain = "" if node.domain == "ai.onnx" else node.domain
    return node.input[1] if (domain, node.op_type) in _CONVOLUTIONS else ""


def cast_value(node: NodeProto) -> str:
    """The name of what a Cast reads; of other nodes nothing."""
    return node.input[0] if node.op_type == "Cast" and node.domain in ("", "ai.onnx") else ""


def steady(model: onnx.ModelProto, layout: SteadyLayout) -> onnx.ModelProto:
    """A copy of `model` with that layout; what is added stands before the node that reads it first."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    _list_as_inputs(result, layout.weights)
    opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 0)
    del result.graph.node[:]
    made: set[str] = set()
    for node in model.graph.node:
        written = NodeProto()
        written.CopyFrom(node)
        for added in _before(written, layout, {"end": _RANK} if opset >= _ENDS else {}):
            if added.name not in made:
                made.add(added.name)
                result.graph.node.append(added)
        result.graph.node.append(written)
    if layout.shared:
        result.graph.initializer.append(helper.make_tensor(f"zero{layout.mark}", TensorProto.INT64, [], [0]))
    return result


def _before(node: NodeProto, layout: SteadyLayout, end: Mapping[str, Any]) -> Iterator[NodeProto]:
    """Nodes that a convolution or pool reads instead of what it read; the node is made to read them."""
    source, weight = node.input[0] if node.input else "", convolution_weight(node)
    pool = node.op_type in BLOCKED_POOLS and source in layout.pooled
    if not pool and weight not in layout.shared:
        return
    name = source + layout.mark
    yield helper.make_node("Shape", [source], [f"{name}/shape"], f"{name}/shape", **end)
    if pool:
        yield helper.make_node("Reshape", [source, f"{name}/shape"], [name], name)
        node.input[0] = name
        return
    zeros, own = f"{name}/zeros", f"{node.output[0]}{layout.mark}/weight"
    yield helper.make_node("Mul", [f"{name}/shape", f"zero{layout.mark}"], [zeros], zeros)
    yield helper.make_node("Reshape", [weight, zeros], [own], own)
    node.input[1] = own


def _list_as_inputs(model: onnx.ModelProto, weights: Collection[str]) -> None:
    graph = model.graph
    if model.ir_version < _DEFAULTS and weights:
        # Every weight is listed there, and is a constant nevertheless.
        own = {tensor.name for tensor in graph.initializer}
        kept = [i for i in graph.input if i.name not in own]
        del graph.input[:]
        graph.input.extend(kept)
        model.ir_version = _DEFAULTS
    listed = {i.name for i in graph.input}
    for tensor in graph.initializer:
        if tensor.name in weights and tensor.name not in listed:
            graph.input.append(
                helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
            )
