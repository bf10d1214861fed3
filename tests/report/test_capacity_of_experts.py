"""What surely fits where experts share the tokens: as much as in the worst split, not as if each had all."""

from __future__ import annotations

from itertools import product

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnx_symmem.graph.load import load_model
from onnx_symmem.memory.execution_order import priority_order
from onnx_symmem.memory.plan import prepare
from onnx_symmem.memory.profile import profile
from onnx_symmem.memory.sizes import from_written, value_sizes
from onnx_symmem.report.demand import model_demand
from onnx_symmem.shapes.engine import infer_shapes

WIDTH = 64


def experts(count: int = 4) -> onnx.ModelProto:
    """Every token goes to two of some experts; what an expert makes is kept until the end."""
    nodes = [helper.make_node("TopK", ["scores", "two"], ["best", "chosen"], name="route")]
    weights = [numpy_helper.from_array(np.array([2], dtype=np.int64), "two")]
    for k in range(count):
        weights.append(numpy_helper.from_array(np.array(k, dtype=np.int64), f"number{k}"))
        nodes += [
            helper.make_node("Equal", ["chosen", f"number{k}"], [f"is{k}"], name=f"is{k}"),
            helper.make_node("NonZero", [f"is{k}"], [f"at{k}"], name=f"find{k}"),
            helper.make_node("Gather", [f"at{k}", "first"], [f"rows{k}"], name=f"rows{k}"),
            helper.make_node("Gather", ["x", f"rows{k}"], [f"tokens{k}"], name=f"tokens{k}"),
            helper.make_node("Tanh", [f"tokens{k}"], [f"y{k}"], name=f"tanh{k}"),
        ]
    weights.append(numpy_helper.from_array(np.array(0, dtype=np.int64), "first"))
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "experts",
        [value("scores", TensorProto.FLOAT, ["t", count]), value("x", TensorProto.FLOAT, ["t", WIDTH])],
        [value(f"y{k}", TensorProto.FLOAT, [f"n{k}", WIDTH]) for k in range(count)],
        weights,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def test_what_surely_fits_is_the_worst_split() -> None:
    model = load_model(experts())
    found = model_demand(model, counts=("activations",))
    shapes = infer_shapes(model.view())
    names = [u.symbol for u in shapes.unknowns]
    assert len(names) == 4
    t = 5
    most = found.demand.at({"t": t})
    splits = [s for s in product(range(t + 1), repeat=4) if sum(s) <= 2 * t]
    view = model.view().graph
    plan = prepare(view, from_written(shapes.graph)).plan(priority_order(view))
    steps = profile(plan, value_sizes(shapes.graph)).in_use.exprs()
    at = [{"t": t, **dict(zip(names, split, strict=True))} for split in splits]
    assert most == max(step.evaluate(shape) for shape in at for step in steps)
    assert most < max(step.evaluate({"t": t, **dict.fromkeys(names, t)}) for step in steps)
