"""What a model uses its integer inputs for, so that legal contents can be made up for them.

Every input is followed through operators that only move, convert or shift its numbers, into subgraphs and out
of them, until it meets an operator that demands something of it: an index must lie inside the dim it indexes,
a length must agree with a dim, a size must be positive; what is compared, negated or counted is a mask.
On the way the numbers stay `scale * x + offset` of the input's x, with `offset` in an interval.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import isfinite

from onnx import TensorProto

from onnx_symmem.expr.expression import Expr
from onnx_symmem.graph.view import OUTER, Node
from onnx_symmem.run.ports import (
    AXES,
    BY_RANK,
    COUNTS,
    INDEX_PORTS,
    JUDGES,
    LENGTH_PORTS,
    MASKS,
    MOVES,
    SIZES,
    Demand,
    last_dim,
)
from onnx_symmem.shapes.table import GraphShapes, ModelShapes
from onnx_symmem.shapes.values import PartialValue, read_tensor

__all__ = ["IndexUse", "InputUse", "input_uses"]

_MOST_PATHS = 20_000  # (value, numbers) pairs per input; far above real models, bounds odd loops


@dataclass(frozen=True, slots=True)
class IndexUse:
    """`scale * x + [low, high]` indexes a dim of size `dim` (None: not known) at `node`.

    `opaque` says that something unknown was added on the way; zero is then the safest content.
    """

    dim: Expr | None
    scale: int
    low: int
    high: int
    opaque: bool
    node: str


@dataclass(frozen=True, slots=True)
class InputUse:
    """Everything an integer input is used for; texts name the operator that shows it."""

    indices: tuple[IndexUse, ...] = ()
    lengths: tuple[Expr, ...] = ()
    size: str = ""
    axis: str = ""
    mask: str = ""


@dataclass(frozen=True, slots=True)
class _Path:
    """A value of one graph that holds the input's numbers, and how.

    `component` is the place along the last axis where they stand after a Concat (-1: everywhere);
    `counted` says that they are sums over the input.
    """

    graph: int
    value: int
    scale: int = 1
    low: int = 0
    high: int = 0
    component: int = -1
    opaque: bool = False
    counted: bool = False


@dataclass(slots=True)
class _Found:
    indices: dict[IndexUse, None] = field(default_factory=dict)
    lengths: dict[Expr, None] = field(default_factory=dict)
    size: str = ""
    axis: str = ""
    mask: str = ""


def input_uses(shapes: ModelShapes) -> dict[str, InputUse]:
    """Uses per input of the main graph that has an integer type, in the order of the inputs."""
    follower = _Follower(shapes)
    view = shapes.graph.view
    return {
        view.values[i].name: follower.follow(i)
        for i in view.inputs
        if shapes.graph.elem_types[i] in _INTEGERS and i not in view.initializers
    }


_INTEGERS = frozenset(
    TensorProto.DataType.Value(f"{sign}INT{bits}") for sign in ("", "U") for bits in (8, 16, 32, 64)
)


class _Follower:
    def __init__(self, shapes: ModelShapes) -> None:
        self.folder = shapes.view.folder
        self.constants: dict[tuple[int, int], PartialValue | None] = {}
        self.graphs: list[GraphShapes] = []
        self.parents: list[tuple[int, Node | None]] = []
        self.inside: dict[tuple[int, int], list[tuple[str, int]]] = {}
        self._number(shapes.graph, -1, None)
        self.captured = [self._captures(k) for k in range(len(self.graphs))]

    def _number(self, graph: GraphShapes, parent: int, node: Node | None) -> int:
        number = len(self.graphs)
        self.graphs.append(graph)
        self.parents.append((parent, node))
        for (index, attribute), sub in sorted(graph.subgraphs.items(), key=lambda item: item[0]):
            inner = self._number(sub, number, graph.view.nodes[index])
            self.inside.setdefault((number, index), []).append((attribute, inner))
        return number

    def _captures(self, number: int) -> dict[int, list[tuple[int, int]]]:
        """Per value of a graph: the values of its subgraphs that are captures of it."""
        found: dict[int, list[tuple[int, int]]] = {}
        for (outer, _), subs in self.inside.items():
            if outer == number:
                for _, inner in subs:
                    for here, there in self.graphs[inner].view.outer.items():
                        found.setdefault(there, []).append((inner, here))
        return found

    def follow(self, value: int) -> InputUse:
        """Uses of one input of the main graph."""
        found = _Found()
        waiting = [_Path(0, value)]
        seen = set(waiting)
        while waiting and len(seen) < _MOST_PATHS:
            path = waiting.pop()
            for onward in self._onward(path, found):
                if onward not in seen:
                    seen.add(onward)
                    waiting.append(onward)
        return InputUse(tuple(found.indices), tuple(found.lengths), found.size, found.axis, found.mask)

    def _onward(self, path: _Path, found: _Found) -> Iterator[_Path]:
        graph = self.graphs[path.graph]
        for inner, here in self.captured[path.graph].get(path.value, ()):
            yield replace(path, graph=inner, value=here)
        for k in graph.view.consumers[path.value]:
            node = graph.view.nodes[k]
            for port, read in enumerate(node.inputs):
                if read == path.value:
                    yield from self._through(path, graph, node, port, found)
        yield from self._out_of(path, graph)

    def _out_of(self, path: _Path, graph: GraphShapes) -> Iterator[_Path]:
        """From an output of a subgraph to the output of its node."""
        parent, node = self.parents[path.graph]
        if node is None:
            return
        first = 1 if node.op == "Loop" else 0
        for k, value in enumerate(graph.view.outputs):
            if value == path.value and 0 <= k - first < len(node.outputs) and node.outputs[k - first] >= 0:
                yield replace(path, graph=parent, value=node.outputs[k - first])
                if node.op in ("Loop", "Scan") and k + (node.op == "Loop") < len(graph.view.inputs):
                    yield replace(path, value=graph.view.inputs[k + (node.op == "Loop")])

    def _through(
        self, path: _Path, graph: GraphShapes, node: Node, port: int, found: _Found
    ) -> Iterator[_Path]:
        """What one operator makes of the numbers at one of its ports: paths onward, or a demand."""
        op, results = node.op, [v for v in node.outputs if v >= 0]
        if node.subgraphs and op in ("Loop", "Scan"):
            first = 0 if op == "Scan" else 2
            for _, inner in self.inside.get((path.graph, node.index), ()):
                places = self.graphs[inner].view.inputs
                if first <= port < len(places):
                    yield replace(path, graph=inner, value=places[port])
        demand = INDEX_PORTS.get((node.domain, op, port))
        if demand is not None:
            self._index(path, graph, node, demand, found)
        length = LENGTH_PORTS.get((node.domain, op, port))
        if length is not None and (op not in BY_RANK or _rank(graph, path.value) == 1):
            expr = length(graph, node)
            if expr is not None:
                found.lengths.setdefault(expr)
        elif port in MASKS.get((node.domain, op), ()):
            found.mask = found.mask or node.label()
        if node.domain:
            return
        if port in SIZES.get(op, ()):
            found.size = found.size or node.label()
        elif port in AXES.get(op, ()):
            found.axis = found.axis or node.label()
        elif op in JUDGES or (op in ("Cast", "CastLike") and self._type(graph, results) == TensorProto.BOOL):
            found.mask = found.mask or node.label()
        elif op in COUNTS and port == 0:
            yield from (replace(path, value=v, counted=True) for v in results)
        elif op == "Concat":
            yield replace(path, value=results[0], component=self._component(path, graph, node, port))
        elif port in MOVES.get(op, ()):
            keeps = op in ("Cast", "CastLike", "Identity", "Slice")
            component = path.component if keeps else -1
            yield from (replace(path, value=v, component=component) for v in results[:1])
            yield from (replace(path, value=v, component=-1) for v in results[1:] if op == "Split")
        else:
            yield from self._arithmetic(path, graph, node, port, found)

    def _index(self, path: _Path, graph: GraphShapes, node: Node, demand: Demand, found: _Found) -> None:
        if path.counted:
            found.mask = found.mask or node.label()  # e.g. positions counted from a mask
            return
        for dim in demand(graph, node, path.component):
            use = IndexUse(dim, path.scale, path.low, path.high, path.opaque, node.label())
            found.indices.setdefault(use)

    def _arithmetic(
        self, path: _Path, graph: GraphShapes, node: Node, port: int, found: _Found
    ) -> Iterator[_Path]:
        op = node.op
        if op not in ("Add", "Clip", "Max", "Min", "Mul", "Neg", "Sub") or not node.outputs:
            return
        out = node.outputs[0]
        if op == "Neg":
            yield replace(path, value=out, scale=-path.scale, low=-path.high, high=-path.low)
            return
        if op in ("Clip", "Max", "Min"):
            # An upper end that is set makes the result legal whatever comes in.
            if op == "Max" or (op == "Clip" and (len(node.inputs) < 3 or node.inputs[2] < 0)):
                yield replace(path, value=out)
            return
        other = self._interval(path.graph, node.inputs[1 - port])
        if op == "Sub" and port == 1:
            if other == (1, 1):
                found.mask = found.mask or node.label()
            path = replace(path, scale=-path.scale, low=-path.high, high=-path.low)
        elif op == "Sub" and other is not None:
            other = (-other[1], -other[0])
        if op == "Mul":
            if other is None:
                # Sizes are followed and would scale it; what is not is a mask as a rule.
                followed = self._known(path.graph, node.inputs[1 - port]) is not None
                yield replace(path, value=out, opaque=path.opaque or followed)
            elif other[0] == other[1] > 0:
                c = other[0]
                yield replace(path, value=out, scale=path.scale * c, low=path.low * c, high=path.high * c)
            return
        if other is None:
            if not path.opaque and self._type(graph, [out]) in _INTEGERS:
                yield replace(path, value=out, opaque=True)
            return
        yield replace(path, value=out, low=path.low + other[0], high=path.high + other[1])

    def _known(self, number: int, value: int) -> PartialValue | None:
        """Contents of a value, where inference followed them or it is a constant."""
        graph = self.graphs[number]
        while graph.view.values[value].kind == OUTER:
            value, number = graph.view.outer[value], self.parents[number][0]
            graph = self.graphs[number]
        if value in graph.view.initializers:
            if (number, value) not in self.constants:
                tensor = graph.view.initializers[value]
                self.constants[number, value] = read_tensor(tensor, self.folder)
            return self.constants[number, value]
        return graph.values.get(value)

    def _interval(self, number: int, value: int) -> tuple[int, int] | None:
        """Smallest and largest number of an integer constant (or of one kept as floats), else None."""
        known = self._known(number, value)
        if known is None or not known.items:
            return None
        numbers: list[int] = []
        for item in known.items:
            whole = item.as_int() if isinstance(item, Expr) else item
            if not isinstance(whole, int | float) or not isfinite(whole) or whole != int(whole):
                return None
            numbers.append(int(whole))
        return min(numbers), max(numbers)

    @staticmethod
    def _type(graph: GraphShapes, values: list[int]) -> int:
        return graph.elem_types[values[0]] if values else 0

    @staticmethod
    def _component(path: _Path, graph: GraphShapes, node: Node, port: int) -> int:
        """Where along the last axis a Concat puts numbers that have one place there."""
        dims = graph.dims[node.outputs[0]]
        axis = int(node.attributes.get("axis", 0))
        if dims is None or axis not in (-1, len(dims) - 1):
            return path.component
        place = 0
        for before in node.inputs[:port]:
            size = last_dim(graph, before)
            if size is None:
                return -1
            place += size
        if last_dim(graph, path.value) == 1:
            return place
        return place + path.component if path.component >= 0 else -1


def _rank(graph: GraphShapes, value: int) -> int:
    dims = graph.dims[value]
    return -1 if dims is None else len(dims)
