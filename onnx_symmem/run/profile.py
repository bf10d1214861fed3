"""What ONNX Runtime wrote about its runs: the profiling file as node events, run by run.

An event is written when its interval ends, so the file lists a graph's nodes in the order they ran, nodes of
an If or Loop before the node that holds them. Each execution of a graph closes with an event of its own; what
began within it and is not taken yet belongs to it.

Memory figures are those of the arena of the node's provider, read after the node has computed and before its
inputs are released; the peak in use is the highest since the session was made.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from onnx_symmem.errors import RunFailed

__all__ = ["NodeEvent", "RunProfile", "read_profile"]

_NODE_SUFFIX = "_kernel_time"
_GRAPH, _RUN = "SequentialExecutor::Execute", "model_run"


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """One node that ran.

    `index` is the node's position in its graph as ONNX Runtime counts it. Bytes are None where the session
    had no arena. `requested` is the sum of live buffers as asked for, `in_use` the same with the arena's
    rounding, `in_use_peak` and `held` are those of the whole arena so far. `outputs` are (element type,
    dims) of the node's tensors. `graphs` are the executions of the node's subgraphs, one for an If, one per
    iteration for a Loop.
    """

    index: int
    name: str
    op: str
    provider: str
    requested: int | None
    requested_delta: int | None
    in_use: int | None
    in_use_peak: int | None
    held: int | None
    duration_us: int
    outputs: tuple[tuple[str, tuple[int, ...]], ...]
    graphs: tuple[tuple[NodeEvent, ...], ...] = ()

    def walk(self) -> Iterator[NodeEvent]:
        """What ran inside the node, then the node."""
        for graph in self.graphs:
            for event in graph:
                yield from event.walk()
        yield self


@dataclass(frozen=True, slots=True)
class RunProfile:
    """One run of a session: the nodes of the main graph in the order they ran."""

    events: tuple[NodeEvent, ...]
    duration_us: int

    def walk(self) -> Iterator[NodeEvent]:
        """Every node that ran, at any depth, in the order they finished."""
        for event in self.events:
            yield from event.walk()

    def of_provider(self, provider: str) -> tuple[NodeEvent, ...]:
        """Events at any depth whose memory figures are those of `provider`'s arena."""
        return tuple(e for e in self.walk() if e.provider == provider and e.requested is not None)

    def static_bytes(self, provider: str) -> int:
        """In use before the first node: prepacked weights, device copies of weights and inputs.

        Of the first run only; under a memory pattern later runs begin with the pattern's block as well.
        """
        for event in self.events:
            if event.provider == provider and event.requested is not None:
                return event.requested - (event.requested_delta or 0)
        return 0


def read_profile(path: str | PathLike[str], runs: int) -> tuple[RunProfile, ...]:
    """The runs in a profiling file of one session; RunFailed where it does not hold `runs` whole runs."""
    try:
        records = json.loads(Path(path).read_bytes())
    except (OSError, ValueError) as error:
        raise RunFailed(f"{path}: the profile of ONNX Runtime cannot be read ({error})") from None
    found = tuple(_runs(records))
    if len(found) != runs:
        raise RunFailed(
            f"{path}: the profile holds {len(found)} whole runs of {runs}; ONNX Runtime stops recording "
            "after a million events, use a smaller shape"
        )
    return found


def _runs(records: list[Mapping[str, Any]]) -> Iterator[RunProfile]:
    # (start, event or execution of a graph) of what has ended and is not yet part of anything.
    open_events: list[tuple[int, NodeEvent]] = []
    open_graphs: list[tuple[int, tuple[NodeEvent, ...]]] = []
    for record in records:
        category, name = record.get("cat"), record.get("name", "")
        if category == "Node" and name.endswith(_NODE_SUFFIX):
            start = int(record["ts"])
            graphs = _take(open_graphs, start)
            open_events.append((start, _event(record, graphs)))
        elif category == "Session" and name == _GRAPH:
            start = int(record["ts"])
            open_graphs.append((start, _take(open_events, start)))
        elif category == "Session" and name == _RUN:
            if len(open_graphs) == 1:  # else the run broke off
                yield RunProfile(open_graphs[0][1], int(record["dur"]))
            open_events.clear()
            open_graphs.clear()


def _take(ended: list[tuple[int, Any]], start: int) -> tuple[Any, ...]:
    """Remove and return what began at `start` or later; beginnings ascend."""
    first = len(ended)
    while first and ended[first - 1][0] >= start:
        first -= 1
    taken = tuple(item for _, item in ended[first:])
    del ended[first:]
    return taken


def _event(record: Mapping[str, Any], graphs: tuple[tuple[NodeEvent, ...], ...]) -> NodeEvent:
    args = record.get("args", {})

    def number(key: str) -> int | None:
        value = args.get(key)
        return int(value) if value not in (None, "") else None

    return NodeEvent(
        index=number("node_index") or 0,
        name=record["name"].removesuffix(_NODE_SUFFIX),
        op=args.get("op_name", ""),
        provider=args.get("provider", ""),
        requested=number("mem_bytes_requested_in_use"),
        requested_delta=number("mem_requested_in_use_delta"),
        in_use=number("mem_bytes_in_use"),
        in_use_peak=number("mem_in_use_peak"),
        held=number("mem_arena_held"),
        duration_us=int(record["dur"]),
        outputs=tuple(
            (kind, tuple(map(int, dims)))
            for entry in args.get("output_type_shape", ())
            for kind, dims in entry.items()
        ),
        graphs=graphs,
    )
