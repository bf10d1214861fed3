"""Files of levels that keep them by themselves, in sessions that are told nothing.

Every schedule, a branch or the one that is written, runs in its order under ONNX Runtime's own traversal, by
anchors (memory/anchoring.py); gives no freed buffer to a later tensor, where dims have texts
(rewrite/separation.py); and is not changed at load. Repeats read aliases, or they would be merged with what
they repeat (rewrite/apart.py). A repeat may leave a result one reader where it had two, which is what a
fusion asks for: there a `Size` reads it as well, and the fusion is off.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, NodeProto, helper

from onnx_symmem.expr.domain import Domain
from onnx_symmem.graph.load import LoadedModel
from onnx_symmem.memory.anchoring import Anchoring, anchored_file, fewer_anchors
from onnx_symmem.memory.execution_order import default_order
from onnx_symmem.memory.plan import PlanOptions, prepare
from onnx_symmem.memory.sizes import DimKeys, ValueSizes, from_written, value_sizes
from onnx_symmem.order.buffers import buffer_bytes, buffer_graph
from onnx_symmem.order.moments import Moments
from onnx_symmem.rewrite.reorder import DELIVERY, EXECUTION_ORDER
from onnx_symmem.rewrite.reticence import Reticence
from onnx_symmem.rewrite.separation import separate_buffers
from onnx_symmem.rewrite.unknown_dims import with_unknown_dims
from onnx_symmem.rewrite.value_info import optional_values
from onnx_symmem.rewrite.version_record import versions_of
from onnx_symmem.run.unchanged import Place, changed_results, placed_nodes
from onnx_symmem.shapes.engine import infer_shapes
from onnx_symmem.shapes.table import GraphShapes

__all__ = ["KeptByFile", "anchor_values"]

_ROUNDS = 4  # of adding readers where nodes are changed at load
_TRIALS = 64  # orders that are tried to do without anchors, per schedule
_SIZE_BYTES = 8


@dataclass
class KeptByFile:
    """Makes emitted models of levels of `base` keep them; `samples` are shapes at which orders are judged.

    `less` is what the file does not say of dims; `fixed` says that all dims of the inputs are numbers, and
    `reused` bounds what reuse may hold. What one model was found to need is known to the next: `read_twice`
    are the results that a `Size` reads against fusions, `anchors` and `changed` (nodes that are changed at
    load all the same, None where that is unknown) are the last model's.
    """

    base: LoadedModel
    domain: Domain
    samples: Sequence[Mapping[str, int]]
    provider: str = "cpu"
    less: Reticence = field(default_factory=Reticence)
    reused: int = 0
    fixed: bool = False
    read_twice: frozenset[tuple[Place, str]] = frozenset()
    anchors: int = 0
    changed: int | None = None

    @property
    def most_added(self) -> int:
        """Bytes by which a level takes at most more in the file than by itself.

        Its own readers' results, and `reused`: buffers of fixed size that may be held until they are reused.
        """
        return self.reused + _SIZE_BYTES * (self.anchors + len(self.read_twice))

    def keeping(self, model: onnx.ModelProto) -> onnx.ModelProto:
        """A copy of an emitted model that keeps its levels."""
        for _ in range(_ROUNDS):
            result, self.anchors = self._written(model)
            if self.provider != "cpu":
                return result
            gone = changed_results(replace(self.base, proto=result), "all")
            self.changed = len(gone)
            more = _between(result, gone) - self.read_twice
            if not more:
                break
            self.read_twice |= more
        return result

    def _written(self, model: onnx.ModelProto) -> tuple[onnx.ModelProto, int]:
        result = onnx.ModelProto()
        result.CopyFrom(model)
        if self.fixed:
            result = with_unknown_dims(result)
        _read_again(result.graph, self.read_twice, self._free("kept"))
        prefix = (versions_of(model) or {}).get("branches", "")
        shapes = infer_shapes(replace(self.base, proto=result).view(), self.domain)
        keys, sizes = from_written(shapes.graph), value_sizes(shapes.graph)
        count = 0
        for place in _schedules(result.graph, shapes.graph, keys, sizes, prefix):
            count += self._anchored(place)
        shapes = infer_shapes(replace(self.base, proto=result).view(), self.domain)
        view = shapes.graph.view
        options = PlanOptions(self.provider)
        apart = prepare(view, from_written(shapes.graph), options, default_order).plan(default_order(view))
        result = separate_buffers(result, shapes, apart, numbers=self.fixed)
        kept = [e for e in result.metadata_props if e.key not in (EXECUTION_ORDER, DELIVERY)]
        del result.metadata_props[:]
        result.metadata_props.extend(kept)
        result.metadata_props.add(key=EXECUTION_ORDER, value="default")
        result.metadata_props.add(key=DELIVERY, value="anchors")
        return result, count

    def _free(self, purpose: str) -> str:
        """What no name of the base model ends with, to end names of readers with."""
        names = [n for _, node in placed_nodes(self.base.proto.graph) for n in (node.name, *node.output)]
        while any(name.endswith(f"/{purpose}") for name in names):
            purpose += "_"
        return purpose

    def _anchored(self, place: _Schedule) -> int:
        """Put the nodes of a schedule where they run as they stand now, and count the anchors."""
        view = place.shapes.view
        values = anchor_values(place.shapes)
        order = sorted(range(len(view.nodes)), key=lambda n: view.nodes[n].op != "Constant")
        found = anchored_file(view, order, values.keys())
        if found is None:
            found = Anchoring(tuple(order), ())
        elif found.anchored:
            prepared = prepare(view, place.keys, PlanOptions(self.provider), default_order)
            graph = buffer_graph(prepared)
            moments = Moments(graph, buffer_bytes(graph, place.sizes, self.samples))

            def peaks(order: Sequence[int]) -> np.ndarray:
                return np.asarray(moments.along(order).max(axis=0, initial=0.0))

            most = peaks(order)
            found = fewer_anchors(view, found, lambda other: bool((peaks(other) <= most).all()), _TRIALS)[1]
        nodes: list[NodeProto] = []
        purpose = self._free("anchor")
        for number in found.file:
            if number >= 0:
                nodes.append(NodeProto.FromString(place.graph.node[number].SerializeToString()))
            else:
                nodes.append(_size_of(view.values[values[~number]].name, purpose))
        del place.graph.node[:]
        place.graph.node.extend(nodes)
        return len(found.anchored)


@dataclass(frozen=True)
class _Schedule:
    """A graph that is one whole schedule, and what is known of it."""

    graph: GraphProto
    shapes: GraphShapes
    keys: DimKeys
    sizes: ValueSizes


def _schedules(
    graph: GraphProto, shapes: GraphShapes, keys: DimKeys, sizes: ValueSizes, prefix: str
) -> Iterator[_Schedule]:
    """The branches of the Ifs whose names begin so that are no such Ifs themselves; without any the graph."""
    branches = [k for k, node in enumerate(graph.node) if prefix and node.name.startswith(prefix)]
    if not branches:
        yield _Schedule(graph, shapes, keys, sizes)
    for k in branches:
        for attribute in graph.node[k].attribute:
            if attribute.type == AttributeProto.GRAPH:
                at = (k, attribute.name)
                yield from _schedules(
                    attribute.g, shapes.subgraphs[at], keys.subgraphs[at], sizes.subgraphs[at], prefix
                )


def anchor_values(shapes: GraphShapes) -> Mapping[int, int]:
    """Per node that may have an anchor: the output that it reads, a tensor with a name."""
    view, optional = shapes.view, optional_values(shapes.view, frozenset())
    found: dict[int, int] = {}
    for node in view.nodes:
        for value in node.outputs:
            if value < 0 or value in optional or shapes.dims[value] is None or not shapes.elem_types[value]:
                continue
            declared = view.values[value].type
            if declared is None or declared.WhichOneof("value") in ("tensor_type", None):
                found.setdefault(node.index, value)
    return found


def _size_of(value: str, purpose: str) -> NodeProto:
    name = f"{value}/{purpose}"
    return helper.make_node("Size", [value], [name], name)


def _read_again(
    graph: GraphProto, results: Collection[tuple[Place, str]], purpose: str, at: Place = ()
) -> None:
    """Put a `Size` behind each node that makes one of the results."""
    nodes: list[NodeProto] = []
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                _read_again(attribute.g, results, purpose, (*at, (node.output[0], attribute.name)))
        nodes.append(NodeProto.FromString(node.SerializeToString()))
        nodes += [_size_of(name, purpose) for name in node.output if (at, name) in results]
    del graph.node[:]
    graph.node.extend(nodes)


def _between(
    model: onnx.ModelProto, gone: Collection[tuple[Place, tuple[str, ...]]]
) -> frozenset[tuple[Place, str]]:
    """Results of nodes that are changed at load which are read by another such node."""
    lost = set(gone)
    made, read = set[tuple[Place, str]](), set[tuple[Place, str]]()
    for at, node in placed_nodes(model.graph):
        if (at, tuple(node.output)) in lost:
            made.update((at, name) for name in node.output if name)
            read.update((at, name) for name in node.input)
    return frozenset(made & read)
