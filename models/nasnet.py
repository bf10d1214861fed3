"""NASNet-A: cells found by search, each a small graph of separable convolutions and poolings.

After Zoph et al. 2018 (arXiv 1707.07012). A cell reads the two cells before it, adds five pairs of branches
and joins them along channels; a reduction cell halves the image. Batch normalisation is folded into the
convolutions as exporters do.
"""

from __future__ import annotations

import onnx
import onnx_graphsurgeon as gs

from models.builder import Builder, Tensor
from models.layers import conv

__all__ = ["build_nasnet"]

_GAIN = 2**0.5


def build_nasnet(
    width: int = 32, cells: int = 3, stages: int = 3, classes: int = 100, seed: int = 0
) -> onnx.ModelProto:
    """Input image (batch, 3, height, width); output logits (batch, classes).

    A stage is `cells` normal cells; between two stages stands a reduction cell that doubles the width.
    """
    b = Builder("nasnet", seed)
    image = b.input("image", ("batch", 3, "height", "width"))
    stem = conv(b, "stem", image, 3, width, stride=2)
    older, newer = (stem, width, 0), (stem, width, 0)  # value, channels, halvings
    for stage in range(stages):
        filters = width << stage
        if stage:
            with b.scope(f"stages.{stage}/reduction"):
                p, h = _inputs(b, older, newer, filters)
                made = _reduction(b, p, h, filters)
            older, newer = newer, (made, 4 * filters, stage)
        for cell in range(cells):
            with b.scope(f"stages.{stage}/cells.{cell}"):
                p, h = _inputs(b, older, newer, filters)
                made = _normal(b, p, h, filters)
            older, newer = newer, (made, 6 * filters, stage)
    x = b.op("Flatten", b.op("GlobalAveragePool", b.op("Relu", newer[0])), axis=1)
    weight = b.weight("classifier/weight", (classes, newer[1]), 0.05)
    logits = b.op("Gemm", x, weight, b.weight("classifier/bias", (classes,), 0.02), transB=1)
    b.output(logits, "logits", ("batch", classes))
    return b.export()


def _inputs(
    b: Builder, older: tuple[gs.Variable, int, int], newer: tuple[gs.Variable, int, int], filters: int
) -> tuple[gs.Variable, gs.Variable]:
    """Both cells before, the older one at the size of the newer, as wide as the next."""
    x, channels, halvings = older
    with b.scope("fit"):
        if halvings != newer[2]:
            x = b.op("AveragePool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
        fitted = _narrow(b, x, channels, filters)
    return fitted, _narrow(b, newer[0], newer[1], filters)


def _narrow(b: Builder, x: Tensor, channels: int, filters: int) -> gs.Variable:
    return conv(b, "narrow", b.op("Relu", x), channels, filters, kernel=1, gain=_GAIN)


def _separable(b: Builder, name: str, x: Tensor, filters: int, kernel: int, stride: int = 1) -> gs.Variable:
    """Relu, depthwise and pointwise convolution, twice; the first may stride."""
    with b.scope(name):
        for number, step in enumerate((stride, 1)):
            with b.scope(str(number)):
                x = b.op("Relu", x)
                x = conv(b, "depthwise", x, filters, filters, kernel, step, filters, bias=False, gain=_GAIN)
                x = conv(b, "pointwise", x, filters, filters, kernel=1)
    return x


def _pool(b: Builder, kind: str, x: Tensor, stride: int = 1) -> gs.Variable:
    return b.op(f"{kind}Pool", x, kernel_shape=[3, 3], strides=[stride, stride], pads=[1, 1, 1, 1])


def _normal(b: Builder, p: gs.Variable, h: gs.Variable, filters: int) -> gs.Variable:
    joined = [
        b.op("Add", _separable(b, "0", h, filters, 5), _separable(b, "1", p, filters, 3)),
        b.op("Add", _separable(b, "2", p, filters, 5), _separable(b, "3", p, filters, 3)),
        b.op("Add", _pool(b, "Average", h), p),
        b.op("Add", _pool(b, "Average", p), _pool(b, "Average", p)),
        b.op("Add", _separable(b, "4", h, filters, 3), h),
    ]
    return b.op("Concat", p, *joined, axis=1)


def _reduction(b: Builder, p: gs.Variable, h: gs.Variable, filters: int) -> gs.Variable:
    first = b.op("Add", _separable(b, "0", h, filters, 5, 2), _separable(b, "1", p, filters, 7, 2))
    second = b.op("Add", _pool(b, "Max", h, 2), _separable(b, "2", p, filters, 7, 2))
    third = b.op("Add", _pool(b, "Average", h, 2), _separable(b, "3", p, filters, 5, 2))
    fourth = b.op("Add", _pool(b, "Average", first), second)
    fifth = b.op("Add", _separable(b, "4", first, filters, 3), _pool(b, "Max", h, 2))
    return b.op("Concat", second, third, fourth, fifth, axis=1)
