"""Random series-parallel graphs whose tensors have unlike sizes: which one is larger depends on the shape.

A graph is a chain of steps or several graphs side by side that are added up at the end, recursively. A step
changes the channels (MatMul), adds a dim (Expand), drops one (ReduceMean) or keeps the size (Sigmoid); so
bytes are monomials of a, b and c that no scheduler can rank once and for all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from models.builder import Builder

__all__ = ["build_series_parallel"]

_SYMBOLS = ("a", "b", "c")
_CHANNELS = (4, 8, 16, 32, 64)
_SHORT, _LONG = 2, 5  # parts of a chain, branches of a fork


@dataclass(frozen=True, slots=True)
class _Tensor:
    """A value (a or 1, b or 1, c or 1, channels)."""

    value: gs.Variable
    dims: frozenset[int]
    channels: int


def build_series_parallel(nodes: int = 120, seed: int = 0) -> onnx.ModelProto:
    """Inputs of sizes a, b and c; output one number per channel. About so many nodes."""
    return _Grower(nodes, seed).build()


class _Grower:
    def __init__(self, nodes: int, seed: int) -> None:
        self.b = Builder(f"series_parallel_{seed}", seed)
        self.rng = np.random.default_rng(seed)
        self.nodes, self.weights = nodes, 0

    def build(self) -> onnx.ModelProto:
        b = self.b
        shapes: list[tuple[int | str, ...]] = [("a", 1, 1, 8), (1, "b", 1, 8), (1, 1, "c", 8)]
        inputs = [b.input(symbol, shape) for symbol, shape in zip(_SYMBOLS, shapes, strict=True)]
        self.sizes = [b.dim(value, axis) for axis, value in enumerate(inputs)]
        starts = [_Tensor(value, frozenset({axis}), 8) for axis, value in enumerate(inputs)]
        merged = self._joined(starts)
        end = self._grow(merged, self.nodes)
        mean = b.op("ReduceMean", end.value, b.ints(0, 1, 2), keepdims=0)
        b.output(mean, "mean", (end.channels,))
        return b.export()

    def _grow(self, x: _Tensor, budget: int) -> _Tensor:
        """A graph of about `budget` nodes behind x."""
        if budget <= 3:
            for _ in range(max(1, budget)):
                x = self._step(x)
            return x
        parts = int(self.rng.integers(_SHORT, _LONG + 1))
        shares = self.rng.dirichlet(np.ones(parts)) * budget
        if self.rng.random() < 0.5:
            for share in shares:
                x = self._grow(x, int(share))
            return x
        return self._joined([self._grow(x, int(share) - 1) for share in shares])

    def _joined(self, parts: list[_Tensor]) -> _Tensor:
        """The sum; channels are brought to those of the first."""
        first = parts[0]
        for part in parts[1:]:
            other = self._resized(part, first.channels)
            dims = first.dims | other.dims
            first = _Tensor(self.b.op("Add", first.value, other.value), dims, first.channels)
        return first

    def _resized(self, x: _Tensor, channels: int) -> _Tensor:
        if x.channels == channels:
            return x
        self.weights += 1
        weight = self.b.weight(f"weight_{self.weights}", (x.channels, channels))
        return _Tensor(self.b.op("MatMul", x.value, weight), x.dims, channels)

    def _step(self, x: _Tensor) -> _Tensor:
        b, kind = self.b, self.rng.random()
        if kind < 0.4:
            return self._resized(x, int(self.rng.choice([c for c in _CHANNELS if c != x.channels])))
        if kind < 0.6 and len(x.dims) < len(_SYMBOLS):
            axis = int(self.rng.choice(sorted(set(range(3)) - x.dims)))
            target = b.shape(*(self.sizes[axis] if k == axis else 1 for k in range(4)))
            return _Tensor(b.op("Expand", x.value, target), x.dims | {axis}, x.channels)
        if kind < 0.8 and len(x.dims) > 1:
            axis = int(self.rng.choice(sorted(x.dims)))
            return _Tensor(b.op("ReduceMean", x.value, b.ints(axis), keepdims=1), x.dims - {axis}, x.channels)
        return _Tensor(b.op("Tanh", x.value), x.dims, x.channels)
