"""The rules of the plan one by one, in numbers worked out by hand: a row is N units of 4 bytes."""

import time

import numpy as np
import pytest
from onnx import helper

from onnx_symmem.graph.view import view_model
from onnx_symmem.memory.plan import PlanOptions, plan, prepare
from onnx_symmem.memory.sizes import DimKeys, from_declared
from tests.memory.runtime import INT64, bytes_by_node, info, measured, model, number, planned, predicted

X = info("x", [1, "N"])
KEEP = number("keep", [0, -1])


def node(text, **attributes):
    """`Op in ... > out ...`, named after its first output."""
    head, tail = text.split(">")
    op, *reads = head.split()
    return helper.make_node(op, reads, tail.split(), name=tail.split()[0], **attributes)


def rows(outputs, *nodes, infos=None, weights=(KEEP,)):
    """A model whose values are all [1, N] unless `infos` says how many rows they have (None: no dims)."""
    count = {name: 1 for n in nodes for name in n.output} | (infos or {})
    written = [info(k, [r, "N"]) for k, r in count.items() if r is not None and k not in outputs]
    return model(nodes, [X], [info(o, [count[o], "N"]) for o in outputs], weights, written)


def units(proto, reuse=False):
    """Rows of N floats in use after each node, predicted; found to be measured too."""
    result = predicted(proto, reuse=reuse)
    expected = bytes_by_node(result, {"N": 7})
    found = measured(proto, {"x": np.ones((1, 7), np.float32)}, reuse=reuse)
    assert {name: expected[name] for name in found} == found
    return {name: value / 28 for name, value in expected.items()}


def kinds(result):
    return {v.name: kind for v, kind in zip(result.view.values, result.kind, strict=True)}


def roots(result):
    values = result.view.values
    return {v.name: values[owner].name for v, owner in zip(values, result.root, strict=True)}


def test_memory_is_freed_after_the_last_reader():
    proto = rows(["y"], node("Neg x > a"), node("Neg a > b"), node("Neg b > y"))
    assert units(proto) == {"a": 1, "b": 2, "y": 2}
    result = planned(proto)
    names = [v.name for v in result.view.values]
    assert [[names[v] for v in step] for step in result.allocations] == [["a"], ["b"], ["y"]]
    assert [[names[v] for v in step] for step in result.releases] == [[], ["a"], ["b"]]


def test_an_output_has_its_own_buffer_and_keeps_it():
    proto = rows(["y"], node("Neg x > a"), node("Relu a > y"), node("Relu y > b"), node("Neg b > c"))
    assert units(proto) == {"a": 1, "y": 2, "b": 2, "c": 3}
    assert kinds(planned(proto)) == {
        "x": "input", "keep": "initializer", "a": "alloc", "y": "output", "b": "alloc", "c": "alloc",
    }  # fmt: skip


def test_an_alias_that_is_an_output_is_a_copy():
    proto = rows(["y"], node("Neg x > a"), node("Reshape a keep > y"))
    assert units(proto) == {"a": 1, "y": 2}


def test_an_alias_keeps_the_buffer_alive():
    proto = rows(["y"], node("Neg x > a"), node("Reshape a keep > r"), node("Neg r > b"), node("Neg b > y"))
    assert units(proto) == {"a": 1, "r": 1, "b": 2, "y": 2}
    assert roots(planned(proto))["r"] == "a"


def test_an_alias_of_an_input_is_never_overwritten():
    proto = rows(["y"], node("Identity x > a"), node("Relu a > b"), node("Relu b > c"), node("Neg c > y"))
    assert units(proto) == {"a": 0, "b": 1, "c": 1, "y": 2}
    assert roots(planned(proto)) == {"x": "x", "keep": "keep", "a": "x", "b": "b", "c": "b", "y": "y"}


def test_in_place_waits_for_the_last_use():
    proto = rows(["y"], node("Neg x > a"), node("Relu a > b"), node("Add a b > y"))
    assert units(proto) == {"a": 1, "b": 2, "y": 3}
    proto = rows(["y"], node("Neg x > a"), node("Neg a > b"), node("Relu a > c"), node("Add b c > y"))
    assert units(proto) == {"a": 1, "b": 2, "c": 2, "y": 3}


def test_in_place_counts_uses_of_aliases():
    proto = rows(
        ["y"], node("Neg x > a"), node("Reshape a keep > r"), node("Relu r > b"), node("Add a b > y")
    )
    assert units(proto) == {"a": 1, "r": 1, "b": 2, "y": 3}


def test_in_place_needs_dims_that_are_known_to_be_equal():
    known = rows(["y"], node("Neg x > a"), node("Clip a > b"), node("Neg b > y"))
    assert roots(planned(known))["b"] == "a"
    # Nothing is written for b, and the op that makes a hides its dims.
    hidden = rows(
        ["y"], node("Expand x to > a"), node("Clip a > b"), node("Neg b > y"), infos={"a": None, "b": None}
    )
    assert roots(planned(hidden))["b"] == "b"


def test_one_value_read_twice_by_a_node_has_two_uses():
    at = number("at", [[0]])
    proto = rows(
        ["n"], node("Neg x > a"), node("ScatterElements a at a > b"), node("Neg b > n"), weights=[at]
    )
    assert roots(planned(proto))["b"] == "b"


def test_outputs_that_nobody_reads_stay_to_the_end():
    split = [node("Concat x x > t", axis=0), node("Split t > a b", axis=0)]
    proto = rows(["y"], *split, node("Neg a > y"), infos={"t": 2})
    assert units(proto) == {"t": 2, "a": 4, "y": 3}
    anchored = rows(["y"], *split, node("Neg b > c"), node("Neg a > y"), infos={"t": 2})
    assert units(anchored) == {"t": 2, "a": 4, "c": 3, "y": 3}


def test_outputs_left_out_take_nothing():
    weights = [number("w", np.zeros((1, 8, 4)), 1), number("r", np.zeros((1, 8, 2)), 1)]
    lstm = helper.make_node("LSTM", ["s", "w", "r"], ["", "h"], name="h", hidden_size=2)
    nodes = [
        helper.make_node("Neg", ["q"], ["s"], name="s"),
        lstm,
        helper.make_node("Size", ["h"], ["n"], name="n"),
    ]
    infos = [info("s", ["N", 3, 4]), info("h", [1, 3, 2])]
    proto = model(nodes, [info("q", ["N", 3, 4])], [info("n", [], INT64)], weights, infos)
    expected = bytes_by_node(predicted(proto), {"N": 5})
    assert expected == {"s": 240, "h": 240 + 24, "n": 24 + 8}
    assert measured(proto, {"q": np.ones((5, 3, 4), np.float32)}) == expected


def test_memory_reuse_takes_the_buffer_that_was_freed_last_and_holds_it():
    chain = [node("Neg x > a"), node("Neg a > b"), node("Neg b > c"), node("Neg c > d"), node("Neg d > y")]
    proto = rows(["y"], *chain)
    assert units(proto) == {"a": 1, "b": 2, "c": 2, "d": 2, "y": 2}
    assert units(proto, reuse=True) == {"a": 1, "b": 2, "c": 2, "d": 2, "y": 2}
    assert roots(planned(proto, reuse=True))["c"] == "a"
    # The buffer of `a` is held over the big step because `e` takes it afterwards.
    gap = [
        node("Neg x > a"), node("ReduceMax a > m", keepdims=0), node("Concat x x x > t", axis=0),
        node("ReduceMax t > k", keepdims=0), node("Add x k > e"), node("Add e m > y"),
    ]  # fmt: skip
    infos = [info("a", [1, "N"]), info("t", [3, "N"]), info("e", [1, "N"]), info("m", []), info("k", [])]
    proto = model(gap, [X], [info("y", [1, "N"])], (), infos)
    expected = {reuse: bytes_by_node(predicted(proto, reuse=reuse), {"N": 7}) for reuse in (False, True)}
    assert expected[False] == {"a": 28, "m": 32, "t": 88, "k": 92, "e": 36, "y": 60}
    assert expected[True] == {"a": 28, "m": 32, "t": 116, "k": 120, "e": 36, "y": 60}
    for reuse in (False, True):
        assert measured(proto, {"x": np.ones((1, 7), np.float32)}, reuse=reuse) == expected[reuse]


def test_memory_reuse_never_gives_an_old_buffer_to_an_output():
    proto = rows(["y", "z"], node("Neg x > a"), node("Neg a > b"), node("Neg b > y"), node("Neg y > z"))
    units(proto, reuse=True)
    assert kinds(planned(proto, reuse=True))["y"] == "output"


def test_constants_are_initializers():
    one = number("one", [[1.0]], 1)
    proto = rows(["y"], node("Constant > c", value=one), node("Relu c > r"), node("Add x r > y"))
    assert kinds(planned(proto))["c"] == "initializer"
    assert roots(planned(proto))["r"] == "r"


def test_missing_keys_mean_nothing_is_equal():
    proto = rows(["y"], node("Neg x > a"), node("Relu a > b"), node("Neg b > y"))
    view = view_model(proto).graph
    result = plan(view, (0, 1, 2), DimKeys((None,) * len(view.values), {}))
    assert roots(result)["b"] == "b"


def test_cuda_has_its_own_table():
    proto = rows(["y"], node("Neg x > a"), node("Softmax a > b"), node("Neg b > y"))
    view = view_model(proto).graph
    keys = from_declared(view)
    assert roots(plan(view, (0, 1, 2), keys, PlanOptions("cpu")))["b"] == "a"
    assert roots(plan(view, (0, 1, 2), keys, PlanOptions("cuda")))["b"] == "b"


def test_one_preparation_plans_many_orders():
    proto = rows(["y"], node("Neg x > a"), node("Neg x > b"), node("Relu a > c"), node("Add b c > y"))
    view = view_model(proto).graph
    ready = prepare(view, from_declared(view))
    first, second = ready.plan((0, 1, 2, 3)), ready.plan((1, 0, 2, 3))
    assert first.root == second.root
    assert first.allocations != second.allocations
    assert ready.plan([0, 1, 2, 3]) == first


@pytest.mark.parametrize("reuse", [False, True])
def test_planning_one_order_is_fast(reuse):
    nodes = [node(f"{('Neg', 'Relu', 'Exp')[k % 3]} v{k} > v{k + 1}") for k in range(20_000)]
    infos = [info(f"v{k}", [1, "N"]) for k in range(1, 20_000)]
    proto = model(nodes, [info("v0", [1, "N"])], [info("v20000", [1, "N"])], (), infos)
    view = view_model(proto).graph
    ready = prepare(view, from_declared(view), PlanOptions(mem_reuse=reuse))
    start = time.process_time()
    result = ready.plan(range(20_000))
    assert time.process_time() - start < 3
    assert sum(map(len, result.allocations)) - sum(map(len, result.releases)) == 1


def test_nodes_on_the_host_are_planned_apart_from_those_on_the_device():
    nodes = [
        node("Neg x > a"), node("Relu a > b"), node("Relu b > c"), node("Relu c > d"), node("Neg d > y"),
        node("Shape x > s"),
    ]  # fmt: skip
    proto = model(
        nodes, [X], [info("y", [1, "N"]), info("s", [2], INT64)], (), [info(v, [1, "N"]) for v in "abcd"]
    )
    view = view_model(proto).graph
    order, keys = range(6), from_declared(view)
    device = prepare(view, keys, PlanOptions("cuda")).plan(order)
    assert {v: roots(device)[v] for v in "bcd"} == {"b": "a", "c": "a", "d": "a"}
    # c on the host: its input comes from the device and its output goes back there.
    split = prepare(view, keys, PlanOptions("cuda", host_nodes=frozenset({2}))).plan(order)
    assert {v: roots(split)[v] for v in "bcd"} == {"b": "a", "c": "c", "d": "d"}
    names = [v.name for v in view.values]
    assert sorted(names[v] for v in split.source.host) == ["c", "s"]
    assert device.source.host == {names.index("s")}
