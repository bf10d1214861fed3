"""What ONNX Runtime would still change in a file, and how the file is to be written so that it does not.

A file that ONNX Runtime optimised and saved is left alone when it is loaded again, as far as ONNX Runtime
knows no more than before. Dims that are written into it may be news. The graph is optimised once more; around
the nodes that are gone afterwards less is said of dims (rewrite/reticence.py), and further from them until
all nodes stay. Convolutions and pools that it would lay out for the processor at hand are written so that it
cannot (rewrite/steady_layout.py).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import onnx

from onnx_symmem.graph.load import LoadedModel, graphs_of, load_model
from onnx_symmem.rewrite.reticence import Reticence, reticent
from onnx_symmem.rewrite.steady_layout import (
    BLOCKED_POOLS,
    SteadyLayout,
    cast_value,
    convolution_weight,
    steady,
    unused_mark,
)
from onnx_symmem.run.offline import optimize_offline
from onnx_symmem.run.session import cuda_problem

__all__ = ["Place", "changed_nodes", "changed_results", "kept_layout", "placed_nodes", "telling_dims"]

Place = tuple[tuple[str, str], ...]
"""Where a graph is: from outside in, the first result of each node that it is in, and the attribute."""

_ROUNDS = 4  # of going further from the nodes that are changed, each time twice as far
_SILENCED = 3  # more of them, in which nothing at all is said around the nodes that are changed
_FARTHEST = 1 << _ROUNDS
_HALVES = (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)


def changed_nodes(model: LoadedModel, level: str, provider: str = "cpu") -> tuple[int, ...]:
    """Nodes of the main graph that are no more when ONNX Runtime has optimised the model at a level."""
    kept = {_identity(node) for node in _left(model, level, provider).node}
    gone = (
        k
        for k, node in enumerate(model.proto.graph.node)
        if node.op_type != "Constant" and _identity(node) not in kept
    )
    return tuple(gone)


def changed_results(
    model: LoadedModel, level: str, provider: str = "cpu"
) -> tuple[tuple[Place, tuple[str, ...]], ...]:
    """The nodes that are no more then, of the main graph and all below it: where each is, and what it makes.

    Graphs may have results of the same name, beside each other.
    """
    kept = {(at, _identity(node)) for at, node in placed_nodes(_left(model, level, provider))}
    return tuple(
        (at, tuple(node.output))
        for at, node in placed_nodes(model.proto.graph)
        if node.op_type != "Constant" and (at, _identity(node)) not in kept
    )


def placed_nodes(graph: onnx.GraphProto, at: Place = ()) -> Iterator[tuple[Place, onnx.NodeProto]]:
    """All nodes of a graph and below it, each with the place of its graph."""
    for node in graph.node:
        yield at, node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from placed_nodes(attribute.g, (*at, (node.output[0], attribute.name)))


def _left(model: LoadedModel, level: str, provider: str) -> onnx.GraphProto:
    """The graph that is left when ONNX Runtime has optimised a model."""
    where = "cpu" if provider == "cuda" and cuda_problem() else provider
    with tempfile.TemporaryDirectory(prefix="onnx-symmem-") as folder:
        return load_model(optimize_offline(model, Path(folder), where, level)).proto.graph


def _identity(node: onnx.NodeProto) -> tuple[str, ...]:
    return (node.domain, node.op_type, *node.output)


def kept_layout(model: LoadedModel, level: str, provider: str = "cpu") -> SteadyLayout:
    """Which convolutions and pools of a file ONNX Runtime would lay out anew when it loads it at a level, and
    which Casts of weights it would compute ahead."""
    graph = model.proto.graph
    found = SteadyLayout(unused_mark(model.proto))
    constant = {tensor.name for tensor in graph.initializer}
    halves = {tensor.name for tensor in graph.initializer if tensor.data_type in _HALVES}
    readers = [node for inner in graphs_of(graph) for node in inner.node]
    others = {name for node in readers for name in node.input if name != convolution_weight(node)}
    cast_only = halves - {name for node in readers for name in node.input if name != cast_value(node)}
    for _ in range(_ROUNDS):
        tried = replace(model, proto=steady(model.proto, found))
        gone = [tried.proto.graph.node[k] for k in changed_nodes(tried, level, provider)]
        weights = frozenset(name for node in gone if (name := convolution_weight(node)) in constant)
        weights |= cast_only & {cast_value(node) for node in gone}
        pooled = {node.input[0] for node in gone if node.op_type in BLOCKED_POOLS} - found.unsaid
        more = replace(
            found,
            weights=found.weights | (weights - (others - cast_only)),
            shared=found.shared | (weights & (others - cast_only)),
            pooled=found.pooled | pooled,
        )
        if more == found:
            break
        found = more
    return found


def telling_dims(model: LoadedModel, level: str, provider: str = "cpu") -> Reticence:
    """What a file with all dims is not to say so that ONNX Runtime leaves it alone.

    Nothing where it does anyway, or where it changes the file whatever it is told. Where less and less is not
    enough the file says nothing, as ONNX Runtime's own did.
    """
    graph = model.proto.graph
    makers = {name: node for node in graph.node for name in node.output if name}

    def changed(about: Reticence) -> tuple[int, ...]:
        return changed_nodes(replace(model, proto=reticent(model.proto, about)), level, provider)

    found = Reticence()
    steps = 1
    for silence in (False,) * _ROUNDS + (True,) * _SILENCED:
        gone = changed(found)
        if not gone:
            return found
        around = {name for k in gone for name in (*graph.node[k].input, *graph.node[k].output)} - {""}
        # Equal texts say that two sizes are equal, which may be enough for a fusion, too.
        silent = around & (around if silence else found.hidden)
        for _ in range(steps):
            around |= {name for made in around & makers.keys() for name in makers[made].input if name}
        told = found
        found = Reticence(found.hidden | around, found.silent | silent)
        if found == told:
            break
        steps = min(2 * steps, _FARTHEST)
    everything = frozenset(makers)
    found = Reticence(everything, everything)
    return Reticence() if changed(found) else found
