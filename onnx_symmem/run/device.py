"""Memory in use on a GPU as its driver counts it: arenas, the CUDA context and libraries together."""

from __future__ import annotations

import ctypes
import os
import sys

from onnx_symmem.run.session import SessionSettings

__all__ = ["device_bytes_in_use"]


class _Memory(ctypes.Structure):
    """nvmlMemory_t."""

    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


def device_bytes_in_use(settings: SessionSettings) -> int | None:
    """Bytes in use on the device of `settings`, by all processes; None on the CPU or without NVML."""
    if settings.provider != "cuda":
        return None
    try:
        nvml = ctypes.CDLL("nvml.dll" if sys.platform == "win32" else "libnvidia-ml.so.1")
    except OSError:
        return None
    if nvml.nvmlInit_v2() != 0:
        return None
    try:
        handle, memory = ctypes.c_void_p(), _Memory()
        if nvml.nvmlDeviceGetHandleByIndex_v2(_physical(settings.device), ctypes.byref(handle)) != 0:
            return None
        if nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) != 0:
            return None
        return int(memory.used)
    finally:
        nvml.nvmlShutdown()


def _physical(device: int) -> int:
    """NVML counts all devices; CUDA counts those it is shown."""
    shown = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    if device < len(shown) and shown[device].strip().isdigit():
        return int(shown[device])
    return device
