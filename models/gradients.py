"""Reverse-mode differentiation over a Builder: each forward op remembers how to write its backward ops.

`backward` writes them in reverse order, which gives the joint forward and backward graph that a training
exporter makes: activations stay alive from their forward use to their backward use. Formulas are the usual
ones; what can be cheaply recomputed from a saved input (the GELU's derivative, normalised activations) is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import onnx_graphsurgeon as gs

from models.builder import Builder, Tensor
from models.layers import gelu

__all__ = ["Tape"]


class Tape:
    """Forward ops with gradients. `parameters` in order of creation, `gradient` after `backward`."""

    def __init__(self, b: Builder) -> None:
        self.b = b
        self.parameters: dict[str, gs.Constant] = {}
        self._steps: list[tuple[gs.Variable, Callable[[gs.Variable], None]]] = []
        self._gradients: dict[str, gs.Variable] = {}

    # ------------------------------------------------------------------ bookkeeping

    def parameter(
        self, name: str, shape: Sequence[int], deviation: float | None = None, mean: float = 0.0
    ) -> gs.Constant:
        """A weight whose gradient is wanted."""
        made = self.b.weight(name, shape, deviation, mean)
        self.parameters[made.name] = made
        return made

    def _record(self, result: gs.Variable, step: Callable[[gs.Variable], None]) -> gs.Variable:
        self._steps.append((result, step))
        return result

    def _add(self, tensor: Tensor, gradient: gs.Variable) -> None:
        held = self._gradients.get(tensor.name)
        self._gradients[tensor.name] = gradient if held is None else self.b.op("Add", held, gradient)

    def backward(self) -> None:
        """Write the backward ops of everything recorded; the loss starts them, see `cross_entropy`."""
        for result, step in reversed(self._steps):
            gradient = self._gradients.pop(result.name, None)
            if gradient is not None:
                step(gradient)
        self._steps.clear()

    def gradient(self, parameter: gs.Constant) -> gs.Variable:
        """The gradient of a parameter."""
        return self._gradients[parameter.name]

    def _sum_rows(self, x: Tensor) -> gs.Variable:
        return self.b.op("ReduceSum", x, self.b.ints(0), keepdims=0)

    def _row_mean(self, x: Tensor) -> gs.Variable:
        return self.b.op("ReduceMean", x, self.b.ints(-1), keepdims=1)

    # ------------------------------------------------------------------ layers over rows (rows, width)

    def linear(self, name: str, x: Tensor, inputs: int, outputs: int, first: bool = False) -> gs.Variable:
        """x @ W + bias over rows, as one Gemm. `first` says that nobody wants the gradient of x."""
        b = self.b
        with b.scope(name):
            weight = self.parameter("weight", (inputs, outputs))
            bias = self.parameter("bias", (outputs,), 0.02)
            y = b.op("Gemm", x, weight, bias)

        def step(dy: gs.Variable) -> None:
            with b.scope(f"grad/{name}"):
                if not first:
                    self._add(x, b.op("Gemm", dy, weight, transB=1))
                self._add(weight, b.op("Gemm", x, dy, transA=1))
                self._add(bias, self._sum_rows(dy))

        return self._record(y, step)

    def layer_norm(self, name: str, x: Tensor, width: int) -> gs.Variable:
        """LayerNormalization over the last axis; mean and inverse deviation are kept for the gradient."""
        b = self.b
        with b.scope(name):
            scale = self.parameter("weight", (width,), 0.02, mean=1.0)
            bias = self.parameter("bias", (width,), 0.02)
            y, mean, inverse = b.ops("LayerNormalization", x, scale, bias, outputs=3, axis=-1, epsilon=1e-5)

        def step(dy: gs.Variable) -> None:
            with b.scope(f"grad/{name}"):
                normal = b.op("Mul", b.op("Sub", x, mean), inverse)
                self._add(scale, self._sum_rows(b.op("Mul", dy, normal)))
                self._add(bias, self._sum_rows(dy))
                inner = b.op("Mul", dy, scale)
                along = b.op("Mul", normal, self._row_mean(b.op("Mul", inner, normal)))
                centred = b.op("Sub", b.op("Sub", inner, self._row_mean(inner)), along)
                self._add(x, b.op("Mul", centred, inverse))

        return self._record(y, step)

    def cross_entropy(self, logits: Tensor, labels: Tensor) -> gs.Variable:
        """Mean of -log softmax(logits)[label] over rows. Seeds the gradients: it is the loss."""
        b = self.b
        with b.scope("loss"):
            column = b.op("Unsqueeze", labels, b.ints(1))
            log = b.op("LogSoftmax", logits, axis=-1)
            loss = b.op("Neg", b.op("ReduceMean", b.op("GatherElements", log, column, axis=1), keepdims=0))
        with b.scope("grad/loss"):
            rows = b.op("Cast", b.op("Size", labels), to=1)
            share = b.op("Expand", b.op("Div", b.const(-1.0), rows), b.op("Shape", column))
            zeros = b.op(
                "ConstantOfShape", b.op("Shape", log), value=gs.Constant("value", np.zeros(1, np.float32))
            )
            picked = b.op("ScatterElements", zeros, column, share, axis=1)
            total = b.op("ReduceSum", picked, b.ints(-1), keepdims=1)
            self._add(logits, b.op("Sub", picked, b.op("Mul", b.op("Exp", log), total)))
        return loss

    # ------------------------------------------------------------------ element-wise and layout

    def gelu(self, x: Tensor) -> gs.Variable:
        """GELU; its derivative, Phi(x) + x * phi(x), is computed from x."""
        b = self.b

        def step(dy: gs.Variable) -> None:
            with b.scope("grad/gelu"):
                erf = b.op("Erf", b.op("Div", x, b.const(math.sqrt(2.0))))
                cumulative = b.op("Mul", b.op("Add", erf, b.const(1.0)), b.const(0.5))
                bell = b.op("Exp", b.op("Mul", b.op("Mul", x, x), b.const(-0.5)))
                density = b.op("Mul", bell, b.const(1 / math.sqrt(2 * math.pi)))
                slope = b.op("Add", cumulative, b.op("Mul", x, density))
                self._add(x, b.op("Mul", dy, slope))

        return self._record(gelu(b, x), step)

    def add(self, x: Tensor, y: Tensor) -> gs.Variable:
        """The sum of two tensors of one shape."""

        def step(dz: gs.Variable) -> None:
            self._add(x, dz)
            self._add(y, dz)

        return self._record(self.b.op("Add", x, y), step)

    def scale(self, x: Tensor, factor: float) -> gs.Variable:
        """x times a number."""
        constant = self.b.const(factor)
        return self._record(
            self.b.op("Mul", x, constant), lambda dy: self._add(x, self.b.op("Mul", dy, constant))
        )

    def shift(self, x: Tensor, constant: Tensor) -> gs.Variable:
        """x plus a tensor without gradient that broadcasts to its shape."""
        return self._record(self.b.op("Add", x, constant), lambda dy: self._add(x, dy))

    def reshape(self, x: Tensor, shape: Tensor, back: Tensor) -> gs.Variable:
        """Reshape; `back` is the shape of x."""
        return self._record(
            self.b.op("Reshape", x, shape), lambda dy: self._add(x, self.b.op("Reshape", dy, back))
        )

    def transpose(self, x: Tensor, perm: Sequence[int]) -> gs.Variable:
        """Transpose."""
        inverse = [int(k) for k in np.argsort(perm)]
        return self._record(
            self.b.op("Transpose", x, perm=list(perm)),
            lambda dy: self._add(x, self.b.op("Transpose", dy, perm=inverse)),
        )

    # ------------------------------------------------------------------ attention

    def matmul(self, x: Tensor, y: Tensor) -> gs.Variable:
        """Batched product of (batch, heads, n, k) and (batch, heads, k, m)."""
        b = self.b

        def step(dz: gs.Variable) -> None:
            with b.scope("grad/matmul"):
                self._add(x, b.op("MatMul", dz, b.op("Transpose", y, perm=[0, 1, 3, 2])))
                self._add(y, b.op("MatMul", b.op("Transpose", x, perm=[0, 1, 3, 2]), dz))

        return self._record(b.op("MatMul", x, y), step)

    def softmax(self, x: Tensor) -> gs.Variable:
        """Softmax over the last axis; the gradient needs the result only."""
        b = self.b
        y = b.op("Softmax", x, axis=-1)

        def step(dy: gs.Variable) -> None:
            with b.scope("grad/softmax"):
                weighted = b.op("Mul", dy, y)
                total = b.op("ReduceSum", weighted, b.ints(-1), keepdims=1)
                self._add(x, b.op("Sub", weighted, b.op("Mul", y, total)))

        return self._record(y, step)
