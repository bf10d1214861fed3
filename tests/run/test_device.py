import ctypes

import pytest

from onnx_symmem.run import device
from onnx_symmem.run.session import SessionSettings, kept


class Library:
    """Stands in for NVML: two devices, with 1000 and 2000 bytes in use."""

    def __init__(self, fails: str = "") -> None:
        self.fails = fails
        self.open = 0

    def __getattr__(self, name: str):
        if not name.startswith("nvml"):
            raise AttributeError(name)
        return lambda *args: self._call(name, *args)

    def _call(self, name, *args) -> int:
        self.open += {"nvmlInit_v2": 1, "nvmlShutdown": -1}.get(name, 0)
        if name == self.fails:
            return 1
        if name == "nvmlDeviceGetHandleByIndex_v2":
            args[1]._obj.value = args[0] + 1
        if name == "nvmlDeviceGetMemoryInfo":
            args[1]._obj.used = 1000 * args[0].value
        return 0


def test_nothing_on_the_cpu():
    assert device.device_bytes_in_use(kept()) is None


def test_nothing_without_the_library(monkeypatch):
    def missing(name):
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert device.device_bytes_in_use(kept("cuda")) is None


@pytest.mark.parametrize(
    ("shown", "number", "expected"), [("", 1, 2000), ("1", 0, 2000), ("GPU-7f", 0, 1000)]
)
def test_bytes_of_the_device(monkeypatch, shown, number, expected):
    library = Library()
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    assert device.device_bytes_in_use(SessionSettings("cuda", device=number)) == expected
    assert library.open == 0


@pytest.mark.parametrize("fails", ["nvmlInit_v2", "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetMemoryInfo"])
def test_failing_calls(monkeypatch, fails):
    monkeypatch.setattr(ctypes, "CDLL", lambda _: Library(fails))
    assert device.device_bytes_in_use(kept("cuda")) is None
