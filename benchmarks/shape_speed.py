"""How long shape inference takes, beside onnx.shape_inference and ONNX Runtime's symbolic_shape_infer.

The models are a transformer of 20,000 nodes with its backward pass; 48 layers that each take their tensor
apart by sizes read off the tensor before (about 2,000 nodes, dims that must not grow); and 28 levels of two
nodes that both read both of the level before (2**28 paths). All run in this process, one after the other; the
ratio is what counts.
"""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Callable, Iterator

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.document import Cell, Finding, Table
from benchmarks.scale import training_graph
from onnx_symmem.graph.view import view_model
from onnx_symmem.shapes.engine import infer_shapes

__all__ = ["print_speed", "reconverging", "speed_table", "split_and_merged", "times"]

NODES = 16_000  # as the builder counts, about 20,000 in all
REPEATS = 3
TARGETS = {"training": 1.3, "split and merged": 5.0, "reconverging": 5.0}  # seconds
_value = helper.make_tensor_value_info


def split_and_merged(layers: int = 48) -> onnx.ModelProto:
    """Layers of 41 nodes that split heads and merge them, every size read off the tensor before."""
    nodes: list[onnx.NodeProto] = []
    tensors = {"heads": np.asarray(4), "width": np.asarray(16), "first": np.asarray([0])}

    def op(kind: str, *inputs: str, **attributes: int | list[int]) -> str:
        name = f"{kind.lower()}{len(nodes)}"
        nodes.append(helper.make_node(kind, list(inputs), [name], name, **attributes))
        return name

    def size(tensor: str, axis: int) -> str:
        tensors[f"axis{axis}"] = np.asarray(axis)
        return op("Gather", op("Shape", tensor), f"axis{axis}", axis=0)

    def target(*sizes: str) -> str:
        return op("Concat", *(op("Unsqueeze", s, "first") for s in sizes), axis=0)

    h = "x"
    for layer in range(layers):
        before = h
        batch, length = size(h, 0), size(h, 1)
        h = op("Transpose", op("Reshape", h, target(batch, length, "heads", "width")), perm=[0, 2, 1, 3])
        h = op("Reshape", h, target(op("Mul", batch, "heads"), length, "width"))
        tensors[f"w{layer}"] = np.full((16, 16), 0.1, np.float32)
        h = op("MatMul", h, f"w{layer}")
        batch, length = op("Div", size(h, 0), "heads"), size(h, 1)
        h = op("Transpose", op("Reshape", h, target(batch, "heads", length, "width")), perm=[0, 2, 1, 3])
        h = op("Reshape", h, target(batch, length, op("Mul", size(h, 2), size(h, 3))))
        h = op("Add", h, before)
    graph = helper.make_graph(
        nodes, "split and merged", [_value("x", TensorProto.FLOAT, ["batch", "length", 64])],
        [_value(h, TensorProto.FLOAT, None)], [numpy_helper.from_array(a, n) for n, a in tensors.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def reconverging(levels: int = 28) -> onnx.ModelProto:
    """Two nodes per level, each of which reads both of the level before: 2**levels paths."""
    nodes = [helper.make_node("Mul", ["x", "x"], ["a0"]), helper.make_node("Neg", ["x"], ["b0"])]
    for level in range(1, levels):
        a, b = f"a{level - 1}", f"b{level - 1}"
        nodes.append(helper.make_node("Mean", [a, b], [f"a{level}"]))
        nodes.append(helper.make_node("Max", [b, a], [f"b{level}"]))
    nodes.append(helper.make_node("Sub", [f"a{levels - 1}", f"b{levels - 1}"], ["y"]))
    graph = helper.make_graph(
        nodes,
        "reconverging",
        [_value("x", TensorProto.FLOAT, ["n", 8])],
        [_value("y", TensorProto.FLOAT, None)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def _ours(proto: onnx.ModelProto) -> None:
    infer_shapes(view_model(proto))


def _onnx(proto: onnx.ModelProto) -> None:
    onnx.shape_inference.infer_shapes(proto, data_prop=True)


def _onnxruntime(proto: onnx.ModelProto) -> None:
    from onnxruntime.tools.symbolic_shape_infer import SymbolicShapeInference

    with contextlib.redirect_stdout(io.StringIO()):
        SymbolicShapeInference.infer_shapes(proto, auto_merge=True)


TOOLS: dict[str, Callable[[onnx.ModelProto], None]] = {
    "onnx-symmem": _ours,
    "onnx.shape_inference": _onnx,
    "onnxruntime": _onnxruntime,
}


def times(proto: onnx.ModelProto) -> Iterator[tuple[str, float | str]]:
    """Per tool the least processor seconds of a few runs, or why it did not run."""
    for name, infer in TOOLS.items():
        took = []
        try:
            for _ in range(REPEATS):
                copy = onnx.ModelProto()
                copy.CopyFrom(proto)
                start = time.process_time()
                infer(copy)
                took.append(time.process_time() - start)
        except Exception as error:  # other people's tools raise anything
            yield name, f"{type(error).__name__}: {str(error).splitlines()[0][:60]}"
            continue
        yield name, min(took)


def speed_table() -> tuple[Table, tuple[Finding, ...]]:
    """Seconds per model and tool, the others' also as multiples of ours; and what was asked for."""
    rows: list[tuple[Cell, ...]] = []
    findings = []
    for proto in (training_graph(NODES), split_and_merged(), reconverging()):
        found = dict(times(proto))
        ours = found["onnx-symmem"]
        cells: list[Cell] = [proto.graph.name, len(proto.graph.node)]
        for took in found.values():
            comparable = isinstance(took, float) and isinstance(ours, float)
            cells += [took, took / ours if comparable else None]
        rows.append(tuple(cells))
        target = TARGETS[proto.graph.name]
        shown = f"{ours:.3f} s" if isinstance(ours, float) else ours
        met = isinstance(ours, float) and ours <= target
        what = f"inference of {len(proto.graph.node):,} nodes, {proto.graph.name}"
        findings.append(Finding(what, shown, f"at most {target} s", met))
    columns = ("model", "nodes", *(head for tool in TOOLS for head in (f"{tool} s", f"{tool} / ours")))
    text = (
        "Least processor time of three runs in one process, from a parsed file without weights to all dims."
    )
    return Table("shape_speed", "Speed", columns, tuple(rows), text), tuple(findings)


def print_speed() -> None:
    """The table, and what was asked for."""
    table, findings = speed_table()
    print("\n".join(table.markdown()))
    for finding in findings:
        print(f"{finding.what}: {finding.found}, {finding.target}")
