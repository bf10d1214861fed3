"""Random graphs of shape-changing ops: every dim right at every shape that ONNX Runtime accepts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import helper

from benchmarks.real_shapes import compare_shapes, run_all_outputs
from onnx_symmem.graph.load import load_model
from tests.shapes.building import BOOL, FLOAT, INT64, feeds, graph, infer, model, node, value


class Drawn:
    """A graph in the making: nodes so far, constants, and the rank of every float tensor."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, object] = {}
        self.inputs: list[onnx.ValueInfoProto] = []
        self.ranks: dict[str, int] = {}
        for k in range(3):
            rank = int(self.rng.integers(1, 5))
            dims = [
                self.choose("abcd") if self.rng.random() < 0.7 else self.number(1, 5) for _ in range(rank)
            ]
            self.inputs.append(value(f"x{k}", FLOAT, dims))
            self.ranks[f"x{k}"] = rank

    def choose(self, among: str | list) -> object:
        return among[int(self.rng.integers(len(among)))]

    def number(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high))

    def tensor(self, rank: int | None = None) -> str:
        return str(self.choose([n for n, r in self.ranks.items() if rank is None or r == rank]))

    def constant(self, content: object) -> str:
        name = f"k{len(self.constants)}"
        self.constants[name] = content
        return name

    def add(self, op: str, inputs: str, rank: int, elem: str = "", **attributes: object) -> str:
        name = f"t{len(self.nodes)}{elem}"
        self.nodes.append(node(op, inputs, name, **attributes))
        if not elem:
            self.ranks[name] = rank
        return name

    def model(self) -> onnx.ModelProto:
        last = list(self.ranks)[-1]
        return model(graph(self.nodes, self.inputs, last, **self.constants))


def binary(g: Drawn, x: str, r: int) -> None:
    other = g.tensor()
    g.add("Add", f"{x} {other}", max(r, g.ranks[other]))


def concat(g: Drawn, x: str, r: int) -> None:
    g.add("Concat", f"{x} {g.tensor(r)}", r, axis=g.number(0, r))


def cut(g: Drawn, x: str, r: int) -> None:
    start, end, step = g.number(-4, 5), g.number(-5, 9), g.choose([1, 1, 2, 3, -1, -2])
    arguments = " ".join(g.constant([c]) for c in (start, end, g.number(0, r), step))
    g.add("Slice", f"{x} {arguments}", r)


def cut_by_a_size(g: Drawn, x: str, r: int) -> None:
    size = g.add("Shape", g.tensor(), 1, "s", start=0, end=1)
    axis = g.constant([g.number(0, r)])
    if g.rng.random() < 0.5:
        g.add("Slice", f"{x} {g.constant([0])} {size} {axis}", r)
    else:
        back = g.add("Neg", size, 1, "n")
        g.add("Slice", f"{x} {back} {g.constant([2**40])} {axis}", r)


def transpose(g: Drawn, x: str, r: int) -> None:
    g.add("Transpose", x, r, perm=[int(p) for p in g.rng.permutation(r)])


def reduce(g: Drawn, x: str, r: int) -> None:
    keep = g.number(0, 2)
    g.add("ReduceSum", f"{x} {g.constant([g.number(0, r)])}", r if keep else r - 1, keepdims=keep)


def reshape(g: Drawn, x: str, r: int) -> None:
    target = g.choose([[-1], [0, -1], [-1, 2], [1, -1, 1], [-1, 3]])
    g.add("Reshape", f"{x} {g.constant(target)}", len(target))  # type: ignore[arg-type]


def expand(g: Drawn, x: str, r: int) -> None:
    other = g.tensor()
    size = g.add("Shape", other, 1, "s")
    g.add("Expand", f"{x} {size}", max(r, g.ranks[other]))


def tile_and_pad(g: Drawn, x: str, r: int) -> None:
    tiled = g.add("Tile", f"{x} {g.constant([g.number(1, 3) for _ in range(r)])}", r)
    g.add("Pad", f"{tiled} {g.constant([g.number(-1, 3) for _ in range(2 * r)])}", r)


def pool(g: Drawn, x: str, r: int) -> None:
    if r == 3:
        g.add(
            "MaxPool", x, r, kernel_shape=[g.number(1, 4)], strides=[g.number(1, 4)], ceil_mode=g.number(0, 2)
        )


def resize(g: Drawn, x: str, r: int) -> None:
    if r == 3:
        scales = g.constant([1.0, 1.0, float(g.choose([0.5, 2.0, 1.5, 0.3]))])  # type: ignore[arg-type]
        g.add("Resize", f"{x} - {scales}", r, mode="nearest")


def split(g: Drawn, x: str, r: int) -> None:
    name = f"t{len(g.nodes)}"
    g.nodes.append(node("Split", x, f"{name} {name}b", axis=g.number(0, r), num_outputs=2))
    g.ranks |= {name: r, f"{name}b": r}


def find(g: Drawn, x: str, r: int) -> None:
    g.add("Cast", g.add("NonZero", x, 2, "i"), 2, to=FLOAT)


def count(g: Drawn, x: str, r: int) -> None:
    size = g.add("Squeeze", f"{g.add('Shape', x, 1, 's', start=0, end=1)} {g.constant([0])}", 0, "n")
    steps = g.add("Range", f"{g.constant(0)} {size} {g.constant(g.number(1, 4))}", 1, "r")
    g.add("Cast", steps, 1, to=FLOAT)


def branch(g: Drawn, x: str, r: int) -> None:
    size = g.add("Squeeze", f"{g.add('Shape', x, 1, 's', start=0, end=1)} {g.constant([0])}", 0, "n")
    small = g.add("Less", f"{size} {g.constant(3)}", 0, "c")
    graphs = []
    for k, copies in enumerate((1, g.number(1, 3))):
        name = f"b{len(g.nodes)}_{k}"
        one = node("Concat", " ".join([x] * copies), name, axis=0)
        graphs.append(helper.make_graph([one], name, [], [onnx.ValueInfoProto(name=name)]))
    g.add("If", small, r, then_branch=graphs[0], else_branch=graphs[1])


def loop(g: Drawn, x: str, r: int) -> None:
    p = f"l{len(g.nodes)}_"
    grow = (
        node("Concat", f"{p}v {x}", f"{p}w", axis=0)
        if g.rng.random() < 0.5
        else node("Relu", f"{p}v", f"{p}w")
    )
    body = helper.make_graph(
        [node("Identity", f"{p}go", f"{p}on"), grow, node("Identity", x, f"{p}scan")],
        "body",
        [value(f"{p}k", INT64, []), value(f"{p}go", BOOL, []), value(f"{p}v", FLOAT)],
        [onnx.ValueInfoProto(name=f"{p}{n}") for n in ("on", "w", "scan")],
    )
    name = f"t{len(g.nodes)}"
    trips = f"{g.constant(g.number(1, 4))} {g.constant(True)}"
    g.nodes.append(node("Loop", f"{trips} {x}", f"{name} {name}q", body=body))
    g.ranks |= {name: r, f"{name}q": r + 1}


STEPS: list[Callable[[Drawn, str, int], None]] = [
    binary,
    concat,
    cut,
    cut_by_a_size,
    transpose,
    reduce,
    reshape,
    expand,
    tile_and_pad,
    pool,
    resize,
    split,
    find,
    count,
    branch,
    loop,
]


@pytest.mark.parametrize("seed", range(60))
def test_random_graph(seed: int) -> None:
    g = Drawn(seed)
    for _ in range(g.number(4, 12)):
        x = g.tensor()
        if g.ranks[x]:
            g.choose(STEPS)(g, x, g.ranks[x])  # type: ignore[arg-type, operator]
    proto = g.model()
    shapes = infer(proto)
    loaded, session = load_model(proto), None
    names = sorted(shapes.input_symbols)
    for _ in range(8):
        at = {name: g.number(1, 6) for name in names}
        at = dict(shapes.domain.completed({n: s for n, s in at.items() if n not in shapes.domain.equalities}))
        if not shapes.domain.contains(at):
            continue
        try:
            real, session = run_all_outputs(loaded, feeds(proto, at), session)
        except Exception:  # the drawn graph does not run at this shape
            continue
        assert not list(compare_shapes(shapes, real, at)), at
