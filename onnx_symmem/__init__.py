"""Symbolic-shape memory planning for ONNX models.

The public names live in `onnx_symmem.api` and are loaded at first use, so that importing the package costs
nothing: neither onnx nor onnxruntime is imported before one of them is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnx_symmem.api import (
        create_session,
        dims_by_name,
        infer_shapes,
        measure,
        memory_profile,
        optimize,
    )

__all__ = [
    "__version__",
    "create_session",
    "dims_by_name",
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
