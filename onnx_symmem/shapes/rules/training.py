"""Optimizer steps of ai.onnx.preview.training: each new tensor has the dims of the one it replaces."""

from __future__ import annotations

from onnx_symmem.shapes.context import NodeContext
from onnx_symmem.shapes.registry import rule

__all__: list[str] = []

TRAINING = "ai.onnx.preview.training"
STATES = {"Adagrad": (0, 2), "Momentum": (0, 2), "Adam": (0, 2, 3)}  # groups of inputs that are replaced


@rule("Adagrad", "Adam", "Momentum", domain=TRAINING)
def _optimizer(ctx: NodeContext) -> None:
    replaced = STATES[ctx.node.op]
    count = ctx.results // len(replaced)
    for position, group in enumerate(replaced):
        for k in range(count):
            source = 2 + group * count + k
            ctx.set(position * count + k, ctx.need(source), ctx.elem(source))


@rule("Gradient", domain=TRAINING)
def _gradient(ctx: NodeContext) -> None:
    for k in range(len(ctx.attr("xs", ()))):
        ctx.set(k, ctx.need(k), ctx.elem(k))
