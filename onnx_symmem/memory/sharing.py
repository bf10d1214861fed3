"""Which outputs share an input's buffer in ONNX Runtime's kernels, per execution provider.

A kernel declares two kinds of pairs (input, output). *Alias*: the output always is the input's buffer.
*May be in place*: the output takes over the input's buffer where this is the last use of it and both
have provably equal sizes; `plan` decides that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from onnx_symmem.errors import UsageError
from onnx_symmem.graph.view import Node

__all__ = ["PROVIDERS", "Sharing", "sharing_of"]

Pairs = tuple[tuple[int, int], ...]

_MS, _ML, _NCHWC = "com.microsoft", "ai.onnx.ml", "com.microsoft.nchwc"


@dataclass(frozen=True, slots=True)
class Sharing:
    """What one kernel declares: pairs (input index, output index), in the order they are tried."""

    alias: Pairs = ()
    in_place: Pairs = ()


_NONE = Sharing()
_ALIAS = Sharing(alias=((0, 0),))
_IN_PLACE = Sharing(in_place=((0, 0),))
_CACHE_3_4 = Sharing(in_place=((3, 1), (4, 2)))


def _table(*groups: tuple[Sharing, str, str]) -> Mapping[tuple[str, str], Sharing]:
    return {(domain, op): sharing for sharing, domain, ops in groups for op in ops.split()}


_CPU = _table(
    (_ALIAS, "", "Reshape Flatten Squeeze Unsqueeze Identity Optional OptionalGetElement"),
    (_ALIAS, _MS, "ExpandDims"),
    (
        _IN_PLACE,
        "",
        "Relu LeakyRelu Elu Selu Celu Sigmoid HardSigmoid Tanh Softplus Softsign ThresholdedRelu",
    ),
    (
        _IN_PLACE,
        "",
        "Clip Softmax LogSoftmax Cast BitCast Shrink Trilu Scatter ScatterElements TensorScatter",
    ),
    (_IN_PLACE, "", "HannWindow HammingWindow BlackmanWindow MelWeightMatrix STFT"),
    (_IN_PLACE, _MS, "SampleOp MoE Trilu"),
    (_IN_PLACE, _ML, "Normalizer Scaler TreeEnsembleClassifier TreeEnsembleRegressor TreeEnsemble"),
    (Sharing(in_place=((5, 1), (6, 2))), _MS, "DecoderMaskedMultiHeadAttention"),
    (Sharing(in_place=((3, 0),)), _MS, "FusedConv"),
    (Sharing(in_place=((3, 0),)), _NCHWC, "Conv"),
    (Sharing(alias=((3, 1), (4, 2))), "", "BatchNormalization"),
)

_CUDA = _table(
    (_ALIAS, "", "Reshape Flatten Squeeze Unsqueeze Identity"),
    (_IN_PLACE, "", "Relu LeakyRelu Elu Selu Sigmoid HardSigmoid Tanh Softplus Softsign ThresholdedRelu"),
    (_IN_PLACE, "", "HardSwish Gelu Shrink Trilu ScatterND TensorScatter"),
    (_IN_PLACE, _MS, "QuickGelu MoE QMoE"),
    (Sharing(in_place=((4, 1),)), _MS, "Attention"),
    (_CACHE_3_4, _MS, "GroupQueryAttention SparseAttention"),
    (Sharing(in_place=((5, 1), (6, 2))), _MS, "DecoderMaskedMultiHeadAttention"),
    (Sharing(in_place=((4, 1),)), _MS, "DecoderMaskedSelfAttention"),
)

PROVIDERS: Mapping[str, Mapping[tuple[str, str], Sharing]] = {"cpu": _CPU, "cuda": _CUDA}


def sharing_of(node: Node, provider: str) -> Sharing:
    """What the kernel of a node declares on a provider (`cpu` or `cuda`)."""
    table = PROVIDERS.get(provider)
    if table is None:
        raise UsageError(f"provider '{provider}' is not modelled; expected one of {', '.join(PROVIDERS)}")
    return table.get((node.domain, node.op), _NONE)
