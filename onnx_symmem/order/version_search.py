"""Orders that versions are chosen from: the best for single shapes and for parts of a domain.

One order for all shapes gives way wherever another shape asks for it; a version has to be good only where it
runs. So versions are chosen for shapes as they are run, each is searched for again at the shapes where it is
the best of them, and they are chosen again, until nothing is gained (Lloyd's way to k-medians). Graphs whose
results may wait for each other have a way of their own (`order.result_versions`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from onnx_symmem.expr.domain import Domain
from onnx_symmem.order.buffers import BIT_SET_NODES
from onnx_symmem.order.candidates import CandidateOrder, CandidateSearch
from onnx_symmem.order.cover import CoverLimits, cover
from onnx_symmem.order.crossover import crossings
from onnx_symmem.order.moments import Moments
from onnx_symmem.order.regret import nearer
from onnx_symmem.order.result_versions import ResultVersions
from onnx_symmem.order.specialists import apart, shares, specialists, unlike
from onnx_symmem.order.steering import further_shapes

__all__ = ["version_orders"]

_AMONG, _SEED = 1024, 3  # shapes as they are run that are drawn, and what draws them
_DRAWN, _SPREAD = 128, 256  # of which the first, and those most unlike all others, are looked at
_LANES = 12  # shapes of a part that stand for it
_ROUNDS = 6
_MOST = 32  # orders that versions are chosen from
_PARENTS = 8  # orders that are crossed for a part
_CROSSED = 6  # the part of a round's crossings that each part of the domain gets
_SPECIAL = 3  # the part of a round's local search that single shapes get


def version_orders(search: CandidateSearch, domain: Domain) -> tuple[CandidateOrder, ...]:
    """The best orders known at single shapes and for parts of the domain, with their exact plans."""
    orders = search.best_orders()
    limits = search.limits
    if limits.improved and len(search.graph.producer) and search.graph.size <= BIT_SET_NODES:
        shapes = further_shapes(domain, search.shapes, _AMONG, _SEED)
        if shapes:
            table = search.bytes_at(shapes)
            spread = apart(shares(table), list(range(min(_DRAWN, len(shapes)))), _SPREAD)
            table = np.hstack([search.table, table[:, spread]])
            for name, order in _found(search, table, orders):
                orders.append(search.add(name, order))
    return tuple(search.candidate(order) for order in dict.fromkeys(orders))


def _found(
    search: CandidateSearch, table: np.ndarray, orders: Sequence[tuple[int, ...]]
) -> list[tuple[str, tuple[int, ...]]]:
    """Orders with names; `table` are bytes (buffers, shapes), first at the shapes searched before."""
    limits, floor, first = search.limits, search.floor_at(table), len(search.shapes)
    # Shapes of other proportions than those that were searched, and some as they are drawn.
    columns = [*unlike(shares(table), first, limits.unlike), *range(first, first + limits.unlike)]
    columns = [k for k in dict.fromkeys(columns) if k < table.shape[1]]
    single = specialists(
        search.graph, table[:, columns], orders, floor[columns], limits.window.share(_SPECIAL), limits.seed,
        lambda done, total: search.tick("improving orders at one shape", done, total),
    )  # fmt: skip
    pool = list(dict.fromkeys([*orders, *single]))
    regret = CoverLimits(limits.versions).regret
    results = ResultVersions(Moments(search.graph, table), pool, floor, regret, limits.placing)
    if results.possible and results.at_shapes([*range(first), *columns], search.tick):
        parts = [results.orders[k] for k in sorted(results.versions(limits.versions, search.tick))]
    else:
        parts = _Parts(search, table, pool).found()
    return [("search@one shape", o) for o in pool[len(orders) :]] + [
        ("search@part of the domain", order) for order in parts if order not in pool
    ]


class _Parts:
    """The search; `table` are bytes (buffers, shapes), first at the shapes that were searched before."""

    def __init__(self, search: CandidateSearch, table: np.ndarray, orders: Sequence[tuple[int, ...]]) -> None:
        self.search, self.table, self.shares = search, table, shares(table)
        self.moments = Moments(search.graph, table)
        self.orders = list(orders)
        self.tried: set[tuple[int, tuple[int, ...]]] = set()
        self.limits = search.limits.regret
        self.peaks = np.array([self._peak(order) for order in orders])

    def _peak(self, order: Sequence[int]) -> np.ndarray:
        return np.asarray(self.moments.along(order).max(axis=0, initial=0.0))

    def _add(self, order: tuple[int, ...]) -> None:
        if order not in self.orders:
            self.orders.append(order)
            self.peaks = np.vstack([self.peaks, self._peak(order)])

    def found(self) -> list[tuple[int, ...]]:
        """Versions for parts of the domain."""
        known = len(self.orders)
        limits = CoverLimits(self.search.limits.versions)
        for number in range(_ROUNDS):
            self.search.tick("improving orders for parts of the domain", number, _ROUNDS)
            picked, before = self._picked(limits), len(self.orders)
            if len(picked) < 2 or self._above(picked) <= limits.regret:
                break
            runs = self.peaks[list(picked)].argmin(axis=0)
            parts = [(k, np.flatnonzero(runs == place)) for place, k in enumerate(picked)]
            for version, own in parts:
                self._improve((version,), own, limits.regret)
            if len(self.orders) == before:
                # Where two are made one, another is free for what none is good at.
                for (one, own), (other, more) in combinations(parts, 2):
                    self._improve((one, other), np.concatenate([own, more]), limits.regret)
            if len(self.orders) == before:
                break
        # Of all that were made for parts those that would be picked are of use.
        return [self.orders[k] for k in sorted(self._picked(limits)) if k >= known]

    def _picked(self, limits: CoverLimits) -> tuple[int, ...]:
        """Versions as they would be chosen from the orders that are the best somewhere."""
        best = dict.fromkeys([0, *self.peaks.argmin(axis=0).tolist()])
        above = (np.maximum(self.peaks / np.maximum(self.peaks.min(axis=0), 1.0) - 1, 0.0) ** 2).sum(axis=1)
        rows = list(dict.fromkeys([*best, *np.argsort(above, kind="stable").tolist()]))[:_MOST]
        return tuple(rows[k] for k in cover(self.peaks[rows], limits, free=True))

    def _above(self, versions: Sequence[int]) -> float:
        """The most that several versions are above the best known, as a part of it."""
        known = np.maximum(self.peaks.min(axis=0), 1.0)
        return float((self.peaks[list(versions)].min(axis=0) / known).max(initial=1.0)) - 1

    def _improve(self, versions: Sequence[int], own: np.ndarray, enough: float) -> None:
        """Search for one order in place of versions, at the shapes where they are the best of several."""
        if not len(own):
            return
        known = np.maximum(self.peaks.min(axis=0), 1.0)
        above = self.peaks[versions[0]][own] / known[own] - 1
        if above.max() <= enough:
            return
        lanes = own[apart(self.shares[:, own], [int(above.argmax())], _LANES)]
        moments = Moments(self.search.graph, self.table[:, lanes] / known[lanes])
        ratios = self.peaks[:, lanes] / known[lanes]
        parents = [*versions, _nearest(ratios, enough), *self.peaks[:, lanes].argmin(axis=0).tolist()]
        parents = list(dict.fromkeys(parents))[:_PARENTS]
        looks = self.search.limits.crossings // _CROSSED
        crossed = crossings(moments, [self.orders[k] for k in parents], np.ones(len(lanes)), looks)
        for order in crossed:
            self._add(order)
        ratios = self.peaks[:, lanes] / known[lanes]
        start = _nearest(ratios, enough)
        if (start, tuple(lanes)) not in self.tried:
            self.tried.add((start, tuple(lanes)))
            self._add(nearer(moments, self.orders[start], self.limits).order)


def _nearest(ratios: np.ndarray, enough: float) -> int:
    """The row that is least above one at all columns together."""
    return int((np.maximum(ratios - 1 - enough / 2, 0.0) ** 2).sum(axis=1).argmin())
