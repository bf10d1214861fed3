"""Inferred dims by tensor name, as plain ints and texts: for other tools and for people."""

from __future__ import annotations

from typing import Any

from onnx_symmem.expr.domain import Domain
from onnx_symmem.graph.load import load_model
from onnx_symmem.shapes.engine import infer_shapes
from onnx_symmem.shapes.table import ModelShapes

__all__ = ["dims_by_name", "names_of"]


def dims_by_name(source: Any, domain: Domain | None = None) -> dict[str, list[int | str] | None]:
    """Dims of every value of the main graph of a path, proto or gs.Graph; None where the rank is unknown.

    A dim is an int, or an expression as text in Python syntax.
    """
    return names_of(infer_shapes(load_model(source).view(), domain))


def names_of(shapes: ModelShapes) -> dict[str, list[int | str] | None]:
    """The same for shapes inferred before."""
    result: dict[str, list[int | str] | None] = {}
    for value, dims in zip(shapes.graph.view.values, shapes.graph.dims, strict=True):
        if dims is None:
            result[value.name] = None
            continue
        texts: list[int | str] = []
        for dim in dims:
            number = dim.as_int()
            texts.append(str(dim) if number is None else number)
        result[value.name] = texts
    return result
