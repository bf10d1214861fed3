"""Absences of least cost that keep every moment below a target: greedy choice, take-back, and repair.

The worst step of the schedule is taken again and again; of what lies idle there, what frees most bytes per
second of repeated work is dropped, a few classes at a time, as long as the worst step falls. Where nothing
can be dropped any more at one sample shape, that shape has reached its least and the others go on. Then
absences that have become unnecessary are taken back, and parts of the rest are torn out and repaired. All is
counted in schedules looked at, never in time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from onnx_symmem.remat.regeneration import Idle, Regeneration, Scene, best_regenerations
from onnx_symmem.remat.retention import Derived, derive
from onnx_symmem.remat.tables import Tables
from onnx_symmem.remat.timeline import Timeline, timeline

__all__ = ["MOVED", "Mark", "RematLimits", "Search", "State"]

Mark = tuple[int, int]
"""(class, moment of absence); MOVED for a moment: the class comes back from the host."""

MOVED = -1

_EQUAL = 1e-12
_PRICES = (0.0, 20.0, 1e12)  # times the seconds of one byte moved: at which leaves are dropped in their turn
_TORN = (0.05, 0.15, 0.4)
_WINDOWS = (20, 60, 200)
_PARTS = 8


@dataclass(frozen=True, slots=True)
class RematLimits:
    """How much is tried: `rounds` of one greedy descent with `batch` classes at a time out of the `idle`
    largest, `patience` of them in a row without success; `pruned` absences at most looked at for taking back;
    `repairs` of a found state. `recompute` and `offload` say which ways back are allowed."""

    rounds: int = 600
    patience: int = 20
    batch: int = 8
    idle: int = 150
    pruned: int = 60
    repairs: int = 0
    seed: int = 0
    recompute: bool = True
    offload: bool = False


@dataclass(frozen=True)
class State:
    """Absences and the schedule that follows; `cost` is the added time per shape, as a part of one run's."""

    marks: frozenset[Mark]
    derived: Derived
    line: Timeline
    cost: float

    @property
    def peaks(self) -> np.ndarray:
        """Bytes per shape."""
        return self.line.peaks


@dataclass
class Search:
    """The search on one order of one graph; `byte_seconds` is the time of moving one byte."""

    tables: Tables
    order: tuple[int, ...]
    byte_seconds: float
    limits: RematLimits = field(default_factory=RematLimits)
    tick: Callable[[], None] | None = None

    def __post_init__(self) -> None:
        self.once = np.maximum(self.tables.seconds.sum(axis=0), 1e-30)
        self.place = {node: k for k, node in enumerate(self.order)}
        self.start = self.state(frozenset())

    def state(self, marks: frozenset[Mark]) -> State:
        """The state with the given absences."""
        derived = self._derived(marks)
        return self._followed(marks, derived, self._cost(derived))

    def _followed(self, marks: frozenset[Mark], derived: Derived, cost: float) -> State:
        if self.tick is not None:
            self.tick()
        return State(marks, derived, timeline(self.tables, derived[0]), cost)

    def _derived(self, marks: frozenset[Mark]) -> Derived:
        return derive(self.tables, self.order, _by_class(marks), self._moved(marks))

    def _moved(self, marks: Iterable[Mark]) -> frozenset[int]:
        """Classes that come back from the host: those marked so, or all where nothing may run again."""
        anyway = not self.limits.recompute
        return frozenset(group for group, moment in marks if moment == MOVED or anyway)

    def _cost(self, derived: Derived) -> float:
        n = self.tables.nodes
        codes = np.asarray(derived[0], dtype=np.int64)
        times = np.bincount(codes[codes < n], minlength=n) - 1
        added = (self.tables.seconds * times[:, None]).sum(axis=0)
        added = added + self.tables.host_seconds[(codes[codes >= n] - n) // 2].sum(axis=0)
        return float((added / self.once).max(initial=0.0))

    # ------------------------------------------------------------------------------------------- descent

    def descend(
        self, state: State, target: np.ndarray, most: float, trail: list[State] | None = None, batch: int = 0
    ) -> tuple[State, np.ndarray]:
        """From a state towards the target at a cost of at most `most`.

        Returns what was reached, and the target with the least of shapes that cannot get there. Every state
        on the way is put on `trail`.
        """
        tables, wide = self.tables, batch or self.limits.batch
        target = np.maximum(np.asarray(target, dtype=np.float64), 1.0)
        failed: set[tuple[int, tuple[int, ...]]] = set()
        width = wide
        score = _score(state, target)
        best, least = state, score
        vain = 0
        for _ in range(self.limits.rounds):
            if score[0] <= 1 + _EQUAL:
                break
            over = state.line.by_step / target
            step, shape = (int(k) for k in np.unravel_index(int(over.argmax()), over.shape))
            scene = Scene(tables, _by_class(state.marks), state.derived, state.line, self._moved(state.marks))
            moment = state.derived[1][step]
            prices = [p * self.byte_seconds for p in _PRICES if self.limits.recompute]
            found = best_regenerations(scene, step, shape, prices, self.limits.idle, self.limits.offload)
            found = [f for f in found if (moment, f[2].absent) not in failed]
            if not found or vain > self.limits.patience:
                vain = 0
                state = best
                target[shape] = max(target[shape], state.peaks[shape])
                score = least = _score(state, target)
                continue
            excess = state.line.by_step[step, shape] - target[shape]
            picked = _together(found, width, excess)
            marks = state.marks | {(group, moment) for chain in picked for group in chain.absent}
            marks |= {(chain.absent[0], MOVED) for chain in picked if chain.moved}
            derived = self._derived(marks)
            cost = self._cost(derived)
            reached = (np.inf, np.inf)
            if cost <= most:
                new = self._followed(marks, derived, cost)
                reached = _score(new, target)
            if reached < score or (len(picked) == 1 and reached[0] <= score[0] * (1 + _EQUAL)):
                # A step aside may be what the next one needs; only so many in a row are made.
                state, score = new, reached
                width = min(wide, 2 * width)
                vain += 1
                if score < least:
                    best, least, vain = state, score, 0
                    if trail is not None:
                        trail.append(state)
                continue
            vain += 1
            if len(picked) > 1:
                width = 1
            else:
                failed.add((moment, picked[0].absent))
        return best, target

    # ------------------------------------------------------------------------------------------- take back

    def pruned(self, state: State, target: np.ndarray) -> State:
        """The state without absences that cost time and are not needed: by parts, the dearest first."""
        saved: list[tuple[float, Mark]] = []
        for mark in sorted(state.marks):
            gain = state.cost - self._cost(self._derived(state.marks - {mark}))
            if gain > 1e-7:
                saved.append((-gain, mark))
        doubtful = [mark for _, mark in sorted(saved)]
        width = max(1, len(doubtful) // _PARTS)
        parts = [doubtful[k : k + width] for k in range(0, len(doubtful), width)]
        for _ in range(self.limits.pruned):
            if not parts:
                break
            part = parts.pop(0)
            marks = state.marks.difference(part)
            derived = self._derived(marks)
            cost = self._cost(derived)
            if cost < state.cost:
                new = self._followed(marks, derived, cost)
                if (new.peaks <= target * (1 + _EQUAL)).all():
                    state = new
                    continue
            if len(part) > 1:
                half = len(part) // 2
                parts += [part[:half], part[half:]]
        return state

    def repaired(self, state: State, target: np.ndarray) -> State:
        """A state that meets the target at less cost: parts are torn out and found again."""
        draw = np.random.default_rng(self.limits.seed)
        for _ in range(self.limits.repairs):
            if state.cost <= 1e-6 or not state.marks:
                break
            kept = self._torn(state, draw)
            batch = int(draw.choice((1, 4, 8, 16)))
            new, reached = self.descend(self.state(kept), target, state.cost * 1.05, batch=batch)
            if (reached > target * (1 + 1e-9)).any() or (new.peaks > target * (1 + _EQUAL)).any():
                continue
            new = self.pruned(new, target)
            if new.cost < state.cost - 1e-7:
                state = new
        return state

    def _torn(self, state: State, draw: np.random.Generator) -> frozenset[Mark]:
        marks = sorted(state.marks)
        kind = int(draw.integers(0, 3))
        if kind == 0:
            part = float(draw.choice(_TORN))
            return frozenset(m for m, r in zip(marks, draw.random(len(marks)), strict=True) if r > part)
        if kind == 1:
            start, width = int(draw.integers(0, len(self.order))), int(draw.choice(_WINDOWS))
            producer = self.tables.producer
            return frozenset(m for m in marks if not start <= self.place[producer[m[0]]] < start + width)
        moments = sorted({moment for _, moment in marks if moment != MOVED})
        moment = moments[int(draw.integers(0, len(moments)))]
        return frozenset(m for m in marks if m[1] != moment)


def _by_class(marks: Iterable[Mark]) -> dict[int, list[int]]:
    absent: dict[int, list[int]] = {}
    for group, moment in sorted(marks):
        if moment != MOVED:
            absent.setdefault(group, []).append(moment)
    return absent


def _score(state: State, target: np.ndarray) -> tuple[float, float]:
    """The worst step over its target, and how much all steps together are above theirs."""
    over = (state.line.by_step / target).max(axis=1)
    return float(over.max(initial=0.0)), float(np.maximum(over - 1, 0.0).sum())


def _together(
    found: Sequence[tuple[float, Idle, Regeneration]], width: int, excess: float
) -> list[Regeneration]:
    """The best regenerations that do not need what another of them drops."""
    picked: list[Regeneration] = []
    dropped: set[int] = set()
    held: set[int] = set()
    freed = 0.0
    for _, _, chain in found:
        if chain.leaves & dropped or held.intersection(chain.absent) or chain.absent[0] in dropped:
            continue
        picked.append(chain)
        dropped.update(chain.absent)
        held |= chain.leaves
        freed += chain.gain
        if len(picked) >= width or freed >= excess:
            break
    return picked
