"""How much results depend on chance: other seeds of the search, and nodes listed in other orders.

The search draws some places from its seed; ties are broken by the order of the file. So a seed is both: one
of the search, and a random topological order of the file.
"""

from __future__ import annotations

import heapq
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx

from benchmarks.case import case_of, ratios
from benchmarks.document import Finding, Page, Table
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
    found: dict[str, list[tuple[tuple[int, ...], float, float, float]]] = {}
    single: list[tuple[str | int | float, ...]] = []
    for _, (name, source, seed) in Progress("seeds").each(tasks):
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
        found.setdefault(name, []).append((peaks, before, after, seconds))
        single.append((name, seed, before, after, seconds))
    rows = []
    for name, runs in found.items():
        columns = zip(*(peaks for peaks, *_ in runs), strict=True)
        spread = max((max(c) - min(c)) / max(min(c), 1) for c in columns)
        before, after, took = ([r[k] for r in runs] for k in (1, 2, 3))
        rows.append(
            (name, len(runs), min(before), max(before), min(after), statistics.median(after), max(after),
             100 * spread, statistics.median(took), max(took))
        )  # fmt: skip
    widest = max((float(row[7]) for row in rows), default=0.0)
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
    )  # fmt: skip
