"""How many orders it takes to be near the best plan at every shape: a proof of what no few of them can do.

Where at each of some shapes, two by two, no order is near the plans for both, as many orders are needed as
there are shapes. That two shapes exclude one order is proved by exact search of all orders of the nodes that
decide it (`order.kept_search`); which shapes to look at, by the orders that the planner knows.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from benchmarks.case import NO_BOUND, Case, Shape
from benchmarks.document import Cell, Finding, Page, Table
from benchmarks.environment import Progress
from benchmarks.exact_shapes import TARGET, random_shapes
from benchmarks.families import GraphSource, graph_sources
from onnx_symmem.expr.domain import SymbolRange
from onnx_symmem.order.buffers import buffer_bytes
from onnx_symmem.order.cover import CoverLimits
from onnx_symmem.order.kept_search import KeptSearch, result_nodes
from onnx_symmem.order.moments import Moments

__all__ = ["NEEDED", "apart_by_orders", "largest_clique", "run"]

# Models, and shapes met before that exclude one another's orders; they are looked at first.
NEEDED: Mapping[str, tuple[tuple[int, ...], ...]] = {
    "resnet50_train": ((6, 64, 141), (10, 4, 329), (61, 45, 10), (77, 6, 1), (99, 4, 53)),
}
_SHAPES = 1000  # drawn; of them those are looked at that are the most unlike
_AMONG = 24
_SMALL = (2.0**-15, 2.0**-17)  # of the peak: smaller buffers count as nothing, tried in turn
_WORK = 1_500_000  # of one search, while pairs are looked for
_MORE_WORK = 20_000_000  # and for those that are shown
_STEP = 0.0005
_TRIED = 24  # sets of shapes whose plans are made

Adjacent = Mapping[int, frozenset[int]]


def run(only: Sequence[str] = ()) -> Page:
    """The pairs of shapes, per model."""
    rows: list[tuple[Cell, ...]] = []
    findings: list[Finding] = []
    wrong: list[str] = []
    names = only or tuple(NEEDED)
    sources = {n: s for n, s in graph_sources(("corpus",)).items() if n in names}
    progress = Progress("needed")
    for name, source in progress.each(sources):
        with progress.attempt(name, wrong):
            search = _Search(name, source, progress)
            shapes = search.shapes_apart()
            rows += search.rows(shapes)
            findings.append(Finding(f"orders that {name} needs at least", str(max(1, len(shapes)))))
    most = CoverLimits().versions
    return Page(
        "orders_needed",
        "How many orders it takes to be near the best plan at every shape",
        f"""Pairs of shapes at which no order at all is within {TARGET} of the plan for each (the better of
        the plan for all shapes and the one made for it alone, with the usual effort): proved by exact search.
        Where all pairs of some shapes are such, no fewer orders than shapes are within {TARGET} of the plans
        for single shapes everywhere; a file has at most {most}. Shapes are drawn (seeded) and chosen by the
        orders that the planner knows, beside some that were met before; nothing is run.""",
        tuple(findings),
        (
            Table(
                "orders_needed",
                "Pairs of shapes that exclude one order",
                (
                    "model",
                    "shape",
                    "plan",
                    "other shape",
                    "other plan",
                    "nearest order known",
                    "refuted",
                    "looks",
                    "s",
                ),
                tuple(rows),
                """plan: bytes of the plan for that shape; nearest order known: the larger of its two ratios
                to these; refuted: no order has both ratios at or below this, by exact search, in steps of
                0.0005.""",
                digits=4,
            ),
        ),
        wrong=tuple(wrong),
    )


class _Search:
    """Shapes of one model, and what is known of pairs of them."""

    def __init__(self, name: str, source: GraphSource, progress: Progress) -> None:
        self.name, self.source, self.progress = name, source, progress
        self.case: Case = source.case()
        self.graph = self.case.graph
        self.kept = result_nodes(self.graph)
        self.dynamic = self.case.planned(NO_BOUND)
        orders = list(dict.fromkeys(self.dynamic.orders))
        symbols = [s for s in self.case.symbols if s not in self.case.domain.equalities]
        given = [dict(zip(symbols, sizes, strict=True)) for sizes in NEEDED.get(name, ())]
        drawn = random_shapes(self.case.domain, self.case.symbols, _SHAPES, np.random.default_rng(0))
        drawn = (*given, *(shape for shape in drawn if shape not in given))
        completed = [self.case.domain.completed(shape) for shape in drawn]
        table = buffer_bytes(self.graph, self.case.sizes, completed)
        moments = Moments(self.graph, table)
        peaks = np.array([moments.along(order).max(axis=0, initial=0.0) for order in orders])
        among = list(dict.fromkeys([*range(len(given)), *apart_by_orders(peaks, _AMONG)]))
        self.shapes: list[Shape] = [drawn[k] for k in among]
        self.table, self.peaks = table[:, among].astype(np.float64), peaks[:, among]
        # Bytes of the best order known, or those of the plan for the shape where it was made.
        self.best = self.peaks.min(axis=0)
        self.planned: set[int] = set()
        for shape in range(len(given)):
            self.plan(shape)

    def shapes_apart(self) -> list[int]:
        """The most shapes found that exclude one another's orders, beside the plans made for each of them."""
        near = {k: set[int]() for k in range(len(self.shapes))}
        pairs = [p for p in combinations(near, 2) if self.nearest(p) > TARGET]
        for done, pair in enumerate(sorted(pairs, key=self.nearest, reverse=True)):
            if not done % 20:
                self.progress.tell(f"{self.name}, pair {done + 1} of {len(pairs)}")
            if self.refuted(pair, TARGET, _WORK)[0]:
                near[pair[0]].add(pair[1])
                near[pair[1]].add(pair[0])
        for _ in range(_TRIED):
            clique = largest_clique({k: frozenset(others) for k, others in near.items()})
            for shape in clique:
                self.plan(shape)
            open_pairs = [p for p in combinations(clique, 2) if not self.refuted(p, TARGET, _MORE_WORK)[0]]
            if not open_pairs:
                return clique
            for one, other in open_pairs:
                near[one].discard(other)
                near[other].discard(one)
        return []

    def nearest(self, pair: tuple[int, int]) -> float:
        """The larger of two ratios to the best plans, of the order known for which it is least."""
        columns = list(pair)
        return float((self.peaks[:, columns] / self.best[columns]).max(axis=1).min())

    def refuted(self, pair: tuple[int, int], ratio: float, work: int) -> tuple[bool, int]:
        """(Whether no order is below the ratio at both shapes, by proof; the work it took.)"""
        columns = list(pair)
        caps = np.floor(self.best[columns] * ratio) + 1
        spent = 0
        for small in _SMALL:
            search = KeptSearch(self.graph, self.table[:, columns], self.best[columns], self.kept, small)
            found = search.below(caps, work)
            spent += found.work
            if found.order is None and found.exact:
                return True, spent
        return False, spent

    def plan(self, shape: int) -> None:
        """Make the plan for a shape alone; which of it and the plan for all shapes is better counts."""
        if shape in self.planned:
            return
        self.progress.tell(f"{self.name}, plan for {_words(self.shapes[shape])}")
        given = self.shapes[shape]
        fixed = replace(self.source, ranges={n: SymbolRange(v, v) for n, v in given.items()}).case()
        alone = fixed.planned(NO_BOUND, dispatch=False)
        self.best[shape] = min(
            self.dynamic.at(self.case.domain.completed(given)), alone.at(fixed.domain.completed(given))
        )
        self.planned.add(shape)

    def rows(self, shapes: Sequence[int]) -> list[tuple[Cell, ...]]:
        """Per pair the largest ratio that is refuted."""
        found: list[tuple[Cell, ...]] = []
        for pair in combinations(shapes, 2):
            start = time.perf_counter()
            ratio, looks = TARGET, self.refuted(pair, TARGET, _MORE_WORK)[1]
            while self.refuted(pair, ratio + _STEP, _WORK)[0]:
                ratio += _STEP
            one, other = pair
            found.append((
                self.name, _words(self.shapes[one]), int(self.best[one]), _words(self.shapes[other]),
                int(self.best[other]), self.nearest(pair), ratio, looks,
                round(time.perf_counter() - start, 1),
            ))  # fmt: skip
        return found


def apart_by_orders(peaks: np.ndarray, most: int) -> list[int]:
    """Shapes at which other orders are good than at those before, the most unlike first; `peaks` are bytes
    (orders, shapes)."""
    above = np.minimum(np.log(peaks / peaks.min(axis=0)), 0.01)
    found = [int(above.sum(axis=0).argmax())]
    distance = np.full(peaks.shape[1], np.inf)
    while len(found) < min(most, peaks.shape[1]):
        by = np.abs(above - above[:, found[-1:]])
        distance = np.minimum(distance, by.max(axis=0) + by.mean(axis=0))
        found.append(int(distance.argmax()))
    return list(dict.fromkeys(found))


def largest_clique(adjacent: Adjacent) -> list[int]:
    """The most numbers that are all adjacent to one another, by exhaustion; of several the first."""
    best: list[int] = []

    def grow(clique: list[int], left: frozenset[int]) -> None:
        nonlocal best
        if len(clique) > len(best):
            best = clique
        for number in sorted(left, key=lambda k: (-len(adjacent[k] & left), k)):
            if len(clique) + len(left) <= len(best):
                return
            grow([*clique, number], left & adjacent[number])
            left -= {number}

    grow([], frozenset(adjacent))
    return sorted(best)


def _words(shape: Shape) -> str:
    return ", ".join(f"{name}={size}" for name, size in shape.items())
