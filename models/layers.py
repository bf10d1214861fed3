"""Layers shared by the models, decomposed into ONNX operators the way exporters do it.

Widths are known numbers. Other sizes are handed in: like the graph-capturing exporters, a model reads each
symbol once, from an input, and every target shape is built from those.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import onnx_graphsurgeon as gs

from models.builder import Builder, Tensor

__all__ = [
    "Projection",
    "attend",
    "conv",
    "gelu",
    "group_norm",
    "layer_norm",
    "linear",
    "merge_heads",
    "project_heads",
    "silu",
]


def linear(b: Builder, name: str, x: Tensor, inputs: int, outputs: int, bias: bool = True) -> gs.Variable:
    """x @ W + bias over the last axis: MatMul, Add."""
    with b.scope(name):
        y = b.op("MatMul", x, b.weight("weight", (inputs, outputs)))
        return b.op("Add", y, b.weight("bias", (outputs,), 0.02)) if bias else y


def layer_norm(b: Builder, name: str, x: Tensor, width: int) -> gs.Variable:
    """LayerNormalization over the last axis."""
    with b.scope(name):
        scale, bias = b.weight("weight", (width,), 0.02, mean=1.0), b.weight("bias", (width,), 0.02)
        return b.op("LayerNormalization", x, scale, bias, axis=-1, epsilon=1e-5)


def gelu(b: Builder, x: Tensor) -> gs.Variable:
    """x * (1 + erf(x / sqrt 2)) / 2, in five operators."""
    erf = b.op("Erf", b.op("Div", x, b.const(math.sqrt(2.0))))
    return b.op("Mul", b.op("Mul", x, b.op("Add", erf, b.const(1.0))), b.const(0.5))


def silu(b: Builder, x: Tensor) -> gs.Variable:
    """x * sigmoid(x)."""
    return b.op("Mul", x, b.op("Sigmoid", x))


def conv(
    b: Builder,
    name: str,
    x: Tensor,
    inputs: int,
    outputs: int,
    kernel: int = 3,
    stride: int = 1,
    group: int = 1,
    bias: bool = True,
    gain: float = 1.0,
) -> gs.Variable:
    """A square convolution padded by half its kernel; with stride s a side of n becomes ceil(n / s).

    `gain` scales the weights: sqrt(2) keeps the variance where a Relu came before (He et al. 2015).
    """
    shape = (outputs, inputs // group, kernel, kernel)
    with b.scope(name):
        weights: list[Tensor] = [b.weight("weight", shape, gain / math.sqrt(math.prod(shape[1:])))]
        if bias:
            weights.append(b.weight("bias", (outputs,), 0.02))
        return b.op(
            "Conv",
            x,
            *weights,
            dilations=[1, 1],
            group=group,
            kernel_shape=[kernel, kernel],
            pads=[kernel // 2] * 4,
            strides=[stride, stride],
        )


def group_norm(b: Builder, name: str, x: Tensor, channels: int, groups: int) -> gs.Variable:
    """Group normalisation as exporters decompose it: InstanceNormalization between two Reshapes."""
    with b.scope(name):
        grouped = b.op("Reshape", x, b.ints(0, groups, -1))
        normal = b.op(
            "InstanceNormalization", grouped, b.const([1.0] * groups), b.const([0.0] * groups), epsilon=1e-5
        )
        back = b.op("Reshape", normal, b.op("Shape", x))
        scaled = b.op("Mul", back, b.weight("weight", (channels, 1, 1), 0.02, mean=1.0))
        return b.op("Add", scaled, b.weight("bias", (channels, 1, 1), 0.02))


# ---------------------------------------------------------------------------------------------- attention


@dataclass(frozen=True, slots=True)
class Projection:
    """How tokens become heads: width of the tokens, number of heads, width of all heads together."""

    inputs: int
    heads: int
    width: int

    @property
    def head(self) -> int:
        """Width of one head."""
        return self.width // self.heads


def project_heads(
    b: Builder,
    name: str,
    x: Tensor,
    batch: gs.Variable,
    projection: Projection,
    *,
    bias: bool = True,
    scale: bool = False,
    transposed: bool = False,
) -> gs.Variable:
    """Project (batch, tokens, width) to heads: (batch, heads, tokens, head).

    `scale` divides by sqrt(head), as is done with queries. `transposed` swaps the last two axes, for keys:
    exporters merge their two Transposes into one.
    """
    y = linear(b, name, x, projection.inputs, projection.width, bias)
    if scale:
        y = b.op("Mul", y, b.const(projection.head**-0.5))
    y = b.reshape(y, batch, -1, projection.heads, projection.head)
    return b.op("Transpose", y, perm=[0, 2, 3, 1] if transposed else [0, 2, 1, 3])


def merge_heads(b: Builder, x: Tensor, batch: gs.Variable, width: int) -> gs.Variable:
    """(batch, heads, tokens, head) back to (batch, tokens, width)."""
    return b.reshape(b.op("Transpose", x, perm=[0, 2, 1, 3]), batch, -1, width)


def attend(b: Builder, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> gs.Variable:
    """softmax(query @ key + mask) @ value; `key` comes transposed."""
    scores = b.op("MatMul", query, key)
    if mask is not None:
        scores = b.op("Add", scores, mask)
    return b.op("MatMul", b.op("Softmax", scores, axis=-1), value)
