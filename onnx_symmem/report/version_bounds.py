"""What no order of a version's nodes can be below, of a model that holds several versions.

A version is a branch of nested Ifs, and bounds count nothing inside control flow. So the model is looked at
as if the version stood in its main graph, behind the nodes that decide: a run of the version is an order of
these nodes, and takes at every moment what a plan of them takes, or more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import onnx
from onnx import GraphProto, NodeProto

from onnx_symmem.expr.domain import Domain
from onnx_symmem.expr.expression import Expr
from onnx_symmem.graph.load import LoadedModel
from onnx_symmem.memory.execution_order import default_order, priority_order
from onnx_symmem.memory.peak import peak_of
from onnx_symmem.memory.plan import PlanOptions, prepare
from onnx_symmem.memory.sizes import value_sizes
from onnx_symmem.order.bound import lower_bound
from onnx_symmem.rewrite.reorder import execution_order_of
from onnx_symmem.run.at_load import keys_at_load
from onnx_symmem.run.branches import Branches
from onnx_symmem.shapes.engine import infer_shapes

__all__ = ["unfolded_version", "version_bounds"]


def version_bounds(
    model: LoadedModel, branches: Branches, domain: Domain, provider: str = "cpu"
) -> tuple[tuple[Expr, ...], ...]:
    """Per version, expressions in bytes whose maximum no order of its nodes is below; none may be known."""
    found: dict[frozenset[tuple[str, ...]], tuple[Expr, ...]] = {}
    bounds = []
    for version in range(branches.count):
        proto = unfolded_version(model.proto, branches.about["branches"], version)
        # Versions that are orders of the same nodes have one bound.
        nodes = frozenset((n.op_type, n.name, *n.input[:1]) for n in proto.graph.node)
        if nodes not in found:
            found[nodes] = _bound(replace(model, proto=proto), branches, domain, provider)
        bounds.append(found[nodes])
    return tuple(bounds)


def _bound(model: LoadedModel, branches: Branches, domain: Domain, provider: str) -> tuple[Expr, ...]:
    shapes = infer_shapes(model.view(), domain)
    view = shapes.graph.view
    rule = default_order if execution_order_of(model.proto) == "default" else priority_order
    prepared = prepare(view, keys_at_load(model, shapes.graph), PlanOptions(provider), rule)
    least = lower_bound(prepared, value_sizes(shapes.graph), shapes.domain, [rule(view)])
    # A size that data decides has a name of its own in every model; what is left out makes the bound less.
    told = set(branches.shapes.input_symbols)
    known = [e for e in map(shapes.domain.solved, least) if e.symbols() <= told]
    return peak_of(known, domain).members if known else ()


def unfolded_version(model: onnx.ModelProto, prefix: str, version: int) -> onnx.ModelProto:
    """The model with one version in its main graph; outputs have the names that they have in its branch."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    outer = [node for node in model.graph.node if not _is_choice(node, prefix)]
    choice = next(node for node in model.graph.node if _is_choice(node, prefix))
    names = {name: name for name in choice.output}
    for _ in range(version):
        later = _branch(choice, "else_branch")
        names = _through(names, choice, later)
        nested = [node for node in later.node if _is_choice(node, prefix)]
        if not nested:
            break
        choice = nested[0]
    else:
        later = _branch(choice, "then_branch")
        names = _through(names, choice, later)
    del graph.node[:], graph.value_info[:]
    graph.node.extend([*outer, *later.node])
    graph.value_info.extend([*model.graph.value_info, *later.value_info])
    for output in graph.output:
        output.name = names.get(output.name, output.name)
    return result


def _is_choice(node: NodeProto, prefix: str) -> bool:
    return node.op_type == "If" and node.name.startswith(prefix)


def _branch(node: NodeProto, name: str) -> GraphProto:
    return next(a.g for a in node.attribute if a.name == name)


def _through(names: dict[str, str], node: NodeProto, branch: GraphProto) -> dict[str, str]:
    """What the outputs of a model are called inside a branch."""
    inside: dict[str, str] = dict(zip(node.output, _names(branch.output), strict=True))
    return {outer: inside[name] for outer, name in names.items()}


def _names(values: Iterable[onnx.ValueInfoProto]) -> Sequence[str]:
    return [value.name for value in values]
