"""The graph that ONNX Runtime makes of a model that it does not optimise, without a look at larger weights.

Some nodes are added, replaced or removed even where all optimisation is off: Casts around operators that have
no kernel for float16, operators that are functions, Casts to what is there already. What runs is then another
graph than the file's. Which nodes these are depends on types alone, so weights are inputs here, without data,
and weights again in what is returned.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import onnx
from onnx import TensorProto, helper

from onnx_symmem.errors import ModelFileError, RunFailed, UnsupportedModel
from onnx_symmem.graph.load import LoadedModel, external_entry, graphs_of, load_model
from onnx_symmem.run.offline import optimize_offline

__all__ = ["as_loaded", "stays_as_it_is"]

_SMALL = 1024  # bytes; constants of shape arithmetic stay constants
_Nodes = Counter[tuple[str, ...]]


def as_loaded(model: LoadedModel, provider: str, folder: Path) -> LoadedModel:
    """The model as it runs when it is loaded without optimisation; itself where its nodes stay.

    Also itself where ONNX Runtime cannot load it, which is for those to say who have to. `folder` is for a
    file. Weights stay where they are.
    """
    light, weights = _without_data(model.proto)
    saved = _saved(replace(model, proto=light), provider, folder)
    if saved is None and weights:  # where a kernel asks for constants
        weights = {}
        saved = _saved(model, provider, folder)
    if saved is None or _nodes(saved.graph) == _nodes(model.proto.graph):
        return model
    saved.graph.initializer.extend(weights.values())
    return replace(model, proto=saved)


def stays_as_it_is(proto: onnx.ModelProto, folder: Path) -> bool:
    """Whether the nodes of a model for the CPU are those that run, as far as Casts for float16 go."""
    infos = (i for g in graphs_of(proto.graph) for i in (*g.input, *g.value_info, *g.output))
    if not any(info.type.tensor_type.elem_type == TensorProto.FLOAT16 for info in infos):
        return True
    model = LoadedModel(proto, None, None)
    return as_loaded(model, "cpu", folder) is model


def _without_data(proto: onnx.ModelProto) -> tuple[onnx.ModelProto, dict[str, TensorProto]]:
    """A copy whose larger weights are inputs, and these weights; those of subgraphs stay."""
    light = onnx.ModelProto()
    light.CopyFrom(proto)
    taken = {t.name: t for t in proto.graph.initializer if external_entry(t) or t.ByteSize() > _SMALL}
    small = [t for t in proto.graph.initializer if t.name not in taken]
    del light.graph.initializer[:]
    light.graph.initializer.extend(small)
    listed = {i.name for i in proto.graph.input}
    light.graph.input.extend(
        helper.make_tensor_value_info(t.name, t.data_type, t.dims)
        for t in taken.values()
        if t.name not in listed
    )
    return light, taken


def _saved(model: LoadedModel, provider: str, folder: Path) -> onnx.ModelProto | None:
    try:
        path = optimize_offline(model, folder, provider, "none", outside=False)
    except (ModelFileError, RunFailed, UnsupportedModel):
        return None
    return load_model(path).proto


def _nodes(graph: onnx.GraphProto) -> _Nodes:
    """Operators and what they make, subgraphs' included; Constants are weights to ONNX Runtime."""
    found: _Nodes = Counter()
    for node in graph.node:
        if node.op_type != "Constant" or node.domain not in ("", "ai.onnx"):
            found[node.op_type, *node.output] += 1
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                found += _nodes(attribute.g)
    return found
