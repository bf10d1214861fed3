"""Orders compared: peak over certified bound per scheduler, and how symbolic comparisons were settled.

    python -m benchmarks.orders [FOLDER] [--models A,B] [--ablation A,B]

Models are the .onnx files of a folder, without weights, or those of `models/`. A cell is the largest peak /
bound over the steering shapes; peaks are those of the exact plan, the bound is for all shapes. Single-shape
methods get the middle shape as their hint. The ablation plans again with parts of the search left out, on the
domain as declared and on narrower ones.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from models.build import MODELS
from onnx_symmem.expr.decide import Tally
from onnx_symmem.expr.domain import Domain, SymbolRange
from onnx_symmem.expr.expression import ZERO, Expr
from onnx_symmem.expr.grid import evaluate
from onnx_symmem.graph.load import load_model
from onnx_symmem.memory.execution_order import default_order, priority_order
from onnx_symmem.memory.plan import PlanInput, prepare
from onnx_symmem.memory.profile import MemoryProfile, profile
from onnx_symmem.memory.sizes import ValueSizes, from_written, value_sizes
from onnx_symmem.order.baselines import inductor, reverse_list, symbolic_greedy, xla
from onnx_symmem.order.bound import lower_bound
from onnx_symmem.order.buffers import buffer_graph
from onnx_symmem.order.candidates import buffer_bytes, peaks_at
from onnx_symmem.order.limits import SearchLimits
from onnx_symmem.order.planner import PlannedOrder, plan_order
from onnx_symmem.order.steering import steering_shapes
from onnx_symmem.shapes.engine import infer_shapes

__all__ = ["Case", "ablation", "case_of", "main", "methods"]

_NO_SEARCH = replace(SearchLimits(), improved=0, rounds=0)
_WIDTHS: Mapping[str, tuple[int, int | None]] = {"1..": (1, None), "1..64": (1, 64), "8..32": (8, 32)}


@dataclass(frozen=True)
class Case:
    """A model as the schedulers see it."""

    name: str
    domain: Domain
    shapes: Sequence[Mapping[str, int]]
    prepared: Mapping[str, PlanInput]
    sizes: ValueSizes
    before: MemoryProfile
    file: tuple[int, ...]

    def planned(self, limits: SearchLimits | None = None) -> PlannedOrder:
        """Our choice."""
        given = {"onnxruntime": self.before.plan.order, "file": self.file}
        return plan_order(self.prepared, self.sizes, self.domain, self.shapes, self.before, given, limits)

    def peaks(self, order: Sequence[int]) -> tuple[int, ...]:
        """Exact peaks at the steering shapes of an order, Shape and Size first."""
        view = self.prepared["priority"].view
        plan = self.prepared["priority"].plan(priority_order(view, order))
        return peaks_at(profile(plan, self.sizes), self.shapes)


def case_of(name: str, model: onnx.ModelProto | Path, ranges: tuple[int, int | None] = (1, None)) -> Case:
    """A model with every input symbol in the same range where the model allows it."""
    view = load_model(model).view()
    shapes = infer_shapes(view, Domain())
    if ranges != (1, None):
        spec = {
            symbol: SymbolRange(max(ranges[0], shapes.domain.range_of(symbol).lo), ranges[1])
            for symbol in shapes.input_symbols
            if symbol not in shapes.domain.equalities
            and (ranges[1] is None or shapes.domain.range_of(symbol).lo <= ranges[1])
        }
        shapes = infer_shapes(view, Domain(spec))
    sizes, keys = value_sizes(shapes.graph), from_written(shapes.graph)
    prepared = {
        "default": prepare(view.graph, keys, None, default_order),
        "priority": prepare(view.graph, keys, None, priority_order),
    }
    before = profile(prepared["default"].plan(default_order(view.graph)), sizes)
    samples = steering_shapes(shapes.domain, shapes.input_symbols)
    file = tuple(range(len(view.graph.nodes)))
    return Case(name, shapes.domain, samples, prepared, sizes, before, file)


def methods(case: Case) -> tuple[dict[str, tuple[int, ...]], dict[str, Tally], PlannedOrder]:
    """Peaks per method, comparison statistics of the symbolic ones, and our plan."""
    graph = buffer_graph(case.prepared["priority"])
    exprs: list[Expr] = [case.sizes.bytes[v] or ZERO for v in graph.values]
    middle = min(1, len(case.shapes) - 1)
    hint = [int(b) for b in buffer_bytes(graph, case.sizes, case.shapes)[:, middle]]
    forward, first = symbolic_greedy(graph, exprs, case.domain)
    backward, second = reverse_list(graph, exprs, case.domain)
    found = {
        "onnxruntime": peaks_at(case.before, case.shapes),
        "file": case.peaks(case.file),
        "symbolic-greedy": case.peaks(forward),
        "reverse-list": case.peaks(backward),
        "inductor": case.peaks(inductor(graph, hint, case.file)),
        "xla": case.peaks(xla(graph, hint)),
    }
    without = case.planned(_NO_SEARCH)
    ours = case.planned()
    found["portfolio"] = tuple(without.choice.after.at(shape) for shape in case.shapes)
    found["ours"] = tuple(ours.choice.after.at(shape) for shape in case.shapes)
    return found, {"symbolic-greedy": first, "reverse-list": second, "proofs": ours.choice.tally}, ours


def worst(peaks: Sequence[int], bound: np.ndarray) -> float:
    """The largest peak / bound over the steering shapes."""
    return max((p / max(int(b), 1) for p, b in zip(peaks, bound, strict=True)), default=1.0)


def bound_of(case: Case, planned: PlannedOrder) -> np.ndarray:
    """The certified bound at the steering shapes."""
    orders = [c.order for c in planned.candidates]
    found = lower_bound(case.prepared["priority"], case.sizes, case.domain, orders, case.shapes)
    return np.asarray(evaluate(found, case.shapes).max(axis=0))


def ablation(name: str, model: onnx.ModelProto | Path) -> Iterator[list[str]]:
    """Rows (model, domain, method, worst ratio, share of comparisons decided) on several domains."""
    for words, ranges in _WIDTHS.items():
        case = case_of(name, model, ranges)
        found, tallies, ours = methods(case)
        bound = bound_of(case, ours)
        kinds = tallies["symbolic-greedy"].by_kind()
        decided = sum(n for kind, n in kinds.items() if kind in ("LE", "GE", "EQ"))
        share = decided / max(tallies["symbolic-greedy"].total, 1)
        for method in ("onnxruntime", "symbolic-greedy", "portfolio", "ours"):
            yield [name, words, method, f"{worst(found[method], bound):.3f}", f"{share:.0%}"]


def _models(folder: Path | None) -> Iterator[tuple[str, Callable[[], onnx.ModelProto | Path]]]:
    if folder is not None:
        for path in sorted(folder.glob("*.onnx")):
            yield path.stem, lambda path=path: path
    else:
        for name, recipe in MODELS.items():
            yield name, recipe.builder


def _row(cells: Iterable[Any]) -> str:
    return "| " + " | ".join(str(c) for c in cells) + " |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables in Markdown."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.orders", description=__doc__.split("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--models", default="", help="only these, by name")
    parser.add_argument("--ablation", default="", help="models to plan on several domains, by name")
    options = parser.parse_args(arguments)
    only = [name for name in options.models.split(",") if name]
    again = [name for name in options.ablation.split(",") if name]
    ratios: dict[str, list[float]] = {}
    statistics: list[list[Any]] = []
    rows: list[list[str]] = []
    for name, load in _models(options.folder):
        if only and name not in only:
            continue
        start = time.perf_counter()
        case = case_of(name, load())
        found, tallies, ours = methods(case)
        bound = bound_of(case, ours)
        if not ratios:
            print(_row(["model", "nodes", *found, "never worse", "s"]))
            print(_row(["---"] * (len(found) + 4)))
        cells = []
        for method, peaks in found.items():
            ratios.setdefault(method, []).append(worst(peaks, bound))
            cells.append(f"{ratios[method][-1]:.3f}")
        seconds = time.perf_counter() - start
        print(_row([name, len(case.file), *cells, ours.choice.never_worse, f"{seconds:.0f}"]), flush=True)
        for what, tally in tallies.items():
            counted = sorted(tally.counts.items())
            statistics += ([name, what, kind, tier, n] for (kind, tier), n in counted)
        if name in again:
            rows += ablation(name, load())
    means = [f"{exp(sum(map(log, r)) / len(r)):.3f}" for r in ratios.values()]
    print(_row(["geometric mean", "", *means, "", ""]))
    print("\n" + _row(["model", "comparisons of", "verdict", "tier", "count"]))
    print(_row(["---"] * 5))
    for line in statistics:
        print(_row(line))
    if rows:
        print("\n" + _row(["model", "domain", "method", "worst peak / bound", "comparisons decided"]))
        print(_row(["---"] * 5))
        for line in rows:
            print(_row(line))
    return 0


if __name__ == "__main__":
    sys.exit(main())
