from dataclasses import replace

import onnx
import pytest
from onnx import TensorProto, helper

from onnx_symmem.errors import VerificationFailed
from onnx_symmem.expr.domain import Domain
from onnx_symmem.graph.view import view_model
from onnx_symmem.memory.plan import prepare
from onnx_symmem.memory.profile import profile
from onnx_symmem.memory.sizes import from_written, value_sizes
from onnx_symmem.order.check import check_choice, check_plan
from onnx_symmem.shapes.engine import infer_shapes
from tests.order.test_planner import branches, planned


def chain() -> onnx.ModelProto:
    """Relu in place, Reshape as an alias, an Add that reads both ends, and an output read again."""
    value = helper.make_tensor_value_info
    nodes = [
        helper.make_node("Exp", ["x"], ["a"], name="exp"),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("Identity", ["b"], ["c"], name="same"),
        helper.make_node("Neg", ["c"], ["d"], name="neg"),
        helper.make_node("Add", ["c", "d"], ["e"], name="add"),
        helper.make_node("Abs", ["e"], ["y"], name="abs"),
    ]
    x, y = (value(n, TensorProto.FLOAT, ["n", 4]) for n in "xy")
    return helper.make_model(
        helper.make_graph(nodes, "g", [x], [y]), opset_imports=[helper.make_opsetid("", 17)]
    )


def chain_plan(order=tuple(range(6))):
    view = view_model(chain())
    shapes = infer_shapes(view, Domain())
    return prepare(view.graph, from_written(shapes.graph)).plan(order), value_sizes(shapes.graph)


def test_a_real_plan_and_choice_pass():
    plan, sizes = chain_plan()
    check_plan(plan)
    model = branches([(1, 8), (8, 1), (3, 3)])
    found = planned(model, Domain())
    sizes = value_sizes(infer_shapes(view_model(model), Domain()).graph)
    check_choice(found.choice, sizes, Domain(), found.shapes)


def test_an_order_that_reads_before_it_writes_is_found():
    plan, _ = chain_plan()
    with pytest.raises(VerificationFailed, match="relu.* runs before 'a'"):
        check_plan(replace(plan, order=(1, 0, 2, 3, 4, 5)))


def test_wrong_lifetimes_are_found():
    plan, _ = chain_plan()
    at = next(k for k, freed in enumerate(plan.releases) if freed)
    early = [*plan.releases]
    early[at - 1], early[at] = early[at], ()
    with pytest.raises(VerificationFailed, match="wrong time"):
        check_plan(replace(plan, releases=tuple(early)))
    with pytest.raises(VerificationFailed, match="never freed"):
        check_plan(replace(plan, releases=tuple(() for _ in plan.releases)))
    none = [*plan.allocations]
    none[0] = ()
    with pytest.raises(VerificationFailed, match="no memory for 'a'"):
        check_plan(replace(plan, allocations=tuple(none)))


def test_sharing_that_no_kernel_declares_is_found():
    plan, _ = chain_plan()
    names = plan.view.index
    shared = [*plan.shared]
    shared[names["d"]] = plan.shared[names["c"]]
    allocations = [tuple(v for v in made if v != names["d"]) for made in plan.allocations]
    with pytest.raises(VerificationFailed, match="cannot make 'd'|after its bytes are gone|wrong time"):
        check_plan(replace(plan, shared=tuple(shared), allocations=tuple(allocations)))


def test_a_foreign_proof_and_wrong_bytes_are_found():
    model = branches([(1, 8), (8, 1), (3, 3)])
    found = planned(model, Domain())
    sizes = value_sizes(infer_shapes(view_model(model), Domain()).graph)
    other = planned(branches([(1, 2), (2, 1), (5, 1)]), Domain()).choice
    with pytest.raises(VerificationFailed, match="not about the chosen plan"):
        check_choice(replace(found.choice, proof=other.proof), sizes, Domain(), found.shapes)
    bytes_of = tuple(b if b is None else b + 1 for b in sizes.bytes)
    with pytest.raises(VerificationFailed, match="the profile says"):
        check_choice(found.choice, replace(sizes, bytes=bytes_of), Domain(), found.shapes)


def test_profiles_of_the_chain_count_one_buffer_at_the_in_place_node():
    plan, sizes = chain_plan()
    rows = profile(plan, sizes).in_use.evaluate([{"n": 5}])[:, 0].tolist()
    assert rows[1] == rows[0] == 80
