import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from onnx_symmem.api import optimize
from onnx_symmem.expr.domain import Domain, SymbolRange
from onnx_symmem.graph.view import view_model
from onnx_symmem.memory.execution_order import priority_order
from onnx_symmem.memory.plan import prepare
from onnx_symmem.memory.sizes import from_written, value_sizes
from onnx_symmem.rewrite.anchors import add_anchors, unread_results, with_anchors
from onnx_symmem.run.measure import measure, measure_baseline
from onnx_symmem.shapes.engine import infer_shapes


def halves(width=1024):
    """Split x in three, read one part only, then make something large."""
    split = helper.make_node("Split", ["x"], ["a", "b", "c"], name="split", axis=1, num_outputs=3)
    nodes = [
        split,
        helper.make_node("Relu", ["a"], ["d"], name="d"),
        helper.make_node("Concat", ["d", "d", "d"], ["e"], name="e", axis=1),
        helper.make_node("ReduceSum", ["e"], ["y"], name="y"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3 * width])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1])
    graph = helper.make_graph(nodes, "halves", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def anchors_of(model, domain=None):
    view = view_model(model)
    shapes = infer_shapes(view, domain or Domain())
    prepared = prepare(view.graph, from_written(shapes.graph), None, priority_order)
    return unread_results(prepared, value_sizes(shapes.graph), shapes.domain)


def test_parts_that_nobody_reads_are_found_and_get_a_reader():
    model = halves()
    found = anchors_of(model)
    assert [a.name for a in found] == ["b", "c"]
    result = add_anchors(model, found)
    assert [n.op_type for n in result.graph.node][-2:] == ["Size", "Size"]
    onnx.checker.check_model(result, full_check=True)
    assert priority_order(view_model(result).graph) == with_anchors(range(4), found) == (0, 4, 5, 1, 2, 3)
    assert len(model.graph.node) == 4
    assert anchors_of(result) == ()


def test_small_and_possibly_empty_results_get_none():
    assert anchors_of(halves(width=16)) == ()
    assert anchors_of(halves(width=1024), Domain({"n": SymbolRange(0, None)})) == ()


@pytest.mark.parametrize("n", [1, 64])
def test_the_peak_falls_and_is_measured_as_predicted(tmp_path, n):
    path = tmp_path / "halves.onnx"
    onnx.save(halves(), path)
    found = optimize(path, tmp_path / "planned.onnx", ort_level="none", dispatch=False)
    part = 4 * 1024 * n
    at = [dict(s) for s in found.details.samples].index({"n": 1}) if n == 1 else None
    assert found.figures.never_worse == "proved"
    assert found.details.choice.before.at({"n": n}) >= 6 * part
    assert found.details.choice.after.at({"n": n}) <= 4 * part + 64
    assert at is None or found.figures.after.at[at][1] <= 4 * part + 64
    measured = measure(tmp_path / "planned.onnx", {"n": n}, latency_runs=0)
    assert measured.nodes_equal == 1.0
    assert (
        measured.predicted_peak == measured.runs[0].requested_peak == found.details.choice.after.at({"n": n})
    )


def test_outputs_stay_as_they_were(tmp_path):
    path = tmp_path / "halves.onnx"
    onnx.save(halves(), path)
    found = optimize(path, tmp_path / "planned.onnx", ort_level="none")
    assert [o.name for o in found.proto.graph.output] == ["y"]
    assert all(v.equal for v in found.details.verified)
    assert np.all([v.outputs == 1 for v in found.figures.verified])


@pytest.mark.parametrize("how", [{"ort_level": "none"}, {}, {"delivery": "anchors"}, {"levels": 1}], ids=str)
def test_float16_is_not_copied_to_be_freed(tmp_path, how):
    """On the CPU a Size would have a Cast before it: the copy takes twice what is freed."""
    model = halves()
    for info in (*model.graph.input, *model.graph.output):
        info.type.tensor_type.elem_type = TensorProto.FLOAT16
    found = optimize(model, tmp_path / "planned.onnx", dispatch=False, **how)
    assert not any("Casts for float16" in notice for notice in found.figures.notices)
    for n in (1, 64):
        before = measure_baseline(model, {"n": n}, how.get("ort_level", "extended"), runs=1, latency_runs=0)
        after = measure(tmp_path / "planned.onnx", {"n": n}, runs=1, latency_runs=0)
        assert before.nodes_equal == after.nodes_equal == 1
        assert after.runs[0].requested_peak < before.runs[0].requested_peak


def test_where_slices_are_told_by_attributes_float16_has_no_reader():
    model = halves()
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.FLOAT16
    shapes = infer_shapes(view_model(model), Domain())
    prepared = prepare(shapes.view.graph, from_written(shapes.graph), None, priority_order)
    about = (prepared, value_sizes(shapes.graph), shapes.domain, shapes.graph.elem_types)
    assert [(a.name, a.empty) for a in unread_results(*about)] == [("b", True), ("c", True)]
    assert unread_results(*about, slices=False) == ()
