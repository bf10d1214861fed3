"""Levels: the chosen order, then schedules of lower and lower peak that repeat more and more.

Targets lie between the peak of level 0 and the least that was reached within the allowed slowdown, shape by
shape; as what they cost grows slowly first and fast in the end, they lie where steps in memory and in time
together are equal. For each, the search runs from every start order and the cheapest schedule is kept. What a
level costs and needs is then exact and symbolic: the peak of the expanded graph over the whole domain, and
the operations and bytes that its repeats add.

Large sample shapes at which repeats can free anything worth having steer the search. At all others (small
ones, and those where finished gradients alone are most of the peak) a level only has to stay below what it
needs at the large ones, or what level 0 needs: a limit that lets it run there is then kept here as well, and
where level 0 fits, that runs. So a level may be worse than the one before at some shapes; where it is proved
not to be, it says so (`never_above`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from onnx_symmem.expr.domain import Domain
from onnx_symmem.expr.envelope import plan_le
from onnx_symmem.expr.expression import ZERO, Expr
from onnx_symmem.memory.execution_order import priority_order
from onnx_symmem.memory.peak import Peak, peak
from onnx_symmem.memory.plan import PlanInput, PlanOptions, prepare
from onnx_symmem.memory.profile import profile
from onnx_symmem.memory.sizes import DimKeys, ValueSizes, value_sizes
from onnx_symmem.remat.cost import Machine, NodeCosts, node_costs
from onnx_symmem.remat.expansion import expand
from onnx_symmem.remat.floor import any_floor
from onnx_symmem.remat.schedule import OFFLOAD, RELOAD, RUN, Schedule, Step, check_schedule
from onnx_symmem.remat.search import RematLimits, Search, State
from onnx_symmem.remat.starts import start_orders
from onnx_symmem.remat.tables import Tables, tables_of
from onnx_symmem.remat.timeline import schedule_from
from onnx_symmem.shapes.table import GraphShapes

__all__ = ["Level", "LevelOptions", "plan_levels"]

Tick = Callable[[str, int, int], None]

_PRESSING = 1 / 16  # of the largest peak among the samples: shapes below do not steer
_FREE = 1 / 8  # of the peak: shapes at which no repeat can free as much do not steer either
_TRIED = 2  # start orders per level that are worked out
_BATCHES = (16,)  # absences at once, beside the usual number
_PROMISE = 3.0  # times the least cost on any trail: start orders beyond are passed over
_EQUAL = 1e-9
_MANY = 3_000  # nodes above which fewer start orders are tried
_GRID = 64  # parts of the way from level 0 to the least peak at which costs are looked at
_STEP = 0.01  # part of a peak by which a level has to be lower than the one before


@dataclass(frozen=True, slots=True)
class LevelOptions:
    """How many levels above 0, and what they may cost.

    `max_slowdown` bounds modelled time against that of level 0. Copies to and from the host, which only a
    device with memory of its own is allowed, count in full: ONNX Runtime makes them in line with the rest.
    `lowest` is a peak, as a part of level 0's, below which nobody needs a level.
    """

    levels: int = 4
    max_slowdown: float = 1.3
    lowest: float = 0.0
    machine: Machine = field(default_factory=Machine)
    limits: RematLimits = field(default_factory=RematLimits)


@dataclass(frozen=True)
class Level:
    """One schedule; `peak` is of outputs and activations of the expanded graph, exact over the domain.

    `operations` and `moved` are what it adds to level 0: operations, and bytes read and written (copies to
    and from the host included). `recomputed` and `offloaded` are values of the base graph. `never_above`: its
    peak is proved to be at most that of the level before, at every shape.
    """

    schedule: Schedule
    peak: Peak
    operations: Expr
    moved: Expr
    recomputed: tuple[int, ...]
    offloaded: tuple[int, ...]
    never_above: bool = True


def plan_levels(
    shapes: GraphShapes,
    keys: DimKeys,
    domain: Domain,
    order: Sequence[int],
    samples: Sequence[Mapping[str, int]],
    options: LevelOptions | None = None,
    plan_options: PlanOptions | None = None,
    opsets: Mapping[str, int] | None = None,
    tick: Tick | None = None,
) -> tuple[Level, ...]:
    """Level 0 = `order`, unchanged, and up to `options.levels` more, each with a lower peak.

    `samples` are legal shapes; those whose peak is near the largest steer the search.
    """
    options = options or LevelOptions()
    view, sizes = shapes.view, value_sizes(shapes)
    prepared = prepare(view, keys, plan_options)
    costs = node_costs(shapes, sizes)
    ground = _Ground(prepared, keys, sizes, costs, domain, opsets)
    first = ground.level(tuple(Step(RUN, node) for node in order), None)
    if not options.levels or not len(order) or prepared.options.mem_reuse:
        return (first,)
    floor = any_floor(prepared, sizes, domain).peak
    steering, others = _steering(first.peak, floor, samples)
    limits = options.limits
    if prepared.options.provider == "cpu" and limits.offload:
        limits = replace(limits, offload=False)  # the host's memory is the memory that is counted
    if not (limits.recompute or limits.offload):
        return (first,)
    tables = tables_of(prepared, sizes, costs, [*steering, *others], order, options.machine, opsets)
    if not any(tables.movable):
        return (first,)
    found = [first]
    options = replace(options, limits=limits)
    for codes in _schedules(prepared, tables, order, options, len(steering), tick):
        level = ground.level(schedule_from(tables, codes), found[-1])
        lower = [level.peak.at(s) < found[-1].peak.at(s) * (1 - _STEP) for s in steering]
        if any(lower):
            found.append(level)
    return tuple(found)


def _steering(
    peak: Peak, floor: Peak, samples: Sequence[Mapping[str, int]]
) -> tuple[tuple[Mapping[str, int], ...], tuple[Mapping[str, int], ...]]:
    """Samples that steer, and the others: small, or held up by what no repeat can free."""
    values = [peak.at(shape) for shape in samples]
    large = [v >= _PRESSING * max(values) for v in values]
    free = [f <= (1 - _FREE) * v for f, v in zip((floor.at(s) for s in samples), values, strict=True)]
    chosen = [a and b for a, b in zip(large, free, strict=True)]
    if not any(chosen):
        chosen = large
    pairs = list(zip(samples, chosen, strict=True))
    return tuple(s for s, steers in pairs if steers), tuple(s for s, steers in pairs if not steers)


@dataclass(frozen=True)
class _Descent:
    """One search and the states it met on its way to the least it can reach."""

    search: Search
    trail: tuple[State, ...]

    def cost_of(self, target: np.ndarray) -> float:
        """The least cost on the trail at which a target is met, infinite where none meets it."""
        return min((s.cost for s in self.trail if _meets(s.peaks, target)), default=np.inf)

    def reached(self, target: np.ndarray, most: float) -> list[State]:
        """States that meet a target: those of the trail, and one found from where nothing is repeated."""
        found = [s for s in self.trail if _meets(s.peaks, target)]
        fresh = self.search.descend(self.search.start, target, most)[0]
        return [*found, fresh] if _meets(fresh.peaks, target) else found

    def settled(self, found: Sequence[State], target: np.ndarray, most: float) -> State:
        """The cheapest state: of those found, and from where the trail was last above the target; pruned."""
        above = [s for s in self.trail[1:] if not _meets(s.peaks, target)]
        states = list(found)
        if above:
            near = min(above, key=lambda s: (_ratio(s.peaks, target), s.cost))
            further = self.search.descend(near, target, most)[0]
            states += [further] if _meets(further.peaks, target) else []
        best = min(states, key=lambda s: s.cost)
        return self.search.repaired(self.search.pruned(best, target), target)


def _schedules(
    prepared: PlanInput,
    tables: Tables,
    order: Sequence[int],
    options: LevelOptions,
    steering: int,
    tick: Tick | None,
) -> list[list[int]]:
    """Schedules as codes, cheapest first, each with a lower peak than all before it.

    The first `steering` sample shapes are those that steer.
    """
    unit, most = 1 / options.machine.bandwidth, options.max_slowdown - 1
    base = Search(tables, tuple(order), unit).start.peaks
    steers = np.arange(tables.shapes) < steering
    starts = list(start_orders(prepared, tables, order, int(np.where(steers, base, 0).argmax())).values())
    if tables.nodes > _MANY:
        starts = starts[:1] + starts[2:]
    goal = np.where(steers, base * max(options.lowest, 1e-9), base.max(initial=0.0))
    descents: list[_Descent] = []
    for number, start in enumerate(starts):
        if tick is not None:
            tick("searching levels", number, len(starts) + options.levels)
        search = Search(tables, start, unit, options.limits)
        trail = [search.start]
        search.descend(search.start, goal, most, trail)
        descents.append(_Descent(search, tuple(trail)))
    # How many absences are made at once leads to other ends: those that got lowest are tried so too.
    descents.sort(key=lambda d: min(_merit(s.peaks, base, steers) for s in d.trail))
    for descent in descents[:_TRIED]:
        for batch in _BATCHES:
            trail = [descent.search.start]
            descent.search.descend(descent.search.start, goal, most, trail, batch)
            descents.append(_Descent(descent.search, tuple(trail)))
    lowest = min(
        (s for d in descents for s in d.trail), key=lambda s: (_merit(s.peaks, base, steers), s.cost)
    )
    # What is gained differs from shape to shape; at some nothing can be, and those hold back no other.
    least = lowest.peaks / np.maximum(base, 1.0)

    def target_at(part: float) -> np.ndarray:
        target = base * np.where(least < 1, 1 - (1 - least) * part, least)
        return np.where(steers, target, _allowed(np.maximum(target, lowest.peaks), base, steers))

    parts = np.arange(1, _GRID + 1) / _GRID
    costs = np.array([min(d.cost_of(target_at(part)) for d in descents) for part in parts])
    way = parts + costs / max(most, _EQUAL)  # all that can be saved weighs as much as all the time allowed
    found: list[State] = []
    at, done = -1, 0.0
    for number in range(options.levels):
        if tick is not None:
            tick("searching levels", len(starts) + number, len(starts) + options.levels)
        at = _next(way, done, at, options.levels - number)
        target = target_at(parts[at])
        tried = [d for d in descents if d.cost_of(target) <= _PROMISE * costs[at] + _EQUAL]
        pairs = [(d, d.reached(target, most)) for d in tried]
        pairs = [(d, states) for d, states in pairs if states]
        pairs.sort(key=lambda pair: min(s.cost for s in pair[1]))
        settled = [d.settled(states, target, most) for d, states in pairs[:_TRIED]]
        found.append(min(settled, key=lambda s: s.cost))
        while at + 1 < len(parts) and _meets(found[-1].peaks, target_at(parts[at + 1])):
            at += 1
        if at + 1 == len(parts):
            break
        done = float(parts[at] + found[-1].cost / max(most, _EQUAL))
    return _frontier(found, base, steers)


def _next(way: np.ndarray, done: float, at: int, left: int) -> int:
    """The place behind `at` of rising `way` that is nearest to an equal share of what is left of it."""
    return at + 1 + int(abs(way[at + 1 :] - (done + (way[-1] - done) / left)).argmin())


def _meets(peaks: np.ndarray, target: np.ndarray) -> bool:
    return bool((peaks <= target * (1 + 1e-9)).all())


def _ratio(peaks: np.ndarray, base: np.ndarray) -> float:
    return float((peaks / np.maximum(base, 1.0)).max(initial=0.0))


def _allowed(peaks: np.ndarray, base: np.ndarray, steers: np.ndarray) -> np.ndarray:
    """Bytes that are nobody's loss: what level 0 needs, or the level itself at a shape that steers."""
    return np.asarray(np.maximum(base, peaks[steers].max()))


def _merit(peaks: np.ndarray, base: np.ndarray, steers: np.ndarray) -> float:
    """Peaks as a part of level 0's, the mean over shapes that steer, and how far the worst other is above."""
    above = peaks / np.maximum(_allowed(peaks, base, steers), 1.0)
    return float((peaks / np.maximum(base, 1.0))[steers].mean() + above[~steers].max(initial=1.0) - 1)


def _frontier(states: Sequence[State], base: np.ndarray, steers: np.ndarray) -> list[list[int]]:
    kept: list[State] = []
    merit = {id(s): _merit(s.peaks, base, steers) for s in states}
    for state in sorted(states, key=lambda s: (s.cost, merit[id(s)])):
        if not kept or merit[id(state)] < merit[id(kept[-1])]:
            kept.append(state)
    return [state.derived[0] for state in kept]


@dataclass(frozen=True)
class _Ground:
    """What levels of one graph are made with."""

    prepared: PlanInput
    keys: DimKeys
    sizes: ValueSizes
    costs: NodeCosts
    domain: Domain
    opsets: Mapping[str, int] | None

    def level(self, schedule: Schedule, before: Level | None) -> Level:
        """The level of a schedule: exact, in the order in which its file runs."""
        view = self.prepared.view
        check_schedule(view, schedule)
        expansion = expand(view, schedule, self.opsets)
        order = priority_order(expansion.view()) if before is not None else tuple(range(len(expansion.steps)))
        if order != tuple(range(len(order))):
            # Shape and Size are hoisted: that is the schedule that runs.
            steps = [expansion.steps[k] for k in order]
            schedule = tuple(Step(s.kind, s.index) for s in steps if s.kind in (RUN, OFFLOAD, RELOAD))
            expansion = expand(view, schedule, self.opsets)
        options = self.prepared.options
        if options.host_nodes:
            base = options.host_nodes
            host = frozenset(k for k, s in enumerate(expansion.steps) if s.kind == RUN and s.index in base)
            options = replace(options, host_nodes=host)
        planned = prepare(expansion.view(), expansion.keys(self.keys), options)
        found = profile(planned.plan(tuple(range(len(expansion.steps)))), expansion.sizes(self.sizes))
        top = peak(found, self.domain)
        again = [s.index for s in expansion.steps if s.kind == RUN and s.number]
        operations, moved = self.costs.total(again)
        for step in schedule:
            if step.kind != RUN:
                moved = moved + (self.sizes.bytes[step.index] or ZERO) * 2
        proved = before is None or plan_le(top.members, before.peak.members, self.domain).proved
        return Level(
            schedule, top, operations, moved, expansion.recomputed, expansion.offloaded, proved
        )  # fmt: skip
