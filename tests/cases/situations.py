"""Ten situations that deployers of dynamic-shape models report, each as a small model and what must hold.

`dims` are dims of tensors as texts of this package; `sizes` are shapes to run at, `given` draws inputs that
are not plain numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper

from benchmarks.shape_speed import reconverging, split_and_merged
from tests.shapes.building import BOOL, FLOAT, INT64, graph, model, node, value

Feeds = dict[str, np.ndarray]


@dataclass(frozen=True)
class Situation:
    """A model, the dims it must get, and shapes at which it runs."""

    proto: onnx.ModelProto
    dims: Mapping[str, Sequence[str]]
    sizes: Sequence[Mapping[str, int]]
    given: Callable[[Mapping[str, int]], Mapping[str, Any]] = field(default=lambda at: {})


class Net:
    """Nodes and constants of a graph whose shape arithmetic is written out, as exporters do."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, Any] = {}
        self._rng = np.random.default_rng(7)

    def op(self, kind: str, inputs: str, output: str = "", **attributes: Any) -> str:
        """Append a node; the name of its output."""
        name = output or f"t{len(self.nodes)}"
        self.nodes.append(node(kind, inputs, name, **attributes))
        return name

    def weight(self, name: str, *dims: int) -> str:
        """A constant of small numbers."""
        self.constants[name] = (self._rng.standard_normal(dims) * 0.1).astype(np.float32)
        return name

    def number(self, content: Any) -> str:
        """An int64 constant."""
        name = "k" + str(content).replace("-", "m").replace(" ", "").strip("[]").replace(",", "_")
        name += "v" if isinstance(content, list) else ""
        self.constants[name] = np.asarray(content, np.int64)
        return name

    def size(self, tensor: str, axis: int) -> str:
        """One dim of a tensor as a scalar."""
        shape = self.op("Shape", tensor)
        return self.op("Gather", f"{shape} {self.number(axis)}", axis=0)

    def vector(self, *parts: str | int) -> str:
        """Scalars and numbers as one 1-D tensor."""
        first = self.number([0])
        rows = [
            self.number([part]) if isinstance(part, int) else self.op("Unsqueeze", f"{part} {first}")
            for part in parts
        ]
        return self.op("Concat", " ".join(rows), axis=0)

    def model(self, inputs: Sequence[onnx.ValueInfoProto], outputs: str) -> onnx.ModelProto:
        """The finished model."""
        return model(graph(self.nodes, inputs, outputs, **self.constants))


def strided_front() -> Situation:
    """Strided convolutions over a waveform, then attention over what is left of it."""
    net = Net()
    last, channels = "wave", 1
    for k, (kernel, stride) in enumerate(((10, 5), (3, 2), (3, 2), (2, 2))):
        weight = net.weight(f"w{k}", 8, channels, kernel)
        last = net.op("Relu", net.op("Conv", f"{last} {weight}", f"conv{k}", strides=[stride]))
        channels = 8
    steps = net.op("Transpose", last, "steps", perm=[0, 2, 1])
    turned = net.op("Transpose", steps, perm=[0, 2, 1])
    scores = net.op("MatMul", f"{steps} {turned}", "scores")
    net.op("MatMul", f"{net.op('Softmax', scores, axis=-1)} {steps}", "features")
    proto = net.model([value("wave", FLOAT, ["B", 1, "L"])], "features")
    # (L - 10)//5 + 1, then (.. - 3)//2 + 1 twice, then (.. - 2)//2 + 1.
    length = "(L + 20)//40 - 1"
    dims = {
        "conv0": ["B", "8", "L//5 - 1"],
        "steps": ["B", length, "8"],
        "scores": ["B", length, length],
        "features": ["B", length, "8"],
    }
    sizes = [{"B": b, "L": n} for b, n in ((1, 400), (2, 401), (1, 60), (1, 4444), (3, 2999))]
    return Situation(proto, dims, sizes)


def padded_windows() -> Situation:
    """Height and width padded to multiples of 7, cut into windows, put together, cropped, added to x."""
    net = Net()
    seven, two = net.number(7), net.number(2)
    n, h, w = (net.size("x", k) for k in range(3))

    def missing(size: str) -> str:
        return net.op("Mod", f"{net.op('Sub', f'{seven} ' + net.op('Mod', f'{size} {seven}'))} {seven}")

    padded = net.op("Pad", f"x {net.vector(0, 0, 0, 0, 0, missing(h), missing(w), 0)}", "padded")
    rows, columns = net.size(padded, 1), net.size(padded, 2)
    down, across = net.op("Div", f"{rows} {seven}"), net.op("Div", f"{columns} {seven}")
    cells = net.op("Reshape", f"{padded} {net.vector(n, down, 7, across, 7, 4)}")
    cells = net.op("Transpose", cells, perm=[0, 1, 3, 2, 4, 5])
    windows = net.op("Reshape", f"{cells} {net.vector(-1, 49, 4)}", "windows")
    mixed = net.op("MatMul", f"{windows} {net.weight('w', 4, 4)}")
    batch = net.op("Div", f"{net.size(mixed, 0)} {net.op('Mul', f'{down} {across}')}")
    back = net.op("Reshape", f"{mixed} {net.vector(batch, down, across, 7, 7, -1)}")
    back = net.op("Transpose", back, perm=[0, 1, 3, 2, 4, 5])
    whole = net.op("Reshape", f"{back} {net.vector(batch, rows, columns, -1)}", "whole")
    axes, start = net.number([1, 2]), net.number([0, 0])
    crop = net.op("Slice", f"{whole} {start} {net.vector(h, w)} {axes}", "crop")
    y = net.op("Add", f"{crop} x", "y")
    even = [0, 0, 0, 0, 0, net.op("Mod", f"{h} {two}"), net.op("Mod", f"{w} {two}"), 0]
    y = net.op("Pad", f"{y} {net.vector(*even)}", "even")
    end, step = net.number([2**31 - 1, 2**31 - 1]), net.number([2, 2])
    parts = [net.op("Slice", f"{y} {net.number([a, b])} {end} {axes} {step}") for a in (0, 1) for b in (0, 1)]
    net.op("Concat", " ".join(parts), "merged", axis=-1)
    proto = net.model([value("x", FLOAT, ["N", "H", "W", 4])], "y merged")
    down7, across7 = "(H + 6)//7", "(W + 6)//7"
    dims = {
        "padded": ["N", f"7*({down7})", f"7*({across7})", "4"],
        "windows": [f"N*({down7})*({across7})", "49", "4"],
        "whole": ["N", f"7*({down7})", f"7*({across7})", "4"],
        "crop": ["N", "H", "W", "4"],
        "y": ["N", "H", "W", "4"],
        "even": ["N", "2*((H + 1)//2)", "2*((W + 1)//2)", "4"],
        "merged": ["N", "(H + 1)//2", "(W + 1)//2", "16"],
    }
    sizes = [{"N": n, "H": h, "W": w} for n, h, w in ((1, 14, 7), (2, 15, 20), (3, 1, 1), (1, 13, 8))]
    return Situation(proto, dims, sizes)


def free_masks() -> Situation:
    """A mask and a time step that may have one row or all rows; names and metadata are a contract."""
    net = Net()
    scores = net.op("MatMul", f"q {net.op('Transpose', 'k', perm=[0, 1, 3, 2])}", "scores")
    moment = net.op("Unsqueeze", f"moment {net.number([1, 2, 3])}")
    net.constants["low"] = np.float32(-1e4)
    kept = net.op("Where", f"mask {net.op('Add', f'{scores} {moment}')} low")
    net.op("Softmax", kept, "shares", axis=-1)
    inputs = [
        value("q", FLOAT, ["batch", 4, "q_len", 8]),
        value("k", FLOAT, ["batch", 4, "k_len", 8]),
        value("mask", BOOL, ["mask_batch", 1, "mask_q", "k_len"]),
        value("moment", FLOAT, ["moments"]),
    ]
    proto = net.model(inputs, "shares")
    proto.graph.output[0].CopyFrom(value("shares", FLOAT, ["batch", 4, "q_len", "k_len"]))
    proto.graph.doc_string, proto.doc_string, proto.model_version = "of the graph", "of the model", 7
    helper.set_model_props(proto, {"labels": "a,b,c", "threshold": "0.5"})
    # Nothing says that the mask has no more rows than the queries: the sizes that broadcast are all named.
    dims = {
        "scores": ["batch", "4", "q_len", "k_len"],
        "shares": ["max(batch, moments, mask_batch)", "4", "max(q_len, mask_q)", "k_len"],
    }
    sizes = [
        {"batch": b, "q_len": q, "k_len": k, "mask_batch": mb, "mask_q": mq, "moments": m}
        for b, q, k, mb, mq, m in (
            (2, 3, 5, 1, 1, 1),
            (2, 3, 5, 2, 3, 2),
            (4, 1, 9, 4, 1, 1),
            (1, 2, 2, 1, 2, 1),
        )
    ]
    return Situation(proto, dims, sizes)


def position_table() -> Situation:
    """A table of 512 rows that is added along a dynamic axis bounds it."""
    net = Net()
    words = net.op("Gather", f"{net.weight('words', 100, 16)} ids", "words_of", axis=0)
    zero = net.number([0])
    length = net.vector(net.size("ids", 1))
    rows = net.op("Slice", f"{net.weight('table', 512, 16)} {zero} {length} {zero}", "rows")
    net.op("Add", f"{words} {rows}", "y")
    proto = net.model([value("ids", INT64, ["B", "T"])], "y")
    # The rows are min(T, 512); that they are added to T words makes them T.
    dims = {"words_of": ["B", "T", "16"], "rows": ["T", "16"], "y": ["B", "T", "16"]}
    return Situation(proto, dims, [{"B": 2, "T": 7}, {"B": 1, "T": 512}])


def heads_split_and_merged() -> Situation:
    """48 layers that split heads and merge them by sizes read off the tensor before."""
    proto = split_and_merged()
    return Situation(
        proto,
        {proto.graph.output[0].name: ["batch", "length", "64"]},
        [{"batch": 1, "length": 1}, {"batch": 2, "length": 5}],
    )


def many_paths() -> Situation:
    """28 levels of two nodes that both read both of the level before; a node that reads a tensor twice."""
    return Situation(reconverging(), {"y": ["n", "8"]}, [{"n": 1}, {"n": 6}])


def late_shape() -> Situation:
    """The Shape of a wide tensor, listed late, keeps it alive for nothing."""
    net = Net()
    one = net.number([1])
    net.op("MatMul", f"x {net.weight('w1', 256, 4096)}", "wide1")
    net.op("ReduceMean", f"wide1 {one}", "m1", keepdims=1)
    net.op("MatMul", f"x {net.weight('w2', 256, 4096)}", "wide2")
    net.op("ReduceMean", f"wide2 {one}", "m2", keepdims=1)
    net.op("Shape", "wide1", "sizes")
    net.op("Add", "m1 m2", "row")
    net.op("Expand", "row sizes", "spread")
    net.op("ReduceMax", f"spread {one}", "y", keepdims=1)
    proto = net.model([value("x", FLOAT, ["N", 256])], "y")
    dims = {"wide1": ["N", "4096"], "sizes": ["2"], "spread": ["N", "4096"], "y": ["N", "1"]}
    return Situation(proto, dims, [{"N": 1}, {"N": 32}])


def used_early_and_late() -> Situation:
    """A cheap wide product that is needed at the start and at the end of a heavy stretch."""
    net = Net()
    net.op("Mul", f"gain {net.weight('row', 1, 2048)}", "cheap")
    most = net.op("ReduceMax", f"cheap {net.number([1])}", "most", keepdims=1)
    heavy = net.op("MatMul", f"{net.op('Mul', f'x {most}')} {net.weight('w1', 64, 4096)}", "heavy")
    down = net.op("MatMul", f"{net.op('Tanh', heavy)} {net.weight('w2', 4096, 2048)}")
    net.op("Add", f"{down} cheap", "y")
    proto = net.model([value("x", FLOAT, ["N", 64]), value("gain", FLOAT, ["N", 1])], "y")
    dims = {"cheap": ["N", "2048"], "heavy": ["N", "4096"], "y": ["N", "2048"]}
    return Situation(proto, dims, [{"N": 1}, {"N": 16}])


def _branch(nodes: Sequence[onnx.NodeProto], output: str) -> onnx.GraphProto:
    return helper.make_graph(list(nodes), "branch", [], [value(output, FLOAT, ["N", 8])])


def captured_by_branches() -> Situation:
    """Branches, one inside another, read a tensor and a weight that nothing else reads."""
    inner = node(
        "If", "flag2", "o2",
        then_branch=_branch([node("MatMul", "t W", "o3")], "o3"),
        else_branch=_branch([node("Neg", "t", "o4")], "o4"),
    )  # fmt: skip
    chosen = node(
        "If", "flag", "c",
        then_branch=_branch([node("MatMul", "t W", "m"), node("Add", "m t", "o1")], "o1"),
        else_branch=_branch([inner], "o2"),
    )  # fmt: skip
    nodes = [node("Relu", "x", "t"), node("Sigmoid", "x", "u"), chosen, node("Mul", "c u", "y")]
    net = Net()
    net.nodes = nodes
    net.weight("W", 8, 8)
    inputs = [value("x", FLOAT, ["N", 8]), value("flag", BOOL, []), value("flag2", BOOL, [])]
    proto = net.model(inputs, "y")
    flags = {1: (True, True), 2: (False, True), 3: (False, False)}
    return Situation(
        proto,
        {"t": ["N", "8"], "y": ["N", "8"]},
        [{"N": 1}, {"N": 2}, {"N": 3}],
        lambda at: dict(zip(("flag", "flag2"), flags[at["N"]], strict=True)),
    )


def weights_of_branches() -> Situation:
    """Weights that belong to the branches of an If; the file's data lies beside it."""
    net = Net()
    branches = {}
    for name, output in (("then_branch", "o1"), ("else_branch", "o2")):
        branches[name] = _branch([node("MatMul", f"h w_{output}", output)], output)
        branches[name].output[0].CopyFrom(value(output, FLOAT, ["N", 64]))
        weight = np.random.default_rng(len(branches)).standard_normal((64, 64)).astype(np.float32)
        branches[name].initializer.append(onnx.numpy_helper.from_array(weight, f"w_{output}"))
    net.op("MatMul", f"x {net.weight('w0', 64, 64)}", "h")
    net.nodes.append(node("If", "flag", "c", **branches))
    net.op("Add", "c h", "y")
    proto = net.model([value("x", FLOAT, ["N", 64]), value("flag", BOOL, [])], "y")
    return Situation(
        proto, {"y": ["N", "64"]}, [{"N": 1}, {"N": 5}], lambda at: {"flag": np.asarray(at["N"] == 1)}
    )


SITUATIONS: dict[str, Callable[[], Situation]] = {
    make.__name__: make
    for make in (
        strided_front, padded_windows, free_masks, position_table, heads_split_and_merged, many_paths,
        late_shape, used_early_and_late, captured_by_branches, weights_of_branches,
    )
}  # fmt: skip
