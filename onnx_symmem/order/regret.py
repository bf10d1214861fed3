"""One order near the best known at several shapes at once: exact search below them all, by halves.

Local search improves the worst shape step by step, and ends where that costs another one. Here every shape
has its cap at once, the same part above the best peak known there, and the steps of an order from before the
first to after the last one that is above are searched from valley to valley (`order.valleys`). Wider and
wider stretches are tried, as what is too much at one shape was often begun long before; then the part is
halved. Which order is found matters less than that one order does what several did (minimax regret).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from onnx_symmem.order.buffers import BIT_SET_NODES
from onnx_symmem.order.moments import Moments
from onnx_symmem.order.problem import completed, window
from onnx_symmem.order.valleys import ValleySearch

__all__ = ["Nearer", "RegretLimits", "nearer"]

_UNITS = 1 << 40  # of the best known, for searches in whole numbers
_SMALL = 2.0**-14  # of the peak: buffers below count as nothing
_WIDER = 4  # by which stretches grow


@dataclass(frozen=True, slots=True)
class RegretLimits:
    """`work` (`order.valleys`) in all, `attempt` of it for one search of at most `nodes` nodes; what is above
    the best known by no more than `enough` is not worked on."""

    work: int = 1_000_000
    attempt: int = 400_000
    nodes: int = 2_000
    enough: float = 1e-3


@dataclass(frozen=True, slots=True)
class Nearer:
    """An order, the most that it is above the best known, as a ratio, and the work it took."""

    order: tuple[int, ...]
    ratio: float
    work: int


def nearer(moments: Moments, order: Sequence[int], limits: RegretLimits | None = None) -> Nearer:
    """An order whose worst shape is nearer to the best known, if one is found.

    Bytes of `moments` are in units of the best peak known per shape.
    """
    limits = limits or RegretLimits()
    best, live = tuple(order), moments.along(order)
    now = float(live.max(initial=0.0))
    spent, failed = 0, 1.0
    while len(best) <= BIT_SET_NODES and spent < limits.work and now - 1 > limits.enough:
        goal = max(1 + limits.enough, (failed + now) / 2)
        if goal >= now * (1 - limits.enough / 8) and failed > 1.0:
            break
        found, took = _below(moments, best, live, goal, limits, limits.work - spent)
        spent += took
        ratio = now if found is None else float(moments.along(found).max())
        if found is None or ratio >= now:
            failed = goal
            if now - failed < limits.enough / 2:
                break
        else:
            best, live, now = found, moments.along(found), ratio
    return Nearer(best, now, spent)


def _below(
    moments: Moments,
    order: tuple[int, ...],
    live: np.ndarray,
    goal: float,
    limits: RegretLimits,
    work: int,
) -> tuple[tuple[int, ...] | None, int]:
    """(an order that is below the goal but for small buffers, work that was done)."""
    above = np.flatnonzero((live > goal).any(axis=1))
    first, last, steps = int(above[0]), int(above[-1]) + 1, len(order)
    wide, spent = max(16, (last - first) // 2), 0
    seen: set[tuple[int, int]] = set()
    while True:
        start, end = max(0, first - wide), min(steps, last + wide)
        if (start, end) not in seen:
            seen.add((start, end))
            problem = window(moments, order, live, start, end, _SMALL)
            if len(problem.nodes) > limits.nodes:
                return None, spent
            most = min(limits.attempt, work - spent)
            found = ValleySearch(problem, _UNITS).below_caps(np.full(live.shape[1], goal), most)
            spent += found.work
            if found.order is not None:
                part = completed(moments.graph, order[start:end], [problem.nodes[k] for k in found.order])
                return (*order[:start], *part, *order[end:]), spent
        if (start == 0 and end == steps) or spent >= work:
            return None, spent
        wide *= _WIDER
