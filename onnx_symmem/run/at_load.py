"""The dims that ONNX Runtime knows once it has loaded a model: those in the file and those it infers itself.

They decide what works in place, and they are not saved: a model that ONNX Runtime optimised and wrote back
declares what its source declared. ONNX Runtime infers with the rules of the ONNX standard, names where they
carry over and nothing where they do not, so the inference of the onnx package stands in for it; symbols that
the package invents are dropped. Fused operators are not in the standard and get stand-ins.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import onnx
import onnx.shape_inference
from onnx import AttributeProto, NodeProto, TensorProto, TypeProto, helper

from onnx_symmem.graph.load import LoadedModel, graphs_of
from onnx_symmem.graph.view import view_model
from onnx_symmem.memory.sizes import DimKeys, from_declared
from onnx_symmem.run.carried_values import inferred_with_values
from onnx_symmem.shapes.table import GraphShapes

__all__ = ["keys_at_load"]

_DEFAULTS = 4  # from this version of the IR on an initializer among the inputs is a default
_LARGE = 4096  # elements; contents of larger constants play no part in shape inference

# Operators outside the standard whose first output has the dims of the first input.
_KEEP_DIMS = frozenset(
    (
        "BiasAdd", "BiasDropout", "BiasGelu", "BiasSoftmax", "FastGelu", "Gelu", "GroupNorm",
        "ParametricSoftplus", "QuickGelu", "RotaryEmbedding", "ScaledTanh", "SimplifiedLayerNormalization",
        "SkipGroupNorm", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization",
    )
)  # fmt: skip
_PLAIN = {"FusedConv": "Conv", "FusedGemm": "Gemm", "FusedMatMul": "MatMul", "TransposeMatMul": "MatMul"}
_OWN = frozenset(
    (
        "activation", "activation_alpha", "activation_beta", "activation_gamma", "activation_params", "alpha",
        "transA", "transB", "transBatchA", "transBatchB",
    )
)  # fmt: skip


def keys_at_load(model: LoadedModel, shapes: GraphShapes) -> DimKeys:
    """What ONNX Runtime compares per value when it plans `model`; `shapes` are those of its main graph."""
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    written = _names(proto)
    for graph in graphs_of(proto.graph):
        for tensor in graph.initializer:
            _without_large_contents(tensor)
    inference = onnx.ModelProto()
    inference.CopyFrom(proto)
    _without_defaults(inference)
    for graph, known in _with_shapes(inference.graph, shapes):
        nodes = [n for node in graph.node for n in _stand_ins(node, known)]
        del graph.node[:]
        graph.node.extend(nodes)
    try:
        inferred = inferred_with_values(inference)
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError):
        # A model the package cannot read: what is declared is left.
        return from_declared(model.view().graph)
    pairs = zip(graphs_of(proto.graph), graphs_of(inferred.graph), strict=True)
    for number, (graph, other) in enumerate(pairs):
        made = {name for node in graph.node for name in node.output} - {o.name for o in graph.output}
        del graph.value_info[:]
        graph.value_info.extend(info for info in other.value_info if info.name in made)
        if number:
            # An If asks whether the dims of its branches' outputs are numbers: inferred ones count.
            for mine, inferred_output in zip(graph.output, other.output, strict=True):
                _take_numbers(mine.type.tensor_type, inferred_output.type.tensor_type, written)
        for info in graph.value_info:
            for dim in info.type.tensor_type.shape.dim:
                if dim.dim_param and dim.dim_param not in written:
                    dim.ClearField("dim_param")
    return from_declared(view_model(proto).graph)


def _take_numbers(declared: TypeProto.Tensor, inferred: TypeProto.Tensor, written: Collection[str]) -> None:
    """Put the numbers that inference found where a declaration of as many dims, or of no dims, has none."""
    if not declared.HasField("shape") and inferred.HasField("shape"):
        declared.shape.CopyFrom(inferred.shape)
        for dim in declared.shape.dim:
            if dim.dim_param and dim.dim_param not in written:
                dim.ClearField("dim_param")
        return
    if len(declared.shape.dim) == len(inferred.shape.dim):
        for mine, other in zip(declared.shape.dim, inferred.shape.dim, strict=True):
            if other.HasField("dim_value") and not mine.HasField("dim_value"):
                mine.dim_value = other.dim_value


def _names(proto: onnx.ModelProto) -> frozenset[str]:
    """All dim names in the file."""
    return frozenset(
        dim.dim_param
        for graph in graphs_of(proto.graph)
        for infos in (graph.input, graph.output, graph.value_info)
        for info in infos
        for dim in info.type.tensor_type.shape.dim
        if dim.dim_param
    )


def _without_large_contents(tensor: TensorProto) -> None:
    count = 1
    for dim in tensor.dims:
        count *= dim
    if count > _LARGE and tensor.data_location != TensorProto.EXTERNAL:
        bare = TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
        tensor.CopyFrom(bare)


def _without_defaults(model: onnx.ModelProto) -> None:
    """Take out initializers that are inputs, too: a caller may replace them, so nothing is known of them."""
    if model.ir_version >= _DEFAULTS:
        inputs = {i.name for i in model.graph.input}
        kept = [t for t in model.graph.initializer if t.name not in inputs]
        del model.graph.initializer[:]
        model.graph.initializer.extend(kept)


def _with_shapes(
    graph: onnx.GraphProto, shapes: GraphShapes | None
) -> Iterator[tuple[onnx.GraphProto, GraphShapes | None]]:
    """Every graph with its shapes, in the order of `graphs_of`."""
    yield graph, shapes
    for k, node in enumerate(graph.node):
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                inner = shapes.subgraphs.get((k, attribute.name)) if shapes is not None else None
                yield from _with_shapes(attribute.g, inner)


def _stand_ins(node: NodeProto, shapes: GraphShapes | None) -> Iterator[NodeProto]:
    """Operators of the standard with the dims of a fused one, or the node itself."""
    if node.domain != "com.microsoft" and node.op_type != "SimplifiedLayerNormalization":
        yield node
    elif node.op_type in _KEEP_DIMS and node.input and node.output:
        yield helper.make_node("Identity", node.input[:1], node.output[:1])
        if node.op_type.startswith("Skip") and len(node.output) > 3 and node.output[3]:
            yield helper.make_node("Identity", node.input[:1], node.output[3:4])
    elif node.op_type in _PLAIN:
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        inputs = list(node.input)
        if "MatMul" in node.op_type:
            if attributes.get("transBatchA") or attributes.get("transBatchB"):
                return
            for k, name in enumerate(("transA", "transB")):
                if attributes.get(name):
                    turned = f"{node.output[0]}/turned_{k}"
                    perm = _last_two_swapped(shapes, inputs[k])
                    if perm is None:
                        return
                    yield helper.make_node("Transpose", [inputs[k]], [turned], perm=perm)
                    inputs[k] = turned
            yield helper.make_node("MatMul", inputs, node.output)
        else:
            count = 3 if node.op_type == "FusedConv" else len(inputs)
            kept = _OWN if node.op_type == "FusedConv" else _OWN - {"transA", "transB", "alpha"}
            plain = helper.make_node(_PLAIN[node.op_type], inputs[:count], node.output)
            plain.attribute.extend(a for a in node.attribute if a.name not in kept)
            yield plain


def _last_two_swapped(shapes: GraphShapes | None, name: str) -> list[int] | None:
    at = shapes.view.index.get(name) if shapes is not None else None
    dims = shapes.dims[at] if shapes is not None and at is not None else None
    if dims is None or len(dims) < 2:
        return None
    perm = list(range(len(dims)))
    return [*perm[:-2], perm[-1], perm[-2]]
