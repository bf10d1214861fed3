"""Every rule that ONNX Runtime can check: inferred dims against real ones at several shapes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.shapes.building import (
    BOOL,
    FLOAT,
    INT8,
    INT32,
    INT64,
    UINT8,
    assert_right,
    graph,
    model,
    node,
    texts,
    value,
)

X = value("x", FLOAT, ["a", "b", "c"])
IMAGE = value("x", FLOAT, ["n", 4, "h", "w"])
SMALL = [{"a": 2, "b": 3, "c": 4}, {"a": 1, "b": 1, "c": 1}, {"a": 5, "b": 2, "c": 7}]
SIZES = [{"n": 1, "h": 8, "w": 9}, {"n": 2, "h": 13, "w": 7}, {"n": 3, "h": 16, "w": 31}]


def weights(*dims: int) -> np.ndarray:
    return np.linspace(-1, 1, int(np.prod(dims)), dtype=np.float32).reshape(dims)


UNARY = [
    node(op, "x", "y")
    for op in (
        "Abs",
        "Acos",
        "Asinh",
        "Atan",
        "Celu",
        "Ceil",
        "Cos",
        "Cosh",
        "Elu",
        "Erf",
        "Exp",
        "Floor",
        "Gelu",
        "HardSigmoid",
        "HardSwish",
        "Hardmax",
        "Identity",
        "IsInf",
        "IsNaN",
        "LeakyRelu",
        "Log",
        "LogSoftmax",
        "LpNormalization",
        "Mish",
        "Neg",
        "Reciprocal",
        "Relu",
        "Round",
        "Selu",
        "Shrink",
        "Sigmoid",
        "Sign",
        "Sin",
        "Softmax",
        "Softplus",
        "Softsign",
        "Sqrt",
        "Tan",
        "Tanh",
        "ThresholdedRelu",
    )
]


@pytest.mark.parametrize("one", UNARY, ids=lambda n: n.op_type)
def test_same_dims_as_the_input(one: onnx.NodeProto) -> None:
    assert_right(model(graph([one], [X], "y"), 20), *SMALL)


BLOCKS = {
    "clip": [node("Clip", "x lo hi", "y")],
    "cast": [node("Cast", "x", "y", to=INT64), node("CastLike", "y x", "z")],
    "cumsum": [node("CumSum", "x one", "y")],
    "transpose": [node("Transpose", "x", "t"), node("Transpose", "x", "y", perm=[1, 0, 2])],
    "concat": [node("Concat", "x x", "t", axis=-1), node("Concat", "t t x t", "y", axis=2)],
    "matmul": [node("Transpose", "x", "t", perm=[0, 2, 1]), node("MatMul", "x t", "y")],
    "matmul vector": [
        node("Shape", "x", "s", start=2),
        node("ConstantOfShape", "s", "v"),
        node("MatMul", "x v", "y"),
        node("MatMul", "v v", "z"),
    ],
    "einsum": [
        node("Einsum", "x x", "y", equation="abc,abd->acd"),
        node("Einsum", "x x", "z", equation="...i,...i->..."),
        node("Einsum", "x", "w", equation="cba"),
    ],
    "squeeze": [
        node("Unsqueeze", "x axes", "t"),
        node("Squeeze", "t axes", "y"),
        node("Squeeze", "t zero1", "z"),
    ],
    "flatten": [
        node("Flatten", "x", "y", axis=2),
        node("Flatten", "x", "z", axis=0),
        node("Flatten", "x", "w", axis=-1),
    ],
    "reshape": [
        node("Reshape", "x keep", "y"),
        node("Reshape", "y flat", "z"),
        node("Shape", "x", "s"),
        node("Reshape", "z s", "w"),
    ],
    "expand": [node("Shape", "x", "s"), node("Expand", "one_f s", "y"), node("Expand", "x ones", "z")],
    "tile": [node("Tile", "x times", "y")],
    "pad": [node("Pad", "x pads", "y"), node("Pad", "x pads1 - last", "z")],
    "slice": [node("Slice", "x from to", "y"), node("Slice", "x zero1 big last", "z")],
    "split": [
        node("Split", "x", "p q", axis=1, num_outputs=2),
        node("Concat", "q p", "y", axis=1),
        node("Split", "x parts", "u v", axis=2),
    ],
    "reduce": [
        node("ReduceSum", "x last", "y"),
        node("ReduceMean", "x last", "z", keepdims=0),
        node("ReduceMax", "x", "w"),
        node("ReduceSum", "x", "v", noop_with_empty_axes=1),
        node("ReduceSum", "x nothing", "t"),
        node("ReduceProd", "x zero1", "u", keepdims=0),
    ],
    "arg": [node("ArgMax", "x", "y", axis=1), node("ArgMin", "x", "z", axis=-1, keepdims=0)],
    "topk": [node("TopK", "x k", "y i", axis=0)],
    "gather": [node("Gather", "x picks", "y", axis=1), node("Gather", "x one", "z", axis=-3)],
    "gather nd": [node("GatherND", "x at", "y"), node("GatherND", "x at1", "z", batch_dims=0)],
    "scatter": [
        node("Shape", "x", "xs"),
        node("ConstantOfShape", "xs", "zeros", value=helper.make_tensor("v", INT64, [1], [0])),
        node("ScatterElements", "x zeros x", "y"),
        node("GatherElements", "x zeros", "z", axis=1),
    ],
    "one hot": [node("Cast", "x", "i", to=INT64), node("OneHot", "i depth values", "y", axis=1)],
    "eye": [node("ReduceSum", "x last", "r", keepdims=0), node("EyeLike", "r", "y")],
    "trilu": [node("Trilu", "x", "y")],
    "where": [
        node("Greater", "x one_f", "m"),
        node("Where", "m x one_f", "y"),
        node("Not", "m", "nm"),
        node("And", "m nm", "z"),
    ],
    "nonzero": [node("NonZero", "x", "y"), node("Transpose", "y", "t"), node("GatherND", "x t", "z")],
    "unique": [node("Unique", "x", "y i j n")],
    "unique rows": [node("Unique", "x", "y", axis=1)],
    "compress": [
        node("Greater", "x one_f", "m"),
        node("Reshape", "m minus1", "flags"),
        node("Compress", "x flags", "y"),
        node("Compress", "x two_flags", "z", axis=1),
    ],
    "layer norm": [
        node("Shape", "x", "s", start=2),
        node("ConstantOfShape", "s", "g"),
        node("LayerNormalization", "x g", "y m d", axis=-1),
    ],
    "range": [
        node("Shape", "x", "s", start=1, end=2),
        node("Squeeze", "s", "n"),
        node("Range", "zero one5 one", "r"),
        node("Range", "zero n one", "y"),
        node("Range", "n zero minus2", "z"),
    ],
    "dropout": [node("Dropout", "x", "y m")],
    "sums": [
        node("Sum", "x x x", "y"),
        node("Mean", "y x", "z"),
        node("Max", "x one_f", "w"),
        node("Min", "x", "v"),
    ],
    "mod pow": [node("Pow", "x two_f", "y"), node("Mod", "y two_f", "z", fmod=1)],
    "sequence": [
        node("SequenceConstruct", "x x", "s"),
        node("SequenceAt", "s one", "y"),
        node("ConcatFromSequence", "s", "z", axis=1),
        node("SequenceLength", "s", "n"),
        node("SplitToSequence", "x one", "q", axis=0),
        node("SequenceAt", "q zero", "w"),
    ],
    "quantize": [
        node("DynamicQuantizeLinear", "x", "q scale zp"),
        node("DequantizeLinear", "q scale zp", "y"),
        node("QuantizeLinear", "y scale zp", "z"),
    ],
    "random": [node("RandomNormalLike", "x", "y"), node("RandomUniform", "", "z", shape=[2, 3])],
    "loss": [
        node("Reshape", "x flat", "f"),
        node("Shape", "f", "s", end=1),
        node("ConstantOfShape", "s", "labels", value=helper.make_tensor("v", INT64, [1], [0])),
        node("SoftmaxCrossEntropyLoss", "f labels", "y p", reduction="none"),
    ],
    "det": [node("Det", "square", "y"), node("Identity", "x", "z")],
    "bits": [
        node("Cast", "x", "u", to=UINT8),
        node("BitShift", "u u", "y", direction="LEFT"),
        node("BitwiseAnd", "u u", "z"),
        node("BitwiseNot", "u", "w"),
    ],
    "reverse": [
        node("Shape", "x", "s", start=1, end=2),
        node("ConstantOfShape", "s", "n", value=helper.make_tensor("v", INT64, [1], [1])),
        node("ReverseSequence", "x n", "y"),
    ],
}
CONSTANTS = {
    "lo": -1.0,
    "hi": 1.0,
    "one": 1,
    "zero": 0,
    "one5": 5,
    "minus2": -2,
    "one_f": [1.0],
    "two_f": [2.0],
    "axes": [0, 3],
    "zero1": [0],
    "keep": [0, -1],
    "flat": [-1, 4],
    "times": [2, 1, 3],
    "pads": [0, 1, 2, 1, 0, 2],
    "pads1": [2, 1],
    "last": [-1],
    "from": [0, -3, 1],
    "to": [1, 9, 3],
    "big": [2**63 - 1],
    "k": [1],
    "picks": [[0, -1], [0, 0]],
    "at": [[0, 0], [0, -1]],
    "depth": 6,
    "values": [0.0, 1.0],
    "square": [[[1.0, 2.0], [3.0, 4.0]]],
    "nothing": np.zeros(0, np.int64),
    "ones": [1, 1],
    "parts": [1, 3],
    "at1": [[1], [0], [-1]],
    "minus1": [-1],
    "two_flags": [True, False],
}


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_of_the_onnx_domain(name: str) -> None:
    nodes = BLOCKS[name]
    used = {i for n in nodes for i in n.input}
    constants = {k: v for k, v in CONSTANTS.items() if k in used}
    of = graph(nodes, [X], " ".join(nodes[-1].output), **constants)
    assert_right(model(of), {"a": 2, "b": 3, "c": 4}, {"a": 3, "b": 2, "c": 4}, {"a": 5, "b": 6, "c": 4})


CONVOLUTIONS = {
    "conv": node("Conv", "x w", "y", pads=[1, 0, 2, 1], strides=[2, 3], dilations=[2, 1]),
    "conv same": node("Conv", "x w", "y", auto_pad="SAME_UPPER", strides=[2, 2]),
    "conv valid": node("Conv", "x w", "y", auto_pad="VALID", strides=[3, 1]),
    "transpose": node("ConvTranspose", "x wt", "y", strides=[2, 3], pads=[1, 1, 0, 1], output_padding=[1, 0]),
    "transpose same": node("ConvTranspose", "x wt", "y", strides=[2, 3], auto_pad="SAME_LOWER"),
    "transpose narrow": node("ConvTranspose", "x wt", "y", strides=[5, 4], auto_pad="SAME_UPPER"),
    "max ceil": node(
        "MaxPool", "x", "y i", kernel_shape=[3, 2], strides=[2, 3], pads=[1, 1, 1, 0], ceil_mode=1
    ),
    "max": node("MaxPool", "x", "y", kernel_shape=[3, 3], strides=[2, 2], dilations=[1, 2]),
    "max same": node("MaxPool", "x", "y", kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_LOWER"),
    "average ceil": node(
        "AveragePool", "x", "y", kernel_shape=[2, 2], strides=[3, 3], pads=[1, 1, 0, 0], ceil_mode=1
    ),
    "lp": node("LpPool", "x", "y", kernel_shape=[2, 3], strides=[2, 2]),
    "global": node("GlobalAveragePool", "x", "y"),
    "space": node("Conv", "x w", "y"),
    "instance": node("InstanceNormalization", "x s s", "y"),
    "batch": node("BatchNormalization", "x s s s s", "y"),
    "lrn": node("LRN", "x", "y", size=3),
    "resize scales": node("Resize", "x - scales", "y", mode="nearest"),
    "resize sizes": node("Resize", "x - - sizes", "y", mode="linear"),
    "resize axes": node("Resize", "x - two", "y", mode="nearest", axes=[3, 2]),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_windows_and_images(name: str) -> None:
    one = CONVOLUTIONS[name]
    constants = {
        "w": weights(6, 4, 3, 2),
        "wt": weights(4, 5, 3, 3),
        "s": weights(4),
        "scales": [1.0, 1.0, 0.7, 2.3],
        "sizes": [1, 4, 5, 6],
        "two": [2.0, 0.5],
    }
    used = {k: v for k, v in constants.items() if k in one.input}
    cases = SIZES if name != "resize sizes" else [{"n": 1, "h": 8, "w": 9}, {"n": 1, "h": 3, "w": 2}]
    image = IMAGE if name != "resize sizes" else value("x", FLOAT, [1, 4, "h", "w"])
    assert_right(model(graph([one], [image], " ".join(one.output), **used)), *cases)


RECURRENT = {
    "rnn": (node("RNN", "x w r", "y h", hidden_size=3), 3),
    "gru": (node("GRU", "x w r", "y h", hidden_size=3, direction="bidirectional"), 9),
    "lstm": (node("LSTM", "x w r", "y h c", hidden_size=3), 12),
}


@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_layers(name: str) -> None:
    one, gates = RECURRENT[name]
    directions = 2 if name == "gru" else 1
    constants = {"w": weights(directions, gates, 4), "r": weights(directions, gates, 3)}
    of = graph([one], [value("x", FLOAT, ["t", "n", 4])], " ".join(one.output), **constants)
    assert_right(model(of), {"t": 1, "n": 2}, {"t": 7, "n": 3})


def contrib(
    nodes: list[onnx.NodeProto], inputs: list[onnx.ValueInfoProto], **constants: object
) -> onnx.ModelProto:
    for one in nodes:
        one.domain = "com.microsoft"
    outputs = " ".join(name for one in nodes for name in one.output if name)
    return model(graph(nodes, inputs, outputs, **constants), 18, com_microsoft=1)


def test_fused_products_and_activations() -> None:
    nodes = [
        node("FusedMatMul", "x x", "p", transB=1, alpha=0.5),
        node("FusedMatMul", "x x", "q", transA=1, transBatchA=0),
        node("BiasGelu", "x bias", "g"),
        node("FastGelu", "x bias", "f"),
        node("QuickGelu", "x", "k"),
        node("Gelu", "x", "e"),
        node("SkipLayerNormalization", "x x bias bias", "n - - sum"),
        node("SkipSimplifiedLayerNormalization", "x x bias", "m"),
    ]
    proto = contrib(nodes, [value("x", FLOAT, ["a", "b", 8])], bias=weights(8))
    assert_right(proto, {"a": 1, "b": 3}, {"a": 4, "b": 2})


def test_fused_convolution_and_gemm() -> None:
    nodes = [
        node("FusedConv", "x w", "y", pads=[1, 1, 1, 1], strides=[2, 2], activation="Relu"),
        node("NhwcMaxPool", "u", "v", kernel_shape=[3, 3], strides=[2, 2]),
        node("FusedGemm", "m k", "g", transB=1, activation="Relu"),
    ]
    inputs = [IMAGE, value("u", UINT8, ["n", "h", "w", 3]), value("m", FLOAT, ["n", 8])]
    assert_right(contrib(nodes, inputs, w=weights(6, 4, 3, 3), k=weights(5, 8)), *SIZES)


def test_fused_attention() -> None:
    nodes = [
        node("Attention", "x w b - past", "y present", num_heads=2),
        node("MultiHeadAttention", "x x x", "z", num_heads=2),
        node("MultiHeadAttention", "x x x - - - pk pv", "u k v", num_heads=2),
        node("EmbedLayerNormalization", "ids - words words - gain gain", "e mask"),
    ]
    inputs = [
        value("x", FLOAT, ["n", "s", 8]),
        value("past", FLOAT, [2, "n", 2, "p", 4]),
        value("pk", FLOAT, ["n", 2, "p", 4]),
        value("pv", FLOAT, ["n", 2, "p", 4]),
        value("ids", INT32, ["n", "s"]),
    ]
    proto = contrib(nodes, inputs, w=weights(8, 24), b=weights(24), words=weights(16, 8), gain=weights(8))
    assert_right(proto, {"n": 1, "s": 3, "p": 2}, {"n": 2, "s": 1, "p": 5})


def test_group_query_attention_follows_the_total_length() -> None:
    inputs = [
        value("q", FLOAT, ["n", "s", 64]),
        value("kv", FLOAT, ["n", "s", 32]),
        value("past", FLOAT, ["n", 2, "p", 16]),
        value("mask", INT64, ["n", "total"]),
        value("lengths", INT32, ["n"]),
    ]
    attention = node(
        "GroupQueryAttention", "q kv kv past past lengths total32", "y pk pv", num_heads=4, kv_num_heads=2
    )
    attention.domain = "com.microsoft"
    nodes = [
        node("Shape", "mask", "ms", start=1, end=2),
        node("Squeeze", "ms zero", "total64"),
        node("Cast", "total64", "total32", to=INT32),
        attention,
    ]
    proto = model(graph(nodes, inputs, "y pk pv", zero=[0]), 18, com_microsoft=1)
    shapes = assert_right(proto, {"n": 1, "s": 3, "p": 4, "total": 7}, given={"lengths": [6]})
    assert not shapes.unknowns


def test_quantised_products() -> None:
    nodes = [
        node("MatMulIntegerToFloat", "u i scale scale", "y"),
        node("DynamicQuantizeMatMul", "x i scale", "z"),
        node("QLinearAdd", "u scale zp u scale zp scale zp", "p"),
        node("QLinearConcat", "scale zp u scale zp u scale zp", "c", axis=1),
        node("MatMulNBits", "x packed blocks", "n", K=32, N=6, bits=4, block_size=32),
    ]
    inputs = [value("x", FLOAT, ["a", "b", 32]), value("u", UINT8, ["a", "b", 32])]
    proto = contrib(
        nodes,
        inputs,
        i=np.ones((32, 5), np.int8),
        scale=np.float32(0.5),
        zp=np.uint8(1),
        packed=np.ones((6, 1, 16), np.uint8),
        blocks=weights(6),
    )
    assert_right(proto, {"a": 1, "b": 3}, {"a": 4, "b": 2})


def test_block_quantised_embedding() -> None:
    one = node(
        "GatherBlockQuantized", "data ids scales", "y", block_size=16, quantize_axis=1, gather_axis=0, bits=4
    )
    proto = contrib(
        [one], [value("ids", INT64, ["n", "s"])], data=np.ones((10, 16), np.uint8), scales=weights(10, 2)
    )
    assert_right(proto, {"n": 2, "s": 3}, {"n": 1, "s": 1})


def test_classic_learning() -> None:
    nodes = [
        node("Scaler", "x", "s", offset=[0.0, 0.0, 0.0], scale=[1.0, 1.0, 1.0]),
        node("Normalizer", "x", "n", norm="L2"),
        node("LinearRegressor", "x", "r", coefficients=[1.0] * 6, intercepts=[0.0, 0.0], targets=2),
        node(
            "LinearClassifier",
            "x",
            "label score",
            coefficients=[1.0] * 9,
            intercepts=[0.0] * 3,
            classlabels_ints=[0, 1, 2],
        ),
        node("FeatureVectorizer", "x x", "v", inputdimensions=[3, 3]),
    ]
    for one in nodes:
        one.domain = "ai.onnx.ml"
    outputs = " ".join(name for one in nodes for name in one.output)
    proto = model(graph(nodes, [value("x", FLOAT, ["n", 3])], outputs), 18, ai_onnx_ml=1)
    assert_right(proto, {"n": 1}, {"n": 5})


def test_masks_and_boxes() -> None:
    nodes = [
        node("NonMaxSuppression", "boxes scores most", "kept"),
        node("Slice", "kept two three one", "which"),
        node("Squeeze", "which one", "index"),
        node("Squeeze", "boxes zero", "flat"),
        node("Gather", "flat index", "chosen", axis=0),
        node("RoiAlign", "image chosen batch", "y", output_height=2, output_width=3),
        node("Shape", "chosen", "cs", end=1),
        node("ConstantOfShape", "cs", "batch", value=helper.make_tensor("v", INT64, [1], [0])),
    ]
    order = [0, 1, 2, 3, 4, 6, 7, 5]
    inputs = [
        value("boxes", FLOAT, [1, "n", 4]),
        value("scores", FLOAT, [1, 1, "n"]),
        value("image", FLOAT, [1, 2, "h", "w"]),
    ]
    of = graph([nodes[k] for k in order], inputs, "y", most=[3], two=[2], three=[3], one=[1], zero=[0])
    shapes = assert_right(model(of, 16), {"n": 9, "h": 8, "w": 8}, {"n": 2, "h": 5, "w": 8})
    (unknown,) = shapes.unknowns
    assert unknown.op == "NonMaxSuppression"
    assert str(unknown.bound) in ("min(3, n)", "min(n, 3)")


def test_elem_types_are_those_of_the_run() -> None:
    nodes = [
        node("Shape", "x", "s"),
        node("Cast", "x", "h", to=TensorProto.FLOAT16),
        node("Greater", "x x", "m"),
        node("ArgMax", "x", "i"),
        node("TopK", "x k", "v t"),
        node("Where", "m x x", "w"),
        node("ConstantOfShape", "s", "c"),
        node("QuantizeLinear", "x one zp", "q"),
    ]
    from onnx_symmem.graph.load import load_model
    from onnx_symmem.shapes.engine import infer_shapes

    proto = model(graph(nodes, [X], "s h m i v t w c q", k=[1], one=np.float32(1), zp=np.int8(0)))
    shapes = infer_shapes(load_model(proto).view())
    kinds = dict(zip((v.name for v in shapes.graph.view.values), shapes.graph.elem_types, strict=True))
    wanted = {
        "s": INT64,
        "h": TensorProto.FLOAT16,
        "m": BOOL,
        "i": INT64,
        "v": FLOAT,
        "t": INT64,
        "w": FLOAT,
        "c": FLOAT,
        "q": INT8,
    }
    assert {name: kinds[name] for name in wanted} == wanted


def test_flags_beyond_the_axis_are_ignored() -> None:
    nodes = [
        node("Compress", "x long", "y", axis=0),
        node("Compress", "x short", "w", axis=0),
        node("Compress", "x flags", "of_a", axis=0),
        node("Compress", "x flags", "of_b", axis=1),
    ]
    inputs = [value("x", FLOAT, ["a", "b"]), value("flags", BOOL, ["c"])]
    flags = {"long": np.array([True, False, True, True]), "short": np.array([True])}
    proto = model(graph(nodes, inputs, "y w of_a of_b", **flags))
    cases = [{"a": a, "b": b, "c": c} for a, b, c in ((1, 2, 3), (2, 1, 2), (3, 5, 1), (9, 1, 4))]
    for at in cases:
        shapes = assert_right(proto, at, given={"flags": [True] * at["c"]})
    assert texts(shapes, "y") == ["min(1, max(0, a - 2)) + min(1, max(0, a - 3)) + 1", "b"]
    assert texts(shapes, "w") == ["1", "b"]


def test_flags_of_one_size_choose_equally_many() -> None:
    """One symbol for both counts where no flag lies beyond the axis."""
    nodes = [node("Compress", "x flags", "y", axis=0), node("Compress", "z flags", "w", axis=1)]
    inputs = [value("x", FLOAT, ["a", "b"]), value("z", FLOAT, ["b", "a"]), value("flags", BOOL, ["a"])]
    shapes = assert_right(model(graph(nodes, inputs, "y w")), {"a": 5, "b": 3}, {"a": 1, "b": 1})
    assert (texts(shapes, "y") or [])[0] == (texts(shapes, "w") or [])[1]
