"""What would have run without this tool: the graph, its order, and what ONNX Runtime knows of its dims.

The offline optimiser saves the graph in the order in which ONNX Runtime would have run it (checked by
tests/run/test_baseline.py). The dims that ONNX Runtime infers on loading it are not saved. No file gives
every such order a second time, for it may follow dependencies that the saved graph has no more; so what would
have run is measured on the model itself, under `baseline_settings`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import onnx

from onnx_symmem.expr.domain import Domain
from onnx_symmem.graph.load import LoadedModel, load_model
from onnx_symmem.graph.view import GraphView, ModelView
from onnx_symmem.memory.execution_order import default_order
from onnx_symmem.memory.plan import Plan, PlanOptions, prepare
from onnx_symmem.rewrite.steady_layout import steady
from onnx_symmem.run.added_nodes import as_loaded
from onnx_symmem.run.at_load import keys_at_load
from onnx_symmem.run.offline import optimize_offline
from onnx_symmem.run.own_names import with_own_names
from onnx_symmem.run.predict import Prediction, predict
from onnx_symmem.run.profile import NodeEvent, RunProfile
from onnx_symmem.run.session import SessionSettings, cuda_problem, kept
from onnx_symmem.run.unchanged import changed_nodes, kept_layout
from onnx_symmem.shapes.engine import infer_shapes
from onnx_symmem.shapes.table import GraphShapes

__all__ = [
    "baseline_graph",
    "baseline_plan",
    "baseline_settings",
    "file_order",
    "predict_baseline",
    "settled_baseline",
    "usable_baseline",
]


_PASSES = 4  # of optimisation; no model is known that changes after the second
_AGAIN = (
    "ONNX Runtime changes its own graph once more when it is loaded: planned is what is left in the end, "
    "which may round otherwise than the model does, at shapes where the outputs were not verified"
)
_AS_LOADED = (
    "ONNX Runtime adds or replaces nodes of this model whenever it loads it, even without optimisation: "
    "planned is what it makes of it"
)


def baseline_graph(model: LoadedModel, level: str, provider: str, folder: Path) -> LoadedModel:
    """The graph that would run: what ONNX Runtime makes of the model in `folder`.

    At level none mostly the model itself, and that where it is for CUDA and there is none.
    """
    if level == "none":
        if provider == "cuda" and cuda_problem():
            return model
        found = as_loaded(model, provider, folder)
        return found if found is model else _usable(found, model)
    # Basic rewrites do not depend on the provider; without CUDA they are made on the CPU.
    where = "cpu" if level == "basic" and provider == "cuda" and cuda_problem() else provider
    base = load_model(optimize_offline(model, folder, where, level))
    return _usable(base, model)


def _usable(base: LoadedModel, model: LoadedModel) -> LoadedModel:
    """A graph that ONNX Runtime wrote, such that it is given what the model is and can be loaded again."""
    return replace(base, proto=with_own_names(_with_inputs_of(base.proto, model.proto)))


def _with_inputs_of(base: onnx.ModelProto, model: onnx.ModelProto) -> onnx.ModelProto:
    """`base` without inputs that the model does not have.

    Up to IR 3 every initializer is listed among the inputs; one that was folded away stays there as an input
    that must be fed, and one that was folded together is missing. From IR 4 on neither is asked for.
    """
    weights = {t.name for t in model.graph.initializer} if model.ir_version < 4 else set()
    given = [i.name for i in model.graph.input if i.name not in weights]
    if [i.name for i in base.graph.input] == given:
        return base
    result = onnx.ModelProto()
    result.CopyFrom(base)
    result.ir_version = max(base.ir_version, 4)
    by_name = {i.name: i for i in base.graph.input}
    del result.graph.input[:]
    result.graph.input.extend(by_name[name] for name in given)
    return result


def usable_baseline(
    model: LoadedModel, level: str, provider: str, folder: Path
) -> tuple[LoadedModel, tuple[str, ...]]:
    """The baseline graph at `level`, and notices for the user."""
    base = baseline_graph(model, level, provider, folder)
    return base, (_AS_LOADED,) if level == "none" and base is not model else ()


def settled_baseline(
    base: LoadedModel, level: str, provider: str, folder: Path
) -> tuple[LoadedModel, tuple[str, ...]]:
    """A baseline graph that ONNX Runtime leaves as it is, which now and then takes a second pass.

    A file that is to keep its plan by itself is optimised again whenever it is loaded. Where it can be
    written so that this changes nothing, the first pass is the last.
    """
    for again in range(1, _PASSES):
        if not changed_nodes(base, level, provider):
            return base, () if again == 1 else (_AGAIN,)
        if again == 1:
            held = replace(base, proto=steady(base.proto, kept_layout(base, level, provider)))
            if not changed_nodes(held, level, provider):
                return base, ()
        place = folder / f"again{again}"
        place.mkdir()
        base = baseline_graph(base, level, provider, place)
    return base, (_AGAIN,)


def baseline_plan(
    base: LoadedModel,
    shapes: GraphShapes,
    level: str,
    provider: str,
    mem_reuse: bool = False,
    saved: bool = False,
) -> Plan:
    """The plan that would have run: ONNX Runtime's order, with the dims it knows once `base` is loaded.

    `saved`: ONNX Runtime wrote `base`, as it always does but at level none.
    """
    rule = _saved_order if saved or level != "none" else default_order
    prepared = prepare(shapes.view, keys_at_load(base, shapes), PlanOptions(provider, mem_reuse), rule)
    return prepared.plan(rule(shapes.view))


def _saved_order(view: GraphView) -> tuple[int, ...]:
    """A model that was optimised offline is saved in the order in which it would have run.

    So are its subgraphs, which the default traversal of the saved graph need not give a second time.
    """
    return tuple(range(len(view.nodes)))


def baseline_settings(level: str, provider: str = "cpu", mem_reuse: bool = False) -> SessionSettings:
    """Settings under which the model itself takes what `baseline_plan` says.

    Graph and order are ONNX Runtime's own; only memory settings are those of a session that keeps a plan.
    """
    return replace(kept(provider), optimization=level, execution_order="default", mem_reuse=mem_reuse)


def predict_baseline(
    model: LoadedModel,
    level: str,
    provider: str,
    at: Mapping[str, int],
    run: RunProfile,
    domain: Domain | None = None,
    mem_reuse: bool = False,
) -> Prediction:
    """Compare a profiled run of the model under `baseline_settings`, at the full shape `at`, with its plan.

    The graph is the saved one: its nodes, subgraphs' nodes too, are those that ran, in the same order.
    """
    settings = baseline_settings("none", provider, mem_reuse)
    with tempfile.TemporaryDirectory(prefix="onnx-symmem-") as folder:
        base = baseline_graph(model, level, provider, Path(folder))
        shapes = infer_shapes(base.view(), domain)
        if base is model:
            return predict(base, shapes, settings, at, run)
        return predict(base, shapes, settings, at, replace(run, events=_as_saved(run.events)), _saved_order)


def _as_saved(events: Sequence[NodeEvent]) -> tuple[NodeEvent, ...]:
    """Events numbered by their place in the saved graph, which has no gaps where nodes were fused."""
    return tuple(
        replace(event, index=k, graphs=tuple(map(_as_saved, event.graphs))) for k, event in enumerate(events)
    )


def file_order(model: LoadedModel, base: LoadedModel, view: ModelView) -> tuple[int, ...]:
    """The order of the model's own file, carried over to the graph `view` of `base` by output names."""
    if base is model:
        return tuple(range(len(view.graph.nodes)))
    place = {o: k for k, node in enumerate(model.proto.graph.node) for o in node.output if o}
    last = len(place)
    key: list[float] = []
    for node in view.graph.nodes:
        known = [place[name] for v in node.outputs if v >= 0 and (name := view.graph.values[v].name) in place]
        key.append(max(known) if known else -1.0)
    # A node that the optimiser made stands just before its first reader.
    for at in range(len(key) - 1, -1, -1):
        if key[at] < 0:
            key[at] = min((key[s] for s in view.graph.successors[at]), default=float(last)) - 0.5
    wanted = sorted(range(len(key)), key=lambda at: (key[at], at))
    return _topological(view, wanted)


def _topological(view: ModelView, wanted: Sequence[int]) -> tuple[int, ...]:
    """The wanted order, with every node's producers moved before it where they stand behind."""
    done = [False] * len(wanted)
    order: list[int] = []
    for start in wanted:
        stack = [start]
        while stack:
            node = stack[-1]
            missing = [p for p in view.graph.predecessors[node] if not done[p]]
            if missing:
                stack.extend(reversed(missing))
                continue
            stack.pop()
            if not done[node]:
                done[node] = True
                order.append(node)
    return tuple(order)
