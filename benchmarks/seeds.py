"""How much results depend on chance: other seeds of the search, and nodes listed in other orders.

The search draws some places from its seed; ties are broken by the order of the file. So a seed is both: one
of the search, and a random topological order of the file.
"""

from __future__ import annotations

import heapq
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx

from benchmarks.case import case_of, ratios
from benchmarks.document import Cell, Finding, Page, Table
from benchmarks.environment import Progress
from benchmarks.families import graph_sources
from onnx_symmem.graph.load import load_model
from onnx_symmem.graph.view import GraphView
from onnx_symmem.order.limits import SearchLimits

__all__ = ["GRAPHS", "run", "shuffled"]

GRAPHS = (
    "squeezenet_train", "shufflenet_train", "randwire_0", "nasnet", "encoder_decoder_cached",
    "transformer_train", "series_parallel_0", "series_parallel_2",
)  # fmt: skip
SEEDS = 5


@dataclass(frozen=True, slots=True)
class _Run:
    """One seed: peaks at the steering shapes, worst peak / bound before and after, seconds of planning."""

    peaks: tuple[int, ...]
    before: float
    after: float
    seconds: float


def shuffled(model: onnx.ModelProto, view: GraphView, seed: int) -> onnx.ModelProto:
    """The same model, its nodes in a random topological order; seed 0 leaves them as they are."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    if seed:
        del result.graph.node[:]
        result.graph.node.extend(model.graph.node[k] for k in _topological(view, seed))
    return result


def _topological(view: GraphView, seed: int) -> list[int]:
    place = np.random.default_rng(seed).permutation(len(view.nodes))
    waiting = [len(p) for p in view.predecessors]
    ready = [(int(place[k]), k) for k, count in enumerate(waiting) if not count]
    heapq.heapify(ready)
    order = []
    while ready:
        node = heapq.heappop(ready)[1]
        order.append(node)
        for after in view.successors[node]:
            waiting[after] -= 1
            if not waiting[after]:
                heapq.heappush(ready, (int(place[after]), after))
    return order


def run(only: Sequence[str] = (), seeds: int = SEEDS) -> Page:
    """The spread over some graphs of all families."""
    wanted = only or GRAPHS
    sources = {n: s for n, s in graph_sources().items() if n in wanted and s.family != "corpus"}
    tasks = {f"{n} seed {seed}": (n, s, seed) for n, s in sources.items() for seed in range(seeds)}
    found: dict[str, list[_Run]] = {}
    single: list[tuple[Cell, ...]] = []
    wrong: list[str] = []
    progress = Progress("seeds")
    for task, (name, source, seed) in progress.each(tasks):
        with progress.attempt(task, wrong):
            model, level = source.load()
            proto = shuffled(model.proto, model.view().graph, seed)
            case = case_of(load_model(proto), level, source.ranges)
            start = time.perf_counter()
            ours = case.planned(replace(SearchLimits(), seed=seed))
            seconds = time.perf_counter() - start
            peaks = tuple(ours.at(s) for s in case.shapes)
            bound = case.bound(ours)
            before = max(ratios([ours.found.choice.before.at(s) for s in case.shapes], bound))
            after = max(ratios(peaks, bound))
            found.setdefault(name, []).append(_Run(peaks, before, after, seconds))
            single.append((name, seed, before, after, seconds))
    rows: list[tuple[Cell, ...]] = []
    widest = 0.0
    for name, runs in found.items():
        columns = zip(*(run.peaks for run in runs), strict=True)
        spread = 100 * max((max(c) - min(c)) / max(min(c), 1) for c in columns)
        widest = max(widest, spread)
        theirs, ours_all = [run.before for run in runs], [run.after for run in runs]
        took = [run.seconds for run in runs]
        rows.append(
            (name, len(runs), min(theirs), max(theirs), min(ours_all), statistics.median(ours_all),
             max(ours_all), spread, statistics.median(took), max(took))
        )  # fmt: skip
    return Page(
        "seeds",
        f"Spread over {seeds} seeds",
        """A seed is that of the search, and lists the nodes of the same graph in another random topological
        order, by which ties are broken; seed 0 is the file as it is. Peak / bound is that of the worst
        steering shape.""",
        (Finding("largest spread of a peak at one shape", f"{widest:.2f} %"),),
        (
            Table(
                "seeds",
                "Spread",
                ("graph", "seeds", "onnxruntime least", "onnxruntime most", "ours least", "ours median",
                 "ours most", "peak spread %", "plan s median", "plan s most"),
                tuple(rows),
                "Peak spread: the largest difference of peaks at one steering shape over the smallest.",
            ),
            Table(
                "seeds_single",
                "Every seed",
                ("graph", "seed", "onnxruntime", "ours", "plan s"),
                tuple(single),
            ),
        ),
        wrong=tuple(wrong),
    )  # fmt: skip
