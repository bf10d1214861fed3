from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from onnx_symmem.errors import DomainError, RunFailed, UsageError
from onnx_symmem.run.measure import measure
from onnx_symmem.run.session import kept, shipped

MIB = 1 << 20
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def info(name, dims, kind=FLOAT):
    return helper.make_tensor_value_info(name, kind, dims)


def node(op, inputs, outputs, name="", **attributes):
    return helper.make_node(op, inputs, outputs, name=name, **attributes)


def constant(name, values, kind=INT64):
    array = np.asarray(values, helper.tensor_dtype_to_np_dtype(kind))
    return helper.make_tensor(name, kind, array.shape, array.tobytes(), raw=True)


def model_of(nodes, inputs, outputs, initializers=(), opset=17, infos=()):
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(initializers), value_info=list(infos))
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def figures(model, at, settings=None, **options):
    return measure(model, at, settings=settings, latency_runs=0, **options)


def assert_exact(found):
    assert found.prediction.why_not == ""
    assert found.mismatches == ()
    assert found.wrong_dims == ()
    assert found.nodes_equal == 1
    assert found.predicted_peak == found.runs[0].requested_peak


def doubling_chain():
    nodes = [
        node("Concat", ["x", "x"], ["a"], "A", axis=0),
        node("Concat", ["a", "a"], ["b"], "B", axis=0),
        node("ReduceSum", ["b"], ["c"], "C", keepdims=0),
    ]
    return model_of(nodes, [info("x", ["n", MIB])], [info("c", [])])


def test_chain_known_by_hand():
    found = figures(doubling_chain(), {"n": 1})
    assert_exact(found)
    assert [n.measured for n in found.nodes] == [8 * MIB, 24 * MIB, 16 * MIB + 4]
    assert found.predicted_peak == 24 * MIB
    assert found.prediction.label == "exact"
    assert [r.requested_peak for r in found.runs] == [24 * MIB, 24 * MIB]
    assert found.runs[1].held == 24 * MIB
    assert found.static_bytes == found.scratch == 0
    assert found.shape == {"n": 1}
    assert (found.first_ms, found.latency_ms, found.device_bytes) == (None, None, None)


def test_latency_is_measured_on_request():
    found = measure(doubling_chain(), {"n": 1}, runs=1, latency_runs=1)
    assert found.first_ms > 0
    assert found.latency_ms > 0
    assert len(found.runs) == 1


def test_measurements_do_not_see_each_other():
    large = figures(doubling_chain(), {"n": 4})
    small = figures(doubling_chain(), {"n": 1})
    assert large.runs[0].held == 96 * MIB
    assert small.runs[0].held == 24 * MIB
    assert small.runs[0].in_use_peak == 24 * MIB


def side_branches():
    """Nodes whose file order and depth-first order differ, with an operator that works in place."""
    nodes = [
        node("Neg", ["x"], ["a"]),
        node("Exp", ["x"], ["b"]),
        node("Relu", ["a"], ["c"]),
        node("Concat", ["b", "b"], ["d"], axis=1),
        node("Sub", ["c", "x"], ["e"]),
        node("ReduceSum", ["d"], ["f"], keepdims=1),
        node("Add", ["e", "f"], ["y"]),
    ]
    return model_of(nodes, [info("x", ["n", 256])], [info("y", ["n", 256])])


@pytest.mark.parametrize("reuse", [False, True])
@pytest.mark.parametrize("order", ["priority", "default"])
def test_orders_and_reuse(order, reuse):
    settings = replace(kept(), execution_order=order, mem_reuse=reuse)
    assert_exact(figures(side_branches(), {"n": 3}, settings))


def test_settings_that_change_the_graph_are_not_predicted():
    found = figures(side_branches(), {"n": 3}, shipped())
    assert "changes the graph" in found.prediction.why_not
    assert found.nodes_equal is None
    assert found.predicted_peak is None
    assert found.runs[0].requested_peak > 0
    assert all(n.predicted is None for n in found.nodes)


def test_functions_that_are_inlined_at_load_are_named():
    nodes = [node("Neg", ["x"], ["a"]), node("HardSwish", ["a"], ["y"], "h")]
    found = figures(model_of(nodes, [info("x", ["n", 4])], [info("y", ["n", 4])]), {"n": 3})
    assert "optimise it offline" in found.prediction.why_not


def test_in_place_by_dims_that_only_onnx_runtime_infers():
    nodes = [node("Neg", ["x"], ["a"]), node("Relu", ["a"], ["b"]), node("Neg", ["b"], ["y"])]
    for dims, expected in ((["n", 4], 48), ([None, 4], 96)):
        found = figures(model_of(nodes, [info("x", dims)], [info("y", dims)]), {dims[0] or "x_dim_0": 3})
        assert_exact(found)
        assert found.nodes[1].measured == expected


FUSED = {
    "FusedMatMul": (["x", "w"], {"transB": 1, "alpha": 0.5}),
    "FusedMatMul both": (["x", "t"], {"transA": 1}),
    "QuickGelu": (["x"], {"alpha": 1.0}),
    "FastGelu": (["x"], {}),
    "BiasGelu": (["x", "bias"], {}),
    "FusedGemm": (["x", "w"], {"activation": "Relu", "transB": 1}),
    "SkipLayerNormalization": (["x3", "s3", "bias"], {}),
}


@pytest.mark.parametrize("case", FUSED)
def test_in_place_behind_fused_operators(case):
    inputs, attributes = FUSED[case]
    op = case.split()[0]
    nodes = [
        node(op, inputs, ["h"], domain="com.microsoft", **attributes),
        node("Relu", ["h"], ["r"], "relu"),
        node("Neg", ["r"], ["y"]),
    ]
    model = model_of(
        nodes,
        [
            *([info("x", ["n", 8])] if "x" in inputs else []),
            *([info("t", ["n", "m"])] if "t" in inputs else []),
            *([info(k, ["b", "n", 8]) for k in ("x3", "s3") if k in inputs]),
        ],
        [info("y", None)],
        [constant("w", np.ones((6, 8)), FLOAT), constant("bias", np.ones(8), FLOAT)],
    )
    names = {d.dim_param for i in model.graph.input for d in i.type.tensor_type.shape.dim if d.dim_param}
    found = figures(model, {name: size for name, size in (("b", 2), ("m", 5), ("n", 3)) if name in names})
    assert_exact(found)
    assert found.nodes[1].measured <= found.nodes[0].measured


def test_in_place_behind_a_fused_convolution():
    nodes = [
        node("FusedConv", ["x", "w"], ["h"], domain="com.microsoft", activation="Relu", kernel_shape=[1, 1]),
        node("Sigmoid", ["h"], ["r"]),
        node("Neg", ["r"], ["y"]),
    ]
    model = model_of(
        nodes,
        [info("x", ["n", 2, "h", "w"])],
        [info("y", None)],
        [constant("w", np.ones((3, 2, 1, 1)), FLOAT)],
    )
    assert_exact(figures(model, {"n": 2, "h": 4, "w": 5}))


def branching():
    """An If whose branches take different memory; which one runs depends on n."""
    then = helper.make_graph(
        [
            node("Concat", ["a", "a"], ["t1"], "T1", axis=1),
            node("ReduceMax", ["t1"], ["t2"], "T2", axes=[1], keepdims=1),
            node("Sub", ["a", "t2"], ["t3"], "T3"),
        ],
        "then",
        [],
        [info("t3", ["n", "m"])],
    )
    other = helper.make_graph([node("Neg", ["a"], ["e1"], "E1")], "else", [], [info("e1", ["n", "m"])])
    nodes = [
        node("Exp", ["x"], ["a"]),
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["k"]),
        node("Less", ["k", "five"], ["c"]),
        node("If", ["c"], ["r"], "choose", then_branch=then, else_branch=other),
        node("Neg", ["r"], ["y"]),
    ]
    initializers = [constant("zero", 0), constant("five", 5)]
    return model_of(nodes, [info("x", ["n", "m"])], [info("y", ["n", "m"])], initializers)


@pytest.mark.parametrize(("n", "branch", "count"), [(3, "then_branch", 3), (7, "else_branch", 1)])
def test_nodes_of_the_branch_that_ran(n, branch, count):
    found = figures(branching(), {"n": n, "m": 64})
    assert_exact(found)
    inside = [row.node for row in found.nodes if " / " in row.node]
    assert len(inside) == count
    assert all(label.startswith(f"If 'choose' / {branch} / ") for label in inside)
    assert found.prediction.compared == len(found.nodes) == 6 + count


def test_bodies_of_loops_are_bounded():
    body = helper.make_graph(
        [node("Identity", ["go"], ["on"]), node("Add", ["v", "v"], ["w"])],
        "body",
        [info("i", [], INT64), info("go", [], BOOL), info("v", ["n"])],
        [info("on", [], BOOL), info("w", ["n"])],
    )
    nodes = [
        node("Exp", ["x"], ["a"]),
        node("Loop", ["three", "true", "a"], ["l"], body=body),
        node("Neg", ["l"], ["y"]),
    ]
    model = model_of(
        nodes, [info("x", ["n"])], [info("y", ["n"])], [constant("three", 3), constant("true", True, BOOL)]
    )
    found = figures(model, {"n": 1000})
    assert found.prediction.label == "bound"
    assert found.mismatches == ()
    assert found.prediction.compared == 3
    assert len(found.nodes) == 3 + 6
    assert found.predicted_peak >= found.runs[0].requested_peak


def test_dims_that_only_the_run_tells():
    nodes = [
        node("Relu", ["x"], ["p"]),
        node("NonZero", ["p"], ["z"]),
        node("Transpose", ["z"], ["zt"]),
        node("GatherND", ["x", "zt"], ["g"]),
        node("Neg", ["g"], ["y"]),
    ]
    found = figures(model_of(nodes, [info("x", ["n", "m"])], [info("y", [None])]), {"n": 30, "m": 20})
    assert_exact(found)
    (size,) = found.prediction.taken.values()
    assert 0 < size < 600


def test_constants_in_the_file_are_no_nodes():
    value = constant("", [[1, 2, 3, 4]], FLOAT)
    nodes = [
        node("Neg", ["x"], ["a"]),
        node("Constant", [], ["k"], value=value),
        node("Add", ["a", "k"], ["b"]),
        node("Neg", ["b"], ["y"]),
    ]
    found = figures(model_of(nodes, [info("x", ["n", 4])], [info("y", ["n", 4])]), {"n": 2})
    assert_exact(found)
    assert len(found.nodes) == 3


def test_scratch_is_what_tensors_do_not_explain():
    nodes = [node("Softmax", ["x"], ["s"], axis=1), node("ReduceSum", ["s"], ["y"], keepdims=0)]
    found = figures(model_of(nodes, [info("x", ["n", 8, 64, 64])], [info("y", [])]), {"n": 2})
    assert found.scratch > 0
    assert found.runs[0].in_use_peak >= found.static_bytes + found.runs[0].requested_peak


def test_mismatches_say_where_they_arise():
    """Measured against shapes of another model, everything behind the first wrong size is off."""
    from onnx_symmem.graph.load import load_model
    from onnx_symmem.shapes.engine import infer_shapes

    wrong = doubling_chain()
    wrong.graph.node[0].input.append("x")
    shapes = infer_shapes(load_model(wrong).view())
    found = figures(doubling_chain(), {"n": 1}, shapes=shapes)
    first, second, third = found.mismatches
    assert (first.node, first.predicted, first.measured) == ("Concat 'A'", 12 * MIB, 8 * MIB)
    assert (first.difference, first.change) == (-4 * MIB, -4 * MIB)
    assert (second.difference, second.change) == (-12 * MIB, -8 * MIB)
    assert third.op == "ReduceSum"
    assert found.nodes_equal == 0
    assert [w.tensor for w in found.wrong_dims] == ["a", "b"]


def test_bad_requests():
    with pytest.raises(UsageError, match="'cuda' was asked for, but the settings say 'cpu'"):
        measure(doubling_chain(), {"n": 1}, "cuda", kept())
    with pytest.raises(UsageError, match="runs = 0"):
        measure(doubling_chain(), {"n": 1}, runs=0)


def test_shapes_that_an_operator_rules_out():
    nodes = [node("Reshape", ["x", "two"], ["y"], "halve")]
    model = model_of(nodes, [info("x", ["n"])], [info("y", [2, None])], [constant("two", [2, -1])])
    with pytest.raises(DomainError, match=r"n = 3: Reshape 'halve' needs n % 2 == 0"):
        figures(model, {"n": 3})


def test_broken_runs_are_reported():
    nodes = [node("Reshape", ["x", "s"], ["y"], "fold")]
    model = model_of(nodes, [info("x", ["n"]), info("s", ["k"], INT64)], [info("y", None)])
    with pytest.raises(RunFailed, match="broke off.*'fold'"):
        figures(model, {"n": 6, "k": 2}, overrides={"s": "value:4"})


def test_weights_stay_outside(tmp_path):
    weights = constant("w", np.ones((64, 64)), FLOAT)
    model = model_of(
        [node("MatMul", ["x", "w"], ["y"])], [info("x", ["n", 64])], [info("y", ["n", 64])], [weights]
    )
    path = tmp_path / "m.onnx"
    onnx.save(model, path, save_as_external_data=True, location="m.bin", size_threshold=0)
    found = figures(path, {"n": 2})
    assert_exact(found)
    assert found.static_bytes >= 64 * 64 * 4
    assert found.model == str(path)
