"""Inferred dims by tensor name, as plain ints and texts: for other tools and for people."""

from __future__ import annotations

from typing import Any

from onnx_symmem.expr.atom import SYMBOL
from onnx_symmem.expr.domain import Domain
from onnx_symmem.expr.expression import Expr
from onnx_symmem.graph.load import load_model
from onnx_symmem.shapes.engine import infer_shapes
from onnx_symmem.shapes.table import ModelShapes

__all__ = ["dim_text", "dims_by_name", "names_of"]


def dim_text(dim: Expr) -> int | str:
    """A dim as it stands in a file: a number, or the canonical text as `dim_param`.

    A name stands as it is, whatever it is; only inside an expression it may need quoting.
    """
    value, atom = dim.as_int(), dim.as_atom()
    if value is not None and value >= 0:
        return value
    return atom.name if atom is not None and atom.kind == SYMBOL else str(dim)


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
        result[value.name] = [dim_text(dim) for dim in dims]
    return result
