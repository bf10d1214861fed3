"""Rows in numbers equal the profile of the expanded graph, step by step, for any schedule."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from models.build import build
from onnx_symmem.expr.grid import Grid
from onnx_symmem.memory.plan import prepare
from onnx_symmem.memory.profile import profile
from onnx_symmem.remat.expansion import expand
from onnx_symmem.remat.schedule import schedule_of
from onnx_symmem.remat.timeline import codes_of, schedule_from, timeline
from tests.remat.repeats import with_repeats
from tests.remat.training import Ground, chain

MODELS = [
    ("transformer_train", {"layers": 1}, [{"batch": 3, "seq": 17}, {"batch": 1, "seq": 64}]),
    ("unet", {"levels": 2, "blocks": 1}, [{"batch": 2, "height": 24, "width": 12}]),
    ("mlp_train", {}, [{"batch": 33}]),
    ("decoder", {}, [{"batch": 2, "dec_seq": 5, "enc_seq": 30}]),
]


def _exact(ground: Ground, schedule, samples) -> np.ndarray:
    expansion = expand(ground.view, schedule, ground.opsets)
    planned = prepare(expansion.view(), expansion.keys(ground.keys), ground.prepared.options)
    found = profile(planned.plan(tuple(range(len(expansion.steps)))), expansion.sizes(ground.sizes))
    rows = found.in_use.on(Grid(samples))
    starts = [0, *(k + 1 for k in found.step_rows[:-1])]
    return np.maximum.reduceat(rows, starts, axis=0)


@pytest.mark.parametrize(("name", "options", "samples"), MODELS, ids=[m[0] for m in MODELS])
@pytest.mark.parametrize("provider", ["cpu", "cuda"])
@pytest.mark.parametrize("seed", range(3))
def test_random_schedules(name, options, samples, seed, provider):
    ground = Ground(build(name, **options), provider)
    tables = ground.tables(samples)
    for moves in (0, 3):
        schedule = with_repeats(ground.view, 5 + 15 * seed, seed, moves)
        # Moving what is on the host already is legal and pointless; the tables do not count it.
        host = ground.prepared.host
        schedule = tuple(s for s in schedule if s.kind == "run" or s.index not in host)
        codes = codes_of(tables, schedule)
        assert schedule_from(tables, codes) == schedule
        assert np.array_equal(timeline(tables, codes).live, _exact(ground, schedule, samples))


@pytest.mark.parametrize("seed", range(6))
def test_outputs_of_several_kinds(seed):
    """Multi-output nodes, optional outputs, aliases, in-place results, outputs that are read."""
    nodes = [
        helper.make_node("Split", ["x"], ["a", "b"], axis=1, num_outputs=2),
        helper.make_node("LayerNormalization", ["a", "s"], ["y", "mean", "inv"], axis=1),
        helper.make_node("Reshape", ["y", "flat"], ["r"]),
        helper.make_node("Relu", ["r"], ["p"]),
        helper.make_node("Shape", ["p"], ["dims"]),
        helper.make_node("Reshape", ["p", "rows"], ["q"]),
        helper.make_node("Mul", ["q", "b"], ["m"]),
        helper.make_node("Sub", ["m", "mean"], ["d"]),
        helper.make_node("MaxPool", ["d4"], ["pool", "where"], kernel_shape=[1, 2]),
        helper.make_node("Mul", ["d", "y"], ["out"]),
    ]
    nodes.insert(8, helper.make_node("Reshape", ["d", "four"], ["d4"]))
    info = helper.make_tensor_value_info
    weights = [
        helper.make_tensor("s", TensorProto.FLOAT, [8], [1.0] * 8),
        helper.make_tensor("flat", TensorProto.INT64, [1], [-1]),
        helper.make_tensor("rows", TensorProto.INT64, [2], [-1, 8]),
        helper.make_tensor("four", TensorProto.INT64, [4], [1, 1, -1, 8]),
    ]
    graph = helper.make_graph(
        nodes, "g", [info("x", TensorProto.FLOAT, ["n", 16])],
        [info("out", TensorProto.FLOAT, ["n", 8]), info("d", TensorProto.FLOAT, ["n", 8]),
         info("pool", TensorProto.FLOAT, None), info("dims", TensorProto.INT64, [1])], weights,
    )  # fmt: skip
    ground = Ground(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9))
    samples = [{"n": 3}, {"n": 50}]
    tables = ground.tables(samples)
    schedule = with_repeats(ground.view, 2 + 2 * seed, seed)
    codes = codes_of(tables, schedule)
    assert np.array_equal(timeline(tables, codes).live, _exact(ground, schedule, samples))


def test_subgraphs_count_as_in_the_profile():
    branch = lambda op: helper.make_graph(  # noqa: E731
        [helper.make_node(op, ["e"], [f"{op}1"]), helper.make_node("Add", [f"{op}1", "e"], [f"{op}2"])],
        op, [], [helper.make_tensor_value_info(f"{op}2", TensorProto.FLOAT, ["n"])],
    )  # fmt: skip
    nodes = [
        helper.make_node("Exp", ["x"], ["e"]),
        helper.make_node("If", ["c"], ["i"], then_branch=branch("Exp"), else_branch=branch("Neg")),
        helper.make_node("Mul", ["i", "e"], ["o"]),
    ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [info("x", TensorProto.FLOAT, ["n"]), info("c", TensorProto.BOOL, [])],
        [info("o", TensorProto.FLOAT, ["n"])],
    )  # fmt: skip
    ground = Ground(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9))
    samples = [{"n": 100}]
    codes = codes_of(ground.tables(samples), schedule_of(ground.order))
    found = timeline(ground.tables(samples), codes)
    assert np.array_equal(found.live, _exact(ground, schedule_of(ground.order), samples))
    assert found.peaks[0] > 2 * 400  # the branch's own values are in it


def test_lifetimes_tell_makers_and_readers():
    ground = Ground(chain(3))
    tables = ground.tables([{"n": 10}])
    lives = {ground.view.values[x.size].name: x for x in timeline(tables, list(ground.order)).lifetimes}
    assert lives["x1"].made == 0
    assert lives["x1"].reads == (1, 4)
    assert lives["out"].stays
