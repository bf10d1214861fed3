"""Values of a model that the shapes of its inputs decide, computed without a run of the model.

The nodes behind a value are run alone, from the Shape and Size of tensors with known dims on: sizes stand in
place of the tensors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper

from onnx_symmem.errors import RunFailed, UnsupportedModel
from onnx_symmem.expr.expression import Expr
from onnx_symmem.graph.load import LoadedModel, external_entry
from onnx_symmem.run.session import create_session, kept, run_session
from onnx_symmem.shapes.table import ModelShapes

if TYPE_CHECKING:
    import onnxruntime

__all__ = ["ShapeProgram", "shape_program"]

_RANDOM = ("Bernoulli", "Dropout", "Multinomial", "Random")  # how the names of such operators begin
_PLAIN = ("", "ai.onnx")


@dataclass(frozen=True)
class ShapeProgram:
    """A session that computes `wanted`; `sources` are its inputs, each the dims or the size of a tensor."""

    session: onnxruntime.InferenceSession
    wanted: tuple[str, ...]
    sources: Mapping[str, tuple[Expr, ...] | Expr]

    @property
    def symbols(self) -> frozenset[str]:
        """The names of dims on which the values depend."""
        dims = (s if isinstance(s, tuple) else (s,) for s in self.sources.values())
        return frozenset(name for each in dims for dim in each for name in dim.symbols())

    def at(self, known: Mapping[str, int], given: Mapping[str, np.ndarray] | None = None) -> list[np.ndarray]:
        """The values where dims have these sizes; `given` are other inputs, of which some have defaults."""
        feeds = {
            name: np.array(
                [d.evaluate(known) for d in s] if isinstance(s, tuple) else s.evaluate(known), np.int64
            )
            for name, s in self.sources.items()
        }
        return run_session(self.session, {**feeds, **(given or {})}, self.wanted)


def shape_program(
    model: LoadedModel, shapes: ModelShapes, wanted: Sequence[str], given: Sequence[str] = ()
) -> ShapeProgram | None:
    """The program of values of the main graph; None where they need more than dims and the inputs `given`."""
    graph = model.proto.graph
    made = {name: node for node in graph.node for name in node.output if name}
    held = {t.name: t for t in graph.initializer if not external_entry(t)}
    needed: dict[str, NodeProto] = {}
    sources: dict[str, tuple[Expr, ...] | Expr] = {}
    stack = list(wanted)
    while stack:
        name = stack.pop()
        node = made.get(name)
        if name in needed or name in sources or name in given:
            continue
        if node is None:
            if name not in held:
                return None
        elif node.op_type in ("Shape", "Size") and node.domain in _PLAIN:
            dims = shapes.graph.dims[shapes.graph.view.index[node.input[0]]]
            if dims is None:
                return None
            sources[name] = _read(node, dims)
        elif any(a.HasField("g") for a in node.attribute) or node.op_type.startswith(_RANDOM):
            return None
        else:
            needed[name] = node
            stack.extend(each for each in node.input if each)
    try:
        session = _session(model.proto, needed, sources, wanted, given)
    except (RunFailed, UnsupportedModel):  # its types are not those of a graph by itself
        return None
    return ShapeProgram(session, tuple(wanted), sources)


def _read(node: NodeProto, dims: tuple[Expr, ...]) -> tuple[Expr, ...] | Expr:
    """What a Shape or Size makes of these dims."""
    if node.op_type == "Size":
        size = Expr.const(1)
        for dim in dims:
            size = size * dim
        return size
    ends: dict[str, Any] = {a.name: a.i for a in node.attribute}
    return dims[ends.get("start", 0) : ends.get("end", len(dims))]


def _session(
    proto: onnx.ModelProto,
    needed: Mapping[str, NodeProto],
    sources: Mapping[str, tuple[Expr, ...] | Expr],
    wanted: Sequence[str],
    given: Sequence[str],
) -> onnxruntime.InferenceSession:
    graph = proto.graph
    nodes = [node for node in graph.node if any(name in needed for name in node.output)]
    reads = {name for node in nodes for name in node.input} | set(wanted)
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, [None] if isinstance(s, tuple) else [])
        for name, s in sources.items()
    ]
    inputs += [i for i in graph.input if i.name in given]
    outputs = [onnx.ValueInfoProto(name=name) for name in wanted]
    alone = helper.make_graph(
        nodes, "shapes", inputs, outputs, [t for t in graph.initializer if t.name in reads]
    )
    model = helper.make_model(alone, opset_imports=proto.opset_import, ir_version=max(proto.ir_version, 4))
    settings = kept()
    options = settings.to_session_options()
    options.intra_op_num_threads = 1
    return create_session(model, settings, options)
