import os
import subprocess
import sys

import numpy as np
import pytest
from onnx import TensorProto, helper

from onnx_symmem.errors import DomainError, UsageError
from onnx_symmem.expr.domain import Domain, SymbolRange
from onnx_symmem.graph.load import load_model
from onnx_symmem.run.inputs import InputSpec, generate_inputs, make_input, plan_inputs, resolve_shape
from onnx_symmem.run.session import create_session, run_session
from onnx_symmem.shapes.engine import infer_shapes

FLOAT, INT32, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL


def info(name, dims, kind=FLOAT):
    return helper.make_tensor_value_info(name, kind, dims)


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs, outputs, name=attributes.pop("name", op.lower()), **attributes)


def constant(name, values, kind=INT64):
    array = np.asarray(values, helper.tensor_dtype_to_np_dtype(kind))
    return helper.make_tensor(name, kind, array.shape, array.tobytes(), raw=True)


def model_of(nodes, inputs, outputs, initializers=(), opset=17):
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(initializers))
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def shapes_of(model, domain=None):
    return infer_shapes(load_model(model).view(), domain)


def filled(model, at, name="i"):
    """The fill of one input and its reason; the model has to run with it."""
    shapes = shapes_of(model)
    run_session(create_session(model), generate_inputs(shapes, at))
    (spec,) = [s for s in plan_inputs(shapes, at) if s.name == name]
    return spec.fill, spec.reason


TABLE = constant("table", np.zeros((50, 4)), FLOAT)


def lookup(steps=(), kind=INT64, name="i", initializers=(), table=TABLE, dims=("b", "s")):
    """An input that indexes a table after some steps; the last step makes `k`."""
    last = steps[-1].output[0] if steps else name
    nodes = [*steps, node("Gather", ["table", last], ["y"])]
    return model_of(nodes, [info(name, list(dims), kind)], [info("y", None)], [table, *initializers])


AT = {"b": 2, "s": 3}


# -- roles -----------------------------------------------------------------------------------------


def test_index_is_bounded_by_what_it_indexes():
    assert filled(lookup(), AT) == ("randint:0:50", "an index at Gather 'gather'")
    array = generate_inputs(shapes_of(lookup()), AT)["i"]
    assert array.dtype == np.int64
    assert array.shape == (2, 3)


@pytest.mark.parametrize(
    "steps",
    [
        [node("Cast", ["i"], ["k"], to=INT32)],
        [node("Identity", ["i"], ["j"]), node("Transpose", ["j"], ["k"])],
        [node("Unsqueeze", ["i", "one"], ["j"]), node("Squeeze", ["j", "one"], ["k"])],
        [node("Concat", ["i", "i"], ["k"], axis=0)],
        [node("Flatten", ["i"], ["k"])],
        [node("Reshape", ["i", "minus"], ["k"])],
        [node("Where", ["yes", "i", "one"], ["k"])],
        [node("Max", ["i", "one"], ["k"])],
        [node("Abs", ["i"], ["k"])],
        [node("Split", ["i"], ["j", "k"], axis=0)],
    ],
    ids=lambda steps: "-".join(s.op_type for s in steps),
)
def test_numbers_are_followed_through_what_moves_them(steps):
    initializers = [constant("one", [1]), constant("minus", [-1]), constant("yes", [True], BOOL)]
    assert filled(lookup(steps, initializers=initializers), AT)[0] == "randint:0:50"


@pytest.mark.parametrize(
    ("steps", "fill"),
    [
        ([node("Add", ["i", "two"], ["k"])], "randint:0:48"),
        ([node("Sub", ["i", "two"], ["k"])], "randint:2:52"),
        ([node("Sub", ["last", "i"], ["k"])], "randint:0:50"),
        ([node("Mul", ["i", "two"], ["k"])], "randint:0:25"),
        ([node("Neg", ["i"], ["j"]), node("Add", ["j", "last"], ["k"])], "randint:0:50"),
        ([node("Add", ["two", "i"], ["j"]), node("Mul", ["j", "two"], ["k"])], "randint:0:23"),
        ([node("Add", ["i", "spread"], ["k"])], "randint:0:40"),
    ],
)
def test_index_with_an_offset_or_a_scale(steps, fill):
    initializers = [constant("two", 2), constant("last", 49), constant("spread", [0, 5, 10])]
    assert filled(lookup(steps, initializers=initializers), AT)[0] == fill


def test_tightest_of_all_uses():
    nodes = [
        node("Gather", ["table", "i"], ["a"]),
        node("Gather", ["small", "i"], ["b"], name="tight"),
        node("Add", ["a", "b"], ["y"]),
    ]
    model = model_of(
        nodes,
        [info("i", ["n"], INT64)],
        [info("y", None)],
        [TABLE, constant("small", np.zeros((7, 4)), FLOAT)],
    )
    assert filled(model, {"n": 3})[0] == "randint:0:7"


def test_index_into_a_symbolic_dim():
    nodes = [node("GatherElements", ["x", "i"], ["y"], axis=1)]
    model = model_of(nodes, [info("x", ["n", "c"]), info("i", ["n", 1], INT64)], [info("y", None)])
    assert filled(model, {"n": 3, "c": 11}) == ("randint:0:11", "an index at GatherElements 'gatherelements'")


def test_coordinates_are_bounded_one_by_one():
    nodes = [
        node("Unsqueeze", ["i", "axis"], ["a"], name="first"),
        node("Unsqueeze", ["j", "axis"], ["b"], name="second"),
        node("Concat", ["a", "b"], ["k"], axis=-1),
        node("ScatterND", ["x", "k", "u"], ["y"]),
    ]
    inputs = [info("x", [9, 4]), info("u", ["n"]), info("i", ["n"], INT64), info("j", ["n"], INT64)]
    model = model_of(nodes, inputs, [info("y", None)], [constant("axis", [1])])
    assert filled(model, {"n": 3}, "i")[0] == "randint:0:9"
    assert filled(model, {"n": 3}, "j")[0] == "randint:0:4"


@pytest.mark.parametrize("name", ["i", "mask"])
def test_index_found_in_a_branch(name):
    then = helper.make_graph([node("Gather", ["table", name], ["t"])], "then", [], [info("t", None)])
    other = helper.make_graph([node("Gather", ["table", name], ["e"])], "else", [], [info("e", None)])
    nodes = [node("If", ["c"], ["y"], then_branch=then, else_branch=other)]
    model = model_of(nodes, [info("c", [], BOOL), info(name, ["n"], INT64)], [info("y", None)], [TABLE])
    assert filled(model, {"n": 3}, name)[0] == "randint:0:50"


def test_index_carried_through_a_loop():
    body = helper.make_graph(
        [node("Identity", ["go"], ["on"], name="on"), node("Identity", ["v"], ["w"])],
        "body",
        [info("t", [], INT64), info("go", [], BOOL), info("v", ["n"], INT64)],
        [info("on", [], BOOL), info("w", ["n"], INT64)],
    )
    nodes = [node("Loop", ["three", "", "i"], ["l"], body=body), node("Gather", ["table", "l"], ["y"])]
    model = model_of(nodes, [info("i", ["n"], INT64)], [info("y", None)], [TABLE, constant("three", 3)])
    assert filled(model, {"n": 3})[0] == "randint:0:50"


def test_class_labels():
    nodes = [node("SoftmaxCrossEntropyLoss", ["x", "i"], ["y"])]
    model = model_of(nodes, [info("x", ["n", 13]), info("i", ["n"], INT64)], [info("y", None)])
    assert filled(model, {"n": 3})[0] == "randint:0:13"


def test_one_hot():
    nodes = [node("OneHot", ["i", "depth", "values"], ["y"])]
    model = model_of(
        nodes,
        [info("i", ["n"], INT64)],
        [info("y", None, INT64)],
        [constant("depth", 6), constant("values", [0, 1])],
    )
    assert filled(model, {"n": 3})[0] == "randint:0:6"


def test_what_is_judged_is_a_mask():
    nodes = [node("Cast", ["i"], ["k"], to=BOOL), node("Where", ["k", "x", "zero"], ["y"])]
    model = model_of(
        nodes, [info("i", ["n"], INT64), info("x", ["n"])], [info("y", None)], [constant("zero", 0, FLOAT)]
    )
    assert filled(model, {"n": 3}) == ("ones", "a mask at Cast 'cast'")


def test_positions_counted_from_a_mask_do_not_make_it_an_index():
    steps = [node("CumSum", ["i", "axis"], ["j"]), node("Sub", ["j", "one"], ["k"])]
    model = lookup(steps, initializers=[constant("axis", 1), constant("one", 1)])
    assert filled(model, AT) == ("ones", "a mask at Gather 'gather'")


def test_compared_labels_stay_indices():
    nodes = [
        node("Equal", ["i", "ignored"], ["e"]),
        node("Where", ["e", "zero", "i"], ["k"]),
        node("Gather", ["table", "k"], ["y"]),
    ]
    model = model_of(
        nodes, [info("i", ["n"], INT64)], [info("y", None)],
        [TABLE, constant("ignored", -100), constant("zero", 0)],
    )  # fmt: skip
    assert filled(model, {"n": 3})[0] == "randint:0:50"


def test_positions_run_along_the_last_axis():
    model = lookup(name="position_ids")
    assert filled(model, AT, "position_ids")[0] == "arange:0:50"
    array = generate_inputs(shapes_of(model), AT)["position_ids"]
    assert array.tolist() == [[0, 1, 2], [0, 1, 2]]
    long = generate_inputs(shapes_of(model), {"b": 1, "s": 120})["position_ids"]
    assert long.max() == 49


def test_lengths_agree_with_the_dim():
    nodes = [node("ReverseSequence", ["x", "i"], ["y"], time_axis=0, batch_axis=1)]
    model = model_of(nodes, [info("x", ["t", "b"]), info("i", ["b"], INT64)], [info("y", None)])
    assert filled(model, {"t": 7, "b": 2}) == ("value:7", "a length")


def test_numbers_without_a_meaning():
    nodes = [node("Cast", ["i"], ["k"], to=FLOAT), node("Sin", ["k"], ["y"])]
    assert filled(model_of(nodes, [info("i", ["n"], INT64)], [info("y", None)]), {"n": 3}) == (
        "randint:0:100",
        "numbers",
    )
    nodes[0] = node("Cast", ["i"], ["k"], to=FLOAT)
    image = model_of(nodes, [info("i", ["n"], TensorProto.UINT8)], [info("y", None)])
    assert filled(image, {"n": 3})[0] == "randint:0:256"


def test_sizes_and_conditions():
    nodes = [node("Range", ["zero", "i", "one"], ["y"])]
    model = model_of(
        nodes, [info("i", [], INT64)], [info("y", None, INT64)], [constant("zero", 0), constant("one", 1)]
    )
    assert filled(model, {}) == ("ones", "a size at Range 'range'")
    model = model_of([node("Not", ["i"], ["y"])], [info("i", ["n"], BOOL)], [info("y", None, BOOL)])
    assert filled(model, {"n": 2}) == ("ones", "a condition")


def test_floats_are_normal_where_nothing_else_is_needed():
    model = model_of([node("Exp", ["i"], ["y"])], [info("i", ["n"])], [info("y", ["n"])])
    assert filled(model, {"n": 2}) == ("normal", "floating point")
    model = model_of(
        [node("Resize", ["x", "", "i"], ["y"])],
        [info("x", [1, 1, "h", "w"]), info("i", [4])],
        [info("y", None)],
    )
    assert filled(model, {"h": 2, "w": 3}) == ("ones", "what Resize 'resize' takes")


def test_inputs_with_a_default_are_left_out_unless_asked_for():
    model = model_of(
        [node("Add", ["x", "c"], ["y"])], [info("x", ["n"]), info("c", [1])], [info("y", None)],
        [constant("c", [5], FLOAT)],
    )  # fmt: skip
    shapes = shapes_of(model)
    assert list(generate_inputs(shapes, {"n": 2})) == ["x"]
    assert generate_inputs(shapes, {"n": 2}, {"c": "value:7"})["c"].tolist() == [7]


# -- determinism -----------------------------------------------------------------------------------


def test_same_seed_same_numbers():
    shapes = shapes_of(lookup())
    a, b, c = (generate_inputs(shapes, AT, seed=seed)["i"] for seed in (0, 0, 1))
    assert np.array_equal(a, b)
    assert not np.array_equal(a, c)


def test_numbers_do_not_depend_on_the_hash_seed():
    code = (
        "from onnx_symmem.run.inputs import InputSpec, make_input;"
        "print(make_input(InputSpec('x', 1, (4,), 'normal', '')).tolist())"
    )
    results = {
        subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert results == {f"{make_input(InputSpec('x', 1, (4,), 'normal', '')).tolist()}\n"}


# -- what the user says ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fill", "low", "high"),
    [("uniform:0:1", 0, 1), ("value:2.5", 2.5, 2.5), ("ones", 1, 1), ("zeros", 0, 0), ("randint:3:5", 3, 4)],
)
def test_forms(fill, low, high):
    array = make_input(InputSpec("x", FLOAT, (100,), fill, ""))
    assert array.dtype == np.float32
    assert low <= array.min() <= array.max() <= high


@pytest.mark.parametrize(
    ("kind", "fill", "message"),
    [
        (INT64, "normal", "is int64: 'normal' does not suit it"),
        (INT64, "randint:5:5", "holds no number"),
        (INT64, "randint:5", "not understood; expected normal"),
        (INT64, "sevens", "not understood"),
        (INT64, "value:1.5", "does not suit"),
        (TensorProto.UINT8, "randint:0:300", "does not fit"),
        (TensorProto.UINT8, "value:-1", "does not fit"),
    ],
)
def test_fills_that_do_not_suit(kind, fill, message):
    model = model_of([node("Identity", ["i"], ["y"])], [info("i", ["n"], kind)], [info("y", None)])
    with pytest.raises(UsageError, match=f"input 'i'.*{message}") as caught:
        generate_inputs(shapes_of(model), {"n": 2}, {"i": fill})
    assert "\n" not in str(caught.value)


def test_files(tmp_path):
    shapes = shapes_of(lookup())
    good = tmp_path / "good.npy"
    np.save(good, np.ones((2, 3), np.int64))
    assert generate_inputs(shapes, AT, {"i": str(good)})["i"].sum() == 6
    np.save(tmp_path / "type.npy", np.ones((2, 3), np.float32))
    np.save(tmp_path / "dims.npy", np.ones((3, 2), np.int64))
    (tmp_path / "junk.npy").write_bytes(b"junk")
    for name, message in (
        ("type", "holds float32; expected int64"),
        ("dims", r"dims \[3, 2\]; expected \[2, 3\]"),
        ("junk", "not a .npy array"),
        ("none", "no such file"),
    ):
        with pytest.raises(UsageError, match=f"input 'i'.*{message}"):
            plan_inputs(shapes, AT, {"i": str(tmp_path / f"{name}.npy")})


def test_arrays_are_checked_like_files():
    shapes = shapes_of(lookup())
    assert generate_inputs(shapes, AT, {"i": np.ones((2, 3), np.int64)})["i"].sum() == 6
    with pytest.raises(UsageError, match="expected int64"):
        generate_inputs(shapes, AT, {"i": np.ones((2, 3), np.int32)})


def test_unknown_input():
    with pytest.raises(UsageError, match="'j': the model has no such input; it has i"):
        generate_inputs(shapes_of(lookup()), AT, {"j": "ones"})


def test_narrow_floats_and_texts():
    for kind in (TensorProto.BFLOAT16, TensorProto.FLOAT16, TensorProto.DOUBLE):
        array = make_input(InputSpec("x", kind, (3,), "normal", ""))
        assert array.dtype == helper.tensor_dtype_to_np_dtype(kind)
    texts = make_input(InputSpec("x", TensorProto.STRING, (2,), "ones", ""))
    assert texts.tolist() == ["text", "text"]


def test_inputs_that_are_no_tensors():
    model = model_of(
        [node("SequenceLength", ["i"], ["y"])],
        [helper.make_tensor_sequence_value_info("i", FLOAT, None)],
        [info("y", [], INT64)],
    )
    with pytest.raises(UsageError, match="'i' is a sequence; only tensors"):
        generate_inputs(shapes_of(model), {})


# -- shapes ----------------------------------------------------------------------------------------


def cache(total="total"):
    """Keys of the past and new keys, joined; a mask covers both."""
    nodes = [node("Concat", ["past_keys", "keys"], ["all"], axis=1), node("Add", ["all", "mask"], ["y"])]
    inputs = [info("past_keys", ["b", "past"]), info("keys", ["b", "seq"]), info("mask", ["b", total])]
    return model_of(nodes, inputs, [info("y", None)])


def test_dims_that_follow_from_others_may_be_left_out():
    model = model_of(
        [node("Add", ["x", "z"], ["y"])], [info("x", ["a", "b"]), info("z", ["a", "2*b"])], [info("y", None)]
    )
    assert resolve_shape(shapes_of(model), {"a": 1, "b": 3}) == {"a": 1, "b": 3}
    domain = Domain().with_equality("total", load_expr("past + seq"))
    shapes = shapes_of(cache(), domain)
    full = {"b": 2, "past": 7, "seq": 3, "total": 10}
    assert resolve_shape(shapes, full) == full
    for left_out in ("past", "seq", "total"):
        assert resolve_shape(shapes, {k: v for k, v in full.items() if k != left_out}) == full
    with pytest.raises(DomainError, match="total"):
        resolve_shape(shapes, {**full, "total": 11})


def load_expr(text):
    from onnx_symmem.expr.text import parse

    return parse(text)


def test_compound_dims_need_only_their_names():
    shapes = shapes_of(cache("past + seq"))
    assert resolve_shape(shapes, {"b": 2, "past": 7, "seq": 3}) == {"b": 2, "past": 7, "seq": 3}
    assert generate_inputs(shapes, {"b": 2, "past": 7, "seq": 3})["mask"].shape == (2, 10)


def test_fixed_dims_may_be_left_out():
    shapes = shapes_of(lookup(), Domain({"b": SymbolRange(4, 4)}))
    assert resolve_shape(shapes, {"s": 3}) == {"b": 4, "s": 3}


def test_bad_shapes():
    shapes = shapes_of(lookup(), Domain({"s": SymbolRange(8, 64, 8)}))
    with pytest.raises(DomainError, match="no size for dim 's'; the inputs have b, s, given was b=2"):
        resolve_shape(shapes, {"b": 2})
    with pytest.raises(DomainError, match="dim 'q' is not a dim of the inputs; they have b, s"):
        resolve_shape(shapes, {"b": 2, "s": 8, "q": 1})
    with pytest.raises(DomainError, match="s = 12"):
        resolve_shape(shapes, {"b": 2, "s": 12})
    with pytest.raises(DomainError, match="s = 72"):
        resolve_shape(shapes, {"b": 2, "s": 72})
