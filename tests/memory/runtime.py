"""Small models, run under ONNX Runtime's profiler: measured bytes per node beside predicted ones."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

from onnx_symmem.expr.expression import Expr
from onnx_symmem.expr.text import parse
from onnx_symmem.graph.view import GraphView, view_model
from onnx_symmem.memory.execution_order import default_order, priority_order
from onnx_symmem.memory.plan import Plan, PlanOptions, plan
from onnx_symmem.memory.profile import MemoryProfile, profile
from onnx_symmem.memory.sizes import ValueSizes, from_declared, tensor_bytes

FLOAT, INT64, BOOL, INT32 = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL, TensorProto.INT32
ORDERS = {"DEFAULT": default_order, "PRIORITY_BASED": priority_order}


def info(name: str, dims: Sequence[int | str | None] | None, elem_type: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, elem_type, dims)


def model(nodes, inputs, outputs, weights=(), infos=(), opset=17, domains=()) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes), "g", list(inputs), list(outputs), list(weights), value_info=list(infos)
    )
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def number(name: str, value, elem_type: int = INT64) -> onnx.TensorProto:
    array = np.array(value)
    return helper.make_tensor(name, elem_type, array.shape, array.flatten().tolist())


def sizes_of(view: GraphView, outer: ValueSizes | None = None) -> ValueSizes:
    """Bytes from declared dims; every value of the model must have them."""
    sizes: list[Expr | None] = []
    for value in view.values:
        if value.kind == "outer" and outer is not None:
            sizes.append(outer.bytes[view.outer[value.index]])
        elif value.dims is None or None in value.dims:
            sizes.append(None)
        else:
            dims = [d if isinstance(d, int) else parse(d) for d in value.dims]
            sizes.append(tensor_bytes(dims, value.elem_type))
    here = ValueSizes(tuple(sizes), {}, {})
    subs = {(n.index, name): sizes_of(sub, here) for n in view.nodes for name, sub in n.subgraphs.items()}
    return ValueSizes(tuple(sizes), {}, subs)


def predicted(proto: onnx.ModelProto, order: str = "PRIORITY_BASED", reuse: bool = False) -> MemoryProfile:
    return profile(planned(proto, order, reuse), sizes_of(view_model(proto).graph))


def planned(proto: onnx.ModelProto, order: str = "PRIORITY_BASED", reuse: bool = False) -> Plan:
    view = view_model(proto).graph
    rule = ORDERS[order]
    return plan(view, rule(view), from_declared(view), PlanOptions(mem_reuse=reuse), rule)


def bytes_by_node(result: MemoryProfile, shape: Mapping[str, int]) -> dict[str, int]:
    """Predicted bytes in use after each node, by the node's name (names must be unique)."""
    found = {}
    for moment, value in zip(result.moments, result.in_use.evaluate([shape])[:, 0], strict=True):
        view, node = result.plan.view, result.plan.view.nodes[moment.node]
        for name, index in moment.path:
            view = node.subgraphs[name]
            node = view.nodes[index]
        found[node.name] = int(value)
    return found


def measured(
    proto: onnx.ModelProto,
    feeds: Mapping[str, np.ndarray],
    order: str = "PRIORITY_BASED",
    reuse: bool = False,
) -> dict[str, int]:
    """Bytes in use after each node that ran, without what was there before the run, by node name."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.execution_order = getattr(ort.ExecutionOrder, order)
    options.enable_mem_pattern, options.enable_mem_reuse = False, reuse
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    with TemporaryDirectory() as folder:
        options.enable_profiling, options.profile_file_prefix = True, str(Path(folder, "run"))
        session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
        session.run(None, dict(feeds))
        events = json.loads(Path(session.end_profiling()).read_text())
    ends = [e for e in events if e.get("cat") == "Node" and e["name"].endswith("_kernel_time")]
    ends.sort(key=lambda e: (e["ts"] + e["dur"], e["ts"]))
    after = {
        e["name"].removesuffix("_kernel_time"): int(e["args"]["mem_bytes_requested_in_use"]) for e in ends
    }
    # The node that started first: an If's own event spans those of its branch.
    first = min(ends, key=lambda e: (e["ts"], -e["dur"]))["args"]
    before = int(first["mem_bytes_requested_in_use"]) - int(first["mem_requested_in_use_delta"])
    return {name: value - before for name, value in after.items()}
