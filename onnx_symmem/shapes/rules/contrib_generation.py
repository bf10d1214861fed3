"""Ops of com.microsoft that generate text: searches that run a decoder subgraph in a loop of their own.

Results have room for the greatest length, whatever is generated. The subgraphs are run by the op itself on
shapes that only it knows; they are not inferred.
"""

from __future__ import annotations

from onnx import TensorProto

from onnx_symmem.shapes.context import DimLike, NodeContext, Unknown
from onnx_symmem.shapes.registry import MICROSOFT, rule

__all__: list[str] = []

INT32 = TensorProto.INT32


def _vocabulary(ctx: NodeContext) -> DimLike:
    size = int(ctx.attr("vocab_size", -1))
    return size if size > 0 else Unknown("the size of the vocabulary is the decoder's")


@rule("BeamSearch", "WhisperBeamSearch", domain=MICROSOFT)
def _beam_search(ctx: NodeContext) -> None:
    batch, longest, beams, kept = ctx.need(0)[0], ctx.item(1, 0), ctx.item(3, 0), ctx.item(4, 0)
    ctx.set(0, (batch, kept, longest), INT32)
    ctx.set(1, (batch, kept), ctx.elem(5))
    steps = Unknown("how many steps have scores is the decoder's")
    ctx.set(2, (steps, batch, beams, _vocabulary(ctx)), ctx.elem(5))


@rule("GreedySearch", "Sampling", domain=MICROSOFT)
def _greedy_search(ctx: NodeContext) -> None:
    batch = ctx.need(0)[0]
    ctx.set(0, (batch, ctx.item(1, 0)), INT32)
    ctx.set(1, (batch, _vocabulary(ctx)), ctx.elem(3))


@rule("BifurcationDetector", domain=MICROSOFT)
def _bifurcation(ctx: NodeContext) -> None:
    current, predicted = ctx.need(1), ctx.dims(3)
    bound = current[0] if predicted is None else current[0] + predicted[0]
    ctx.set(0, (Unknown("how many tokens are taken over depends on data", bound),), TensorProto.INT64)
    ctx.set(1, (), TensorProto.INT64)
