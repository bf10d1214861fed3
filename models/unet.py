"""Diffusion U-Net: time embedding, residual blocks, skip connections, attention at the lowest level.

After DDPM (arXiv 2006.11239) and latent diffusion (arXiv 2112.10752), at small widths. Any height and width
run: a level halves its side rounding up, so each Resize takes its target size from the skip it will meet.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from models.builder import Builder, Tensor
from models.layers import Projection, attend, conv, group_norm, linear, merge_heads, project_heads, silu

__all__ = ["build_unet"]

GROUPS = 8


def build_unet(
    channels: int = 4, width: int = 32, levels: int = 3, blocks: int = 2, heads: int = 4, seed: int = 0
) -> onnx.ModelProto:
    """Inputs sample (batch, channels, height, width) and timestep (batch); output the predicted noise.

    Level k has width * 2**k channels and `blocks` residual blocks down, one more up.
    """
    b = Builder("unet", seed)
    sample = b.input("sample", ("batch", channels, "height", "width"))
    timestep = b.input("timestep", ("batch",), np.int64)
    net = _Blocks(b, batch=b.dim(sample, 0), embedding=_time_embedding(b, timestep, width), width=width)
    widths = [width << level for level in range(levels)]

    x = conv(b, "conv_in", sample, channels, width)
    skips, current = [(x, width)], width
    for level, outputs in enumerate(widths):
        with b.scope(f"down.{level}"):
            for k in range(blocks):
                x = net.residual(f"resnets.{k}", x, current, outputs)
                current = outputs
                if level == levels - 1:
                    x = net.attention(f"attentions.{k}", x, current, heads)
                skips.append((x, current))
            if level < levels - 1:
                x = conv(b, "downsample", x, current, current, stride=2)
                skips.append((x, current))

    with b.scope("mid"):
        x = net.residual("resnets.0", x, current, current)
        x = net.attention("attentions.0", x, current, heads)
        x = net.residual("resnets.1", x, current, current)

    for level, outputs in reversed(list(enumerate(widths))):
        with b.scope(f"up.{level}"):
            for k in range(blocks + 1):
                skip, skipped = skips.pop()
                x = b.op("Concat", x, skip, axis=1)
                x = net.residual(f"resnets.{k}", x, current + skipped, outputs)
                current = outputs
                if level == levels - 1:
                    x = net.attention(f"attentions.{k}", x, current, heads)
            if level:
                x = _resize_like(b, x, skips[-1][0])
                x = conv(b, "upsample", x, current, current)

    x = silu(b, group_norm(b, "norm_out", x, width, GROUPS))
    noise = conv(b, "conv_out", x, width, channels)
    b.output(noise, "noise", ("batch", channels, "height", "width"))
    return b.export()


class _Blocks:
    """Residual and attention blocks that share the time embedding and the batch size."""

    def __init__(self, b: Builder, batch: gs.Variable, embedding: Tensor, width: int) -> None:
        self.b = b
        self.batch = batch
        self.embedding = embedding
        self.time_width = 4 * width

    def residual(self, name: str, x: Tensor, inputs: int, outputs: int) -> gs.Variable:
        """Two convolutions, the time embedding added in between; a 1 x 1 shortcut where widths differ."""
        b = self.b
        with b.scope(name):
            y = silu(b, group_norm(b, "norm1", x, inputs, GROUPS))
            y = conv(b, "conv1", y, inputs, outputs)
            time = linear(b, "time_emb_proj", silu(b, self.embedding), self.time_width, outputs)
            y = b.op("Add", y, b.op("Unsqueeze", time, b.ints(2, 3)))
            y = silu(b, group_norm(b, "norm2", y, outputs, GROUPS))
            y = conv(b, "conv2", y, outputs, outputs)
            shortcut = x if inputs == outputs else conv(b, "conv_shortcut", x, inputs, outputs, kernel=1)
            return b.op("Add", shortcut, y)

    def attention(self, name: str, x: Tensor, channels: int, heads: int) -> gs.Variable:
        """Self attention among all pixels, added to its input."""
        b = self.b
        projection = Projection(channels, heads, channels)
        with b.scope(name):
            pixels = b.reshape(group_norm(b, "group_norm", x, channels, GROUPS), self.batch, channels, -1)
            tokens = b.op("Transpose", pixels, perm=[0, 2, 1])
            query = project_heads(b, "to_q", tokens, self.batch, projection, scale=True)
            key = project_heads(b, "to_k", tokens, self.batch, projection, transposed=True)
            value = project_heads(b, "to_v", tokens, self.batch, projection)
            y = merge_heads(b, attend(b, query, key, value), self.batch, channels)
            y = b.op("Transpose", linear(b, "to_out", y, channels, channels), perm=[0, 2, 1])
            return b.op("Add", b.reshape(y, self.batch, channels, *_sides(b, x)), x)


def _sides(b: Builder, x: Tensor) -> Sequence[gs.Variable]:
    return b.dim(x, 2), b.dim(x, 3)


def _resize_like(b: Builder, x: Tensor, like: Tensor) -> gs.Variable:
    """Nearest-neighbour Resize to the height and width of `like`; the target size comes from two Shapes."""
    with b.scope("upsample"):
        size = b.op("Concat", b.op("Shape", x, start=0, end=2), b.op("Shape", like, start=2, end=4), axis=0)
        return b.op(
            "Resize",
            x,
            None,
            None,
            size,
            coordinate_transformation_mode="asymmetric",
            mode="nearest",
            nearest_mode="floor",
        )


def _time_embedding(b: Builder, timestep: Tensor, width: int) -> gs.Variable:
    """Sines and cosines of the time step at geometric frequencies, then two linear layers."""
    half = width // 2
    frequencies = np.exp(-np.log(10000.0) * np.arange(half) / half)[None, :]
    with b.scope("time_embedding"):
        moments = b.op("Unsqueeze", b.op("Cast", timestep, to=onnx.TensorProto.FLOAT), b.ints(1))
        angles = b.op("Mul", moments, b.const(frequencies))
        waves = b.op("Concat", b.op("Sin", angles), b.op("Cos", angles), axis=-1)
        hidden = silu(b, linear(b, "linear_1", waves, width, 4 * width))
        return linear(b, "linear_2", hidden, 4 * width, 4 * width)
