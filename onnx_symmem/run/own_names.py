"""Names of values that a subgraph makes although a graph around it has them, made different.

ONNX Runtime refuses to load such a file, and writes it: Casts that its optimiser inserts for float16 have the
same names in every graph. Inside, the inner value is meant wherever the name is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx

__all__ = ["with_own_names"]


def with_own_names(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of `model` in which no subgraph makes what an enclosing graph has; itself where none does."""
    if not _shadows(model.graph, frozenset()):
        return model
    result = onnx.ModelProto()
    result.CopyFrom(model)
    _rename(result.graph, {}, frozenset(), set(_all_names(model.graph)))
    return result


def _rename(
    graph: onnx.GraphProto, around: Mapping[str, str], outer: frozenset[str], taken: set[str]
) -> None:
    """Rename what `graph` makes and `outer` has; `around` are new names of values of graphs around it."""
    made = _made(graph)
    own: dict[str, str] = {}
    for name in made:
        if name in outer and name not in own:
            own[name] = _fresh(name, taken)
    read = {**{old: new for old, new in around.items() if old not in made}, **own}
    for node in graph.node:
        node.input[:] = [read.get(name, name) for name in node.input]
        node.output[:] = [own.get(name, name) for name in node.output]
        for inner in _inner(node):
            _rename(inner, read, outer | frozenset(made), taken)
    for item in (*graph.input, *graph.output, *graph.initializer, *graph.value_info):
        item.name = read.get(item.name, item.name)


def _shadows(graph: onnx.GraphProto, outer: frozenset[str]) -> bool:
    made = frozenset(_made(graph))
    below = (_shadows(inner, outer | made) for node in graph.node for inner in _inner(node))
    return bool(made & outer) or any(below)


def _made(graph: onnx.GraphProto) -> list[str]:
    """Names of what a graph is given, holds and makes."""
    names = [i.name for i in graph.input] + [t.name for t in graph.initializer]
    return names + [name for node in graph.node for name in node.output if name]


def _all_names(graph: onnx.GraphProto) -> Iterator[str]:
    yield from _made(graph)
    for node in graph.node:
        for inner in _inner(node):
            yield from _all_names(inner)


def _inner(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    return (a.g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH)


def _fresh(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name
