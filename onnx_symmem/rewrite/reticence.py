"""Dims of which a file says less, so that ONNX Runtime learns no more from it than it knew before.

All dims are written into a planned file, which tells ONNX Runtime sizes that it could not infer; with some it
would fuse nodes, or lay them out anew, that it left alone before. `64 + 0*1` says the same as `64`: equal
texts are equal sizes to its planner, but not the number that a fusion asks for. Where a fusion asks for equal
sizes nothing is said at all. What ONNX Runtime infers by itself counts all the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx

__all__ = ["Reticence", "reticent"]


@dataclass(frozen=True, slots=True)
class Reticence:
    """Names of values of the main graph: numbers of `hidden` are said as texts, of `silent` nothing is."""

    hidden: frozenset[str] = frozenset()
    silent: frozenset[str] = frozenset()


def reticent(model: onnx.ModelProto, about: Reticence) -> onnx.ModelProto:
    """A copy of `model` whose main graph says that much less of the dims of its values."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    del result.graph.value_info[:]
    for info in model.graph.value_info:
        if info.name in about.silent:
            continue
        told = result.graph.value_info.add()
        told.CopyFrom(info)
        if info.name in about.hidden:
            for dim in told.type.tensor_type.shape.dim:
                if dim.HasField("dim_value"):
                    dim.dim_param = f"{dim.dim_value} + 0*1"
    return result
