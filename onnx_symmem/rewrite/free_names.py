"""Names for added nodes and values that nothing in a graph has."""

from __future__ import annotations

from collections.abc import Iterable

import onnx

__all__ = ["FreeNames"]


class FreeNames:
    """Gives each wanted name once, with `_` behind it as often as it is taken."""

    def __init__(self, graph: onnx.GraphProto, inner: Iterable[str] = ()) -> None:
        """Taken are the names of `graph`, without those of its subgraphs, and `inner`."""
        self.taken = {*inner, *(name for node in graph.node for name in (node.name, *node.output))}
        self.taken |= {i.name for i in graph.input} | {t.name for t in graph.initializer}

    def fresh(self, name: str) -> str:
        """The name, or one like it that is free."""
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name
