"""Fixtures shared by all tests: the models of tests/data with seeded weights, their cases, drawn inputs."""

from __future__ import annotations

import json
import math
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx
import pytest
from hypothesis import settings
from onnx import TensorProto

# Property tests draw the same examples everywhere: a test that fails does so for everyone, at once.
# `--hypothesis-profile=wide` looks further.
settings.register_profile("fixed", derandomize=True, deadline=None, database=None)
settings.register_profile("wide", deadline=None, max_examples=1000)
settings.load_profile("fixed")

DATA = Path(__file__).parent / "data"
CHUNK = 1 << 20


@dataclass(frozen=True)
class Case:
    """A model of tests/data: where it is from, shapes at which it runs, and how its inputs are drawn."""

    name: str
    source: str
    shapes: tuple[Mapping[str, int], ...]
    fills: Mapping[str, Any] = field(default_factory=dict)

    @property
    def structure(self) -> Path:
        """The file without weights."""
        return DATA / f"{self.name}.onnx"


def _read_cases() -> dict[str, Case]:
    entries = json.loads((DATA / "cases.json").read_text())
    return {
        name: Case(name, entry["source"], tuple(entry["cases"]), entry["fills"])
        for name, entry in entries.items()
    }


# Read at collection, so that tests can be parametrised with the names: `case_name` is one test per model.
CASES = _read_cases()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test with the argument `case_name` runs once per model of tests/data."""
    if "case_name" in metafunc.fixturenames:
        metafunc.parametrize("case_name", list(CASES))


@pytest.fixture(scope="session")
def cases() -> Mapping[str, Case]:
    """The models of tests/data by name."""
    return CASES


@pytest.fixture(scope="session")
def filled_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`filled_model(name)`: the path of a copy with seeded weights beside it, made once per session."""
    made: dict[str, Path] = {}

    def fill(name: str) -> Path:
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            path = folder / f"{name}.onnx"
            shutil.copyfile(CASES[name].structure, path)
            _write_weights(onnx.load(path, load_external_data=False), name, folder)
            made[name] = path
        return made[name]

    return fill


@pytest.fixture(scope="session")
def draw_inputs() -> Callable[..., dict[str, np.ndarray]]:
    """`draw_inputs(graph.input, shape, fills={}, seed=0)`: an array per input of a GraphProto."""

    def draw(
        inputs: Sequence[onnx.ValueInfoProto],
        shape: Mapping[str, int],
        fills: Mapping[str, Any] | None = None,
        seed: int = 0,
    ) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(seed)
        feeds = {}
        for value in inputs:
            tensor = value.type.tensor_type
            dims = [shape[d.dim_param] if d.dim_param else d.dim_value for d in tensor.shape.dim]
            match (fills or {}).get(value.name, "normal"):
                case "ones":
                    array = np.ones(dims)
                case ("randint", low, high) | ["randint", low, high]:
                    array = rng.integers(low, high, dims)
                case "normal":
                    array = rng.standard_normal(dims)
                case other:
                    raise ValueError(f"{value.name}: unknown fill {other!r}")
            feeds[value.name] = array.astype(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type))
        return feeds

    return draw


def _write_weights(model: onnx.ModelProto, name: str, folder: Path) -> None:
    """Write the external weights a model refers to, in chunks.

    Standard deviations keep activations sane through many layers without trained weights: 2 / sqrt(fan-in)
    for convolution kernels (Relu and gates halve the signal), else 0.02, or 0.7 / sqrt(fan-in) where smaller.
    """
    for tensor in model.graph.initializer:
        if tensor.data_location != TensorProto.EXTERNAL:
            continue
        entry = {e.key: e.value for e in tensor.external_data}
        path = folder / entry["location"]
        path.touch()
        with path.open("r+b") as file:
            file.seek(int(entry["offset"]))
            _write_tensor(file, tensor, name)


def _write_tensor(file: BinaryIO, tensor: TensorProto, name: str) -> None:
    assert tensor.data_type == TensorProto.FLOAT, f"{tensor.name}: only float32 weights are kept outside"
    fan_in = math.prod(tensor.dims[1:]) or 1
    deviation = 2 / math.sqrt(fan_in) if len(tensor.dims) == 4 else min(0.02, 0.7 / math.sqrt(fan_in))
    rng = np.random.default_rng(zlib.crc32(f"{name}:{tensor.name}".encode()))
    file.writelines(
        (rng.standard_normal(size, dtype=np.float32) * np.float32(deviation)).tobytes()
        for size in _chunks(math.prod(tensor.dims))
    )


def _chunks(total: int) -> Iterator[int]:
    while total > 0:
        yield min(total, CHUNK)
        total -= CHUNK
