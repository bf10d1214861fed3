"""Dims that the file declares, as expressions: inputs always, other values where nothing better is known."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from onnx_symmem.expr.expression import Expr
from onnx_symmem.expr.text import dim_from_text
from onnx_symmem.graph.view import GraphView

__all__ = ["DeclaredDims", "input_names", "reserved_names"]


def input_names(graph: GraphView) -> frozenset[str]:
    """Names that stand alone as a dim of some input; other texts may be expressions over them."""
    texts = (d for i in graph.inputs for d in graph.values[i].dims or () if isinstance(d, str))
    return frozenset(t for t in texts if t.isidentifier())


def reserved_names(graph: GraphView) -> frozenset[str]:
    """Names that a fresh symbol must not take: all that occur as a dim anywhere in the model."""
    return frozenset(
        d for view in graph.walk() for value in view.values for d in value.dims or () if isinstance(d, str)
    )


class DeclaredDims:
    """Reads declared dims; remembers each text, and the symbols of inputs in order of first appearance."""

    def __init__(self, graph: GraphView) -> None:
        self._known: Collection[str] = input_names(graph)
        self._read: dict[str, Expr | None] = {}
        self._taken = set(reserved_names(graph))
        self.symbols: list[str] = []

    def is_reserved(self, name: str) -> bool:
        """Whether the name occurs as a dim anywhere in the model, or was made up for an input."""
        return name in self._taken

    def _input_name(self, stem: str) -> str:
        """`stem`, or with a number behind it where the name is taken."""
        name, k = stem, 1
        while name in self._taken:
            k += 1
            name = f"{stem}_{k}"
        self._taken.add(name)
        return name

    def input_dims(self, name: str, dims: Iterable[int | str | None]) -> tuple[Expr, ...]:
        """Dims of a graph input: ints, names, expressions over names, or a fresh symbol where unnamed."""
        result = []
        for axis, dim in enumerate(dims):
            if isinstance(dim, int) and dim >= 0:
                expr = Expr.const(dim)
            elif isinstance(dim, str):
                expr = dim_from_text(dim, self._known)
            else:
                expr = Expr.symbol(self._input_name(f"{name}_dim_{axis}"))
            result.append(expr)
            self.symbols.extend(s for s in sorted(expr.symbols()) if s not in self.symbols)
        return tuple(result)

    def dim(self, text: int | str | None) -> Expr | None:
        """A declared dim of another value: an int, or an expression over symbols of the inputs; else None."""
        if isinstance(text, int):
            return Expr.const(text) if text >= 0 else None
        if text is None:
            return None
        if text not in self._read:
            expr = dim_from_text(text, self._known)
            self._read[text] = expr if expr.symbols() <= frozenset(self.symbols) else None
        return self._read[text]
