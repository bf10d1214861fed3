import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnx_symmem.errors import ModelFileError, UnsupportedModel, UsageError
from onnx_symmem.graph.load import check_external_data, load_model, read_tensor_bytes


def small(nodes=None, initializers=()):
    nodes = nodes or [helper.make_node("Relu", ["x"], ["y"])]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "small", [x], [y], list(initializers))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def external(location, name="w"):
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", "8"), ("length", "16")):
        tensor.external_data.add(key=key, value=value)
    return tensor


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "no such file"),
        (b"", "empty"),
        (b"this is a text, not a model\n" * 9, "not an ONNX model"),
        (small().SerializeToString()[:-7], "not an ONNX model"),
        (onnx.ModelProto(ir_version=10).SerializeToString(), "no graph"),
    ],
)
def test_bad_files_are_refused_in_one_line(tmp_path, content, words):
    path = tmp_path / "model.onnx"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ModelFileError, match=words) as caught:
        load_model(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "location", ["../w.bin", "/etc/passwd", "a/../../w.bin", "..\\w.bin", "C:\\w.bin", ""]
)
def test_external_data_outside_the_folder_is_refused(tmp_path, location):
    path = tmp_path / "model.onnx"
    path.write_bytes(small(initializers=[external(location)]).SerializeToString())
    with pytest.raises(ModelFileError, match="inside the model's folder"):
        load_model(path)


def test_external_data_is_not_needed_to_load_but_its_state_is_known(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(small(initializers=[external("w.bin")]).SerializeToString())
    model = load_model(path)
    with pytest.raises(ModelFileError, match=r"'w\.bin' of tensor 'w' is missing"):
        check_external_data(model)
    (tmp_path / "w.bin").write_bytes(b"\0" * 20)
    with pytest.raises(ModelFileError, match="truncated"):
        check_external_data(model)
    (tmp_path / "w.bin").write_bytes(bytes(range(24)))
    check_external_data(model)
    assert read_tensor_bytes(model.proto.graph.initializer[0], model.folder) == bytes(range(8, 24))


def test_a_link_that_leaves_the_folder_is_refused(tmp_path):
    (tmp_path / "secret").write_bytes(b"\0" * 64)
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "w.bin").symlink_to(tmp_path / "secret")
    (inside / "model.onnx").write_bytes(small(initializers=[external("w.bin")]).SerializeToString())
    with pytest.raises(ModelFileError, match="links outside"):
        check_external_data(load_model(inside / "model.onnx"))


def test_nodes_are_sorted_and_stay_in_file_order_where_they_may():
    nodes = [
        helper.make_node("Neg", ["b"], ["y"], name="last"),
        helper.make_node("Relu", ["x"], ["a"], name="first"),
        helper.make_node("Abs", ["a"], ["b"], name="second"),
    ]
    loaded = load_model(small(nodes))
    assert [n.name for n in loaded.proto.graph.node] == ["first", "second", "last"]


def test_a_captured_value_counts_as_a_dependence_when_sorting():
    branch = helper.make_graph(
        [helper.make_node("Neg", ["t"], ["o"])], "b", [], [helper.make_tensor_value_info("o", 1, None)]
    )
    nodes = [
        helper.make_node("If", ["flag"], ["y"], name="if", then_branch=branch, else_branch=branch),
        helper.make_node("Relu", ["x"], ["t"], name="t"),
    ]
    model = small(nodes, [numpy_helper.from_array(np.array(True), "flag")])
    view = load_model(model).view()
    assert [n.name for n in view.graph.nodes] == ["t", "if"]
    when = view.graph.nodes[1]
    assert [view.graph.values[v].name for v in when.captured] == ["t"]
    assert view.graph.predecessors == ((), (0,))
    inner = when.subgraphs["then_branch"]
    assert [inner.values[v].kind for v in inner.outer] == ["outer"]


def test_a_cycle_is_unsupported():
    nodes = [
        helper.make_node("Add", ["x", "b"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"], name="loop"),
        helper.make_node("Neg", ["a"], ["y"]),
    ]
    with pytest.raises(UnsupportedModel, match="cycle"):
        load_model(small(nodes))


def test_local_functions_are_inlined():
    body = [helper.make_node("Relu", ["p"], ["q"]), helper.make_node("Neg", ["q"], ["r"])]
    function = helper.make_function("local", "Twice", ["p"], ["r"], body, [helper.make_opsetid("", 18)])
    model = small([helper.make_node("Twice", ["x"], ["y"], domain="local")])
    model.functions.append(function)
    model.opset_import.append(helper.make_opsetid("local", 1))
    assert [n.op for n in load_model(model).view().graph.nodes] == ["Relu", "Neg"]


def calling(name, *called):
    """A local function that calls others one after the other."""
    values = ["p", *(f"v{k}" for k in range(len(called) - 1)), "r"]
    body = [
        helper.make_node(callee, [a], [b], domain="local" if callee != "Relu" else "")
        for callee, a, b in zip(called, values[:-1], values[1:], strict=True)
    ]
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("local", 1)]
    return helper.make_function("local", name, ["p"], ["r"], body, imports)


@pytest.mark.parametrize(
    ("functions", "words"),
    [
        ([calling("F0", "F0")], "local function 'F0' calls itself"),
        ([calling("F0", "Relu", "F1"), calling("F1", "F0")], "local function 'F0' calls itself"),
        (
            [*(calling(f"F{k}", f"F{k + 1}", f"F{k + 1}") for k in range(30)), calling("F30", "Relu")],
            f"{3 * 2**30 - 1} nodes once its local functions are inlined",
        ),
    ],
)
def test_functions_that_cannot_be_inlined_are_refused_at_once(functions, words):
    model = small([helper.make_node("F0", ["x"], ["y"], domain="local")])
    model.functions.extend(functions)
    model.opset_import.append(helper.make_opsetid("local", 1))
    with pytest.raises(UnsupportedModel, match=words):
        load_model(model)


def test_two_inputs_of_one_name_are_refused():
    model = small()
    model.graph.input.append(model.graph.input[0])
    with pytest.raises(ModelFileError, match="2 inputs are called 'x'"):
        load_model(model)


def test_objects_are_accepted_and_not_changed():
    model = small()
    before = model.SerializeToString()
    assert load_model(model).proto.graph.name == "small"
    assert [n.op for n in load_model(gs.import_onnx(model)).view().graph.nodes] == ["Relu"]
    assert model.SerializeToString() == before
    with pytest.raises(UsageError, match="expected a path"):
        load_model(42)


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ([helper.make_node("Add", ["x", "gone"], ["y"], name="n")], "'n' reads 'gone', which nothing makes"),
        (
            [helper.make_node(op, ["x"], ["y"], name=op) for op in ("Neg", "Exp")],
            "'Exp' makes 'y' a second time",
        ),
        ([helper.make_node("Neg", ["x"], ["z"])], "output 'y' is made by no node"),
    ],
)
def test_graphs_with_loose_ends_are_refused(nodes, words):
    with pytest.raises(ModelFileError, match=words):
        load_model(small(nodes))
