"""What operators demand of integers at their inputs: to be indices, lengths, sizes, axes or masks."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from onnx_symmem.expr.expression import ONE, Expr
from onnx_symmem.graph.view import Node
from onnx_symmem.shapes.table import GraphShapes

__all__ = [
    "AXES", "BY_RANK", "COUNTS", "FLOAT_PORTS", "INDEX_PORTS", "JUDGES", "LENGTH_PORTS", "MASKS", "MOVES",
    "SIZES", "Demand", "last_dim",
]  # fmt: skip

# Ports by operator of the ONNX domain, except for MASKS. MOVES: numbers go through as they are.
# COUNTS: they are added up; JUDGES: they are looked at and end here.
MOVES: dict[str, tuple[int, ...]] = {
    "Where": (1, 2),
    "ScatterElements": (0, 2),
    "Scatter": (0, 2),
    "ScatterND": (0, 2),
}
MOVES.update(
    (op, (0,))
    for op in (
        "Abs", "Cast", "CastLike", "Compress", "Div", "Expand", "Flatten", "Gather", "GatherElements",
        "GatherND", "Identity", "Pad", "ReduceMax", "ReduceMin", "Reshape", "ReverseSequence", "Slice",
        "Split", "Squeeze", "Tile", "TopK", "Transpose", "Trilu", "Unique", "Unsqueeze",
    )
)  # fmt: skip
COUNTS = frozenset(("CumSum", "ReduceSum", "ReduceMean"))
JUDGES = frozenset(
    ("And", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "NonZero", "Not", "Or", "Xor")
)
SIZES = {
    "AffineGrid": (1,), "CenterCropPad": (1,), "Col2Im": (1, 2), "ConstantOfShape": (0,), "Expand": (1,),
    "Loop": (0,), "OneHot": (1,), "Range": (0, 1, 2), "Reshape": (1,), "Resize": (3,), "Split": (1,),
    "SplitToSequence": (1,), "Tile": (1,), "TopK": (1,), "Slice": (2, 4),
}  # fmt: skip
AXES = {
    "CumSum": (1,), "Slice": (1, 3), "Squeeze": (1,), "Unsqueeze": (1,), "Pad": (1, 3), "SequenceAt": (1,),
    "TensorScatter": (2,), "Trilu": (1,),
}  # fmt: skip
MASKS = {
    ("com.microsoft", "EmbedLayerNormalization"): (7,),
    ("com.microsoft", "Attention"): (3,),
    ("com.microsoft", "MultiHeadAttention"): (4,),
    ("com.microsoft", "PackedAttention"): (3, 4),
}


Demand = Callable[[GraphShapes, Node, int], list[Expr | None]]
Length = Callable[[GraphShapes, Node], Expr | None]


def _dim(graph: GraphShapes, node: Node, port: int, axis: int) -> Expr | None:
    if port >= len(node.inputs) or node.inputs[port] < 0:
        return None
    dims = graph.dims[node.inputs[port]]
    return dims[axis] if dims is not None and -len(dims) <= axis < len(dims) else None


def last_dim(graph: GraphShapes, value: int) -> int | None:
    """Size of a value's last dim where it is a number."""
    dims = graph.dims[value] if value >= 0 else None
    return dims[-1].as_int() if dims else None


def _along(port: int, default: int = 0) -> Demand:
    """Indices along the node's `axis` of the input at `port`."""
    return lambda graph, node, _: [_dim(graph, node, port, int(node.attributes.get("axis", default)))]


def _axis_of(port: int, axis: int) -> Demand:
    return lambda graph, node, _: [_dim(graph, node, port, axis)]


def _coordinates(graph: GraphShapes, node: Node, component: int) -> list[Expr | None]:
    """Indices of GatherND and ScatterND: one number per leading dim of the data."""
    first = int(node.attributes.get("batch_dims", 0))
    if component >= 0:
        return [_dim(graph, node, 0, first + component)]
    count = last_dim(graph, node.inputs[1])
    return [_dim(graph, node, 0, first + k) for k in range(count)] if count else [None]


def _elements(graph: GraphShapes, node: Node, _: int) -> list[Expr | None]:
    dims = graph.dims[node.inputs[0]]
    return [prod(dims, start=ONE) if dims is not None else None]


def _depth(graph: GraphShapes, node: Node, _: int) -> list[Expr | None]:
    """OneHot's depth, which is a dim of its output."""
    dims = graph.dims[node.outputs[0]]
    return [dims[int(node.attributes.get("axis", -1))] if dims else None]


def _blocks(graph: GraphShapes, node: Node, _: int) -> list[Expr | None]:
    return [_dim(graph, node, 0, int(node.attributes.get("gather_axis", 0)))]


INDEX_PORTS: dict[tuple[str, str, int], Demand] = {
    ("", "Gather", 1): _along(0),
    ("", "GatherElements", 1): _along(0),
    ("", "GatherND", 1): _coordinates,
    ("", "ScatterElements", 1): _along(0),
    ("", "Scatter", 1): _along(0),
    ("", "ScatterND", 1): _coordinates,
    ("", "OneHot", 0): _depth,
    ("", "MaxUnpool", 1): _elements,
    ("", "RoiAlign", 2): _axis_of(0, 0),
    ("", "SoftmaxCrossEntropyLoss", 1): _axis_of(0, 1),
    ("", "NegativeLogLikelihoodLoss", 1): _axis_of(0, 1),
    ("", "RotaryEmbedding", 3): _axis_of(1, 0),
    ("com.microsoft", "RotaryEmbedding", 1): _axis_of(2, 0),
    ("com.microsoft", "SoftmaxCrossEntropyLossInternal", 1): _axis_of(0, 1),
    ("com.microsoft", "SparseSoftmaxCrossEntropy", 1): _axis_of(0, -1),
    ("com.microsoft", "GatherBlockQuantized", 1): _blocks,
    ("com.microsoft", "EmbedLayerNormalization", 0): _axis_of(2, 0),
    ("com.microsoft", "EmbedLayerNormalization", 1): _axis_of(4, 0),
    ("com.microsoft", "EmbedLayerNormalization", 8): _axis_of(3, 0),
}


def _length(port: int, axis: int, less: int = 0) -> Length:
    def rule(graph: GraphShapes, node: Node) -> Expr | None:
        dim = _dim(graph, node, port, axis)
        return None if dim is None else dim - less

    return rule


def _time(graph: GraphShapes, node: Node) -> Expr | None:
    """Steps of an RNN's input."""
    return _dim(graph, node, 0, int(node.attributes.get("layout", 0)))


def _reversed(graph: GraphShapes, node: Node) -> Expr | None:
    return _dim(graph, node, 0, int(node.attributes.get("time_axis", 0)))


def _total(less: int) -> Length:
    """Past plus new positions of GroupQueryAttention."""

    def rule(graph: GraphShapes, node: Node) -> Expr | None:
        new, past = _dim(graph, node, 0, 1), _dim(graph, node, 3, 2)
        return None if new is None else new + (past or 0) - less

    return rule


LENGTH_PORTS: dict[tuple[str, str, int], Length] = {
    ("", "RNN", 4): _time,
    ("", "GRU", 4): _time,
    ("", "LSTM", 4): _time,
    ("", "ReverseSequence", 1): _reversed,
    ("", "Attention", 6): _length(1, -2),
    ("com.microsoft", "GroupQueryAttention", 5): _total(1),
    ("com.microsoft", "GroupQueryAttention", 6): _total(0),
    ("com.microsoft", "Attention", 3): _length(0, 1),
    ("com.microsoft", "MultiHeadAttention", 4): _length(1, 1),
}

# Floating-point inputs that not every number suits, and what does.
FLOAT_PORTS = {
    ("BatchNormalization", 4): "uniform:0.5:1.5",
    ("Bernoulli", 0): "uniform:0:1",
    ("Dropout", 1): "value:0.5",
    ("NonMaxSuppression", 3): "value:0.5",
    ("Resize", 2): "ones",
    ("Upsample", 1): "ones",
}

# Ports that take lengths where their tensor has one axis, and a mask where it has more.
BY_RANK = frozenset(("Attention", "MultiHeadAttention"))
