"""Ops of com.ms.internal.nhwc: those of ONNX with channels last, made by ONNX Runtime for some processors.

The rule of the ONNX op sees the first input as it would have been, and its outputs are turned back. Weights
keep their layout; sizes and scales of a Resize are turned with its input, so its own rule holds as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from onnx import TensorProto

from onnx_symmem.shapes.context import DimLike, NodeContext
from onnx_symmem.shapes.registry import MICROSOFT, find_rule, rule
from onnx_symmem.shapes.rules.conv import transposed_spatial
from onnx_symmem.shapes.table import Dims
from onnx_symmem.shapes.values import PartialValue

__all__: list[str] = []

NHWC = "com.ms.internal.nhwc"

TURNED = (
    "AveragePool", "Conv", "ConvTranspose", "DepthToSpace", "GlobalAveragePool", "GlobalLpPool",
    "GlobalMaxPool", "GridSample", "LpPool", "MaxPool", "MaxUnpool", "QLinearConv", "SpaceToDepth",
)  # fmt: skip


class ChannelsFirst(NodeContext):
    """A node whose first input and outputs have their channels last, as its op knows it."""

    __slots__ = ()

    def dims(self, k: int) -> Dims | None:
        """Dims of input k, the first one turned to NCHW."""
        dims = super().dims(k)
        return dims if dims is None or k or len(dims) < 3 else (dims[0], dims[-1], *dims[1:-1])

    def set(
        self,
        k: int,
        dims: Sequence[DimLike] | None,
        elem: int | None = None,
        value: PartialValue | None = None,
    ) -> None:
        """Say what output k is; its dims are turned to NHWC."""
        if dims is not None and len(dims) >= 3:
            dims = (dims[0], *dims[2:], dims[1])
        super().set(k, dims, elem or (int(TensorProto.INT64) if k else self.elem(0)), value)


@rule(*TURNED, domain=NHWC)
def _turned(ctx: NodeContext) -> None:
    known = find_rule("", ctx.node.op)
    if known is not None:
        known(ChannelsFirst(ctx.scope, ctx.node, ctx.version))


@rule("BatchNormalization", "InstanceNormalization", "LRN", domain=NHWC)
def _as_first(ctx: NodeContext) -> None:
    ctx.set(0, ctx.need(0), ctx.elem(0))


@rule("Resize", domain=NHWC)
def _resize(ctx: NodeContext) -> None:
    known = find_rule("", "Resize")
    if known is not None:
        known(ctx)


@rule("QLinearAveragePool", domain=NHWC)
def _quantised_pool(ctx: NodeContext) -> None:
    known = find_rule(MICROSOFT, "QLinearAveragePool")
    if known is not None:
        known(ChannelsFirst(ctx.scope, ctx.node, ctx.version))


@rule("QLinearConvTranspose", domain=NHWC)
def _quantised_transposed(ctx: NodeContext) -> None:
    n, *spatial, _ = ctx.need(0)
    weights = ctx.need(3)
    channels = weights[1] * int(ctx.attr("group", 1))
    ctx.set(0, (n, *transposed_spatial(ctx, tuple(spatial), weights), channels), ctx.elem(0))
