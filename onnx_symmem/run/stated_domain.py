"""What a caller says of the dims of a model -> a domain, with every name checked against the model."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from onnx_symmem.errors import DomainError
from onnx_symmem.expr.domain import Domain, SymbolRange
from onnx_symmem.graph.view import ModelView
from onnx_symmem.shapes.declared import DeclaredDims

__all__ = ["DomainSpec", "check_shared", "domain_of", "input_dims"]

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
    names = input_dims(view)
    for name in ranges:
        if name not in names:
            legal = ", ".join(names) or "none"
            raise DomainError(f"dim '{name}' is not a dim of the model's inputs; they have: {legal}")
    return Domain(ranges)


def input_dims(view: ModelView) -> tuple[str, ...]:
    """The names of the dims of a model's inputs, in order of first appearance."""
    declared = DeclaredDims(view.graph)
    for index in view.graph.inputs:
        value = view.graph.values[index]
        if value.dims is not None:
            declared.input_dims(value.name, value.dims)
    return tuple(declared.symbols)


def check_shared(said: Iterable[str], dims: Sequence[Collection[str]]) -> None:
    """Raise DomainError for a name among those said of several models that is a dim of none of them.

    Models of one call need not have the same dims, so a name may be left out where a model lacks it; a name
    that all lack is a slip, and what was said would be lost without a word.
    """
    for name in said:
        if not any(name in names for names in dims):
            legal = ", ".join(dict.fromkeys(each for names in dims for each in names)) or "none"
            raise DomainError(f"dim '{name}' is not a dim of any model's inputs; they have: {legal}")
