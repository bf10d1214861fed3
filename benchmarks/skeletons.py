"""The smallest graphs that show what ONNX Runtime does with repeats (facts/ONNXRUNTIME, 2.2, 4.1 and 4.2).

t (8 units of x) is read early and late, and 16 units of other tensors are needed in between: keeping t takes
25 units, making it again 17. The input `again` decides where there is an If.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx
from onnx import GraphProto, NodeProto, TensorProto, helper

__all__ = ["AGAIN", "UNIT", "choose", "node_of", "skeletons", "static_output", "unread"]

AGAIN = "again"
"""The input that says whether to repeat."""

UNIT = 1 << 16  # elements of x


def skeletons() -> dict[str, onnx.ModelProto]:
    """Every way to have t late: kept, made again, or left to an If; `again` decides where there is one."""
    t, early = _wide("x", 8, "t"), _least("t", "early")
    between = [node_of("Add", ["x", "early"], "x2"), _wide("x2", 16, "big"), _least("big", "between")]
    late = [node_of("Add", ["t2", "between"], "sum"), _least("sum", "y")]
    straight = [node_of("Add", ["t", "between"], "sum"), _least("sum", "y")]
    keep = _graph([node_of("Identity", ["t"], "t_kept")], "t_kept")
    make = _graph([_wide("x", 8, "t_again")], "t_again")
    drop = _graph([node_of("Slice", ["t", "none", "none", "one"], "nothing")], "nothing")
    stay = _graph([node_of("Identity", ["t"], "t_stays")], "t_stays")
    later = _graph([node_of("Identity", ["held"], "t_held")], "t_held")
    ours = [
        _wide("x", 8, "a/t"),
        _least("a/t", "a/early"),
        node_of("Slice", ["a/t", "none", "none", "one"], "a/no"),
    ]
    theirs = [_wide("x", 8, "b/t"), _least("b/t", "b/early")]
    first = (_graph(ours, "a/early", "a/no"), _graph(theirs, "b/early", "b/t"))
    second = [node_of("Add", ["late/t", "between"], "late/sum"), _least("late/sum", "late/y")]
    third = [node_of("Add", ["held", "between"], "kept/sum"), _least("kept/sum", "kept/y")]
    last = (_graph([_wide("x", 8, "late/t"), *second], "late/y"), _graph(third, "kept/y"))
    whole = [_suffixed([t, early, *between, _wide("x", 8, "t2"), *late], "/then")]
    whole += [_suffixed([t, early, *between, *straight], "/else")]
    versions = [_graph(nodes, f"y{way}") for nodes, way in zip(whole, ("/then", "/else"), strict=True)]
    return {
        "kept": _small([t, early, *between, *straight]),
        "made again": _small([t, early, *between, _wide("x", 8, "t2"), *late]),
        "naive If": _small([t, early, *between, choose(["t2"], make, keep), *late]),
        "drop If": _small(
            [t, early, choose(["held"], drop, stay), *between, choose(["t2"], _copied(make), later), *late]
        ),
        "region If": _small([choose(["early", "held"], *first), *between, choose(["y"], *last)]),
        "multi-version If": _small([choose(["y"], *versions)]),
    }


def unread(anchored: bool) -> onnx.ModelProto:
    """A result of 4 units that nobody reads, beside 16 of others; with an anchor it is freed at once."""
    nodes = [
        _wide("x", 8, "t"),
        helper.make_node("Split", ["t"], ["p", "q"], name="split", axis=1, num_outputs=2),
    ]
    nodes += [node_of("Size", ["q"], "q/freed")] * anchored
    nodes += [
        _least("p", "early"),
        node_of("Add", ["x", "early"], "x2"),
        _wide("x2", 16, "big"),
        _least("big", "y"),
    ]
    return _small(nodes)


def static_output(dims: bool) -> onnx.ModelProto:
    """A branch that frees 8 units and returns 8 others; those of constant dims are there from the start."""
    made = [
        _wide("one_row", 8, "b1"),
        _least("b1", "b2"),
        node_of("Add", ["one_row", "b2"], "b3"),
        _wide("b3", 8, "b4"),
    ]
    made += [_least("b4", "b5"), node_of("Add", ["one_row", "b5"], "b6"), _wide("b6", 8, "b7")]
    branches = []
    for way in ("/then", "/else"):
        graph = _graph(_suffixed(made, way, keep=("one_row",)), f"b7{way}")
        if dims:
            graph.output[0].CopyFrom(
                helper.make_tensor_value_info(f"b7{way}", TensorProto.FLOAT, [1, 8 * UNIT])
            )
        branches.append(graph)
    first = node_of("Reshape", ["x", "row" if dims else "as_it_is"], "one_row")
    return _small([first, choose(["out"], *branches), _least("out", "y")])


def node_of(op: str, inputs: Sequence[str], output: str) -> NodeProto:
    """A node of one output, called like it."""
    return helper.make_node(op, list(inputs), [output], name=output)


def _wide(source: str, times: int, output: str) -> NodeProto:
    return helper.make_node("Concat", [source] * times, [output], name=output, axis=1)


def _least(source: str, output: str) -> NodeProto:
    return helper.make_node("ReduceMax", [source, "one"], [output], name=output, keepdims=1)


def choose(outputs: Sequence[str], then: GraphProto, other: GraphProto) -> NodeProto:
    """An If under `again`."""
    return helper.make_node(
        "If", [AGAIN], list(outputs), name=f"if/{outputs[0]}", then_branch=then, else_branch=other
    )


def _graph(nodes: Sequence[NodeProto], *outputs: str) -> GraphProto:
    infos = [helper.make_tensor_value_info(o, TensorProto.FLOAT, [None, None]) for o in outputs]
    return helper.make_graph(list(nodes), outputs[0], [], infos)


def _copied(graph: GraphProto) -> GraphProto:
    result = GraphProto()
    result.CopyFrom(graph)
    return result


def _suffixed(nodes: Sequence[NodeProto], suffix: str, keep: Sequence[str] = ()) -> list[NodeProto]:
    """Copies whose results have names of their own."""
    made = {name for node in nodes for name in node.output}
    result = []
    for node in nodes:
        copy = NodeProto()
        copy.CopyFrom(node)
        copy.name += suffix
        copy.input[:] = [name + suffix * (name in made and name not in keep) for name in node.input]
        copy.output[:] = [name + suffix for name in node.output]
        result.append(copy)
    return result


def _small(nodes: Sequence[NodeProto]) -> onnx.ModelProto:
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", UNIT]),
        helper.make_tensor_value_info(AGAIN, TensorProto.BOOL, []),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 1])]
    numbers = {"one": [1], "none": [0], "row": [1, UNIT], "as_it_is": [0, -1]}
    read = {name for node in nodes for name in _reads(node)}
    weights = [helper.make_tensor(k, TensorProto.INT64, [len(v)], v) for k, v in numbers.items() if k in read]
    graph = helper.make_graph(list(nodes), "control", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def _reads(node: NodeProto) -> Iterator[str]:
    yield from node.input
    for attribute in node.attribute:
        for inner in attribute.g.node:
            yield from _reads(inner)
