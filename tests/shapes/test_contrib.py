"""Ops of com.microsoft on ONNX Runtime's CPU kernels: inferred dims and types are those of real runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from onnx_symmem.shapes.table import ModelShapes
from tests.shapes.building import (
    BOOL,
    FLOAT,
    INT32,
    INT64,
    UINT8,
    assert_right,
    graph,
    infer,
    model,
    node,
    texts,
    value,
)

MICROSOFT = "com.microsoft"
STRING = TensorProto.STRING
RNG = np.random.default_rng(3)
IMAGES = [{"n": 1, "h": 8, "w": 9}, {"n": 2, "h": 13, "w": 7}]

X = value("x", FLOAT, ["a", "b", 8])
U = value("u", UINT8, ["a", "b", 8])
IMAGE = value("x", FLOAT, ["n", 4, "h", "w"])
BYTES = value("u", UINT8, ["n", "h", "w", 4])
SCALE, ZERO = np.float32(0.5), np.uint8(1)


def weights(*dims: int) -> np.ndarray:
    return (RNG.standard_normal(dims) * 0.1).astype(np.float32)


def ms(op: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    one = node(op, inputs, outputs, **attributes)
    one.domain = MICROSOFT
    return one


def contrib(
    nodes: Sequence[onnx.NodeProto], inputs: Sequence[onnx.ValueInfoProto], **constants: Any
) -> onnx.ModelProto:
    outputs = " ".join(name for one in nodes for name in one.output if name)
    return model(graph(nodes, inputs, outputs, **constants), 18, com_microsoft=1)


def check(
    nodes: onnx.NodeProto | Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    *sizes: Mapping[str, int],
    given: Mapping[str, Any] | None = None,
    **constants: Any,
) -> ModelShapes:
    listed = [nodes] if isinstance(nodes, onnx.NodeProto) else nodes
    return assert_right(contrib(listed, inputs, **constants), *sizes, given=given)


# One node, its inputs, its constants. All sizes that the kernels of the CPU accept.
Spec = tuple[onnx.NodeProto, Sequence[onnx.ValueInfoProto], Mapping[str, Any]]
QUANT = {"s": SCALE, "z": ZERO}
IDS, IDS32 = value("ids", INT64, ["a", "b"]), value("ids", INT32, ["a", "b"])
LINES = value("x", FLOAT, ["n", 4, "l"])
ROWS = value("m", FLOAT, ["a", 8])
HASHES = {"mult": np.array([1, 3, 5]), "vs": np.array([7, 7, 11, 11])}

SPECS: dict[str, Spec] = {
    # plain
    "Inverse": (ms("Inverse", "x", "y"), [value("x", FLOAT, ["a", "b", "b"])], {}),
    "CDist": (ms("CDist", "m m", "y", metric="sqeuclidean"), [ROWS], {}),
    "ExpandDims": (ms("ExpandDims", "x ax", "y"), [X], {"ax": np.int32(1)}),
    "GatherND": (ms("GatherND", "x i", "y"), [X], {"i": np.array([[0, 0], [0, 0]])}),
    "GridSample": (ms("GridSample", "x g", "y"), [IMAGE, value("g", FLOAT, ["n", "p", "q", 2])], {}),
    "Range": (
        ms("Range", "z n d", "y"), [],
        {"z": np.int64(0), "n": np.int64(7), "d": np.int64(2)},
    ),
    "Range by 1": (ms("Range", "z n", "y"), [], {"z": np.int64(0), "n": np.int64(7)}),
    "Range of floats": (ms("Range", "z n", "y"), [], {"z": np.float32(0), "n": np.float32(2.5)}),
    "RotaryEmbedding": (
        ms("RotaryEmbedding", "x pos cos sin", "y", num_heads=2), [X, value("pos", INT64, ["a", "b"])],
        {"cos": weights(9, 2), "sin": weights(9, 2)},
    ),
    "SampleOp": (ms("SampleOp", "x", "y"), [X], {}),
    "TransposeMatMul": (ms("TransposeMatMul", "x x", "y", transB=1), [X], {}),
    "UnfoldTensor": (ms("UnfoldTensor", "x", "y", dim=2, size=3, step=2), [X], {}),
    "Unique": (ms("Unique", "v", "y i c"), [value("v", FLOAT, ["a"])], {}),
    "DynamicTimeWarping": (ms("DynamicTimeWarping", "v", "y"), [value("v", FLOAT, ["a", "b"])], {}),
    "MurmurHash3": (ms("MurmurHash3", "ids", "y"), [IDS32], {}),
    "MurmurHash3 signed": (ms("MurmurHash3", "ids", "y", positive=0), [IDS32], {}),
    "NGramRepeatBlock": (
        ms("NGramRepeatBlock", "ids sc", "y", ngram_size=2), [IDS, value("sc", FLOAT, ["a", 9])], {},
    ),
    "WordConvEmbedding": (
        ms("WordConvEmbedding", "s w b c", "y"), [value("s", INT32, ["a", 6])],
        {"w": weights(5, 1, 2, 3), "b": weights(5), "c": weights(7, 3)},
    ),
    # normalisation and mixing
    "BranchwiseRMSNorm": (ms("BranchwiseRMSNorm", "x g", "y", num_branches=2), [X], {"g": weights(8)}),
    "GatedRMSNorm": (ms("GatedRMSNorm", "x g x", "y"), [X], {"g": weights(8)}),
    "HyperConnectionPreMix": (
        ms("HyperConnectionPreMix", "x p", "y", num_branches=2), [X, value("p", FLOAT, ["a", "b", 2])], {},
    ),
    "HyperConnectionPreMix grouped": (
        ms("HyperConnectionPreMix", "k p", "y"),
        [value("k", FLOAT, ["a", "b", 2, 4]), value("p", FLOAT, ["a", "b", 2])], {},
    ),
    "HyperConnectionPostMix": (
        ms("HyperConnectionPostMix", "x o p", "y", num_branches=2),
        [X, value("p", FLOAT, ["a", "b", 2]), value("o", FLOAT, ["a", "b", 4])], {},
    ),
    "MoE": (
        ms("MoE", "m r w1 b1 w2", "y", k=1, activation_type="gelu"), [ROWS, value("r", FLOAT, ["a", 3])],
        {"w1": weights(3, 16, 8), "b1": weights(3, 16), "w2": weights(3, 8, 16)},
    ),
    # quantised
    "QGemm": (
        ms("QGemm", "m s z w s zw", "y", transB=1), [value("m", UINT8, ["a", 8])],
        {**QUANT, "w": np.ones((5, 8), np.int8), "zw": np.int8(0)},
    ),
    "QLinearMul": (ms("QLinearMul", "u s z u s z s z", "y"), [U], QUANT),
    "QLinearWhere": (
        ms("QLinearWhere", "c u s z u s z s z", "y"), [U, value("c", BOOL, ["a", "b", 1])], QUANT,
    ),
    "QLinearLeakyRelu": (ms("QLinearLeakyRelu", "u s z s z", "y"), [U], QUANT),
    "QLinearSigmoid": (ms("QLinearSigmoid", "u s z s z", "y"), [U], QUANT),
    "QLinearSoftmax": (ms("QLinearSoftmax", "u s z s z", "y", axis=-1, opset=13), [U], QUANT),
    "QLinearAveragePool": (
        ms("QLinearAveragePool", "u s z s z", "y", kernel_shape=[2, 2], channels_last=1), [BYTES], QUANT,
    ),
    "QLinearAveragePool rounded up": (
        ms("QLinearAveragePool", "u s z s z", "y", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
        [value("u", UINT8, ["n", 4, "h", "w"])], QUANT,
    ),
    "QLinearGlobalAveragePool": (
        ms("QLinearGlobalAveragePool", "u s z s z", "y", channels_last=1), [BYTES], QUANT,
    ),
    "QLinearConv": (
        ms("QLinearConv", "u s z w s zw s z", "y", channels_last=1, kernel_shape=[3, 3]), [BYTES],
        {**QUANT, "w": np.ones((6, 4, 3, 3), np.int8), "zw": np.int8(0)},
    ),
    "QAttention": (
        ms("QAttention", "u w b s s mask z zw", "y", num_heads=2), [U, value("mask", INT32, ["a"])],
        {**QUANT, "w": np.ones((8, 24), np.int8), "b": weights(24), "zw": np.int8(0)},
    ),
    "QAttention with a cache": (
        ms("QAttention", "u w b s s - z zw past", "y present", num_heads=2, unidirectional=1),
        [U, value("past", FLOAT, [2, "a", 2, "p", 4])],
        {**QUANT, "w": np.ones((8, 24), np.int8), "b": weights(24), "zw": np.int8(0)},
    ),
    "QEmbedLayerNormalization": (
        ms("QEmbedLayerNormalization", "ids - w w - g g - s s - s s z z - z z", "y m"), [IDS32],
        {**QUANT, "w": np.ones((9, 8), np.uint8), "g": np.ones(8, np.uint8)},
    ),
    "MatMulBnb4": (
        ms("MatMulBnb4", "x w absmax", "y", K=64, N=6, block_size=64, quant_type=1),
        [value("x", FLOAT, ["a", "b", 64])],
        {"w": np.ones(6 * 32, np.uint8), "absmax": weights(6)},
    ),
    "MatMulFpQ4": (
        ms("MatMulFpQ4", "x w shape", "y", blk_quant_type=0), [value("x", FLOAT, ["a", 32])],
        {"w": np.ones(20 * 6, np.uint8), "shape": np.array([32, 6])},
    ),
    "MatMulInteger16": (
        ms("MatMulInteger16", "x w", "y"), [value("x", TensorProto.INT16, ["a", "b", 8])],
        {"w": np.ones((8, 3), np.int16)},
    ),
    # with state
    "CausalConvWithState": (ms("CausalConvWithState", "x w", "y s"), [LINES], {"w": weights(4, 1, 3)}),
    "CausalConvWithState dilated": (
        ms("CausalConvWithState", "x w", "y s", dilation=2), [LINES], {"w": weights(4, 1, 3)},
    ),
    "CausalConvWithState with a past": (
        ms("CausalConvWithState", "x w - p", "y s"), [LINES, value("p", FLOAT, ["n", 4, 2])],
        {"w": weights(4, 1, 3)},
    ),
    "LinearAttention": (
        ms("LinearAttention", "x x x", "y s", q_num_heads=2, kv_num_heads=2, update_rule="linear"), [X], {},
    ),
    "LinearAttentionGate": (ms("LinearAttentionGate", "x h h x", "d b"), [X], {"h": weights(8)}),
    "EngramGate": (
        ms("EngramGate", "k k v g g", "y"),
        [value("k", FLOAT, ["a", "b", 2, 4]), value("v", FLOAT, ["a", "b", 4])], {"g": weights(2, 4)},
    ),
    "NGramHashMapping": (
        ms("NGramHashMapping", "ids mult vs", "y p", max_ngram_size=3, n_head_per_ngram=2, pad_id=0), [IDS],
        HASHES,
    ),
    "VarlenNGramHashMapping": (
        ms("VarlenNGramHashMapping", "t mult vs cu", "y p", max_ngram_size=3, n_head_per_ngram=2, pad_id=0),
        [value("t", INT64, [2])], {**HASHES, "cu": np.array([0, 1, 2], np.int32)},
    ),
}  # fmt: skip
AT = [
    {"a": 2, "b": 3, "n": 2, "h": 8, "w": 9, "p": 4, "q": 5, "l": 6},
    {"a": 1, "b": 4, "n": 1, "h": 5, "w": 2, "p": 1, "q": 3, "l": 2},
    {"a": 4, "b": 1, "n": 3, "h": 2, "w": 7, "p": 2, "q": 1, "l": 9},
]


@pytest.mark.parametrize("name", SPECS)
def test_one_node(name: str) -> None:
    one, inputs, constants = SPECS[name]
    largest = 3 if name == "QLinearConv" else 1
    sizes = [at for at in AT if min(at["h"], at["w"]) >= largest]
    shapes = check(one, inputs, *sizes, **constants)
    allowed = {"Unique", "DynamicTimeWarping"}
    assert (not shapes.unknowns) == (name not in allowed)


def test_sizes_in_the_data_are_bounded() -> None:
    unique, inputs, _ = SPECS["Unique"]
    (unknown,) = infer(contrib([unique], inputs)).unknowns
    assert str(unknown.bound) == "a"
    warping, inputs, _ = SPECS["DynamicTimeWarping"]
    (unknown,) = infer(contrib([warping], inputs)).unknowns
    assert str(unknown.bound) == "a + b - 1"


def test_crops_of_an_image() -> None:
    inputs = [IMAGE, value("r", FLOAT, ["k", 4]), value("i", INT32, ["k"])]
    shapes = check(
        ms("CropAndResize", "x r i size", "y"), inputs, {"n": 2, "h": 8, "w": 9, "k": 3},
        given={"i": np.zeros(3, np.int32)}, size=np.array([3, 5], np.int32),
    )  # fmt: skip
    assert texts(shapes, "y") == ["k", "4", "3", "5"]


def test_tokens() -> None:
    one = ms("Tokenizer", "x", "y", mark=0, mincharnum=1, pad_value="#", separators=[" "])
    words = value("x", STRING, ["a"])
    shapes = check(one, [words], {"a": 2}, given={"x": np.array(["one two three", "four"])})
    assert texts(shapes, "y") == ["a", "u0"]


def test_bifurcation_of_predicted_tokens() -> None:
    inputs = [value("src", INT64, ["a"]), value("cur", INT64, ["b"]), value("pred", INT64, ["q"])]
    one = ms("BifurcationDetector", "src cur p pred", "t s")
    shapes = check(one, inputs, {"a": 4, "b": 3, "q": 5}, p=np.int64(0))
    (unknown,) = shapes.unknowns
    assert str(unknown.bound) == "b + q"


RETIRED = {
    "Affine": (node("Affine", "x", "y", alpha=1.0, beta=1.0), ["n", "4", "h", "w"]),
    "ParametricSoftplus": (node("ParametricSoftplus", "x", "y", alpha=1.0, beta=1.0), ["n", "4", "h", "w"]),
    "ImageScaler": (node("ImageScaler", "x", "y", scale=1.0, bias=[0.0] * 4), ["n", "4", "h", "w"]),
    "ScaledTanh": (node("ScaledTanh", "x", "y", alpha=1.0, beta=1.0), ["n", "4", "h", "w"]),
    "Crop": (node("Crop", "x", "y", border=[0, 1, 1, 0]), ["n", "4", "h - 1", "w - 1"]),
    "Crop to a size": (node("Crop", "x", "y", border=[0, 1, 0, 0], scale=[1, 2]), ["n", "4", "1", "2"]),
    "DynamicSlice": (node("DynamicSlice", "x s e ax", "y"), ["n", "1", "h", "w"]),
}


@pytest.mark.parametrize("name", RETIRED)
def test_retired_ops_that_still_run(name: str) -> None:
    one, dims = RETIRED[name]
    proto = model(graph([one], [IMAGE], "y", s=[1], e=[2], ax=[1]), 9)
    proto.ir_version = 4
    assert texts(assert_right(proto, *IMAGES), "y") == dims


def test_channels_last_is_the_plain_op_turned() -> None:
    """No kernel of the CPU has these; the rule of the op with channels first says what they come to."""
    turned = [0, 2, 3, 1]
    nodes = {
        "Conv": (node("Conv", "{} w", "y", pads=[1, 1, 1, 1], strides=[2, 2]), {"w": weights(6, 4, 3, 3)}),
        "ConvTranspose": (node("ConvTranspose", "{} w", "y", strides=[2, 2]), {"w": weights(4, 6, 3, 3)}),
        "MaxPool": (node("MaxPool", "{}", "y", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1), {}),
        "GlobalAveragePool": (node("GlobalAveragePool", "{}", "y"), {}),
        "SpaceToDepth": (node("SpaceToDepth", "{}", "y", blocksize=2), {}),
        "DepthToSpace": (node("DepthToSpace", "{}", "y", blocksize=2), {}),
        "BatchNormalization": (node("BatchNormalization", "{} g g g g", "y"), {"g": weights(4)}),
    }
    last = value("x", FLOAT, ["n", "h", "w", 4])
    for one, constants in nodes.values():
        one.input[0] = "x"
        plain = texts(infer(model(graph([one], [IMAGE], "y", **constants))), "y")
        other = onnx.NodeProto()
        other.CopyFrom(one)
        other.domain = "com.ms.internal.nhwc"
        of = model(graph([other], [last], "y", **constants), com_ms_internal_nhwc=18)
        assert texts(infer(of), "y") == [(plain or [])[k] for k in turned], one.op_type


def test_generated_text_has_room_for_the_longest() -> None:
    inner = helper.make_graph([], "decoder", [], [])
    one = ms(
        "BeamSearch", "ids most least beams kept", "y sc", decoder=inner, vocab_size=50, model_type=0,
        eos_token_id=1, pad_token_id=0,
    )  # fmt: skip
    constants = {
        k: np.array([v], np.int32) for k, v in (("most", 20), ("least", 1), ("beams", 4), ("kept", 2))
    }
    shapes = infer(contrib([one], [IDS32], **constants))
    assert texts(shapes, "y") == ["a", "2", "20"]
    assert texts(shapes, "sc") == ["a", "2"]


# -- attention ---------------------------------------------------------------------------------------
A, K = value("x", FLOAT, ["n", "s", 16]), value("k", FLOAT, ["n", "t", 16])
ONE_BATCH = [
    value("x", FLOAT, [1, "s", 32]),
    value("k", FLOAT, [1, "s", 16]),
    value("v", FLOAT, [1, "s", 16]),
]
PAST = [value("pk", FLOAT, [1, 1, "p", 16]), value("pv", FLOAT, [1, 1, "p", 16])]
LENGTHS = {"sl": np.array([6], np.int32), "tl": np.int32(7)}
GROUPED = {"num_heads": 2, "kv_num_heads": 1}

ATTENTION: dict[str, Spec] = {
    "of two sequences": (
        ms("MultiHeadAttention", "x k v", "y pk pv", num_heads=2), [A, K, value("v", FLOAT, ["n", "t", 8])],
        {},
    ),
    "with keys of another layer": (
        ms("MultiHeadAttention", "x k v", "y", num_heads=2),
        [A, value("k", FLOAT, ["n", 2, "t", 8]), value("v", FLOAT, ["n", 2, "t", 8])], {},
    ),
    "merged weights": (
        ms("Attention", "x w b", "y p", num_heads=2), [A], {"w": weights(16, 48), "b": weights(48)},
    ),
    "narrow values": (
        ms("Attention", "x w b", "y", num_heads=2, qkv_hidden_sizes=[16, 16, 8]), [A],
        {"w": weights(16, 40), "b": weights(40)},
    ),
    "narrow everything": (
        ms("Attention", "x w b", "y p", num_heads=2, qkv_hidden_sizes=[12, 12, 12]), [A],
        {"w": weights(16, 36), "b": weights(36)},
    ),
    "masked decoder": (
        ms("DecoderMaskedMultiHeadAttention", "x k v", "y", num_heads=2),
        [value("x", FLOAT, ["n", 1, 16]), value("k", FLOAT, ["n", 2, "t", 8]),
         value("v", FLOAT, ["n", 2, "t", 8])], {},
    ),
    "grouped, packed": (
        ms("GroupQueryAttention", "x - - pk pv sl tl", "y ok ov", **GROUPED),
        [value("x", FLOAT, [1, "s", 64]), *PAST], LENGTHS,
    ),
    "grouped, no cache": (
        ms("GroupQueryAttention", "x k v - - sl tl", "y ok ov", **GROUPED), ONE_BATCH,
        {"sl": np.array([2], np.int32), "tl": np.array([3], np.int32)},
    ),
    "grouped, cache with room": (
        ms("GroupQueryAttention", "x k v pk pv sl tl", "y ok ov", **GROUPED),
        [*ONE_BATCH, value("pk", FLOAT, [1, 1, 9, 16]), value("pv", FLOAT, [1, 1, 9, 16])], LENGTHS,
    ),
    "grouped, with scores": (
        ms("GroupQueryAttention", "x k v pk pv sl tl", "y ok ov qk", qk_output=1, **GROUPED),
        [*ONE_BATCH, *PAST], LENGTHS,
    ),
    "embeddings": (
        ms("EmbedLayerNormalization", "i s w p t g g mask", "y m e"),
        [value("i", INT32, ["n", "s"]), value("s", INT32, ["n", "s"]), value("mask", INT32, ["n", "s"])],
        {"w": weights(9, 8), "p": weights(9, 8), "t": weights(2, 8), "g": weights(8)},
    ),
    "skip of one row": (
        ms("SkipLayerNormalization", "x k g g", "y - - sum"), [A, value("k", FLOAT, ["s", 16])],
        {"g": weights(16)},
    ),
    "quantised experts": (
        ms("QMoE", "m r w1 s1 - w2 s2 -", "y", k=1, activation_type="gelu", expert_weight_bits=8),
        [value("m", FLOAT, ["n", 32]), value("r", FLOAT, ["n", 3])],
        {"w1": np.ones((3, 64, 32), np.uint8), "s1": weights(3, 64), "w2": np.ones((3, 32, 64), np.uint8),
         "s2": weights(3, 32)},
    ),
    "products of 8 bits": (
        ms("MatMulNBits", "x p b", "y", K=32, N=6, bits=8, block_size=32),
        [value("x", FLOAT, ["n", "s", 32])], {"p": np.ones((6, 1, 32), np.uint8), "b": weights(6)},
    ),
    "quantised LSTM": (
        ms("DynamicQuantizeLSTM", "q w r b - - - - ws wz rs rz", "y yh yc", hidden_size=5),
        [value("q", FLOAT, ["s", "n", 4])],
        {"w": np.ones((1, 4, 20), np.int8), "r": np.ones((1, 5, 20), np.int8), "b": weights(1, 40),
         "ws": np.ones(1, np.float32), "wz": np.zeros(1, np.int8), "rs": np.ones(1, np.float32),
         "rz": np.zeros(1, np.int8)},
    ),
    "turned batches": (
        ms("FusedMatMul", "u z", "y", transBatchA=1, transA=1),
        [value("u", FLOAT, ["s", "n", 4]), value("z", FLOAT, ["n", "s", 3])], {},
    ),
    "pads in the data": (
        ms("ConvTransposeWithDynamicPads", "u w p", "y", strides=[2, 2]),
        [value("u", FLOAT, ["n", 4, "s", "t"])],
        {"w": weights(4, 3, 3, 3), "p": np.array([0, 1, 1, 0])},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ATTENTION)
def test_attention_and_what_stands_around_it(name: str) -> None:
    one, inputs, constants = ATTENTION[name]
    shapes = check(one, inputs, *({"n": 2, "s": 3, "t": 7, "p": p} for p in (4, 9)), **constants)
    assert not shapes.unknowns
