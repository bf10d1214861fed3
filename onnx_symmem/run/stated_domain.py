"""What a caller says of the dims of a model -> a domain, with every name checked against the model."""

from __future__ import annotations

from collections.abc import Mapping

from onnx_symmem.errors import DomainError
from onnx_symmem.expr.domain import Domain, SymbolRange
from onnx_symmem.graph.view import ModelView
from onnx_symmem.shapes.declared import DeclaredDims

__all__ = ["DomainSpec", "domain_of"]

DomainSpec = Domain | Mapping[str, "SymbolRange | int | tuple[int, int | None]"] | None
"""What a caller knows of the dims: a Domain, or per name a range, a value, or (lo, hi or None)."""


def domain_of(view: ModelView, spec: DomainSpec) -> Domain:
    """The domain that `spec` describes; DomainError for a name that is no dim of the model's inputs."""
    if isinstance(spec, Domain):
        return spec
    ranges: dict[str, SymbolRange] = {}
    for name, given in (spec or {}).items():
        if isinstance(given, SymbolRange):
            ranges[name] = given
        elif isinstance(given, int):
            ranges[name] = SymbolRange(given, given)
        elif isinstance(given, tuple | list) and len(given) == 2:
            lo, hi = given
            if hi is not None and hi < lo:
                raise DomainError(f"dim '{name}': the range {lo}..{hi} is upside down")
            ranges[name] = SymbolRange(lo, hi)
        else:
            raise DomainError(f"dim '{name}' = {given!r}: expected a size or (lo, hi or None)")
    declared = DeclaredDims(view.graph)
    for index in view.graph.inputs:
        value = view.graph.values[index]
        if value.dims is not None:
            declared.input_dims(value.name, value.dims)
    for name in ranges:
        if name not in declared.symbols:
            legal = ", ".join(declared.symbols) or "none"
            raise DomainError(f"dim '{name}' is not a dim of the model's inputs; they have: {legal}")
    return Domain(ranges)
