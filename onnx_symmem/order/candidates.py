"""Candidate orders of one graph, and what each takes at the steering shapes under the exact plan.

Candidates are the order that would have run, the orders of files it came from, every heuristic steered
at every shape, and the best of these improved by local search. Each is an order that really runs, with the
file order and the traversal that make it run: DEFAULT where some sorted file makes it run exactly as wanted,
else PRIORITY_BASED, which follows the file but hoists Shape and Size (`memory.execution_order`). Orders are
compared by the sizes of their buffers; the exact plan is made of the best ones only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count

import numpy as np

from onnx_symmem.expr.grid import Grid
from onnx_symmem.memory.execution_order import file_for_default, priority_order
from onnx_symmem.memory.plan import PlanInput
from onnx_symmem.memory.profile import MemoryProfile, profile
from onnx_symmem.memory.sizes import ValueSizes
from onnx_symmem.order.buffers import buffer_bytes, buffer_graph
from onnx_symmem.order.contraction import offshoots
from onnx_symmem.order.crossover import crossings
from onnx_symmem.order.cut_bound import peak_floor
from onnx_symmem.order.deferral import deferrable, deferred
from onnx_symmem.order.heuristics import HEURISTICS
from onnx_symmem.order.limits import SearchLimits, limits_for
from onnx_symmem.order.moments import Moments
from onnx_symmem.order.segments import improve_segments
from onnx_symmem.order.shape_bound import ShapeBound, shape_bound
from onnx_symmem.order.splice import splice
from onnx_symmem.order.window import Failures, Spent, WindowLimits, improve_order

__all__ = ["CandidateOrder", "CandidateSearch", "SearchLimits", "candidate_orders", "peaks_at", "rank"]

_SEARCHED = "+search"
_BY_SEGMENTS = "+segments"
_DEFERRED = "+deferred"
_SEGMENTS = 4  # the part of the search that is spent on segments
_MET = 1 + 1e-3  # ratio to a bound from which on nothing is tried
_CROSSED = 2  # the part of the search that crossed orders get
_AGAIN = 1  # orders that later rounds search around
_LATER = 3  # the part of the search that later rounds make

Tick = Callable[[str, int, int], None]
"""Progress: what is being done, steps done, steps in all."""


@dataclass(frozen=True)
class CandidateOrder:
    """An order as it will run, its exact profile, and its peaks in bytes at the steering shapes.

    `rule` is the traversal it runs under (default or priority), `file` the order in which the file then has
    to list the nodes.
    """

    name: str
    order: tuple[int, ...]
    rule: str
    file: tuple[int, ...]
    profile: MemoryProfile
    peaks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Run:
    """An order, the traversal it runs under and its file; `given` orders are candidates in any case."""

    name: str
    order: tuple[int, ...]
    rule: str
    file: tuple[int, ...]
    given: bool


def peaks_at(found: MemoryProfile, shapes: Sequence[Mapping[str, int]]) -> tuple[int, ...]:
    """Peak in bytes at each shape: the largest row of the profile."""
    return found.peaks(Grid(shapes))


def candidate_orders(
    prepared: Mapping[str, PlanInput],
    sizes: ValueSizes,
    shapes: Sequence[Mapping[str, int]],
    given: Mapping[str, Sequence[int]],
    limits: SearchLimits | None = None,
    tick: Tick | None = None,
) -> tuple[CandidateOrder, ...]:
    """Distinct candidates, `given` orders first, then by heuristic and shape, then improved ones."""
    search = CandidateSearch(prepared, sizes, given, limits, tick)
    search.steer(shapes)
    return search.candidates()


class CandidateSearch:
    """Orders of one graph found so far.

    `prepared` has the graph per traversal (subgraphs run under the same one); `given` maps names to
    topological orders of its nodes. A given order is a candidate under both traversals. Deterministic.
    """

    def __init__(
        self,
        prepared: Mapping[str, PlanInput],
        sizes: ValueSizes,
        given: Mapping[str, Sequence[int]],
        limits: SearchLimits | None = None,
        tick: Tick | None = None,
    ) -> None:
        self.prepared, self.sizes = prepared, sizes
        nodes = len(prepared["priority"].view.nodes)
        self.limits, self.notice = limits_for(limits or SearchLimits(), nodes)
        self.tick: Tick = tick or (lambda _what, _done, _total: None)
        self.view = prepared["priority"].view
        self.graph = buffer_graph(prepared["priority"])
        self.shapes: tuple[Mapping[str, int], ...] = ()
        self.table = np.zeros((len(self.graph.producer), 0))
        self.runs: dict[tuple[int, ...], _Run] = {}
        self.peaks: dict[tuple[int, ...], np.ndarray] = {}
        self.floor = np.zeros(0)
        self.failed: Failures = {}
        self.offshoots = offshoots(self.graph)
        self.exact: dict[tuple[int, ...], MemoryProfile] = {}
        for name, order in given.items():
            file = file_for_default(self.view, order)
            if file is not None:
                self.runs.setdefault(tuple(order), _Run(name, tuple(order), "default", file, True))
            self.add(name if file is None else f"{name}, Shape first", order, given=True)

    def add(self, name: str, order: Sequence[int], given: bool = False) -> tuple[int, ...]:
        """Add an order as it runs, with Shape and Size first; returned as it runs."""
        runs = priority_order(self.view, order)
        if runs not in self.runs:
            taken = {run.name for run in self.runs.values()}
            names = chain((name,), (f"{name} ({k})" for k in count(2)))
            unique = next(n for n in names if n not in taken)
            self.runs[runs] = _Run(unique, runs, "priority", runs, given)
        return runs

    def bytes_at(self, shapes: Sequence[Mapping[str, int]]) -> np.ndarray:
        """Bytes per buffer and shape, (buffers, shapes)."""
        return buffer_bytes(self.graph, self.sizes, shapes)

    def steer(self, shapes: Sequence[Mapping[str, int]], ceiling: Sequence[int] | None = None) -> None:
        """Look for orders that are good at these shapes and those of earlier calls.

        `ceiling` are bytes, for all shapes so far, that an order should not exceed anywhere.
        """
        first = len(self.shapes)
        self.shapes = (*self.shapes, *shapes)
        self.table = np.hstack([self.table, self.bytes_at(shapes)])
        self._by_heuristics(range(first, min(len(self.shapes), first + self.limits.shapes)))
        if not self.limits.improved and not self.limits.segmented:
            return
        known = self.floor if len(self.floor) == first else np.zeros(first)
        floor = self.floor = np.concatenate([known, self._floor(first)])
        # What a shape that refuted an order asks for is mostly found soon.
        window = self.limits.window.share(_LATER if first else 1)
        spent = Spent()
        self._by_segments(floor, window, spent)
        self._deferred(range(first, len(self.shapes)), floor)
        if self.limits.improved > 1:
            self._for_single_shapes(range(first, len(self.shapes)), floor)
        top = None if ceiling is None else np.asarray(ceiling, dtype=np.float64)
        self._around(self._starts(floor, top, _AGAIN if first else None), window, spent, floor, top)
        if not first:
            self._around(self._crossed(floor), window.share(_CROSSED), Spent(), floor, top)
        self._deferred((), floor)
        self._spliced(floor)

    def _around(
        self,
        starts: Sequence[tuple[int, ...]],
        window: WindowLimits,
        spent: Spent,
        floor: np.ndarray,
        top: np.ndarray | None,
    ) -> None:
        """Add what local search makes of orders; each takes half of what is left, the last one all."""
        total = self.limits.window.windows * len(starts)
        for number, start in enumerate(starts):
            done = [self.limits.window.windows * number]

            def advance(done: list[int] = done) -> None:
                done[0] += 1
                self.tick("improving orders", done[0], total)

            better = improve_order(
                self.graph,
                self.table,
                start,
                floor,
                window.left(spent, min(2, len(starts) - number)),
                advance,
                top,
                self.limits.seed,
                self.failed,
                spent,
            )
            name = self.runs[start].name
            self.add(name if name.endswith(_SEARCHED) else name + _SEARCHED, better)

    def _by_heuristics(self, columns: Sequence[int]) -> None:
        steps = [(name, k) for name in HEURISTICS for k in columns]
        seen: set[tuple[str, bytes]] = set()
        for done, (name, k) in enumerate(steps):
            self.tick("trying orders", done, len(steps))
            # Heuristics compare sizes only: shapes that scale all of them alike lead to the same order.
            like = (self.table[:, k] / max(self.table[:, k].max(initial=0.0), 1.0)).tobytes()
            if (name, like) in seen:
                continue
            seen.add((name, like))
            at = _words(self.shapes[k])
            order = HEURISTICS[name](self.graph, [int(b) for b in self.table[:, k]])
            self.add(f"{name}@{at}" if at else name, order)

    def _by_segments(self, floor: np.ndarray, window: WindowLimits, spent: Spent) -> None:
        """Add the best orders with their segments improved one by one, equal ones once."""
        for start in self._starts(floor, None, self.limits.segmented):
            self.tick("improving segments", 0, 1)
            found = improve_segments(
                self.graph, self.table, start, floor, window.share(_SEGMENTS), self.limits.seed, spent
            )
            self.add(f"{self.runs[start].name}{_BY_SEGMENTS}", found.order)

    def _deferred(self, columns: Sequence[int], floor: np.ndarray) -> None:
        """Add the best orders with results made at other places, for all shapes and for each of some."""
        if not self.limits.deferred or len(self.offshoots) < 2:
            return
        peaks, moments = self._peaks(), Moments(self.graph, self.table)
        everywhere = np.arange(len(self.shapes))
        tasks = [(start, everywhere) for start in self._starts(floor, None, self.limits.deferred)]
        tasks += [(_lowest(peaks, k), np.array([k])) for k in columns]
        for done, (start, at) in enumerate(tasks):
            self.tick("placing results", done, len(tasks))
            if (peaks[start][at] > floor[at] * _MET).any():
                small = deferrable(moments, start, self.offshoots)
                order = small.expanded(deferred(small.at(at, np.maximum(floor[at], 1.0))))
                name = self.runs[start].name
                self.add(name if name.endswith(_DEFERRED) else name + _DEFERRED, order)

    def _for_single_shapes(self, columns: Sequence[int], floor: np.ndarray) -> None:
        """Search for each shape alone: what is best there may be a part of what is best everywhere."""
        peaks = self._peaks()
        tasks: dict[bytes, tuple[int, tuple[int, ...]]] = {}
        for k in columns:
            start = _lowest(peaks, k)
            if peaks[start][k] > floor[k] * _MET:
                tasks.setdefault((self.table[:, k] / floor[k]).tobytes(), (k, start))
        window, spent = self.limits.window.share(_LATER if columns[0] else 1), Spent()
        # Where most is to be gained comes first.
        ranked = sorted(tasks.values(), key=lambda task: (-peaks[task[1]][task[0]] / floor[task[0]], task[0]))
        for done, (k, start) in enumerate(ranked):
            self.tick("improving orders at one shape", done, len(tasks))
            better = improve_order(
                self.graph,
                self.table[:, [k]],
                start,
                floor[[k]],
                window.left(spent, min(2, len(ranked) - done)),
                seed=self.limits.seed,
                failed=self.failed,
                spent=spent,
                columns=(k,),
            )
            self.add(f"search@{_words(self.shapes[k])}", better)

    def _crossed(self, floor: np.ndarray) -> list[tuple[int, ...]]:
        """Add what begins as one of the best orders and goes on as another."""
        peaks = self._peaks()
        unit = np.maximum(floor, 1.0)
        known = np.min(list(peaks.values()), axis=0) / unit
        best = self._starts(floor, None, self.limits.crossed)
        best += (_lowest(peaks, k) for k in range(len(floor)))
        moments = Moments(self.graph, self.table / unit)
        found = crossings(moments, list(dict.fromkeys(best)), known, self.limits.crossings)
        return [self.add("crossed", order) for order in found]

    def _spliced(self, floor: np.ndarray) -> None:
        """Add what the best parts of the best orders make together."""
        peaks = self._peaks()
        orders = list(peaks)
        best = [orders[k] for k in _ranked(list(peaks.values()), floor)[: self.limits.spliced]]
        # The best at every shape, too.
        best += (_lowest(peaks, k) for k in range(len(floor)))
        best = list(dict.fromkeys(best))
        joined = splice(Moments(self.graph, self.table / np.maximum(floor, 1.0)), best)
        if joined not in self.runs:
            self.add("spliced", joined)

    def _starts(
        self, floor: np.ndarray, ceiling: np.ndarray | None, most: int | None = None
    ) -> list[tuple[int, ...]]:
        """The best orders of different peaks; under a ceiling the best that keeps it and the first, too."""
        peaks = self._peaks()
        orders = list(peaks)
        ranked = [orders[k] for k in _ranked(list(peaks.values()), floor)]
        different: dict[bytes, tuple[int, ...]] = {}
        for order in ranked:
            different.setdefault(peaks[order].tobytes(), order)
        starts = list(different.values())[: self.limits.improved if most is None else most]
        if ceiling is not None:
            starts += [order for order in ranked if (peaks[order] <= ceiling).all()][:1]
            starts.append(orders[0])
        return list(dict.fromkeys(starts))

    def _peaks(self) -> dict[tuple[int, ...], np.ndarray]:
        """Peaks of all orders by the sizes of their buffers."""
        stale: dict[int, list[tuple[int, ...]]] = {}  # by how many shapes their peaks are known for
        for order in self.runs:
            known = len(self.peaks.get(order, ()))
            if known < len(self.shapes):
                stale.setdefault(known, []).append(order)
        for known, orders in stale.items():
            moments = Moments(self.graph, self.table[:, known:])
            for order in orders:
                new = moments.along(order).max(axis=0, initial=0.0)
                self.peaks[order] = np.concatenate([self.peaks.get(order, np.zeros(0)), new])
        return {order: self.peaks[order] for order in self.runs}

    def _floor(self, first: int) -> np.ndarray:
        """Bytes per shape from one on that no order gets below: what the search steers by."""
        return self.floor_at(self.table[:, first:])

    def floor_at(self, table: np.ndarray) -> np.ndarray:
        """Bytes per shape of a table of buffers that no order gets below, by cuts."""
        end = table[np.array(self.graph.pinned, dtype=bool)].sum(axis=0)
        return peak_floor(self.graph, table, tuple(self.runs), end, self.limits.floor).bytes

    def bound(self, count: int | None = None) -> ShapeBound:
        """Bytes at the first shapes that no order is below there, by exact search as far as the limits go."""
        table = self.table[:, :count]
        end = table[np.array(self.graph.pinned, dtype=bool)].sum(axis=0)
        floor = self.floor[:count] if len(self.floor) == len(self.shapes) else end
        if not self.limits.bound.work:
            return ShapeBound(floor, ((),) * len(floor), 0)
        return shape_bound(
            self.graph, table, tuple(self.runs), floor, self.limits.bound,
            lambda done, total: self.tick("proving that no order is better", done, total),
        )  # fmt: skip

    def candidates(self) -> tuple[CandidateOrder, ...]:
        """The given orders and the best others, with their exact plans, in the order they were found."""
        peaks = self._peaks()
        known = len(self.floor) == len(self.shapes)
        floor = self.floor if known else np.min(list(peaks.values()), axis=0)
        ranked = _ranked(list(peaks.values()), floor)
        best = {list(peaks)[k] for k in ranked[: self.limits.exact]}
        return tuple(
            self.candidate(run.order) for order, run in self.runs.items() if run.given or order in best
        )

    def best_orders(self) -> list[tuple[int, ...]]:
        """Orders that are the best known at one of the shapes, and the best everywhere; each once."""
        peaks = self._peaks()
        known = len(self.floor) == len(self.shapes)
        ranked = _ranked(list(peaks.values()), self.floor if known else np.min(list(peaks.values()), axis=0))
        best = [_lowest(peaks, k) for k in range(len(self.shapes))]
        return list(dict.fromkeys([*best, *(list(peaks)[k] for k in ranked[: self.limits.exact])]))

    def candidate(self, order: tuple[int, ...]) -> CandidateOrder:
        """One of the orders with its exact plan."""
        run = self.runs[order]
        exact = self.exact.get(run.order)
        if exact is None:
            exact = self.exact[run.order] = profile(self.prepared[run.rule].plan(run.order), self.sizes)
        return CandidateOrder(run.name, run.order, run.rule, run.file, exact, peaks_at(exact, self.shapes))


def rank(
    candidates: Sequence[CandidateOrder], reference: Sequence[float] | np.ndarray = ()
) -> list[CandidateOrder]:
    """Best first: least worst-case ratio to `reference` per shape, by default the best peak known.

    Ties keep the order of `candidates`, so what was given comes before what was searched.
    """
    if not candidates:
        return []
    peaks = [np.array(c.peaks, dtype=np.float64) for c in candidates]
    least = np.asarray(reference) if len(reference) else np.min(peaks, axis=0)
    return [candidates[k] for k in _ranked(peaks, least)]


def _words(shape: Mapping[str, int]) -> str:
    return ",".join(f"{name}={size}" for name, size in shape.items())


def _lowest(peaks: Mapping[tuple[int, ...], np.ndarray], shape: int) -> tuple[int, ...]:
    """The order with the least peak at a shape, the first of several."""
    return min(peaks, key=lambda order: float(peaks[order][shape]))


def _ranked(peaks: Sequence[np.ndarray], reference: np.ndarray) -> list[int]:
    """Places in `peaks`, the least worst-case ratio to a reference first."""
    ratios = [p / np.maximum(reference, 1.0) for p in peaks]
    keys = [(float(r.max(initial=0.0)), float(r.mean()) if r.size else 0.0) for r in ratios]
    return sorted(range(len(keys)), key=lambda k: (*keys[k], k))
