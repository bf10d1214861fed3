"""Shapes and the names of their dims as texts that `--at` and `--dim` take back.

A name stands in double quotes where a part of it would be read as something else, quotes within are doubled:
`batch=2`, `"past, seq"=64`, `"the ""long"" one"=8`.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["dim_name", "place_text", "shape_text"]

_READ_OTHERWISE = frozenset('=,%"')


def dim_name(name: str) -> str:
    """A name of a dim as it is to be typed."""
    plain = name and name == name.strip() and name[0] != "@" and _READ_OTHERWISE.isdisjoint(name)
    return name if plain else '"' + name.replace('"', '""') + '"'


def shape_text(shape: Mapping[str, int], between: str = ",") -> str:
    """A shape as `--at` takes it."""
    return between.join(f"{dim_name(name)}={size}" for name, size in shape.items())


def place_text(shape: Mapping[str, int]) -> str:
    """Where something is so, within a sentence: at a shape, or at the only one where no dim has a name."""
    return f"at {shape_text(shape, ', ')}" if shape else "at its shape"
