"""Repeats that ONNX Runtime does not merge with what they repeat.

Its elimination of common subexpressions, on in every session that is told nothing, merges nodes of one graph
that do the same to the same values: what a schedule makes again would be kept instead. A repeat that reads
another instance of anything is another expression already. One that reads what an earlier run read, of its
own node or, in a graph that was not optimised, of one that does the same, takes one of these values through
`Reshape(value, zeros)`: an alias, which takes no memory, and as zeros stand for dims that stay, of the same
dims. The zeros are the default of an input that nobody has to feed. So they are no constant that could be
folded or shared, and the zeros of the second repeat are others than those of the first.

Taken is what a node made rather than an input of the model, and weights come last: kernels lay them out
anew at load only where they are constants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx
from onnx import NodeProto, TensorProto, ValueInfoProto, helper

from onnx_symmem.errors import UnsupportedModel
from onnx_symmem.graph.view import INITIALIZER, NODE, GraphView
from onnx_symmem.remat.expansion import ExpandedStep, Expansion
from onnx_symmem.remat.schedule import OFFLOAD, RELOAD, RUN
from onnx_symmem.shapes.names import dim_text
from onnx_symmem.shapes.table import GraphShapes

__all__ = ["Apart", "add_defaults", "tell_apart", "zero_vector"]

_OLDEST_OPSET = 5  # from which on Reshape takes its dims as an input, of every type


@dataclass(frozen=True)
class Apart:
    """What keeps the repeats of one schedule apart.

    `before` are the aliases by the position of the step that they stand before; `reads` are, by step and
    input, the names read instead. `infos` say the aliases' dims.
    """

    before: Mapping[int, tuple[NodeProto, ...]]
    reads: Mapping[tuple[int, int], str]
    infos: tuple[ValueInfoProto, ...]


def tell_apart(
    expansion: Expansion,
    shapes: GraphShapes,
    names: Sequence[str],
    zeros: Callable[[int, int], str],
    fresh: Callable[[str], str],
    declared: Mapping[str, ValueInfoProto],
    opset: int,
) -> Apart:
    """The aliases that an expanded schedule of the graph of `shapes` needs.

    `names` are those of its instances; `zeros` gives the name of a vector by number and rank, `fresh` one
    that is new, and `declared` what the base graph says of its values. Raises UnsupportedModel where a
    repeat cannot be kept apart.
    """
    runs: dict[tuple[int, ...], int] = {}
    kinds = _kinds(shapes.view)
    before: dict[int, tuple[NodeProto, ...]] = {}
    reads: dict[tuple[int, int], str] = {}
    infos: list[ValueInfoProto] = []
    made: dict[tuple[int, int], str] = {}  # by instance and number
    for place, step in enumerate(expansion.steps):
        if step.kind not in (RUN, OFFLOAD, RELOAD):
            continue
        what = kinds[step.index] if step.kind == RUN else step.index
        key = (step.kind != RUN, step.kind == RELOAD, what, *step.reads, -2, *step.captured)
        number = runs[key] = runs.get(key, -1) + 1
        if not number:
            continue
        at = _position(expansion, step, shapes) if opset >= _OLDEST_OPSET else -1
        if at < 0 and not step.number and step.kind == RUN:
            continue  # The model says it twice: what becomes of that is counted when the file is loaded.
        if at < 0:
            label = expansion.view().nodes[place].label()
            raise UnsupportedModel(
                f"{label}: ONNX Runtime would merge it with what it repeats, and none of its inputs can be "
                "told apart, which anchors need"
            )
        source = step.reads[at]
        if (source, number) not in made:
            value = expansion.instances[source].value
            rank = len(shapes.dims[value] or ())
            alias = made[source, number] = fresh(f"{names[source]}/apart{number}")
            node = helper.make_node("Reshape", [names[source], zeros(number, rank)], [alias], name=alias)
            before[place] = (node,)
            infos += _info(alias, value, shapes, declared)
        reads[place, at] = made[source, number]
    return Apart(before, reads, tuple(infos))


def _kinds(view: GraphView) -> tuple[int, ...]:
    """Per node a number, the same of nodes that would do the same to the same values."""
    numbers: dict[tuple[Any, ...], int] = {}
    found: list[int] = []
    for node in view.nodes:
        said = tuple((name, _bits(value)) for name, value in sorted(node.attributes.items()))
        key = (node.op, node.domain, len(node.outputs), said, node.index if node.subgraphs else -1)
        found.append(numbers.setdefault(key, len(numbers)))
    return tuple(found)


def _bits(value: Any) -> Any:
    return value.SerializeToString() if hasattr(value, "SerializeToString") else repr(value)


def _position(expansion: Expansion, step: ExpandedStep, shapes: GraphShapes) -> int:
    """The input of a step to take an alias of, -1 where there is none."""
    if step.kind != RUN:
        return -1
    ranked: list[tuple[int, int]] = []
    for at, source in enumerate(step.reads):
        value = expansion.instances[source].value if source >= 0 else -1
        if value < 0 or shapes.dims[value] is None or not shapes.elem_types[value]:
            continue
        known = shapes.view.values[value]
        kind = known.type.WhichOneof("value") if known.type is not None else None
        if kind not in (None, "tensor_type"):
            continue
        made_by = shapes.view.nodes[known.producer].op if known.kind == NODE else ""
        constant = known.kind == INITIALIZER or made_by == "Constant"
        ranked.append((2 if constant else int(known.kind != NODE), at))
    return min(ranked)[1] if ranked else -1


def _info(
    name: str, value: int, shapes: GraphShapes, declared: Mapping[str, ValueInfoProto]
) -> Iterable[ValueInfoProto]:
    """What is said of an alias: as much as of what it stands for."""
    known = shapes.view.values[value]
    if known.kind == NODE:
        told = declared.get(known.name)
        if told is not None:
            yield ValueInfoProto(name=name, type=told.type)
        return
    dims = [dim_text(d) for d in shapes.dims[value] or ()]
    yield helper.make_tensor_value_info(name, shapes.elem_types[value], dims)


def zero_vector(name: str, rank: int) -> TensorProto:
    """So many zeros."""
    return helper.make_tensor(name, TensorProto.INT64, [rank], [0] * rank)


def add_defaults(model: onnx.ModelProto, tensors: Iterable[TensorProto]) -> None:
    """Add initializers that are inputs, too: defaults, which a caller may replace, and so no constants."""
    graph = model.graph
    if model.ir_version < 4:
        # Up to IR 3 every initializer is an input too; from then on that lets callers override it.
        own = {t.name for t in graph.initializer}
        kept = [i for i in graph.input if i.name not in own]
        del graph.input[:]
        graph.input.extend(kept)
        model.ir_version = 4
    for tensor in tensors:
        graph.initializer.append(tensor)
        graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
