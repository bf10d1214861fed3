"""A run of a graph in which nodes may run more than once and values may go to the host and back.

Rule: a step reads the latest instance of every value made before it. A second run of a node is a recompute:
it makes new instances of its outputs. An offload copies the latest device instance of a value to the host, a
reload makes a new device instance from the latest copy there. Graph inputs, weights and outer values have
one instance; a graph output is its first instance, and every reader of it reads that one.

A node may run again only if it gives the same bits again: no random numbers, no state, no control flow, and
an operator of a domain that is known to have neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto

from onnx_symmem.errors import UsageError
from onnx_symmem.graph.view import NODE, GraphView, Node

__all__ = [
    "OFFLOAD",
    "RELOAD",
    "RUN",
    "Schedule",
    "Step",
    "check_schedule",
    "never_again",
    "schedule_of",
]

RUN, OFFLOAD, RELOAD = "run", "offload", "reload"

_DOMAINS = ("", "ai.onnx.ml", "com.microsoft", "com.microsoft.nchwc")
_RANDOM = frozenset(
    (
        "Bernoulli", "BiasDropout", "BitmaskBiasDropout", "BitmaskDropout", "Multinomial", "RandomNormal",
        "RandomNormalLike", "RandomUniform", "RandomUniformLike", "SampleOp", "Sampling",
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that is done: `kind` is run, offload or reload.

    `index` is a node of the graph for run, else a value.
    """

    kind: str
    index: int


Schedule = tuple[Step, ...]


def schedule_of(order: Iterable[int]) -> Schedule:
    """The schedule that runs every node once, in the given order."""
    return tuple(Step(RUN, node) for node in order)


def never_again(view: GraphView, node: Node) -> str:
    """Why a node may run only once; empty where it may be repeated."""
    if node.subgraphs:
        return "it has subgraphs"
    if node.op == "Constant" and not node.domain:
        return "it is a weight"
    if node.domain not in _DOMAINS:
        return f"operators of the domain '{node.domain}' may have state"
    if node.op in _RANDOM or (node.op == "Dropout" and not _is_identity(view, node)):
        return "it is random"
    if not any(v >= 0 for v in node.outputs):
        return "it makes nothing"
    if all(v < 0 or v in view.outputs for v in node.outputs):
        return "all it makes are outputs of the graph, which stay in memory"
    return ""


def _is_identity(view: GraphView, node: Node) -> bool:
    """Whether a Dropout drops nothing, whatever is fed: its training mode is left out or a false constant."""
    if len(node.inputs) < 3 or node.inputs[2] < 0:
        return True
    value = view.values[node.inputs[2]]
    tensor = view.initializers.get(value.index)
    if value.kind == NODE and view.nodes[value.producer].op == "Constant":
        tensor = view.nodes[value.producer].attributes.get("value")
    if tensor is None or value.index in view.inputs or tensor.data_location == TensorProto.EXTERNAL:
        return False
    return not np.any(onnx.numpy_helper.to_array(tensor))


def check_schedule(view: GraphView, schedule: Sequence[Step]) -> None:
    """Raise UsageError unless a schedule can be run and gives what the graph gives.

    Every node runs, and once only where it may not be repeated; every read has an instance; what is
    offloaded is a device instance of a tensor that the graph makes for itself, and is reloaded afterwards.
    """
    outputs = set(view.outputs)
    free = {v.index for v in view.values if v.kind != NODE}
    device, host = set(free), set[int]()
    waiting: dict[int, int] = {}  # values offloaded and not reloaded, with their steps
    ran = [0] * len(view.nodes)
    for number, step in enumerate(schedule):
        where = f"schedule, step {number}"
        if step.kind == RUN:
            if not 0 <= step.index < len(view.nodes):
                raise UsageError(f"{where}: there is no node {step.index}; the graph has {len(view.nodes)}")
            node = view.nodes[step.index]
            ran[step.index] += 1
            reason = never_again(view, node) if ran[step.index] > 1 else ""
            if reason:
                raise UsageError(f"{where}: {node.label()} may not run twice: {reason}")
            missing = next((v for v in node.reads() if v not in device), None)
            if missing is not None:
                name = view.values[missing].name
                raise UsageError(f"{where}: {node.label()} reads '{name}', which is not made before")
            device.update(v for v in node.outputs if v >= 0)
            continue
        if step.kind not in (OFFLOAD, RELOAD):
            raise UsageError(f"{where}: kind '{step.kind}' is not known; expected run, offload or reload")
        if not 0 <= step.index < len(view.values):
            raise UsageError(f"{where}: there is no value {step.index}; the graph has {len(view.values)}")
        value = view.values[step.index]
        if step.kind == RELOAD:
            if step.index not in host:
                raise UsageError(f"{where}: '{value.name}' is reloaded, but not offloaded before")
            waiting.pop(step.index, None)
            continue
        if step.index in free or step.index in outputs:
            kind = "an output" if step.index in outputs else f"an {value.kind} value"
            raise UsageError(f"{where}: '{value.name}' is {kind} and stays in memory; it cannot be offloaded")
        if view.nodes[value.producer].op == "Constant":
            raise UsageError(f"{where}: '{value.name}' is a weight; it cannot be offloaded")
        if step.index not in device:
            raise UsageError(f"{where}: '{value.name}' is offloaded, but not made before")
        if step.index in waiting:
            raise UsageError(f"{where}: '{value.name}' is offloaded twice and not reloaded in between")
        host.add(step.index)
        waiting[step.index] = number
    for value_index, number in waiting.items():
        name = view.values[value_index].name
        raise UsageError(f"schedule, step {number}: '{name}' is offloaded and never reloaded")
    for node in view.nodes:
        if not ran[node.index]:
            raise UsageError(f"schedule: {node.label()} never runs; expected every node at least once")
