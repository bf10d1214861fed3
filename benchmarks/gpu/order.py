"""Is the executed order inside the CUDA stream the planned one (question 1)? And what is there at all."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx

from benchmarks.gpu.graphs import anchored_model, branches, interleaved
from benchmarks.gpu.machine import memory_in_use
from benchmarks.gpu.prepared import level_peaks
from benchmarks.gpu.record import Row, mib
from benchmarks.gpu.runner import opened, provider_name
from benchmarks.gpu.setting import NO_DEVICE, Setting, Tasks, counted, each
from onnx_symmem.graph.load import load_model
from onnx_symmem.graph.view import GraphView
from onnx_symmem.memory.execution_order import priority_order
from onnx_symmem.rewrite.reorder import reorder_nodes
from onnx_symmem.run.profile import NodeEvent
from onnx_symmem.run.session import kept

__all__ = ["environment", "order"]

_SEEDS = (0, 1)

# Asked in a process of its own: where one of its libraries is missing, ONNX Runtime crashes on the question.
_KERNELS = """
import json, onnxruntime
onnxruntime.preload_dlls()
from onnxruntime.capi.onnxruntime_pybind11_state import get_all_opkernel_def
names = {k.op_name for k in get_all_opkernel_def() if k.provider == "CUDAExecutionProvider"}
print(json.dumps(sorted(names)))
"""


def environment(setting: Setting) -> Iterator[Row]:
    """What is there, and what a CUDA context with its libraries takes (question 5)."""
    import onnxruntime as ort

    def row(what: str, value: object, unit: str = "", note: str = "") -> Row:
        return Row("environment", "", "", what, str(value), unit=unit, note=note)

    yield row("python", platform.python_version())
    yield row("onnx", onnx.__version__)
    yield row("onnxruntime", ort.__version__, note=str(Path(ort.__file__).parent))
    built_in = [p.removesuffix("ExecutionProvider") for p in ort.get_available_providers()]
    yield row("providers built in", ", ".join(built_in))
    before = memory_in_use(setting.provider)
    with opened(branches(1, 64), setting.provider, profiled=False, on_host=frozenset(["c0"])) as runner:
        first = runner.session.get_providers()[0]
        right = first == provider_name(setting.provider)
        yield row("first provider", first, note="as asked for" if right else "WRONG")
        runner.run({"x": np.ones((2, 64), np.float32), "c0": np.array(True)})
        after = memory_in_use(setting.provider)
    if before is None or after is None:
        yield row("context and libraries", "-", "MiB", NO_DEVICE if setting.provider == "cpu" else "unknown")
    else:
        yield row("in use before", mib(before), "MiB", "by all processes, NVML")
        yield row("context and libraries", mib(after - before), "MiB", "growth up to the first session's run")
    yield from _without_kernels(setting)


def _without_kernels(setting: Setting) -> Iterator[Row]:
    """Operators of the prepared models that the CUDA provider has no kernel for, whatever the types."""
    what = "operators without a kernel"
    if setting.provider == "cpu":
        yield Row("environment", "", "", what, "-", note=NO_DEVICE)
        return
    asked = subprocess.run([sys.executable, "-c", _KERNELS], capture_output=True, text=True, check=False)
    if asked.returncode:
        yield Row("environment", "", "", what, "-", note=f"ONNX Runtime cannot tell: {asked.returncode}")
        return
    known = set(json.loads(asked.stdout.splitlines()[-1]))
    for name in setting.models:
        nodes = load_model(setting.file(name, "original")).view().graph.nodes
        missing = Counter(n.op for n in nodes if n.op not in known and n.op != "Constant")
        yield Row("environment", name, "", what, str(len(missing)), note=counted(missing))


def order(setting: Setting) -> Iterator[Row]:
    """Is the executed order inside the CUDA stream the planned one, by the option and by anchors (1)?"""
    path = setting.file("transformer", "original")
    shape = setting.shapes("transformer")[0]

    def forced(seed: int, way: str) -> Iterator[Row]:
        base = load_model(path)
        view = base.view().graph
        wanted = interleaved(view, seed)
        settings = kept(setting.provider)
        if way == "order option":
            proto = reorder_nodes(base.proto, wanted)
            wanted = tuple(wanted[k] for k in priority_order(replace(base, proto=proto).view().graph))
        else:
            made = anchored_model(base.proto, view, wanted)
            if made is None:
                yield Row(
                    "order", way, f"seed {seed}", "nodes as planned", "-", note="no anchors force this order"
                )
                return
            proto, settings = made, replace(settings, execution_order="default")
        with opened(replace(base, proto=proto), setting.provider, settings) as runner:
            runner.run(setting.feeds("transformer", shape))
            events = runner.profiles()[0].events
        names = [view.nodes[n].name for n in wanted if view.nodes[n].op != "Constant"]
        yield _order_row(way, f"seed {seed}", names, events, setting.provider)

    def inside(variant: str) -> Iterator[Row]:
        levels = setting.file("transformer", variant)
        peaks = level_peaks(levels, shape)
        view = load_model(levels).view().graph
        for level, limit in enumerate(peaks):
            with opened(levels, setting.provider) as runner:
                runner.run(setting.feeds("transformer", shape, limit))
                events = runner.profiles()[0].events
            graph = next(_deepest(view, events), None)
            if graph is None:
                yield Row("order", variant, f"level {level}", "nodes as planned", "-", note="no If ran")
                continue
            branch, ran = graph
            names = [branch.nodes[n].name for n in priority_order(branch) if branch.nodes[n].op != "Constant"]
            yield _order_row(f"inside the If, {variant}", f"level {level}", names, ran, setting.provider)

    seeds = _SEEDS[:1] if setting.small else _SEEDS
    tasks: Tasks = [
        (way, lambda seed=seed, way=way: forced(seed, way))
        for way in ("order option", "anchors")
        for seed in seeds
    ]
    tasks += [(v, lambda v=v: inside(v)) for v in ("levels", "offload")]
    yield from each("order", tasks)


def _deepest(view: GraphView, events: Sequence[NodeEvent]) -> Iterator[tuple[GraphView, Sequence[NodeEvent]]]:
    """The branch that ran, through nested Ifs, with what ran in it."""
    for event in events:
        if event.op != "If" or not event.graphs:
            continue
        ran = event.graphs[0]
        node = next(n for n in view.nodes if n.name == event.name)
        names = {e.name for e in ran}
        branch = max(node.subgraphs.values(), key=lambda g: len(names & {n.name for n in g.nodes}))
        yield from _deepest(branch, ran)
        yield branch, ran


def _order_row(
    subject: str, shape: str, names: Sequence[str], events: Sequence[NodeEvent], provider: str
) -> Row:
    """Compare the nodes of the provider that ran with the wanted order of those very nodes."""
    where = {e.name: e.provider for e in events}
    mine = provider_name(provider)
    known = set(names)
    ran = [e.name for e in events if e.provider == mine and e.name in known]
    wanted = [name for name in names if where.get(name) == mine]
    same = sum(a == b for a, b in zip(ran, wanted, strict=True))
    elsewhere = Counter(e.op for e in events if e.provider != mine)
    added = Counter(e.op for e in events if e.name not in known and not e.name.endswith("/anchor"))
    notes = [f"on the CPU: {counted(elsewhere)}"] if elsewhere else []
    notes += [f"not in the file: {counted(added)}"] if added else []
    if same < len(wanted):
        at = next(k for k, (a, b) in enumerate(zip(ran, wanted, strict=True)) if a != b)
        notes.insert(0, f"first at {at}: {ran[at]} before {wanted[at]}")
    missing = len(names) - len(known & where.keys())
    notes += [f"{missing} nodes did not run"] if missing else []
    return Row(
        "order", subject, shape, "nodes as planned", str(same), str(len(wanted)), note="; ".join(notes)
    )
