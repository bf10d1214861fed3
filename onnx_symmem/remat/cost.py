"""What one run of a node costs: scalar operations and bytes read and written, as expressions; and in time.

Products are counted as multiply-adds, element-wise and reducing operators by elements, operators that only
move data by bytes alone, aliases as nothing. Where a dim is unknown the node costs nothing that is known:
`NodeCosts.unknown` lists such nodes, and they are never repeated. Time is a straight line through both, in
units of one byte moved; only ratios of it are used, to choose and to bound what is repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from onnx_symmem.expr.expression import ONE, ZERO, Expr
from onnx_symmem.expr.grid import Grid
from onnx_symmem.graph.view import GraphView, Node
from onnx_symmem.memory.sharing import sharing_of
from onnx_symmem.memory.sizes import ValueSizes
from onnx_symmem.remat.schedule import never_again
from onnx_symmem.shapes.table import Dims, GraphShapes

__all__ = ["Machine", "NodeCosts", "keep_reason", "node_costs"]


@dataclass(frozen=True, slots=True)
class Machine:
    """Speeds that time is modelled with.

    Multiply-adds per second, bytes per second of device memory, and of copies between device and host. By
    default a byte takes as long as six multiply-adds, as with float32 on a GPU for data centres or on a CPU.
    Tensor cores shift that: there, bytes count for more.
    """

    operations: float = 6e12
    bandwidth: float = 1e12
    host_bandwidth: float = 2e10

    def seconds(self, operations: np.ndarray, moved: np.ndarray) -> np.ndarray:
        """Modelled time of work that is not overlapped."""
        return np.asarray(operations / self.operations + moved / self.bandwidth)


@dataclass(frozen=True)
class NodeCosts:
    """Per node: operations, and bytes moved. `unknown` are nodes that some unknown dim hides the cost of."""

    operations: tuple[Expr, ...]
    moved: tuple[Expr, ...]
    unknown: frozenset[int]

    def total(self, nodes: Iterable[int]) -> tuple[Expr, Expr]:
        """Operations and bytes of running the given nodes, once per mention."""
        times: dict[int, int] = {}
        for node in nodes:
            times[node] = times.get(node, 0) + 1
        return _sum(self.operations, times), _sum(self.moved, times)

    def seconds(self, shapes: Sequence[Mapping[str, int]], machine: Machine) -> np.ndarray:
        """Modelled seconds of every node at every shape, (nodes, shapes)."""
        grid = Grid(shapes)
        columns = []
        for exprs in (self.operations, self.moved):
            known: dict[Expr, np.ndarray] = {}
            for expr in exprs:
                if expr not in known:
                    known[expr] = grid.expr(expr).astype(np.float64)
            rows = [known[expr] for expr in exprs]
            columns.append(np.stack(rows) if rows else np.zeros((0, len(shapes))))
        return machine.seconds(*columns)


def _sum(exprs: Sequence[Expr], times: Mapping[int, int]) -> Expr:
    terms: dict[Expr, int] = {}
    for node, count in times.items():
        if exprs[node].terms:
            terms[exprs[node]] = terms.get(exprs[node], 0) + count
    return sum((expr * count for expr, count in terms.items()), ZERO)


# ------------------------------------------------------------------------------------------------ what stays

# Results depend on the order in which threads add, or the kernel writes what it reads.
_UNSTEADY = frozenset(("ScatterElements", "ScatterND", "Scatter", "NonMaxSuppression", "Unique"))


def keep_reason(view: GraphView, node: Node) -> str:
    """Why a node is never chosen to run again; empty where it may be. Stricter than `never_again`."""
    reason = never_again(view, node)
    if reason:
        return reason
    if node.op in _UNSTEADY and node.attributes.get("reduction", "none") != "none":
        return "its sums may differ from run to run"
    if node.op == "BatchNormalization" and sum(v >= 0 for v in node.outputs) > 1:
        return "it updates statistics in place"
    for value in node.outputs:
        if value >= 0 and view.values[value].type is not None:
            kind = view.values[value].type.WhichOneof("value")  # type: ignore[union-attr]
            if kind not in ("tensor_type", None):
                return f"it makes a {kind}"
    return ""


# ------------------------------------------------------------------------------------------------ operations

_Rule = Callable[["_Shapes"], Expr]


class _Shapes:
    """One node and its dims; raises KeyError where a rule asks for dims that are not known."""

    def __init__(self, node: Node, dims: Sequence[Dims | None]) -> None:
        self.node, self._dims = node, dims

    def input(self, position: int) -> Dims:
        value = self.node.inputs[position] if position < len(self.node.inputs) else -1
        return self._known(value)

    def output(self, position: int = 0) -> Dims:
        return self._known(self.node.outputs[position])

    def has_input(self, position: int) -> bool:
        return position < len(self.node.inputs) and self.node.inputs[position] >= 0

    def _known(self, value: int) -> Dims:
        dims = self._dims[value] if value >= 0 else None
        if dims is None:
            raise KeyError(value)
        return dims

    def attribute(self, name: str, default: int = 0) -> int:
        return int(self.node.attributes.get(name, default))


def _elements(dims: Iterable[Expr]) -> Expr:
    count = ONE
    for dim in dims:
        count = count * dim
    return count


def _product(at: _Shapes) -> Expr:
    left = at.input(0)
    if not left:
        raise KeyError
    inner = left[-1]
    if at.attribute("transA") and len(left) > 1:
        inner = left[-2]
    return _elements(at.output()) * inner


def _convolution(at: _Shapes) -> Expr:
    return _elements(at.output()) * _elements(at.input(1)[1:])


def _transposed_convolution(at: _Shapes) -> Expr:
    return _elements(at.input(0)) * _elements(at.input(1)[1:])


def _recurrent(at: _Shapes) -> Expr:
    sequence, batch = at.input(0)[:2]
    return sequence * batch * (_elements(at.input(1)) + _elements(at.input(2)))


def _einsum(at: _Shapes) -> Expr:
    text = at.node.attributes.get("equation", "").replace(" ", "")
    terms = text.partition("->")[0].split(",")
    sizes: dict[str, Expr] = {}
    for position, term in enumerate(terms):
        dims = at.input(position)
        if "." in term or len(term) != len(dims):
            raise KeyError(text)
        sizes |= dict(zip(term, dims, strict=True))
    return _elements(sizes.values())


def _attention(at: _Shapes) -> Expr:
    """Scores and their product with the values; com.microsoft.Attention also projects its input."""
    query = at.input(0)
    rows = _elements(query[:-1])
    if at.node.op == "Attention" and at.node.domain == "com.microsoft":
        weights = at.input(1)
        return rows * _elements(weights) + rows * query[-2] * weights[-1]
    keys = at.input(1) if at.has_input(1) else query
    return rows * keys[-2] * query[-1] * 2


def _per_element(factor: int) -> _Rule:
    return lambda at: _elements(at.output()) * factor


def _per_input(factor: int) -> _Rule:
    return lambda at: _elements(at.input(0)) * factor


def _window(at: _Shapes) -> Expr:
    kernel = at.node.attributes.get("kernel_shape", ())
    area = 1
    for side in kernel:
        area *= int(side)
    return _elements(at.output()) * area


def _nothing(_: _Shapes) -> Expr:
    return ZERO


def _rules(*groups: tuple[_Rule, str]) -> Mapping[str, _Rule]:
    return {op: rule for rule, ops in groups for op in ops.split()}


_OPERATIONS = _rules(
    (_product, "MatMul Gemm FusedMatMul FusedGemm TransposeMatMul MatMulInteger QLinearMatMul MatMulNBits"),
    (_product, "MatMulIntegerToFloat DynamicQuantizeMatMul GemmFastGelu FusedMatMulActivation"),
    (_convolution, "Conv FusedConv ConvInteger QLinearConv NhwcConv"),
    (_transposed_convolution, "ConvTranspose"),
    (_recurrent, "LSTM GRU RNN"),
    (_einsum, "Einsum"),
    (_attention, "Attention MultiHeadAttention GroupQueryAttention"),
    (_per_element(4), "Softmax LogSoftmax Gelu FastGelu BiasGelu Erf Tanh Sigmoid QuickGelu Mish Softplus"),
    (_per_input(6), "LayerNormalization SkipLayerNormalization SimplifiedLayerNormalization GroupNorm"),
    (_per_input(6), "SkipSimplifiedLayerNormalization InstanceNormalization BatchNormalization"),
    (_per_input(6), "GroupNormalization RMSNormalization LpNormalization"),
    (_per_input(1), "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSumExp"),
    (_per_input(1), "ReduceSumSquare ReduceLogSum ArgMax ArgMin CumSum GlobalAveragePool GlobalMaxPool TopK"),
    (_window, "MaxPool AveragePool LpPool"),
    (_nothing, "Reshape Flatten Squeeze Unsqueeze Identity Shape Size Constant ConstantOfShape Range"),
    (_nothing, "Transpose Concat Split Slice Gather GatherND GatherElements Expand Tile Pad Resize Cast"),
    (_nothing, "DepthToSpace SpaceToDepth MemcpyToHost MemcpyFromHost EyeLike OneHot Compress Dropout"),
    (_nothing, "ScatterElements ScatterND Trilu Where"),
)

# These read about as much of their first input as they write.
_PICK = frozenset(("Gather", "GatherND", "GatherElements", "Slice", "Split"))


def node_costs(shapes: GraphShapes, sizes: ValueSizes) -> NodeCosts:
    """Costs of all nodes of a graph; other operators are counted as one operation per element made."""
    operations: list[Expr] = []
    moved: list[Expr] = []
    unknown: set[int] = set()
    for node in shapes.view.nodes:
        rule = _OPERATIONS.get(node.op, _per_element(1))
        try:
            operations.append(rule(_Shapes(node, shapes.dims)))
        except (KeyError, IndexError, ValueError):
            unknown.add(node.index)
            operations.append(ZERO)
        bytes_moved = _moved(node, sizes)
        if bytes_moved is None:
            unknown.add(node.index)
        moved.append(bytes_moved or ZERO)
    return NodeCosts(tuple(operations), tuple(moved), frozenset(unknown))


def _moved(node: Node, sizes: ValueSizes) -> Expr | None:
    if (sharing_of(node, "cpu").alias and node.op != "BatchNormalization") or node.op in ("Shape", "Size"):
        return ZERO
    total = ZERO
    for value in (v for v in node.outputs if v >= 0):
        size = sizes.bytes[value]
        if size is None:
            return None
        total = total + size
    if node.op in _PICK:
        return total * 2
    for value in dict.fromkeys(node.reads()):
        size = sizes.bytes[value]
        if size is None:
            return None
        total = total + size
    return total
