import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnx_symmem.errors import DomainError, VerificationFailed
from onnx_symmem.graph.load import load_model
from onnx_symmem.run.inputs import resolve_shape
from onnx_symmem.run.trials import runnable_shapes
from onnx_symmem.run.verify import Verification
from onnx_symmem.run.version_trials import Trial, verify_trials
from onnx_symmem.shapes.engine import infer_shapes


def model(nodes, inputs, initializers=()):
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, dims) for n, dims in inputs.items()]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", infos, [y], list(initializers))
    return load_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10))


def trials(loaded, count=2):
    return runnable_shapes(loaded, infer_shapes(loaded.view()), lambda _: 0, count)


def test_sizes_that_an_equation_determines_are_taken_from_it():
    nodes = [
        helper.make_node("Concat", ["a", "b"], ["ab"], axis=0),
        helper.make_node("Add", ["ab", "c"], ["y"]),
    ]
    # A further dim, so that total is not just the sum of all others, which is tried in any case.
    inputs = {"a": ["past", "width"], "b": ["seq", "width"], "c": ["total", "width"]}
    shapes = trials(model(nodes, inputs))
    assert len(shapes) == 2
    assert all(s["total"] == s["past"] + s["seq"] for s in shapes)
    assert all(s["past"] != s["seq"] for s in shapes)


def test_dims_that_must_be_equal_are_tried_equal():
    nodes = [helper.make_node("Add", ["a", "b"], ["y"])]
    shapes = trials(model(nodes, {"a": ["batch", "seq", 8], "b": ["batch", "length", 8]}))
    assert shapes
    assert all(s["seq"] == s["length"] for s in shapes)


def test_a_length_may_have_to_cover_others():
    """Gather at past + seq - 1 from a table of `total` rows: only running tells that total is too small."""
    nodes = [
        helper.make_node("Concat", ["a", "b"], ["ab"], axis=0),
        helper.make_node("Shape", ["ab"], ["dims"], start=0, end=1),
        helper.make_node("Sub", ["dims", "one"], ["last"]),
        helper.make_node("Gather", ["table", "last"], ["y"]),
    ]
    one = numpy_helper.from_array(np.array([1]), "one")
    shapes = trials(model(nodes, {"table": ["total", 4], "a": ["past", 4], "b": ["seq", 4]}, [one]))
    assert shapes
    assert all(s["total"] >= s["past"] + s["seq"] for s in shapes)


def test_where_nothing_runs_the_reason_is_given():
    nodes = [helper.make_node("Reshape", ["a", "dims"], ["y"])]
    dims = numpy_helper.from_array(np.array([997, 991]), "dims")
    with pytest.raises(VerificationFailed, match=r"none of the shapes.*--verify-at"):
        trials(model(nodes, {"a": ["n", 3]}, [dims]))


@pytest.mark.parametrize("size", [-1, "4", 2.5])
def test_sizes_must_be_sizes(size):
    shapes = infer_shapes(model([helper.make_node("Neg", ["a"], ["y"])], {"a": ["n"]}).view())
    with pytest.raises(DomainError, match="expected a size"):
        resolve_shape(shapes, {"n": size})


@pytest.mark.parametrize("differ", [True, False])
def test_versions_two_ifs_deep_may_have_other_last_bits_which_is_said(differ):
    """Packed bits are asked for everywhere; only deep versions are compared unpacked where those differ."""
    asked = []

    def compare(at, packing, fed):
        asked.append((packing, *(shape["n"] for shape in at)))
        if packing and differ and at[0]["n"] > 1:
            raise VerificationFailed("other last bits")
        return tuple(Verification(shape, 1, True, packed=packing) for shape in at)

    runs = [Trial({"n": 1}, 0), Trial({"n": 2}, 1, 100), Trial({"n": 3}, 2, 100)]
    found = verify_trials(runs, 3, compare)
    assert [(v.shape["n"], v.packed) for v in found] == [(1, True), (2, not differ), (3, not differ)]
    assert asked == [(True, 1), (True, 2, 3), *([(False, 2, 3)] if differ else [])]


def test_versions_one_if_deep_have_the_bits_of_the_original():
    def compare(at, packing, fed):
        raise VerificationFailed("other bits" if packing else "not asked for")

    for runs, count in (([Trial({"n": 2}, 1, 100)], 2), ([Trial({"n": 2}, 0)], 3)):
        with pytest.raises(VerificationFailed, match="other bits"):
            verify_trials(runs, count, compare)
