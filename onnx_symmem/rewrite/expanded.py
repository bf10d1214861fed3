"""An expanded schedule -> nodes of a file, with the dims of every copy.

Everything of the base model is copied from its file, attributes and subgraphs included; only what a node
reads and makes is renamed, inside its subgraphs too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import onnx
from onnx import AttributeProto, GraphProto, NodeProto, ValueInfoProto

from onnx_symmem.graph.view import NODE
from onnx_symmem.remat.expansion import Expansion
from onnx_symmem.rewrite.apart import Apart

__all__ = ["expanded_infos", "expanded_model", "expanded_nodes"]


def expanded_model(
    model: onnx.ModelProto, expansion: Expansion, apart: Apart | None = None
) -> onnx.ModelProto:
    """A copy of `model`, whose main graph the expansion is of, that runs the schedule unconditionally.

    `apart` has the aliases that keep repeats from being merged with what they repeat.
    """
    result = onnx.ModelProto()
    result.CopyFrom(model)
    nodes = expanded_nodes(model.graph, expansion, None, apart)
    infos = [*expanded_infos(model.graph, expansion), *(apart.infos if apart is not None else ())]
    del result.graph.node[:], result.graph.value_info[:]
    for place, node in enumerate(nodes):
        result.graph.node.extend(apart.before.get(place, ()) if apart is not None else ())
        result.graph.node.append(node)
    outputs = {info.name for info in model.graph.output}
    result.graph.value_info.extend(info for info in infos if info.name not in outputs)
    return result


def expanded_nodes(
    graph: GraphProto,
    expansion: Expansion,
    renamed: Mapping[str, str] | None = None,
    apart: Apart | None = None,
) -> list[NodeProto]:
    """The nodes of a schedule, one per step.

    `renamed` gives other names to instances, by their names; of `apart` they read the aliases.
    """
    renamed = renamed or {}
    base = expansion.base.values
    names = [renamed.get(i.name, i.name) for i in expansion.instances]
    nodes: list[NodeProto] = []
    for step, node in zip(expansion.steps, expansion.view().nodes, strict=True):
        if step.kind != "run":
            nodes.append(
                NodeProto(
                    op_type=node.op, name=node.name, input=_named(names, step.reads),
                    output=_named(names, step.makes),
                )
            )  # fmt: skip
            continue
        proto = NodeProto()
        proto.CopyFrom(graph.node[step.index])
        proto.name = node.name
        del proto.input[:], proto.output[:]
        proto.input.extend(_named(names, step.reads))
        made = _named(names, step.makes)
        proto.output.extend(_without_end(made) if step.number else made)
        taken = {base[expansion.instances[i].value].name: names[i] for i in step.captured}
        changed = {old: new for old, new in taken.items() if old != new}
        if changed:
            _recapture(proto, changed)
        nodes.append(proto)
    for (place, at), alias in (apart.reads if apart is not None else {}).items():
        nodes[place].input[at] = alias
    return nodes


def expanded_infos(
    graph: GraphProto, expansion: Expansion, renamed: Mapping[str, str] | None = None
) -> list[ValueInfoProto]:
    """The `value_info` of everything that the schedule makes, as `graph` declares it for the base values."""
    renamed = renamed or {}
    declared = {info.name: info for infos in (graph.value_info, graph.output) for info in infos}
    made = {i for step in expansion.steps for i in step.makes if i >= 0}
    infos: list[ValueInfoProto] = []
    for at, instance in enumerate(expansion.instances):
        if at not in made:
            continue
        info = ValueInfoProto()
        if instance.value < 0:
            info.type.tensor_type.elem_type = onnx.TensorProto.INT64
            info.type.tensor_type.shape.SetInParent()
        else:
            value = expansion.base.values[instance.value]
            if value.kind != NODE or value.name not in declared:
                continue
            info.CopyFrom(declared[value.name])
        info.name = renamed.get(instance.name, instance.name)
        infos.append(info)
    return infos


def _named(names: list[str], ids: Iterable[int]) -> list[str]:
    return [names[i] if i >= 0 else "" for i in ids]


def _without_end(names: list[str]) -> list[str]:
    """Outputs up to the last that is made: of equal nodes ONNX Runtime would merge what one leaves out."""
    return names[: max((k + 1 for k, name in enumerate(names) if name), default=0)]


def _recapture(node: NodeProto, names: Mapping[str, str]) -> None:
    """Let a node's subgraphs read other outer values; names are unique, so none hides another."""
    for attribute in node.attribute:
        if attribute.type != AttributeProto.GRAPH:
            continue
        for inner in attribute.g.node:
            for k, name in enumerate(inner.input):
                inner.input[k] = names.get(name, name)
            _recapture(inner, names)
