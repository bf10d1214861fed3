"""Gradients of the operators of convolutional networks, written with operators that ONNX has.

A convolution's gradients are a transposed convolution and a convolution over the batch. Where a stride leaves
a rest, what it skipped is padded on and cut off by sizes that are computed, so the graph is right for every
height and width. Pooling keeps its indices and scatters. Normalisation is that of training: by the batch.
Parameters are graph inputs: the memory of a training step does not depend on their numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_graphsurgeon as gs

from models.builder import Builder, Tensor
from models.gradients import Tape

__all__ = ["ImageTape", "Window"]


@dataclass(frozen=True, slots=True)
class Window:
    """A sliding window: its sides, its strides, and its pads (top, left, bottom, right)."""

    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)

    @property
    def leaves_no_rest(self) -> bool:
        """Whether the windows end exactly where the padded image does, at every size."""
        return self.strides == (1, 1)

    @property
    def pads_back(self) -> list[int]:
        """Pads of the transposed window; where a rest may lie at the ends, these are cut by size instead."""
        return list(self.pads) if self.leaves_no_rest else [*self.pads[:2], 0, 0]


class ImageTape(Tape):
    """Forward ops over images (batch, channels, height, width) with their gradients."""

    def __init__(self, b: Builder) -> None:
        super().__init__(b)
        self.weights: dict[str, gs.Variable] = {}

    def input_weight(self, name: str, shape: Sequence[int]) -> gs.Variable:
        """A parameter that is a graph input."""
        if name not in self.weights:
            self.weights[name] = self.b.input(name, shape)
        return self.weights[name]

    def weight_gradients(self) -> dict[str, gs.Variable]:
        """The gradient of every parameter, after `backward`."""
        return {name: self._gradients[name] for name in self.weights}

    def _spatial(self, x: Tensor) -> gs.Variable:
        return self.b.op("Shape", x, start=2, end=4)

    def _sum_but_channels(self, x: Tensor) -> gs.Variable:
        return self.b.op("ReduceSum", x, self.b.ints(0, 2, 3), keepdims=0)

    def _padded_to(self, x: gs.Variable, sides: Tensor) -> gs.Variable:
        """Zeros below and to the right up to a height and width, or what is beyond them cut off."""
        b = self.b
        missing = b.op("Sub", sides, self._spatial(x))
        return b.op("Pad", x, b.op("Concat", b.ints(0, 0), missing, axis=0), None, b.ints(2, 3))

    # ------------------------------------------------------------------ convolution

    def conv(
        self, name: str, x: Tensor, weight: Tensor, bias: Tensor | None, w: Window, group: int, first: bool
    ) -> gs.Variable:
        """A convolution; `first` says that nobody wants the gradient of x."""
        b = self.b
        inner = weight.shape[1]
        given = [weight] if bias is None else [weight, bias]
        sides = self._spatial(x)
        y = b.op("Conv", x, *given, kernel_shape=list(w.kernel), strides=list(w.strides), pads=list(w.pads),
                 group=group)  # fmt: skip

        def step(dy: gs.Variable) -> None:
            with b.scope(f"grad/{name}"):
                if not first:
                    dx = b.op(
                        "ConvTranspose", dy, weight, kernel_shape=list(w.kernel), strides=list(w.strides),
                        pads=w.pads_back, group=group,
                    )  # fmt: skip
                    self._add(x, dx if w.leaves_no_rest else self._padded_to(dx, sides))
                self._add(weight, self._kernel_gradient(x, dy, sides, w, group, inner))
                if bias is not None:
                    self._add(bias, self._sum_but_channels(dy))

        return self._record(y, step)

    def _kernel_gradient(
        self, x: Tensor, dy: Tensor, sides: Tensor, w: Window, group: int, inner: int
    ) -> gs.Variable:
        """A convolution of the images by their gradients, batch and channels swapped."""
        b = self.b
        if group == 1:
            images = b.op("Transpose", x, perm=[1, 0, 2, 3])
        else:
            # Each group of outputs sees its own channels: (channels / group, group * batch, height, width).
            split = b.op("Reshape", x, b.ints(0, group, inner, -1))
            turned = b.op("Transpose", split, perm=[2, 1, 0, 3])
            target = b.op("Concat", b.ints(inner, -1), sides, axis=0)
            images = b.op("Reshape", turned, target)
        kernels = b.op("Transpose", dy, perm=[1, 0, 2, 3])
        found = b.op("Conv", images, kernels, dilations=list(w.strides), pads=list(w.pads), group=group)
        if not w.leaves_no_rest:
            found = b.op("Slice", found, b.ints(0, 0), b.ints(*w.kernel), b.ints(2, 3))
        return b.op("Transpose", found, perm=[1, 0, 2, 3])

    def dense(self, name: str, x: Tensor, weight: Tensor, bias: Tensor) -> gs.Variable:
        """Rows times a matrix (outputs, inputs), plus a bias."""
        b = self.b
        y = b.op("Gemm", x, weight, bias, transB=1)

        def step(dy: gs.Variable) -> None:
            with b.scope(f"grad/{name}"):
                self._add(x, b.op("Gemm", dy, weight))
                self._add(weight, b.op("Gemm", dy, x, transA=1))
                self._add(bias, self._sum_rows(dy))

        return self._record(y, step)

    # ------------------------------------------------------------------ normalisation

    def batch_norm(self, name: str, x: Tensor, scale: Tensor, bias: Tensor, epsilon: float) -> gs.Variable:
        """Normalisation by the batch, in small operators as exporters of training graphs write it.

        ONNX Runtime's own BatchNormalization in training mode writes its statistics over its inputs.
        """
        b = self.b
        axes = b.ints(0, 2, 3)
        mean = b.op("ReduceMean", x, axes, keepdims=1)
        centred = b.op("Sub", x, mean)
        variance = b.op("ReduceMean", b.op("Mul", centred, centred), axes, keepdims=1)
        inverse = b.op("Reciprocal", b.op("Sqrt", b.op("Add", variance, b.const(epsilon))))
        wide = self._per_channel(scale)
        scaled = b.op("Mul", b.op("Mul", centred, inverse), wide)
        y = b.op("Add", scaled, self._per_channel(bias))

        def step(dy: gs.Variable) -> None:
            with b.scope(f"grad/{name}"):
                normal = b.op("Mul", b.op("Sub", x, mean), inverse)
                self._add(bias, self._sum_but_channels(dy))
                product = b.op("Mul", dy, normal)
                self._add(scale, self._sum_but_channels(product))
                along = b.op("Mul", normal, b.op("ReduceMean", product, axes, keepdims=1))
                rest = b.op("Sub", b.op("Sub", dy, b.op("ReduceMean", dy, axes, keepdims=1)), along)
                self._add(x, b.op("Mul", rest, b.op("Mul", wide, inverse)))

        return self._record(y, step)

    def _per_channel(self, x: Tensor) -> gs.Variable:
        return self.b.op("Unsqueeze", x, self.b.ints(1, 2))

    def channel_scale(self, x: Tensor, scale: Tensor) -> gs.Variable:
        """x times a number per channel."""
        b = self.b
        spread = self._per_channel(scale)

        def step(dy: gs.Variable) -> None:
            self._add(x, b.op("Mul", dy, spread))
            self._add(scale, self._sum_but_channels(b.op("Mul", dy, x)))

        return self._record(b.op("Mul", x, spread), step)

    def channel_shift(self, x: Tensor, bias: Tensor) -> gs.Variable:
        """x plus a number per channel."""
        b = self.b

        def step(dy: gs.Variable) -> None:
            self._add(x, dy)
            self._add(bias, self._sum_but_channels(dy))

        return self._record(b.op("Add", x, self._per_channel(bias)), step)

    def local_response(self, x: Tensor, size: int, alpha: float, beta: float, bias: float) -> gs.Variable:
        """LRN across channels, windows of an odd size; sums of windows are computed again."""
        b = self.b
        if size % 2 == 0:
            raise ValueError(f"LRN over {size} channels: expected an odd number")

        shape = b.op("Shape", x)

        def window_mean(values: gs.Variable) -> gs.Variable:
            flat = b.op("Unsqueeze", b.op("Reshape", values, b.ints(0, 0, -1)), b.ints(1))
            pads = [size // 2, 0, size // 2, 0]
            mean = b.op("AveragePool", flat, kernel_shape=[size, 1], pads=pads, count_include_pad=1)
            return b.op("Reshape", mean, shape)

        def step(dy: gs.Variable) -> None:
            with b.scope("grad/lrn"):
                mean = window_mean(b.op("Mul", x, x))
                level = b.op("Add", b.op("Mul", mean, b.const(alpha)), b.const(bias))
                direct = b.op("Mul", dy, b.op("Pow", level, b.const(-beta)))
                # Every number also is in its neighbours' windows.
                shared = window_mean(b.op("Div", b.op("Mul", direct, x), level))
                indirect = b.op("Mul", b.op("Mul", x, shared), b.const(2 * alpha * beta))
                self._add(x, b.op("Sub", direct, indirect))

        return self._record(b.op("LRN", x, size=size, alpha=alpha, beta=beta, bias=bias), step)

    # ------------------------------------------------------------------ pooling

    def max_pool(self, x: Tensor, w: Window) -> gs.Variable:
        """Maxima and where they were; gradients of overlapping windows add up."""
        b = self.b
        shape, count = b.op("Shape", x), b.op("Size", x)
        y, indices = b.ops(
            "MaxPool", x, outputs=2, kernel_shape=list(w.kernel), strides=list(w.strides), pads=list(w.pads)
        )

        def step(dy: gs.Variable) -> None:
            with b.scope("grad/max_pool"):
                length = b.op("Reshape", count, b.ints(1))
                zeros = b.op("ConstantOfShape", length, value=gs.Constant("value", np.zeros(1, np.float32)))
                places, values = (b.op("Reshape", t, b.ints(-1)) for t in (indices, dy))
                sums = b.op("ScatterElements", zeros, places, values, axis=0, reduction="add")
                self._add(x, b.op("Reshape", sums, shape))

        return self._record(y, step)

    def average_pool(self, x: Tensor, w: Window) -> gs.Variable:
        """Means of windows; pads are not counted."""
        b = self.b
        side = math.prod(w.kernel)
        shape, sides = b.op("Shape", x), self._spatial(x)
        y = b.op("AveragePool", x, kernel_shape=list(w.kernel), strides=list(w.strides), pads=list(w.pads))

        def step(dy: gs.Variable) -> None:
            with b.scope("grad/average_pool"):
                ones = b.const(np.ones((1, 1, *w.kernel)))
                if any(w.pads):
                    image = b.op("Expand", b.const(np.ones((1, 1, 1, 1))),
                                 b.op("Concat", b.ints(1, 1), sides, axis=0))  # fmt: skip
                    counts = b.op("Conv", image, ones, kernel_shape=list(w.kernel), strides=list(w.strides),
                                  pads=list(w.pads))  # fmt: skip
                    share = b.op("Div", dy, counts)
                else:
                    share = b.op("Mul", dy, b.const(1 / side))
                single = b.op("Reshape", share, b.op("Concat", b.ints(-1, 1), self._spatial(dy), axis=0))
                spread = b.op("ConvTranspose", single, ones, kernel_shape=list(w.kernel),
                              strides=list(w.strides), pads=w.pads_back)  # fmt: skip
                if not w.leaves_no_rest:
                    spread = self._padded_to(spread, sides)
                self._add(x, b.op("Reshape", spread, shape))

        return self._record(y, step)

    def global_average(self, x: Tensor) -> gs.Variable:
        """The mean of every channel: (batch, channels, 1, 1)."""
        b = self.b
        shape, sides = b.op("Shape", x), self._spatial(x)

        def step(dy: gs.Variable) -> None:
            with b.scope("grad/global_average"):
                count = b.op("Cast", b.op("ReduceProd", sides, keepdims=0), to=1)
                self._add(x, b.op("Expand", b.op("Div", dy, count), shape))

        return self._record(b.op("GlobalAveragePool", x), step)

    # ------------------------------------------------------------------ element-wise and layout

    def relu(self, x: Tensor) -> gs.Variable:
        """Relu; the gradient needs the result only."""
        b = self.b
        y = b.op("Relu", x)

        def step(dy: gs.Variable) -> None:
            with b.scope("grad/relu"):
                zero = b.const(0.0)
                self._add(x, b.op("Where", b.op("Greater", y, zero), dy, zero))

        return self._record(y, step)

    def concat(self, parts: Sequence[Tensor], channels: Sequence[int]) -> gs.Variable:
        """Join along channels, so many of each part."""
        b = self.b

        def step(dy: gs.Variable) -> None:
            pieces = b.ops("Split", dy, b.ints(*channels), outputs=len(parts), axis=1)
            for part, piece in zip(parts, pieces, strict=True):
                self._add(part, piece)

        return self._record(b.op("Concat", *parts, axis=1), step)

    def flatten(self, x: Tensor) -> gs.Variable:
        """(batch, all the rest)."""
        b = self.b
        shape = b.op("Shape", x)
        return self._record(b.op("Flatten", x, axis=1), lambda dy: self._add(x, b.op("Reshape", dy, shape)))

    def regroup(self, x: Tensor, leading: Sequence[int], spatial_from: int) -> gs.Variable:
        """Reshape to (batch, *leading, height, width); x has its height at axis `spatial_from`."""
        b = self.b
        sides = b.op("Shape", x, start=spatial_from, end=spatial_from + 2)
        shape = b.op("Shape", x)
        target = b.op("Concat", b.ints(0, *leading), sides, axis=0)
        return self._record(b.op("Reshape", x, target), lambda dy: self._add(x, b.op("Reshape", dy, shape)))
