"""The machine that the check runs on: unpack ONNX Runtime there, find NVIDIA's libraries, count its memory.

ONNX Runtime looks for CUDA's libraries beside its own folder. Where it was unpacked into a folder of its own,
a link to the folder of the Python packages that hold them makes it find them.
"""

from __future__ import annotations

import ctypes
import io
import lzma
import os
import shutil
import sys
import sysconfig
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from onnx_symmem.run.device import device_bytes_in_use
from onnx_symmem.run.session import kept

__all__ = ["ROOT", "RUNTIME", "child_environment", "memory_in_use", "unpack_runtime"]

ROOT = Path(__file__).resolve().parents[2]
RUNTIME = Path.home() / "ort"
_SITE = "site"
_DRIVERS = (Path("/usr/local/nvidia/lib64"), Path("/usr/local/nvidia/lib"))  # where containers have them


class _Joined(io.RawIOBase):
    """Several files one after the other, as one stream."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = list(paths)
        self._file: BinaryIO | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while self._file is not None or self._paths:
            if self._file is None:
                self._file = self._paths.pop(0).open("rb")
            data = self._file.read(len(buffer))
            if data:
                buffer[: len(data)] = data
                return len(data)
            self.close_piece()
        return 0

    def close_piece(self) -> None:
        """Close the piece that is being read."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def close(self) -> None:
        self.close_piece()
        super().close()


def unpack_runtime(folder: Path = RUNTIME) -> Path | None:
    """Unpack the pieces `ort.*` in a folder, or in its `part-*`, once; None where there are none."""
    site = folder / _SITE
    if (site / "onnxruntime").is_dir():
        return site
    pieces = sorted([*folder.glob("ort.*"), *folder.glob("part-*/ort.*")], key=lambda path: path.name)
    if not pieces:
        return None
    partial = folder / f"{_SITE}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    try:
        with (
            io.BufferedReader(_Joined(pieces)) as stream,
            tarfile.open(fileobj=stream, mode="r|xz") as archive,
        ):
            archive.extractall(partial, filter="data")
    except (tarfile.TarError, lzma.LZMAError, EOFError) as error:
        raise RuntimeError(f"{folder}: the pieces of ONNX Runtime cannot be unpacked: {error}") from error
    partial.replace(site)
    return site


def child_environment(site: Path | None) -> Mapping[str, str]:
    """The environment of a part: this repository, and the ONNX Runtime that was unpacked, are found first."""
    places = [str(site)] if site is not None else []
    found = os.environ.get("PYTHONPATH", "")
    result = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([*places, str(ROOT), *([found] if found else [])]),
        "PYTHONUNBUFFERED": "1",
    }
    nvidia = _nvidia_folder()
    if nvidia is None:
        return result
    if site is not None and not (site / "nvidia").exists():
        (site / "nvidia").symlink_to(nvidia)
    folders = sorted({str(path.parent) for path in nvidia.glob("*/lib/*.so*")})
    folders += [str(path) for path in _DRIVERS if path.is_dir()]
    old = os.environ.get("LD_LIBRARY_PATH", "")
    result["LD_LIBRARY_PATH"] = os.pathsep.join([*folders, *([old] if old else [])])
    return result


def _nvidia_folder() -> Path | None:
    """Where Python packages keep the libraries of CUDA; None where there are none."""
    places = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *sys.path]
    return next((p for place in places if (p := Path(place, "nvidia")).is_dir()), None)


def memory_in_use(provider: str) -> int | None:
    """Bytes in use on the device by its driver, or by the CUDA runtime where NVML is not there."""
    if provider != "cuda":
        return None
    known = device_bytes_in_use(kept("cuda"))
    if known is not None:
        return known
    for name in ("libcudart.so.13", "libcudart.so.12", "libcudart.so"):
        try:
            runtime = ctypes.CDLL(name)
        except OSError:
            continue
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        if runtime.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)) == 0:
            return total.value - free.value
    return None
