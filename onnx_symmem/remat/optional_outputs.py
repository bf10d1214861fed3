"""Outputs that the schema of an operator lets a node leave out."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import onnx

from onnx_symmem.graph.view import Node

__all__ = ["is_optional"]


def is_optional(node: Node, position: int, opsets: Mapping[str, int] | None) -> bool:
    """Whether the output at a position may be left out; `opsets` say which schemas apply."""
    version = (opsets or {}).get(node.domain, 0)
    return position in _optional_outputs(node.op, node.domain, version)


@lru_cache(maxsize=1024)
def _optional_outputs(op: str, domain: str, version: int) -> frozenset[int]:
    """Positions of outputs that the schema lets a node leave out; none where there is no schema."""
    try:
        schema = onnx.defs.get_schema(op, version, domain) if version else onnx.defs.get_schema(op, domain)
    except onnx.defs.SchemaError:
        return frozenset()
    optional = onnx.defs.OpSchema.FormalParameterOption.Optional
    return frozenset(k for k, output in enumerate(schema.outputs) if output.option == optional)
