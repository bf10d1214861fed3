"""Symbolic-shape memory planning for ONNX models.

The public functions live in `onnx_symmem.api`, one for every verb of the command. Those whose name is not
that of a room (`run`, `shapes`, `report`) are here, too. They are loaded at first use, so that importing the
package costs nothing: neither onnx nor onnxruntime is imported before one of them is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnx_symmem.api import (
        check,
        compare,
        create_session,
        deploy,
        dims_by_name,
        doctor,
        fit,
        infer_shapes,
        measure,
        memory_profile,
        optimize,
    )

__all__ = [
    "__version__",
    "check",
    "compare",
    "create_session",
    "deploy",
    "dims_by_name",
    "doctor",
    "fit",
    "infer_shapes",
    "measure",
    "memory_profile",
    "optimize",
]

__version__ = "0.1.0"

_LAZY = frozenset(__all__) - {"__version__"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from onnx_symmem import api

    value = getattr(api, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
