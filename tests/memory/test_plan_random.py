"""Random models: predicted bytes in use equal ONNX Runtime's profiler at every node, to the byte."""

import numpy as np
import pytest
from onnx import helper

from tests.memory.runtime import (
    BOOL,
    FLOAT,
    INT32,
    INT64,
    bytes_by_node,
    info,
    measured,
    model,
    number,
    predicted,
)

UNARY = (
    "Relu",
    "Sigmoid",
    "Tanh",
    "Softmax",
    "Clip",
    "LeakyRelu",
    "Neg",
    "Exp",
    "Abs",
    "Identity",
    "Dropout",
)
OPS = (*UNARY, "Add", "Mul", "Concat", "Reshape", "Flatten", "Split", "Cast", "Size", "Sum0", "If", "Where")
SHAPE = {"N": 5}


class Builder:
    """Grows a model whose values are [rows, N] floats with declared dims, or scalars."""

    def __init__(self, rng: np.random.Generator, prefix: str = "", rows=None) -> None:
        self.rng, self.prefix = rng, prefix
        self.rows: dict[str, int] = dict(rows or {})
        self.nodes, self.infos = [], []

    def value(self, name: str, rows: int) -> str:
        self.rows[name] = rows
        self.infos.append(info(name, [rows, "N"]))
        return name

    def recent(self) -> str:
        names = list(self.rows)[-5:]
        return names[int(self.rng.integers(len(names)))]

    def peer(self, name: str) -> str:
        same = [v for v, r in self.rows.items() if r == self.rows[name]]
        return same[int(self.rng.integers(len(same)))]

    def scalar(self, name: str, elem_type: int) -> str:
        self.infos.append(info(name, [], elem_type))
        return name

    def grow(self, k: int, depth: int) -> None:
        op = OPS[int(self.rng.integers(len(OPS)))]
        name = f"{self.prefix}{op}{k}"
        out, v = f"{self.prefix}v{k}", self.recent()
        rows = self.rows[v]
        node = None
        if op in UNARY:
            node = helper.make_node(op, [v], [self.value(out, rows)], name=name)
        elif op in ("Add", "Mul"):
            node = helper.make_node(op, [v, self.peer(v)], [self.value(out, rows)], name=name)
        elif op == "Concat" and rows <= 4:
            w = self.peer(v)
            node = helper.make_node("Concat", [v, w], [self.value(out, 2 * rows)], name=name, axis=0)
        elif op == "Reshape":
            self.infos.append(info(out, [rows, "N"]))
            self.rows[out] = rows
            node = helper.make_node("Reshape", [v, "keep"], [out], name=name)
        elif op == "Flatten":
            node = helper.make_node("Flatten", [v], [self.value(out, rows)], name=name, axis=1)
        elif op == "Split" and rows % 2 == 0:
            outs = [self.value(out, rows // 2), self.value(out + "b", rows // 2)]
            node = helper.make_node("Split", [v], outs, name=name, axis=0)
        elif op == "Cast":
            self.infos.append(info(out + "i", [rows, "N"], INT32))
            self.nodes.append(helper.make_node("Cast", [v], [out + "i"], name=name + "i", to=INT32))
            node = helper.make_node("Cast", [out + "i"], [self.value(out, rows)], name=name, to=FLOAT)
        elif op == "Size":
            node = helper.make_node("Size", [v], [self.scalar(out, INT64)], name=name)
        elif op == "Sum0":
            self.infos.append(info(out + "s", [], FLOAT))
            self.nodes.append(helper.make_node("ReduceSum", [v], [out + "s"], name=name + "s", keepdims=0))
            node = helper.make_node("Clip", [out + "s", "low"], [self.scalar(out, FLOAT)], name=name)
        elif op == "Where":
            self.infos.append(info(out + "c", [rows, "N"], BOOL))
            self.nodes.append(helper.make_node("Greater", [v, self.peer(v)], [out + "c"], name=name + "c"))
            node = helper.make_node("Where", [out + "c", v, self.peer(v)], [self.value(out, rows)], name=name)
        elif op == "If" and depth:
            node = self.branches(name, out, v, depth)
        if node is not None:
            self.nodes.append(node)

    def branches(self, name: str, out: str, v: str, depth: int):
        """An If whose branches read outer values and make [2, N] floats and a scalar."""
        attributes = {}
        for branch in ("then_branch", "else_branch"):
            inner = Builder(self.rng, f"{name}{branch[0]}_", {v: self.rows[v]})
            inner.rows.update(dict(list(self.rows.items())[-3:]))
            for k in range(int(self.rng.integers(1, 6))):
                inner.grow(k, depth - 1)
            start, p = list(inner.rows)[-1], inner.prefix
            resize = {1: ("Expand", "two"), 2: ("Neg",)}.get(
                inner.rows[start], ("Slice", "zero", "two_rows", "zero")
            )
            inner.nodes += [
                helper.make_node("Size", [start], [p + "n"], name=p + "Count"),
                helper.make_node(resize[0], [start, *resize[1:]], [p + "w"], name=p + "Resize"),
                helper.make_node("Abs", [p + "w"], [p + "y"], name=p + "End"),
            ]
            results = [info(p + "y", [2, "N"]), info(p + "n", [], INT64)]
            infos = [*inner.infos, info(p + "w", [2, "N"])]
            attributes[branch] = helper.make_graph(inner.nodes, branch, [], results, value_info=infos)
        condition = "yes" if self.rng.random() < 0.5 else "no"
        results = [self.value(out, 2), self.scalar(out + "n", INT64)]
        return helper.make_node("If", [condition], results, name=name, **attributes)


def random_model(seed: int):
    rng = np.random.default_rng(seed)
    builder = Builder(rng, rows={"x": 2})
    for k in range(int(rng.integers(6, 26))):
        builder.grow(k, depth=2)
    read = {i for n in builder.nodes for i in n.input}
    made = [v for v in builder.rows if v != "x"]
    leaves = [v for v in made if v not in read]
    outputs = leaves[:1] + [v for v in leaves[1:] if rng.random() < 0.3]
    inner = [v for v in made if v in read]
    if inner and rng.random() < 0.5:
        outputs.append(inner[int(rng.integers(len(inner)))])
    if not outputs:
        return None
    infos = [i for i in builder.infos if i.name not in outputs]
    weights = [
        number("keep", [0, -1]),
        number("low", 0.0, FLOAT),
        number("yes", True, BOOL),
        number("no", False, BOOL),
        number("two", [2, 1]),
        number("zero", [0]),
        number("two_rows", [2]),
    ]
    results = [info(o, [builder.rows[o], "N"]) for o in outputs]
    return model(builder.nodes, [info("x", [2, "N"])], results, weights, infos)


@pytest.mark.parametrize("seed", range(25))
def test_predicted_equals_measured(seed):
    proto = random_model(seed)
    assert proto is not None, "this seed gives an empty model: take another"
    feeds = {"x": np.ones((2, SHAPE["N"]), np.float32)}
    for order in ("DEFAULT", "PRIORITY_BASED"):
        for reuse in (False, True):
            found = measured(proto, feeds, order, reuse)
            expected = bytes_by_node(predicted(proto, order, reuse), SHAPE)
            assert {n: expected[n] for n in found} == found, (order, reuse)
