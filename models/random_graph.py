"""Random small graphs that run: operators of all kinds on tensors over n and m, some read often, some never.

They are for comparing predictions with measurements: results that stand on their inputs' memory, views,
several outputs of which some are unused, shape arithmetic, casts to other element sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from models.builder import Builder

__all__ = ["build_random_graph"]

Dim = int | str

_UNARY = ("Relu", "Sigmoid", "Tanh", "Neg", "Abs", "Softplus", "Softmax", "Identity", "Erf", "LeakyRelu",
          "Dropout", "HardSigmoid", "Elu", "Ceil")  # fmt: skip
_BINARY = ("Add", "Sub", "Mul", "Max", "Min")
_MOST = 1 << 12  # elements per symbol's unit, so that nothing grows without limit


@dataclass(frozen=True, slots=True)
class _Tensor:
    value: gs.Variable
    dims: tuple[Dim, ...]

    @property
    def static(self) -> list[int]:
        """Axes whose size is a number above 1."""
        return [k for k, d in enumerate(self.dims) if isinstance(d, int) and d > 1]


def build_random_graph(nodes: int = 24, seed: int = 0) -> onnx.ModelProto:
    """Inputs x (n, m, 8), y (n, 1, 8) and z (m, 8); outputs are leaves and a few others."""
    return _Grower(seed).build(nodes)


class _Grower:
    def __init__(self, seed: int) -> None:
        self.b = Builder(f"random_{seed}", seed)
        self.rng = np.random.default_rng(seed)
        self.pool: list[_Tensor] = []
        self.weights = 0

    def build(self, nodes: int) -> onnx.ModelProto:
        b = self.b
        shapes: dict[str, tuple[Dim, ...]] = {"x": ("n", "m", 8), "y": ("n", 1, 8), "z": ("m", 8)}
        inputs = [_Tensor(b.input(name, dims), dims) for name, dims in shapes.items()]
        self.pool += inputs
        kinds: tuple[Callable[[_Tensor], None], ...] = (
            self._unary, self._unary, self._binary, self._binary, self._joined, self._split, self._turned,
            self._reduced, self._multiplied, self._cut, self._gathered, self._chosen, self._cast,
            self._normalised, self._filled, self._ranked, self._unfolded, self._merged, self._scaled,
            self._padded,
        )  # fmt: skip
        while len(b.graph.nodes) < nodes:
            recent = self.pool[-6:]
            x = recent[int(self.rng.integers(len(recent)))]
            kinds[int(self.rng.integers(len(kinds)))](x)
        read = {id(t) for node in b.graph.nodes for t in node.inputs}
        made = [t for t in self.pool if t not in inputs]
        leaves = [t for t in made if id(t.value) not in read]
        inner = [t for t in made if id(t.value) in read]
        outputs = leaves[-1:] + [t for t in leaves[:-1] if self.rng.random() < 0.5]
        outputs += [t for t in inner if self.rng.random() < 0.05]
        for number, t in enumerate(outputs):
            # Dims are left open: they are for inference to find.
            b.output(t.value, f"out_{number}", [f"out_{number}_{k}" for k in range(len(t.dims))])
        return b.export()

    def _add(self, value: gs.Variable, dims: tuple[Dim, ...]) -> None:
        self.pool.append(_Tensor(value, dims))

    def _pick(self, choices: list[int]) -> int:
        return choices[int(self.rng.integers(len(choices)))]

    # ------------------------------------------------------------------ one method per kind of node

    def _unary(self, x: _Tensor) -> None:
        op = _UNARY[int(self.rng.integers(len(_UNARY)))]
        self._add(self.b.op(op, x.value), x.dims)

    def _binary(self, x: _Tensor) -> None:
        fits = [t for t in self.pool if _broadcast(x.dims, t.dims) is not None]
        y = fits[int(self.rng.integers(len(fits)))]
        dims = _broadcast(x.dims, y.dims)
        assert dims is not None
        if _elements(dims) <= _MOST:
            self._add(self.b.op(_BINARY[int(self.rng.integers(len(_BINARY)))], x.value, y.value), dims)

    def _joined(self, x: _Tensor) -> None:
        same = [t for t in self.pool if t.dims == x.dims]
        y = same[int(self.rng.integers(len(same)))]
        axes = x.static
        if axes and 2 * _elements(x.dims) <= _MOST:
            axis = self._pick(axes)
            dims = tuple(2 * d if k == axis else d for k, d in enumerate(x.dims))  # type: ignore[operator]
            self._add(self.b.op("Concat", x.value, y.value, axis=axis), dims)

    def _split(self, x: _Tensor) -> None:
        even = [k for k in x.static if int(x.dims[k]) % 2 == 0]
        if even:
            axis = self._pick(even)
            half = int(x.dims[axis]) // 2
            dims = (*x.dims[:axis], half, *x.dims[axis + 1 :])
            for piece in self.b.ops("Split", x.value, self.b.ints(half, half), outputs=2, axis=axis):
                self._add(piece, dims)

    def _turned(self, x: _Tensor) -> None:
        perm = [int(k) for k in self.rng.permutation(len(x.dims))]
        self._add(self.b.op("Transpose", x.value, perm=perm), tuple(x.dims[k] for k in perm))

    def _reduced(self, x: _Tensor) -> None:
        if len(x.dims) > 1:
            axis, keep = int(self.rng.integers(len(x.dims))), int(self.rng.integers(2))
            dims = (*x.dims[:axis], *((1,) * keep), *x.dims[axis + 1 :])
            self._add(self.b.op("ReduceMean", x.value, self.b.ints(axis), keepdims=keep), dims)

    def _multiplied(self, x: _Tensor) -> None:
        inner = x.dims[-1] if x.dims else 0
        if isinstance(inner, int) and inner > 0:
            self.weights += 1
            outputs = int(self.rng.choice([4, 8, 16]))
            weight = self.b.weight(f"weight_{self.weights}", (inner, outputs))
            self._add(self.b.op("MatMul", x.value, weight), (*x.dims[:-1], outputs))

    def _cut(self, x: _Tensor) -> None:
        if x.static:
            axis = self._pick(x.static)
            kept = max(1, int(x.dims[axis]) // 2)
            start = int(x.dims[axis]) - kept
            value = self.b.op(
                "Slice", x.value, self.b.ints(start), self.b.ints(start + kept), self.b.ints(axis)
            )
            self._add(value, (*x.dims[:axis], kept, *x.dims[axis + 1 :]))

    def _gathered(self, x: _Tensor) -> None:
        if x.static:
            axis = self._pick(x.static)
            self._add(self.b.op("Gather", x.value, self.b.const(0, np.int64), axis=axis),
                      (*x.dims[:axis], *x.dims[axis + 1 :]))  # fmt: skip

    def _chosen(self, x: _Tensor) -> None:
        same = [t for t in self.pool if t.dims == x.dims]
        y = same[int(self.rng.integers(len(same)))]
        self._add(self.b.op("Where", self.b.op("Greater", x.value, y.value), x.value, y.value), x.dims)

    def _cast(self, x: _Tensor) -> None:
        there = int(self.rng.choice([onnx.TensorProto.INT32, onnx.TensorProto.DOUBLE, onnx.TensorProto.BOOL]))
        self._add(self.b.op("Cast", self.b.op("Cast", x.value, to=there), to=onnx.TensorProto.FLOAT), x.dims)

    def _normalised(self, x: _Tensor) -> None:
        inner = x.dims[-1] if x.dims else 0
        if isinstance(inner, int) and inner > 1:
            scale = self.b.const(np.ones(inner))
            value = self.b.ops("LayerNormalization", x.value, scale, outputs=3, axis=-1)[0]
            self._add(value, x.dims)

    def _filled(self, x: _Tensor) -> None:
        """The same size made of shape arithmetic."""
        self._add(self.b.op("Expand", self.b.const([0.5]), self.b.op("Shape", x.value)), x.dims)

    def _ranked(self, x: _Tensor) -> None:
        inner = x.dims[-1] if x.dims else 0
        if isinstance(inner, int) and inner > 2:
            values, _ = self.b.ops("TopK", x.value, self.b.ints(2), outputs=2, axis=-1)
            self._add(values, (*x.dims[:-1], 2))

    def _unfolded(self, x: _Tensor) -> None:
        """Split the last dim in two, as a view."""
        inner = x.dims[-1] if x.dims else 0
        if isinstance(inner, int) and inner % 2 == 0 and len(x.dims) < 5:
            target = self.b.ints(*([0] * (len(x.dims) - 1)), 2, inner // 2)
            self._add(self.b.op("Reshape", x.value, target), (*x.dims[:-1], 2, inner // 2))

    def _merged(self, x: _Tensor) -> None:
        """Join the last two dims, as a view."""
        if len(x.dims) > 1:
            target = self.b.ints(*([0] * (len(x.dims) - 2)), -1)
            self._add(self.b.op("Reshape", x.value, target), (*x.dims[:-2], _product(*x.dims[-2:])))

    def _scaled(self, x: _Tensor) -> None:
        """Divide by the number of elements."""
        size = self.b.op("Cast", self.b.op("Size", x.value), to=onnx.TensorProto.FLOAT)
        self._add(self.b.op("Div", x.value, size), x.dims)

    def _padded(self, x: _Tensor) -> None:
        if x.static and _elements(x.dims) * 2 <= _MOST:
            axis = self._pick(x.static)
            pads = [0] * (2 * len(x.dims))
            pads[axis] = 1
            dims = (*x.dims[:axis], int(x.dims[axis]) + 1, *x.dims[axis + 1 :])
            self._add(self.b.op("Pad", x.value, self.b.ints(*pads)), dims)


def _product(a: Dim, b: Dim) -> Dim:
    return a * b if isinstance(a, int) and isinstance(b, int) else f"{a}*{b}"


def _elements(dims: tuple[Dim, ...]) -> int:
    """Elements where every symbol is 1."""
    found = 1
    for d in dims:
        for part in str(d).split("*"):
            found *= int(part) if part.isdecimal() else 1
    return found


def _broadcast(a: tuple[Dim, ...], b: tuple[Dim, ...]) -> tuple[Dim, ...] | None:
    """The dims of an element-wise result; None where they do not fit at every shape."""
    rank = max(len(a), len(b))
    left, right = ((1,) * (rank - len(dims)) + dims for dims in (a, b))
    if any(p != q and 1 not in (p, q) for p, q in zip(left, right, strict=True)):
        return None
    return tuple(q if p == 1 else p for p, q in zip(left, right, strict=True))
