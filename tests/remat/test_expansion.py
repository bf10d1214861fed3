"""Expanded graphs: predicted bytes equal ONNX Runtime's at every node, and outputs equal the base's."""

from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import helper

from models.build import MODELS, build
from onnx_symmem.errors import UsageError, VerificationFailed
from onnx_symmem.graph.load import load_model
from onnx_symmem.graph.view import view_model
from onnx_symmem.memory.execution_order import priority_order
from onnx_symmem.memory.peak import peak
from onnx_symmem.memory.plan import PlanOptions, prepare
from onnx_symmem.memory.profile import profile
from onnx_symmem.memory.sizes import from_written, value_sizes
from onnx_symmem.remat.expansion import expand
from onnx_symmem.remat.expansion_check import check_expansion
from onnx_symmem.remat.schedule import Step, check_schedule, schedule_of
from onnx_symmem.rewrite.expanded import expanded_model
from onnx_symmem.rewrite.value_info import write_dims
from onnx_symmem.shapes.engine import infer_shapes
from tests.memory.runtime import BOOL, bytes_by_node, info, measured, model, number
from tests.remat.repeats import with_repeats

REAL = [
    ("transformer_train", {"layers": 1}, {"batch": 3, "seq": 17}),
    ("unet", {"levels": 2, "blocks": 1}, {"batch": 2, "height": 23, "width": 12}),
    ("mlp_train", {}, {"batch": 33}),
    ("decoder", {}, {"batch": 2, "dec_seq": 5, "enc_seq": 30}),
]


def _named(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Nodes with names of their own, by which predictions are found again."""
    for k, node in enumerate(proto.graph.node):
        node.name = f"{node.op_type}{k}"
    return proto


def _assert_exact(proto: onnx.ModelProto, schedule, feeds, at) -> onnx.ModelProto:
    """The expanded model runs as predicted, gives the base's outputs, and is returned."""
    view = load_model(proto).view()
    shapes = infer_shapes(view)
    check_schedule(view.graph, schedule)
    expansion = expand(view.graph, schedule, view.opsets)
    check_expansion(expansion)
    written = write_dims(proto, shapes)
    result = expanded_model(written, expansion)
    assert [n.name for n in view_model(result).graph.nodes] == [n.name for n in expansion.view().nodes]
    prepared = prepare(expansion.view(), expansion.keys(from_written(shapes.graph)))
    sizes = expansion.sizes(value_sizes(shapes.graph))
    found = profile(prepared.plan(priority_order(expansion.view())), sizes)
    predicted, real = bytes_by_node(found, at), measured(result, feeds)
    assert real == {name: predicted[name] for name in real}
    before, after = _outputs(written, feeds), _outputs(result, feeds)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(before, after, strict=True))
    return result


def _outputs(proto, feeds, level="ORT_DISABLE_ALL"):
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    options.intra_op_num_threads = 1
    return ort.InferenceSession(proto.SerializeToString(), options).run(None, feeds)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("name", "options", "at"), REAL, ids=[r[0] for r in REAL])
def test_real_models_run_as_predicted(name, options, at, seed, draw_inputs):
    proto = _named(build(name, **options))
    fills = {name: ("randint", *ends) for name, ends in MODELS[name].ranges.items()}
    feeds = draw_inputs(proto.graph.input, at, fills)
    view = load_model(proto).view().graph
    schedule = with_repeats(view, 12, seed, moves=4)
    result = _assert_exact(proto, schedule, feeds, at)
    assert len(result.graph.node) >= len(schedule)


def test_a_recompute_frees_what_it_makes_again():
    nodes = [
        helper.make_node("Concat", ["x"] * 8, ["big"], name="big", axis=0),
        helper.make_node("ReduceSum", ["big"], ["s"], name="s", keepdims=0),
        helper.make_node("Concat", ["x"] * 6, ["other"], name="other", axis=0),
        helper.make_node("ReduceSum", ["other"], ["o"], name="o", keepdims=0),
        helper.make_node("ReduceSum", ["big"], ["z"], name="z", keepdims=0),
        helper.make_node("Sum", ["s", "o", "z"], ["y"], name="y"),
    ]
    proto = model(nodes, [info("x", ["N"])], [info("y", [])])
    view = load_model(proto).view()
    shapes = infer_shapes(view)

    def most(schedule):
        expansion = expand(view.graph, schedule)
        plan = prepare(expansion.view(), expansion.keys(from_written(shapes.graph))).plan(
            range(len(expansion.steps))
        )
        return peak(profile(plan, expansion.sizes(value_sizes(shapes.graph))), shapes.domain).at({"N": 1000})

    once = schedule_of(range(6))
    again = (*once[:4], Step("run", 0), *once[4:])
    assert most(once) == 4 * 14 * 1000 + 8
    assert most(again) == 4 * 8 * 1000 + 12
    _assert_exact(proto, again, {"x": np.ones(7, np.float32)}, {"N": 7})


def test_names_are_readable_and_new():
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="n"),
        helper.make_node("Neg", ["a"], ["a/again1"], name="n/again2"),
        helper.make_node("Sum", ["a", "a/again1"], ["y"], name="sum"),
    ]
    view = view_model(model(nodes, [info("x", ["N"])], [info("y", ["N"])])).graph
    a = view.index["a"]
    relu, neg, add = schedule_of([0, 1, 2])
    move = Step("offload", a), Step("reload", a)
    with pytest.raises(UsageError, match="'a/again2' is never read"):
        expand(view, (relu, *move, relu, neg, add))
    expansion = expand(view, (relu, neg, *move, add))
    assert [i.name for i in expansion.instances[-2:]] == ["a/host1", "a/again2"]
    assert [(s.kind, s.name) for s in expansion.steps][2:4] == [
        ("offload", "a/offload1"),
        ("reload", "a/reload1"),
    ]
    assert (expansion.offloaded, expansion.recomputed) == ((a,), ())
    expansion = expand(view, (relu, neg, relu, relu, add))
    assert [s.name for s in expansion.steps] == [
        "n",
        "n/again2",
        "n/again1",
        "a/again2/end1",
        "n/again3",
        "sum",
    ]


def _several_outputs():
    """A Split (outputs required), a LayerNormalization and a MaxPool (optional ones), one a graph output."""
    nodes = [
        helper.make_node("Split", ["x"], ["p", "q"], name="split", axis=1, num_outputs=2),
        helper.make_node("LayerNormalization", ["p", "scale"], ["n", "mean", "deviation"], name="norm"),
        helper.make_node("Exp", ["q"], ["e"], name="exp"),
        helper.make_node("MaxPool", ["x3"], ["pooled", "at"], name="pool", kernel_shape=[2]),
        helper.make_node("Unsqueeze", ["n", "zero"], ["n3"], name="n3"),
        helper.make_node("Mul", ["n", "e"], ["m"], name="mul"),
        helper.make_node("Add", ["m", "mean"], ["m1"], name="add"),
        helper.make_node("Sub", ["m1", "q"], ["r"], name="sub"),
        helper.make_node("Cast", ["at"], ["at_float"], name="cast", to=1),
    ]
    nodes[3], nodes[4] = nodes[4], nodes[3]
    nodes[4].input[0] = "n3"
    outputs = [info("r", ["N", 4]), info("deviation", ["N", 1]), info("pooled", None), info("at_float", None)]
    weights = [number("scale", np.ones(4), 1), number("zero", [0])]
    return model(nodes, [info("x", ["N", 8])], outputs, weights, opset=18)


@pytest.mark.parametrize("seed", range(6))
def test_nodes_with_several_outputs(seed):
    proto = _several_outputs()
    view = load_model(proto).view().graph
    _assert_exact(proto, with_repeats(view, 8, seed), _feeds(), {"N": 6})


def _feeds():
    return {"x": np.random.default_rng(0).standard_normal((6, 8), np.float32)}


def test_unread_outputs_of_a_copy_are_left_out_or_end_at_once():
    view = load_model(_several_outputs()).view().graph
    split, norm, exp, lift, pool, mul, add, sub, cast = schedule_of(range(9))
    # The mean of the copy is read, its deviation is an output of the graph: the schema lets that be left out.
    # Of the second Split only q is read: p must be made.
    schedule = (split, norm, exp, lift, pool, mul, norm, add, split, sub, cast)
    expansion = expand(view, schedule)
    kinds = [(s.kind, s.name) for s in expansion.steps]
    assert ("size", "p/again1/end1") in kinds
    assert ("size", "n/again1/end1") in kinds
    made = {s.name: [expansion.instances[i].name if i >= 0 else "" for i in s.makes] for s in expansion.steps}
    assert made["split/again1"] == ["p/again1", "q/again1"]
    assert made["norm/again1"] == ["n/again1", "mean/again1", ""]
    # All readers of mean and of the later q read copies, so the first mean ends at once, too.
    assert ("size", "mean/end1") in kinds
    names = [view.values[v].name for v in expansion.recomputed]
    assert sorted(names) == ["mean", "n", "p", "q"]
    _assert_exact(_several_outputs(), schedule, _feeds(), {"N": 6})


@pytest.mark.parametrize(
    ("output", "made"),
    [("n", ["n/again1"]), ("mean", ["n/again1", "mean/again1"]),
     ("deviation", ["n/again1", "mean/again1", "deviation/again1"])],
)  # fmt: skip
def test_a_session_that_optimises_loads_copies_of_which_one_output_is_read(output, made):
    # It merges nodes that do the same: a later one may have fewer outputs, but none left out before others.
    nodes = [
        helper.make_node("LayerNormalization", ["x", "scale"], ["n", "mean", "deviation"], name="norm"),
        helper.make_node("Mul", ["n", "mean"], ["m"], name="mul"),
        helper.make_node("Sub", ["m", "deviation"], ["s"], name="sub"),
        helper.make_node("Add", ["s", output], ["r"], name="add"),
    ]
    proto = model(
        nodes, [info("x", ["N", 8])], [info("r", ["N", 8])], [number("scale", np.ones(8), 1)], opset=18
    )
    norm, mul, sub, add = schedule_of(range(4))
    result = _assert_exact(proto, (norm, mul, sub, norm, add), _feeds(), {"N": 6})
    copy = next(node for node in result.graph.node if node.name == "norm/again1")
    assert list(copy.output) == made
    expected = _outputs(proto, _feeds())[0]
    assert _outputs(result, _feeds(), "ORT_ENABLE_ALL")[0].tobytes() == expected.tobytes()


def test_branches_capture_the_latest_instance():
    inner = helper.make_graph([helper.make_node("Neg", ["a"], ["d"], name="D")], "in", [], [info("d", ["N"])])
    deep = helper.make_node("If", ["c"], ["b"], name="deep", then_branch=inner, else_branch=inner)
    then = helper.make_graph([deep], "then", [], [info("b", ["N"])])
    other = helper.make_graph([helper.make_node("Exp", ["x"], ["f"])], "else", [], [info("f", ["N"])])
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="relu"),
        helper.make_node("Neg", ["a"], ["n"], name="neg"),
        helper.make_node("If", ["c"], ["g"], name="if", then_branch=then, else_branch=other),
        helper.make_node("Add", ["n", "g"], ["y"], name="add"),
    ]
    proto = model(nodes, [info("x", ["N"]), info("c", [], BOOL)], [info("y", ["N"])])
    relu, neg, branch, add = schedule_of(range(4))
    feeds = {"x": np.ones(5, np.float32), "c": np.array(True)}
    result = _assert_exact(proto, (relu, neg, relu, branch, add), feeds, {"N": 5})
    then = next(a.g for a in result.graph.node[3].attribute if a.name == "then_branch")
    assert then.node[0].attribute[0].g.node[0].input[0] == "a/again1"


def test_the_check_of_an_expansion_finds_what_is_wrong():
    view = load_model(_several_outputs()).view().graph
    split, norm, exp, *rest = schedule_of(range(9))
    good = expand(view, (split, norm, exp, split, *rest))
    check_expansion(good)
    steps = good.steps

    def wrong(at, **changes):
        bad = replace(good, steps=(*steps[:at], replace(steps[at], **changes), *steps[at + 1 :]), _memo={})
        with pytest.raises(VerificationFailed) as caught:
            check_expansion(bad)
        return str(caught.value)

    exp_at = next(k for k, s in enumerate(steps) if s.name == "exp")
    p = view.index["p"]
    assert "is not the node it repeats" in wrong(exp_at, reads=(p,))
    assert "before it is made" in wrong(0, reads=(p,))
    assert "is not the node it repeats" in wrong(exp_at, index=0)
    assert "makes what is there already" in wrong(exp_at, makes=(p,))
    short = replace(good, steps=steps[:-1], _memo={})
    with pytest.raises(VerificationFailed, match="1 nodes never run"):
        check_expansion(short)


def test_every_node_once_is_the_base_graph():
    proto = _several_outputs()
    view = load_model(proto).view().graph
    expansion = expand(view, schedule_of(priority_order(view)))
    assert [i.name for i in expansion.instances] == [v.name for v in view.values]
    assert [s.kind for s in expansion.steps] == ["run"] * 9
    assert {s.index for s in expansion.steps} == set(range(9))


def test_what_is_on_the_host_is_not_counted_on_a_gpu():
    view = load_model(_several_outputs()).view()
    shapes = infer_shapes(view)
    split, norm, exp, *rest = schedule_of(range(9))
    q = view.graph.index["q"]
    moved = (split, Step("offload", q), norm, Step("reload", q), exp, *rest)

    def at_norm(schedule):
        expansion = expand(view.graph, schedule)
        prepared = prepare(expansion.view(), expansion.keys(from_written(shapes.graph)), PlanOptions("cuda"))
        found = profile(
            prepared.plan(range(len(expansion.steps))), expansion.sizes(value_sizes(shapes.graph))
        )
        row = next(k for k, m in enumerate(found.moments) if expansion.steps[m.node].index == 1)
        return [slot.name for slot in found.live(row)]

    assert at_norm(schedule_of(range(9))) == ["p", "q", "n", "mean", "deviation"]
    assert at_norm(moved) == ["p", "n", "mean", "deviation"]
