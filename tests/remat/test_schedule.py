import numpy as np
import pytest
from onnx import helper, numpy_helper

from onnx_symmem.errors import UsageError
from onnx_symmem.graph.view import view_model
from onnx_symmem.memory.execution_order import priority_order
from onnx_symmem.remat.schedule import Step, check_schedule, never_again, schedule_of
from tests.memory.runtime import info, model
from tests.remat.repeats import with_repeats


def _run(*nodes):
    return schedule_of(nodes)


def _chain(*ops, weights=()):
    """x -> t0 -> t1 ... -> y, one node per op; the last also reads t0."""
    names = ["x", *(f"t{k}" for k in range(len(ops) - 1)), "y"]
    nodes = [
        helper.make_node(op, [names[k]] if k < len(ops) - 1 else [names[k], "t0"], [names[k + 1]], name=op)
        for k, op in enumerate(ops)
    ]
    return view_model(model(nodes, [info("x", ["N"])], [info("y", ["N"])], weights)).graph


GRAPH = _chain("Relu", "Neg", "Add")


def test_every_node_once_is_a_schedule():
    check_schedule(GRAPH, schedule_of(priority_order(GRAPH)))


def test_repeats_and_moves():
    t0 = GRAPH.index["t0"]
    check_schedule(GRAPH, (*_run(0, 1), Step("run", 0), Step("run", 2)))
    check_schedule(GRAPH, (Step("run", 0), Step("offload", t0), Step("run", 1), Step("reload", t0), *_run(2)))


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (_run(0, 1), "Add 'Add' never runs"),
        (_run(1, 0, 2), "step 0: Neg 'Neg' reads 't0', which is not made before"),
        (_run(0, 1, 2, 2), "Add 'Add' may not run twice: all it makes are outputs"),
        (_run(0, 1, 2, 7), "there is no node 7"),
        ((*_run(0, 1), Step("jump", 0)), "kind 'jump' is not known"),
        ((*_run(0), Step("offload", 2), *_run(1, 2)), "'t1' is offloaded, but not made before"),
        ((*_run(0), Step("offload", 1), *_run(1, 2)), "'t0' is offloaded and never reloaded"),
        ((*_run(0), Step("reload", 1), *_run(1, 2)), "'t0' is reloaded, but not offloaded before"),
        ((Step("offload", 0), *_run(0, 1, 2)), "'x' is an input value and stays in memory"),
        ((*_run(0, 1, 2), Step("offload", 3)), "'y' is an output and stays in memory"),
        ((*_run(0), Step("offload", 1), Step("offload", 1), *_run(1, 2)), "'t0' is offloaded twice"),
    ],
)
def test_what_cannot_be_run_is_refused_in_one_line(steps, message):
    with pytest.raises(UsageError, match=message) as caught:
        check_schedule(GRAPH, steps)
    assert "\n" not in str(caught.value)


def test_random_stateful_and_nested_nodes_run_once():
    branch = helper.make_graph([helper.make_node("Neg", ["x"], ["b"])], "b", [], [info("b", ["N"])])
    training = numpy_helper.from_array(np.array(True), "training")
    inference = numpy_helper.from_array(np.array(False), "inference")
    nodes = [
        helper.make_node("Dropout", ["x"], ["a"]),
        helper.make_node("Dropout", ["x", "", "training"], ["b0"]),
        helper.make_node("Dropout", ["x", "", "inference"], ["c"]),
        helper.make_node("Dropout", ["x", "", "flag"], ["d"]),
        helper.make_node("RandomNormalLike", ["x"], ["e"]),
        helper.make_node("Bernoulli", ["x"], ["f"]),
        helper.make_node("If", ["flag"], ["g"], then_branch=branch, else_branch=branch),
        helper.make_node("Anything", ["x"], ["h"], domain="their.own"),
        helper.make_node("Constant", [], ["i"], value_float=1.0),
        helper.make_node("Sum", ["a", "b0", "c", "d", "e", "f", "g", "h", "i"], ["y"]),
    ]
    inputs = [info("x", ["N"]), info("flag", [], 9)]
    proto = model(nodes, inputs, [info("y", ["N"])], [training, inference], domains=("their.own",))
    view = view_model(proto).graph
    reasons = [never_again(view, node) for node in view.nodes]
    assert [not r for r in reasons] == [True, False, True, *[False] * 7]
    assert reasons[1] == reasons[3] == reasons[4] == "it is random"
    assert reasons[6] == "it has subgraphs"
    assert "their.own" in reasons[7]
    assert reasons[8] == "it is a weight"
    schedule = with_repeats(view, 20, seed=0)
    check_schedule(view, schedule)
    with pytest.raises(UsageError, match="If #6 may not run twice: it has subgraphs"):
        check_schedule(view, (*schedule, Step("run", 6)))
