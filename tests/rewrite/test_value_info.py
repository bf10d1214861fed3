import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

from onnx_symmem.graph.load import load_model
from onnx_symmem.memory.plan import prepare
from onnx_symmem.memory.sizes import from_declared, from_written
from onnx_symmem.rewrite.value_info import write_dims
from onnx_symmem.shapes.engine import infer_shapes
from onnx_symmem.shapes.names import dim_text


def window_model():
    """Split and rejoin: the dim after Concat is unknown to the file, and equal to the input's."""
    nodes = [
        helper.make_node("Split", ["x"], ["a", "b"], axis=1, num_outputs=2),
        helper.make_node("Concat", ["b", "a"], ["t"], axis=1),
        helper.make_node("Relu", ["t"], ["r"]),
        helper.make_node("Neg", ["r"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "2*k"])
    k = helper.make_tensor_value_info("k", TensorProto.FLOAT, ["k"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", None])
    graph = helper.make_graph(nodes, "g", [x, k], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def test_every_value_gets_its_dims_and_the_contract_stays():
    loaded = load_model(window_model())
    result = write_dims(loaded.proto, infer_shapes(loaded.view()))
    dims = {
        i.name: [d.dim_param or d.dim_value for d in i.type.tensor_type.shape.dim]
        for i in result.graph.value_info
    }
    assert dims == {"a": ["n", "k"], "b": ["n", "k"], "t": ["n", "2*k"], "r": ["n", "2*k"]}
    assert result.graph.output == loaded.proto.graph.output
    assert result.graph.input == loaded.proto.graph.input
    assert not loaded.proto.graph.value_info


def test_written_dims_are_what_the_planner_compares():
    loaded = load_model(window_model())
    shapes = infer_shapes(loaded.view())
    written = load_model(write_dims(loaded.proto, shapes)).view()
    values = [v.index for v in written.graph.values if v.kind == "node" and v.name != "y"]
    declared, expected = from_declared(written.graph).values, from_written(shapes.graph).values
    assert [declared[v] for v in values] == [expected[v] for v in values]
    order = range(len(written.graph.nodes))
    before = prepare(loaded.view().graph, from_declared(loaded.view().graph)).plan(order)
    after = prepare(written.graph, from_declared(written.graph)).plan(order)
    assert before.kind.count("share") == 0
    assert after.kind.count("share") == 1


def test_subgraphs_get_their_dims_too():
    inner = helper.make_graph(
        [helper.make_node("Neg", ["r"], ["m"]), helper.make_node("Exp", ["m"], ["o"])],
        "branch",
        [],
        [helper.make_tensor_value_info("o", TensorProto.FLOAT, None)],
    )
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])
    c = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    model = helper.make_model(
        helper.make_graph(nodes, "g", [x, c], [y]), opset_imports=[helper.make_opsetid("", 18)], ir_version=10
    )
    loaded = load_model(model)
    result = write_dims(loaded.proto, infer_shapes(loaded.view()))
    branch = next(a.g for a in result.graph.node[1].attribute if a.name == "then_branch")
    assert [i.name for i in branch.value_info] == ["m"]
    assert [d.dim_param or d.dim_value for d in branch.value_info[0].type.tensor_type.shape.dim] == ["n", 4]


def test_dim_text():
    from onnx_symmem.expr.expression import Expr

    assert dim_text(Expr.const(7)) == 7
    assert dim_text(8 * ((Expr.symbol("h") - 1) // 8) + 8) == "8*((h + 7)//8)"
    assert [dim_text(Expr.symbol(n)) for n in ("batch size", "max", "None")] == ["batch size", "max", "None"]
    assert dim_text(2 * Expr.symbol("max")) == "2*sym('max')"


def test_unnamed_input_dims_get_the_name_that_other_dims_refer_to():
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 4])
    nodes = [helper.make_node("Exp", ["x"], ["t"]), helper.make_node("Neg", ["t"], ["y"])]
    model = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y]), opset_imports=[helper.make_opsetid("", 18)], ir_version=10
    )
    loaded = load_model(model)
    result = load_model(write_dims(loaded.proto, infer_shapes(loaded.view())))
    assert infer_shapes(result.view()).input_symbols == ("x_dim_0",)
    assert [str(d) for d in infer_shapes(result.view()).graph.of("t")] == ["x_dim_0", "4"]


def test_optionals_are_not_declared_as_tensors():
    from onnx_symmem.run.session import create_session

    nodes = [
        helper.make_node("Optional", ["x"], ["o"]),
        helper.make_node("Identity", ["o"], ["p"]),
        helper.make_node("OptionalGetElement", ["p"], ["t"]),
        helper.make_node("Neg", ["t"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])
    model = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y]), opset_imports=[helper.make_opsetid("", 18)], ir_version=10
    )
    loaded = load_model(model)
    result = write_dims(loaded.proto, infer_shapes(loaded.view()))
    assert [i.name for i in result.graph.value_info] == ["t"]
    assert create_session(result).get_outputs()[0].name == "y"


def test_outputs_without_dims_get_them_and_the_file_is_valid():
    inner = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["still"]),
            helper.make_node("Concat", ["v", "x"], ["grown"], axis=0),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("v", TensorProto.FLOAT, ["p", "q"]),
        ],
        [onnx.ValueInfoProto(name=name) for name in ("still", "grown")],
    )
    nodes = [
        helper.make_node("NonZero", ["x"], ["found"]),
        helper.make_node("Transpose", ["x"], ["turned"]),
        helper.make_node("Loop", ["times", "", "x"], ["long"], body=inner),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "k"]),
        helper.make_tensor_value_info("times", TensorProto.INT64, []),
    ]
    outputs = [onnx.ValueInfoProto(name="found"), helper.make_tensor_value_info("turned", 1, None)]
    outputs.append(onnx.ValueInfoProto(name="long"))
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    loaded = load_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10))
    shapes = infer_shapes(loaded.view())
    written = write_dims(loaded.proto, shapes)
    onnx.checker.check_model(written, full_check=True)
    onnx.shape_inference.infer_shapes(written, check_type=True, strict_mode=True)
    ort.InferenceSession(written.SerializeToString(), providers=["CPUExecutionProvider"])
    again = infer_shapes(load_model(written).view())
    for name in ("found", "turned", "long"):
        assert again.graph.of(name) == shapes.graph.of(name) is not None
    found, turned, long = (o.type.tensor_type for o in written.graph.output)
    assert (found.elem_type, turned.elem_type, long.elem_type) == (TensorProto.INT64, 1, 1)
    assert [d.dim_param for d in turned.shape.dim] == ["k", "n"]
