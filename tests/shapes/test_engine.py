"""The engine: degrading one node, declared dims, growth, speed, and the same result everywhere."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from onnx_symmem.expr.domain import Domain, SymbolRange
from onnx_symmem.graph.load import load_model
from onnx_symmem.shapes import registry
from onnx_symmem.shapes.context import NodeContext
from onnx_symmem.shapes.engine import infer_shapes
from onnx_symmem.shapes.names import dims_by_name
from tests.shapes.building import FLOAT, INT64, graph, infer, model, node, texts, value

X = value("x", FLOAT, ["n", "c"])


def custom(of: onnx.GraphProto) -> onnx.ModelProto:
    return model(of, 18, my_domain=1)


def test_one_unknown_op_degrades_to_fresh_dims() -> None:
    odd = node("Odd", "x", "t", domain="my.domain")
    of = graph([odd, node("Relu", "t", "u"), node("Relu", "x", "y")], [X], "u y")
    of.value_info.append(value("t", FLOAT, ["n", None, "later"]))
    shapes = infer(custom(of))
    assert texts(shapes, "y") == ["n", "c"]
    fresh = texts(shapes, "t") or []
    assert fresh[0] == "n"  # as declared
    assert texts(shapes, "u") == fresh
    assert {(u.axis, u.reason) for u in shapes.unknowns} == {
        (1, "no rule for this op"),
        (2, "no rule for this op"),
    }
    assert fresh[2] == "later"  # a fresh size under the name that the file has for it
    assert [a.kind for a in shapes.assumptions] == ["adopted"]


def test_without_a_declaration_the_rank_is_unknown() -> None:
    odd = node("Odd", "x", "t", domain="my.domain")
    shapes = infer(custom(graph([odd, node("Add", "t x", "u"), node("Relu", "x", "y")], [X], "u y")))
    assert texts(shapes, "t") is None
    assert texts(shapes, "u") is None
    assert texts(shapes, "y") == ["n", "c"]
    assert [(u.tensor, u.axis) for u in shapes.unknowns] == [("t", -1), ("u", -1)]


def test_a_failing_rule_degrades_its_node_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(ctx: NodeContext) -> None:
        raise ZeroDivisionError("on purpose")

    registry.registered()
    monkeypatch.setitem(registry._RULES, ("", "Relu"), broken)
    of = graph([node("Relu", "x", "t"), node("Neg", "x", "y")], [X], "t y")
    shapes = infer_shapes(load_model(model(of)).view())
    assert texts(shapes, "y") == ["n", "c"]
    (unknown,) = shapes.unknowns
    assert unknown.node == "Relu 't_node'"
    assert "ZeroDivisionError: on purpose" in unknown.reason


def test_two_rules_for_one_op_are_refused() -> None:
    registry.registered()
    with pytest.raises(ValueError, match="two rules"):
        registry.rule("Relu")(lambda ctx: None)


def test_every_op_of_the_installed_onnx_has_a_rule() -> None:
    known = set(registry.registered())
    ops = {(s.domain, s.name) for s in onnx.defs.get_all_schemas_with_history()}
    assert not sorted(ops - known)


def test_an_inferred_dim_wins_over_a_declared_one() -> None:
    of = graph([node("Concat", "x x", "t", axis=0), node("Relu", "t", "y")], [X], "y")
    of.value_info.append(value("t", FLOAT, ["n", "c"]))
    of.value_info.append(value("y", FLOAT, ["2*n", "elsewhere"]))
    shapes = infer(of)
    assert texts(shapes, "y") == ["2*n", "c"]
    (claim,) = shapes.assumptions
    assert (claim.kind, claim.node) == ("contradicted", "Concat 't_node'")
    assert claim.text == "declared n, inferred 2*n: never the same; the inferred size is used"
    (claim,) = infer(of, domain=Domain({"n": SymbolRange(0)})).assumptions
    assert (claim.kind, claim.text) == ("declared", "2*n == n")


def test_dim_texts_are_names_or_expressions() -> None:
    inputs = [
        value("a", FLOAT, ["past", "seq"]),
        value("b", FLOAT, ["past + seq", "unk__7", "free + 1"]),
        value("c", FLOAT, [None, 3]),
    ]
    shapes = infer(graph([node("Relu", "a", "y")], inputs, "y"))
    assert shapes.input_symbols == ("past", "seq", "unk__7", "free + 1", "c_dim_0")
    assert texts(shapes, "b") == ["past + seq", "unk__7", "sym('free + 1')"]
    assert texts(shapes, "c") == ["c_dim_0", "3"]


def test_a_made_up_name_avoids_given_ones() -> None:
    inputs = [value("c", FLOAT, [None]), value("d", FLOAT, ["c_dim_0"])]
    assert infer(graph([node("Relu", "c", "y")], inputs, "y")).input_symbols == ("c_dim_0_2", "c_dim_0")


def test_the_same_elements_are_counted_once() -> None:
    nodes = [node("NonZero", "x", "p"), node("NonZero", "x", "q"), node("NonZero", "z", "r")]
    shapes = infer(graph(nodes, [X, value("z", FLOAT, ["n"])], "p q r"))
    assert texts(shapes, "p") == texts(shapes, "q")
    assert texts(shapes, "p") != texts(shapes, "r")
    assert [str(u.bound) for u in shapes.unknowns] == ["c*n", "n"]


def test_late_nodes_decide_early_arithmetic() -> None:
    nodes = [
        node("Shape", "x", "s", start=1),
        node("Sub", "s eight", "d"),
        node("Div", "d four", "e"),
        node("Add", "e one", "f"),
        node("Concat", "minus f", "t", axis=0),
        node("ConstantOfShape", "f", "early"),
        node("Unsqueeze", "x axis", "w"),
        node("Conv", "w weights", "late", strides=[4]),
    ]
    numbers = {"eight": [8], "four": [4], "one": [1], "minus": [-1], "axis": [1]}
    of = graph(nodes, [X], "early late", weights=np.ones((1, 1, 8), np.float32), **numbers)
    shapes = infer(of)
    assert texts(shapes, "early") == ["c//4 - 1"]
    assert texts(shapes, "late") == ["n", "1", "c//4 - 1"]
    assert not shapes.unknowns


def split_and_merge(layers: int) -> onnx.GraphProto:
    nodes: list[onnx.NodeProto] = []
    cur = "x"
    for k in range(layers):
        p = f"l{k}_"
        nodes += [
            node("Shape", cur, f"{p}s"),
            node("Gather", f"{p}s zero", f"{p}b"),
            node("Gather", f"{p}s one", f"{p}q"),
            node("Mul", f"{p}b four", f"{p}bh"),
            node("Concat", f"{p}bh {p}q sixteen", f"{p}t", axis=0),
            node("Reshape", f"{cur} {p}t", f"{p}h"),
            node("Shape", f"{p}h", f"{p}hs"),
            node("Gather", f"{p}hs zero", f"{p}hb"),
            node("Div", f"{p}hb four", f"{p}b2"),
            node("Gather", f"{p}hs one", f"{p}q2"),
            node("Concat", f"{p}b2 {p}q2 whole", f"{p}u", axis=0),
            node("Reshape", f"{p}h {p}u", f"{p}r"),
            node("Add", f"{p}r {cur}", f"{p}y"),
        ]
        cur = f"{p}y"
    constants = {"zero": [0], "one": [1], "four": [4], "sixteen": [16], "whole": [64]}
    return graph(nodes, [value("x", FLOAT, ["b", "s", 64])], cur, **constants)


def test_expressions_collapse_over_many_layers() -> None:
    start = time.process_time()
    shapes = infer(split_and_merge(130))
    assert time.process_time() - start < 5
    assert texts(shapes, "l129_y") == ["b", "s", "64"]
    assert texts(shapes, "l129_h") == ["4*b", "s", "16"]


def test_a_lattice_has_as_many_dims_as_nodes() -> None:
    nodes = [node("Mul", "x x", "a0"), node("Neg", "x", "b0")]
    for k in range(28):
        nodes += [node("Mean", f"a{k} b{k}", f"a{k + 1}"), node("Max", f"b{k} a{k}", f"b{k + 1}")]
    start = time.process_time()
    assert texts(infer(graph(nodes, [X], "a28 b28")), "b28") == ["n", "c"]
    assert time.process_time() - start < 5


def test_expressions_do_not_grow_without_end() -> None:
    inputs = [value(f"x{k}", FLOAT, [f"d{k}"]) for k in range(80)]
    nodes = [node("Add", "x0 x1", "t1")]
    nodes += [node("Add", f"t{k} x{k + 1}", f"t{k + 1}") for k in range(1, 79)]
    start = time.process_time()
    shapes = infer(graph(nodes, inputs, "t79"))
    assert time.process_time() - start < 10
    assert any(u.reason == "its expression grew too long" for u in shapes.unknowns)
    (dim,) = shapes.graph.of("t79") or ()
    assert len(str(dim)) < 400


@pytest.mark.parametrize("first", ["s", "twice"])
def test_powers_do_not_grow_without_end(first: str) -> None:
    """n**(2**40) is one term, but no one can evaluate it; nor is there room for the digits of 2**(2**40)."""
    nodes = [node("Shape", "x", "s"), node("Add", "s s", "twice"), node("Mul", f"{first} {first}", "t0")]
    nodes += [node("Mul", f"t{k} t{k}", f"t{k + 1}") for k in range(40)]
    nodes += [node("ConstantOfShape", "t1", "small"), node("ConstantOfShape", "t40", "huge")]
    shapes = infer(graph(nodes, [value("x", FLOAT, ["n"])], "small huge"))
    assert texts(shapes, "small") == (["n**4"] if first == "s" else ["16*n**4"])
    (dim,) = shapes.graph.of("huge") or ()
    assert [u.symbol for u in shapes.unknowns if u.tensor == "huge"] == [str(dim)]


SCRIPT = """
import sys
from onnx_symmem.graph.load import load_model
from onnx_symmem.shapes.engine import infer_shapes
from onnx_symmem.shapes.names import names_of
shapes = infer_shapes(load_model(sys.argv[1]).view())
print(names_of(shapes), [r.text for r in shapes.relations], [a.text for a in shapes.assumptions])
print(shapes.unknowns)
"""


def test_the_result_does_not_depend_on_hash_seeds(tmp_path: Path) -> None:
    nodes = [
        node("Add", "x z", "t"),
        node("NonZero", "t", "i"),
        node("Where", "m t w", "u"),
        node("Concat", "u t", "y", axis=0),
        node("Reshape", "y flat", "f"),
    ]
    mask = value("m", onnx.TensorProto.BOOL, ["k", 1])
    inputs = [X, value("z", FLOAT, ["p", "q"]), value("w", FLOAT, ["r", "s"]), mask]
    path = tmp_path / "m.onnx"
    onnx.save(model(graph(nodes, inputs, "i y f", flat=[-1])), path)
    results = set()
    for seed in ("0", "1", "77"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        run = subprocess.run(
            [sys.executable, "-c", SCRIPT, str(path)],
            capture_output=True,
            text=True,
            env=environment,
            check=True,
        )
        results.add(run.stdout)
    assert len(results) == 1


def test_the_model_is_not_changed() -> None:
    proto = model(split_and_merge(1))
    before = proto.SerializeToString(deterministic=True)
    dims = dims_by_name(proto)
    assert proto.SerializeToString(deterministic=True) == before
    assert dims["l0_h"] == ["4*b", "s", 16]


def test_local_functions_are_inferred_per_call() -> None:
    function = helper.make_function(
        "my",
        "Twice",
        ["a"],
        ["b"],
        [helper.make_node("Concat", ["a", "a"], ["b"], axis=0)],
        [helper.make_opsetid("", 18)],
    )
    proto = model(
        graph([node("Twice", "x", "t", domain="my"), node("Twice", "t", "y", domain="my")], [X], "y"),
        18,
        my=1,
    )
    proto.functions.append(function)
    assert texts(infer_shapes(load_model(proto).view()), "y") == ["4*n", "c"]


def test_unknown_numbers_share_one_symbol() -> None:
    nodes = [
        node("ReduceSum", "v", "k", keepdims=1),
        node("Concat", "k two", "t", axis=0),
        node("ConstantOfShape", "t", "y"),
        node("ConstantOfShape", "t", "z"),
    ]
    shapes = infer(graph(nodes, [value("v", INT64, ["n"])], "y z", two=[2]))
    assert texts(shapes, "y") == texts(shapes, "z")
    assert len(shapes.unknowns) == 1


def test_weights_are_not_needed() -> None:
    of = graph(
        [node("MatMul", "x w", "y")], [value("x", FLOAT, ["n", 300])], "y", w=np.zeros((300, 5), np.float32)
    )
    tensor = of.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, content in (("location", "gone.bin"), ("offset", "0"), ("length", "6000")):
        tensor.external_data.add(key=key, value=content)
    assert texts(infer(of), "y") == ["n", "5"]


def test_thousands_of_sizes_in_the_data_stay_cheap() -> None:
    nodes = []
    for k in range(400):
        nodes += [
            node("Greater", f"x c{k % 7}", f"m{k}"),
            node("NonZero", f"m{k}", f"z{k}"),
            node("Transpose", f"z{k}", f"t{k}"),
            node("GatherND", f"x t{k}", f"g{k}"),
            node("Unsqueeze", f"g{k} axis", f"h{k}"),
            node("MatMul", f"h{k} w", f"y{k}"),
        ]
    constants = {"axis": [1], "w": [[1.0, 2.0]], **{f"c{k}": float(k) for k in range(7)}}
    start = time.process_time()
    shapes = infer(graph(nodes, [X], "y7 y399", **constants))
    assert time.process_time() - start < 5
    assert len(shapes.unknowns) == 400
    assert {str(u.bound) for u in shapes.unknowns} == {"c*n"}


def test_contradicting_sizes_break_no_rule() -> None:
    nodes = [node("Shape", "a", "s"), node("Expand", "four s", "y"), node("Add", "y a", "z")]
    shapes = infer(graph(nodes, [value("a", FLOAT, [3])], "z", four=[1.0, 2.0, 3.0, 4.0]))
    assert shapes.graph.of("z") is not None
