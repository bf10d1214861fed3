"""Contents of small tensors: followed exactly, against what ONNX Runtime computes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from benchmarks.real_shapes import run_all_outputs
from onnx_symmem.expr.domain import Domain, SymbolRange
from onnx_symmem.expr.expression import Expr
from onnx_symmem.graph.load import load_model
from tests.shapes.building import BOOL, FLOAT, INT32, INT64, feeds, graph, infer, model, node, texts, value

X = value("x", FLOAT, ["a", "b"])
SCALARS = [node("Shape", "x", "s"), node("Gather", "s zero", "a"), node("Gather", "s one", "b")]
NUMBERS = {"zero": 0, "one": 1, "two": 2, "three": 3, "seven": 7, "minus2": -2}


def run_values(proto: onnx.ModelProto, at: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Contents of all node outputs."""
    import onnxruntime as ort

    _, session = run_all_outputs(load_model(proto), feeds(proto, at))
    assert isinstance(session, ort.InferenceSession)
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds(proto, at)), strict=True))


def assert_values(proto: onnx.ModelProto, *cases: Mapping[str, int], known: tuple[str, ...] = ()) -> None:
    """Every followed item has the real value; the `known` tensors are followed completely."""
    shapes = infer(proto)
    by_name = {shapes.graph.view.values[k].name: v for k, v in shapes.graph.values.items()}
    for name in known:
        assert None not in by_name[name].exprs, name
    for at in cases:
        real = run_values(proto, at)
        for name, content in by_name.items():
            found = [None if e is None else e.evaluate(at) for e in content.exprs]
            wanted = real[name].reshape(-1).tolist()
            assert len(found) == len(wanted), name
            assert all(f is None or f == int(w) for f, w in zip(found, wanted, strict=True)), (
                name,
                at,
                found,
                wanted,
            )


CASES = [{"a": a, "b": b} for a, b in ((1, 1), (1, 7), (2, 3), (5, 2), (13, 8), (30, 31))]
OPS = ["Add", "Sub", "Mul", "Div", "Mod", "Min", "Max", "Neg", "Abs", "Less", "Where", "Float"]


def random_arithmetic(seed: int) -> onnx.ModelProto:
    """A random chain of integer shape arithmetic; divisors are sizes or constants that are not zero."""
    rng = np.random.default_rng(seed)
    nodes, integers, booleans = list(SCALARS), ["a", "b", "two", "three", "seven", "minus2"], []

    def pick() -> str:
        return str(rng.choice(integers))

    for k in range(12):
        op = str(rng.choice(OPS))
        name = f"t{k}"
        if op in ("Div", "Mod"):
            divisor = str(rng.choice(["a", "b", "two", "three", "seven", "minus2"]))
            nodes.append(node(op, f"{pick()} {divisor}", name))
        elif op in ("Neg", "Abs"):
            nodes.append(node(op, pick(), name))
        elif op == "Less":
            other = str(rng.choice(["Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal"]))
            nodes.append(node(other, f"{pick()} {pick()}", name))
            booleans.append(name)
            continue
        elif op == "Where":
            if not booleans:
                continue
            nodes.append(node("Where", f"{rng.choice(booleans)} {pick()} {pick()}", name))
        elif op == "Float":
            nodes.append(node("Cast", str(rng.choice(["a", "b"])), f"{name}f", to=FLOAT))
            scale = str(rng.choice(["half", "third", "x07", "x25"]))
            nodes.append(node(str(rng.choice(["Mul", "Div"])), f"{name}f {scale}", f"{name}g"))
            nodes.append(node(str(rng.choice(["Floor", "Ceil", "Identity"])), f"{name}g", f"{name}h"))
            nodes.append(node("Cast", f"{name}h", name, to=INT64))
        else:
            nodes.append(node(op, f"{pick()} {pick()}", name))
        integers.append(name)
    floats = {
        "half": np.float32(0.5),
        "third": np.float32(1 / 3),
        "x07": np.float32(0.7),
        "x25": np.float32(2.5),
    }
    return model(
        graph(nodes, [X], integers[-1] if integers[-1].startswith("t") else "s", **NUMBERS, **floats)
    )


@pytest.mark.parametrize("seed", range(40))
def test_random_shape_arithmetic_is_exact(seed: int) -> None:
    assert_values(random_arithmetic(seed), *CASES)


def test_movement_of_contents() -> None:
    nodes = [
        node("Shape", "x", "s"),
        node("Concat", "s s pair", "six", axis=0),
        node("Reshape", "six rows", "grid"),
        node("Transpose", "grid", "turned"),
        node("Slice", "six from to - step", "cut"),
        node("Gather", "grid one", "row", axis=0),
        node("Unsqueeze", "row zero1", "wide"),
        node("Squeeze", "wide zero1", "narrow"),
        node("Tile", "s three1", "tiled"),
        node("Split", "six", "p q r", num_outputs=3),
        node("Flatten", "turned", "flat", axis=0),
        node("ReduceProd", "grid zero1", "columns", keepdims=0),
        node("ReduceMax", "grid", "largest"),
        node("ReduceSum", "six", "sum", keepdims=0),
        node("ScatterND", "six at pair", "patched"),
        node("ScatterElements", "six picks pair", "put"),
        node("GatherElements", "six picks", "taken"),
        node("GatherND", "grid corner", "cell"),
        node("Expand", "s rows", "spread"),
        node("ConstantOfShape", "two1", "filled", value=helper.make_tensor("v", INT64, [1], [7])),
        node("Size", "x", "n"),
        node("Range", "zero three one", "steps"),
        node("Cast", "s", "narrowed", to=INT32),
        node("Shape", "x", "last", start=-1),
        node("Identity", "patched", "y"),
    ]
    constants = {
        "pair": [8, 9],
        "rows": [3, 2],
        "from": [5],
        "to": [-7],
        "step": [-2],
        "zero1": [0],
        "three1": [3],
        "at": [[1], [4]],
        "picks": [0, 5],
        "corner": [2, 1],
        "two1": [2],
        "zero": 0,
        "one": 1,
        "three": 3,
    }
    followed = (
        "six grid turned cut row wide narrow tiled p q r flat columns largest sum patched put "
        "taken cell filled n steps narrowed last y"
    )
    proto = model(graph(nodes, [X], "y", **constants))
    assert_values(proto, *CASES, known=tuple(followed.split()))


def test_integer_division_rounds_towards_zero() -> None:
    nodes = [
        *SCALARS,
        node("Sub", "a seven", "d"),
        node("Div", "d two", "q"),
        node("Add", "a seven", "e"),
        node("Div", "e two", "r"),
    ]
    proto = model(graph(nodes, [X], "q r", **NUMBERS))
    below = [{**at, "a": size} for at in CASES[:1] for size in (1, 2, 6, 7, 8)]  # a - 7 may be negative
    assert_values(proto, *CASES, *below, known=("q", "r"))
    known = infer(proto, domain=Domain({"a": SymbolRange(7)}))
    assert str(known.graph.values[known.graph.view.index["q"]].exprs[0]) == "(a + 1)//2 - 4"


def test_a_choice_between_two_sizes_is_their_minimum() -> None:
    nodes = [
        *SCALARS,
        node("Less", "a b", "m"),
        node("Where", "m a b", "low"),
        node("Where", "m b a", "high"),
    ]
    shapes = infer(graph(nodes, [X], "low high", **NUMBERS))
    index = shapes.graph.view.index
    assert str(shapes.graph.values[index["low"]].exprs[0]) == "min(a, b)"
    assert str(shapes.graph.values[index["high"]].exprs[0]) == "max(a, b)"


def test_float_detours_keep_single_roundings_only() -> None:
    nodes = [
        *SCALARS,
        node("Cast", "a", "f", to=FLOAT),
        node("Mul", "f tenth", "g"),
        node("Floor", "g", "h"),
        node("Cast", "h", "scaled", to=INT64),
        node("Add", "g tenth", "twice"),
        node("Floor", "twice", "t"),
        node("Cast", "t", "rounded_twice", to=INT64),
        node("Cast", "f", "half", to=TensorProto.FLOAT16),
        node("Cast", "half", "from_half", to=INT64),
    ]
    proto = model(graph(nodes, [X], "scaled rounded_twice from_half", tenth=np.float32(0.1), **NUMBERS))
    shapes = infer(proto)
    contents = {v.name: shapes.graph.values.get(v.index) for v in shapes.graph.view.values}
    assert str(contents["scaled"].exprs[0]) == "a//10"  # type: ignore[union-attr]
    assert contents["rounded_twice"].exprs == (None,)  # type: ignore[union-attr]
    assert contents["from_half"].exprs == (None,)  # type: ignore[union-attr]
    assert_values(proto, *({"a": a, "b": 1} for a in (1, 9, 10, 11, 29, 30, 70, 1001)), known=("scaled",))


def test_constants_of_every_kind_are_read() -> None:
    nodes = [
        node("Constant", "", "i", value_int=3),
        node("Constant", "", "v", value_ints=[2, 3]),
        node("Constant", "", "t", value=helper.make_tensor("t", INT64, [2], [4, 5])),
        node("Constant", "", "f", value_float=2.5),
        node("Constant", "", "s", value_string="text"),
        node("Add", "v t", "w"),
        node("ConstantOfShape", "w", "y"),
    ]
    shapes = infer(graph(nodes, [X], "y s"))
    assert texts(shapes, "y") == ["6", "8"]
    assert texts(shapes, "s") == []


def test_external_constants_are_read_when_small(tmp_path) -> None:
    proto = model(
        graph([node("Reshape", "x shape", "y")], [value("x", FLOAT, ["n", 12])], "y", shape=[-1, 3, 4])
    )
    path = tmp_path / "m.onnx"
    onnx.save_model(proto, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    from onnx_symmem.shapes.engine import infer_shapes

    assert [str(d) for d in infer_shapes(load_model(path).view()).graph.of("y") or ()] == ["n", "3", "4"]
    (tmp_path / "w.bin").unlink()
    gone = infer_shapes(load_model(path).view())
    assert gone.graph.of("y") is not None
    assert len(gone.unknowns) == 3


def test_a_default_of_an_input_counts_as_a_shape_only() -> None:
    of = graph(
        [
            node("Reshape", "x shape", "y"),
            node("If", "flag", "z", then_branch=branch("one"), else_branch=branch("two")),
        ],
        [value("x", FLOAT, ["n", 4]), value("shape", INT64, [2]), value("flag", BOOL, [])],
        "y z",
        shape=[-1, 2],
        flag=True,
    )
    shapes = infer(of)
    assert texts(shapes, "y") == ["2*n", "2"]
    assert [a.kind for a in shapes.assumptions] == ["default"]
    assert len(shapes.unknowns) == 1  # the caller may replace the flag


def branch(name: str) -> onnx.GraphProto:
    sizes = {"one": 1, "two": 2}
    nodes = [node("Concat", " ".join(["x"] * sizes[name]), f"{name}_out", axis=0)]
    return helper.make_graph(nodes, name, [], [onnx.ValueInfoProto(name=f"{name}_out")])


def test_symbols_are_the_dim_names() -> None:
    shapes = infer(graph(SCALARS, [X], "a b", **NUMBERS))
    assert shapes.graph.values[shapes.graph.view.index["a"]].exprs == (Expr.symbol("a"),)
    assert shapes.input_symbols == ("a", "b")


def test_several_roundings_leave_a_size_within_one() -> None:
    nodes = [
        node("Shape", "x", "s"),
        node("ReduceMin", "s", "least", keepdims=0),
        node("ReduceMax", "s", "most", keepdims=0),
        node("Cast", "least", "fl", to=FLOAT),
        node("Cast", "most", "fm", to=FLOAT),
        node("Div", "unit fl", "rl"),  # which the optimiser may join with the product
        node("Mul", "rl short", "p"),
        node("Div", "unit fm", "rm"),
        node("Mul", "rm long", "q"),
        node("Min", "p q", "scale"),
        node("Cast", "s", "fs", to=FLOAT),
        node("Mul", "fs scale", "scaled"),
        node("Floor", "scaled", "floors"),
        node("Cast", "floors", "sizes", to=INT64),
        node("ConstantOfShape", "sizes", "y"),
    ]
    numbers = {"short": np.float32(160), "long": np.float32(320), "unit": np.float32(1)}
    proto = model(graph(nodes, [X], "y", **numbers))
    shapes = infer(proto)
    bounds = [u.bound for u in shapes.unknowns]
    assert len(bounds) == 2
    for a, b in ((3, 7), (100, 100), (97, 331), (640, 480), (1000, 7), (31, 3000)):
        real = run_values(proto, {"a": a, "b": b})["y"].shape
        for bound, size in zip(bounds, real, strict=True):
            assert bound is not None
            most = bound.evaluate({"a": a, "b": b})
            assert most - 2 <= size <= most


def test_a_negative_repeat_makes_no_size() -> None:
    shapes = infer(graph([node("Tile", "x r", "y")], [X], "y", r=[2, -3]))
    (unknown,) = shapes.unknowns
    assert texts(shapes, "y") == ["2*a", unknown.symbol]
    assert "negative" in unknown.reason
