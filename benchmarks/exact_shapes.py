"""One plan for all shapes against plans made for single shapes: what it costs not to know the shape.

For random shapes of a model every dim is fixed and planned again, with the same effort. The plan for a shape
may also be the dynamic one, so no ratio is below 1.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from benchmarks.case import NO_BOUND, Shape
from benchmarks.document import Cell, Finding, Page, Table, geometric_mean
from benchmarks.environment import Progress
from benchmarks.families import GraphSource, graph_sources
from onnx_symmem.expr.domain import Domain, SymbolRange
from onnx_symmem.expr.samples import legal_near

__all__ = ["random_shapes", "run"]

TARGET = 1.002
SHAPES = 20
_MOST = 512  # size of a dim, in units of its divisor


def random_shapes(
    domain: Domain, symbols: Sequence[str], count: int, rng: np.random.Generator
) -> tuple[Shape, ...]:
    """Distinct legal shapes; dims are drawn evenly by their logarithms."""
    names = [s for s in symbols if s not in domain.equalities]
    found: dict[tuple[tuple[str, int], ...], Shape] = {}
    for _ in range(50 * count):
        if len(found) == count:
            break
        wanted = {}
        for name in names:
            allowed = domain.range_of(name)
            unit = allowed.divisor
            low = -(-max(allowed.lo, 1) // unit)
            high = max(low, _MOST if allowed.hi is None else min(allowed.hi // unit, _MOST))
            wanted[name] = unit * round(float(np.exp(rng.uniform(np.log(low), np.log(high)))))
        shape = legal_near(domain, wanted)
        if shape is not None:
            kept = {name: shape[name] for name in names}
            found.setdefault(tuple(kept.items()), kept)
    return tuple(found.values())


def run(only: Sequence[str] = (), count: int = SHAPES) -> Page:
    """The table over the corpus."""
    rows: list[tuple[Cell, ...]] = []
    every: list[float] = []
    sources = {n: s for n, s in graph_sources(("corpus",)).items() if not only or n in only}
    progress = Progress("exact")
    notes: list[str] = []
    wrong: list[str] = []
    for name, source in progress.each(sources):
        with progress.attempt(name, wrong):
            start = time.perf_counter()
            found = list(_compared(name, source, count, progress))
            if not found:
                notes.append(f"{name}: sizes depend on data, so no shape fixes them")
                continue
            ratios = [ratio for _, ratio in found]
            every += ratios
            worst = max(found, key=lambda pair: pair[1])
            words = ", ".join(f"{k}={v}" for k, v in worst[0].items())
            seconds = round(time.perf_counter() - start)
            rows.append((name, len(found), geometric_mean(ratios), max(ratios), words, seconds))
    mean, most = geometric_mean(every), max(every, default=1.0)
    if most > TARGET:
        notes.append(f"a file has few orders: `orders_needed` proves how many it takes to be within {TARGET}")
    return Page(
        "exact_shapes",
        "The plan for all shapes against plans for single shapes",
        f"""Per model of the corpus {count} random shapes (seeded; dims up to {_MOST}, drawn evenly by their
        logarithms). At each, the peak of the one plan for all shapes is divided by the peak of a plan that
        is made for this shape alone, every dim fixed in the model's domain, with the same effort. Formulas
        alone; nothing is run.""",
        (
            Finding("geometric mean", f"{mean:.4f}", f"<= {TARGET}", mean <= TARGET),
            Finding("largest", f"{most:.4f}", f"<= {TARGET}", most <= TARGET),
            Finding(
                "shapes where the dynamic plan is as good", f"{sum(r <= 1 for r in every)} of {len(every)}"
            ),
        ),
        (
            Table(
                "exact_shapes",
                "Dynamic / exact",
                ("model", "shapes", "geometric mean", "largest", "at", "s"),
                tuple(rows),
                digits=4,
            ),
        ),
        tuple(notes),
        tuple(wrong),
    )


def _compared(
    name: str, source: GraphSource, count: int, progress: Progress
) -> Iterator[tuple[Shape, float]]:
    case = source.case()
    dynamic = case.planned(NO_BOUND)
    needed = {s for member in dynamic.one_order.members for s in member.symbols()}
    rng = np.random.default_rng(0)
    for number, shape in enumerate(random_shapes(case.domain, case.symbols, count, rng)):
        if not needed <= case.domain.completed(shape).keys():
            return
        progress.tell(f"{name}, shape {number + 1} of {count}")
        peak = dynamic.at(case.domain.completed(shape))
        fixed = replace(source, ranges={n: SymbolRange(v, v) for n, v in shape.items()}).case()
        alone = fixed.planned(NO_BOUND, dispatch=False)
        best = min(peak, alone.at(fixed.domain.completed(shape)))
        yield shape, peak / max(best, 1)
