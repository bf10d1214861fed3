"""What has to run so that a class is there again after a moment of absence, and what that saves.

The search asks this for every class that is alive and idle at the worst step, many times over, so the answer
is an estimate from one timeline: the repeats it takes, the bytes that become free at the step, less those of
leaves that have to be kept across it. A leaf that would be kept for this only may be dropped as well and
made again in its turn: it is where running its node is worth less than `price` seconds per byte.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from onnx_symmem.remat.retention import Absences, Derived, is_absent
from onnx_symmem.remat.tables import Tables
from onnx_symmem.remat.timeline import Lifetime, Timeline

__all__ = ["Idle", "Regeneration", "Scene"]

_MOST = 400  # nodes of one chain


@dataclass(frozen=True, slots=True)
class Idle:
    """A class that is in memory at a step but not used near it; `read` is the step that needs it next."""

    group: int
    size: float
    read: int


@dataclass(frozen=True, slots=True)
class Regeneration:
    """`absent` classes are dropped at the moment, `leaves` must not be; `gain` in bytes, `seconds` added.

    `moved`: the class comes back from the host instead of being made again.
    """

    absent: tuple[int, ...]
    leaves: frozenset[int]
    gain: float
    seconds: float
    moved: bool = False


class Scene:
    """One schedule with its timeline, asked about steps at one sample shape after the other."""

    def __init__(
        self,
        tables: Tables,
        absent: Absences,
        derived: Derived,
        line: Timeline,
        moved: frozenset[int] = frozenset(),
    ) -> None:
        self.tables, self.absent, self.moved = tables, absent, moved
        self.moments = derived[1]
        self.lifetimes = [x for x in line.lifetimes if not x.on_host]
        self.made: dict[int, list[int]] = {}
        self.lives: dict[int, list[Lifetime]] = {}
        for life in sorted(self.lifetimes, key=lambda x: (x.group, x.made)):
            self.made.setdefault(life.group, []).append(life.made)
            self.lives.setdefault(life.group, []).append(life)
        self.seconds = [column.tolist() for column in tables.seconds.T]
        self.host_seconds = tables.host_seconds
        self.bytes = [column.tolist() for column in tables.bytes.T]

    def idle(self, step: int, shape: int) -> list[Idle]:
        """Classes that could be absent at a step, largest first."""
        moment, bytes_of = self.moments[step], self.bytes[shape]
        found = []
        for life in self.lifetimes:
            if life.made >= step or life.stays or not self.tables.movable[life.group] or not life.reads:
                continue
            if life.reads[-1] <= step:
                continue
            at = bisect_left(life.reads, step)
            after = life.reads[at]
            before = life.reads[at - 1] if at else life.made
            # What is made again for a step comes right before it: too late for steps of the same moment.
            if self.moments[before] >= moment or self.moments[after] <= moment + 1 - moment % 2:
                continue
            size = bytes_of[life.size]
            if size > 0:
                found.append(Idle(life.group, size, after))
        found.sort(key=lambda x: (-x.size, x.group))
        return found

    def chain(self, idle: Idle, step: int, shape: int, price: float) -> Regeneration | None:
        """How an idle class is made again if it is absent at a step; None where the chain is too long."""
        tables, absent = self.tables, self.absent
        need = self.moments[idle.read]
        seconds, bytes_of = self.seconds[shape], self.bytes[shape]
        dropped = {idle.group}
        order = [idle.group]
        leaves: set[int] = set()
        moved: set[int] = set()  # steps that run later instead of twice
        cost, kept = 0.0, 0.0
        # Readers before what they read, so that it is known whether they have moved.
        heap = [(-self._made(idle.group, idle.read), idle.group)]
        while heap:
            made, group = heapq.heappop(heap)
            if group in self.moved:
                cost += float(self.host_seconds[group, shape])
                continue
            node = tables.producer[group]
            if not self._moves(group, -made, step, moved):
                cost += seconds[node]
            else:
                moved.add(-made)
            if len(order) > _MOST:
                return None
            for value in tables.reads[node]:
                other = tables.group[value]
                if other in dropped or other in leaves or tables.prior[other] or tables.output[other]:
                    continue
                life = self._before(other, idle.read)
                if life is None:
                    return None
                end = life.reads[-1] if life.reads else life.made
                if is_absent(absent, other, self.moments[life.made], need):
                    # It is dropped on the way already, and made again for this.
                    dropped.add(other)
                    order.append(other)
                    heapq.heappush(heap, (-life.made, other))
                    continue
                if end >= idle.read or life.made > step:
                    leaves.add(other)
                    continue
                size = bytes_of[other]
                if tables.movable[other] and seconds[tables.producer[other]] < price * size:
                    dropped.add(other)
                    order.append(other)
                    heapq.heappush(heap, (-life.made, other))
                else:
                    leaves.add(other)
                    kept += 0.0 if end >= step else size
        # Those that are dropped on the way already need no further absence.
        marks = tuple(g for g in order if g == idle.group or not self._gone(g, step, need))
        return Regeneration(marks, frozenset(leaves), idle.size - kept, cost)

    def move(self, idle: Idle, shape: int) -> Regeneration | None:
        """How an idle class comes back from the host; None where it does already."""
        if idle.group in self.moved:
            return None
        both_ways = 2 * float(self.host_seconds[idle.group, shape])
        return Regeneration((idle.group,), frozenset(), idle.size, both_ways, True)

    def _before(self, group: int, step: int) -> Lifetime | None:
        """The latest instance of a class made before a step."""
        made = self.made.get(group)
        if made is None:
            return None
        at = bisect_left(made, step) - 1
        return self.lives[group][at] if at >= 0 else None

    def _made(self, group: int, step: int) -> int:
        made = self.made[group]
        return made[bisect_left(made, step) - 1]

    def _moves(self, group: int, made: int, step: int, moved: set[int]) -> bool:
        """Whether the run that made an instance has no reader before a step but such as move themselves."""
        life = self.lives[group][bisect_left(self.made[group], made)]
        if made >= step or len(self.tables.makes[self.tables.producer[group]]) != 1:
            return False
        return all(read > step or read in moved for read in life.reads)

    def _gone(self, group: int, step: int, need: int) -> bool:
        made = self.made[group]
        at = bisect_left(made, step + 1) - 1
        return at < 0 or is_absent(self.absent, group, self.moments[made[at]], need)


def best_regenerations(
    scene: Scene, step: int, shape: int, prices: Sequence[float], limit: int, offload: bool = False
) -> list[tuple[float, Idle, Regeneration]]:
    """Of every idle class the regeneration that frees most per second, best first."""
    found = []
    for idle in scene.idle(step, shape)[:limit]:
        best: tuple[float, Idle, Regeneration] | None = None
        chains = [scene.chain(idle, step, shape, price) for price in prices]
        if offload:
            chains.append(scene.move(idle, shape))
        for chain in chains:
            if chain is None or chain.gain <= 0.05 * idle.size:
                continue
            score = chain.gain / (chain.seconds + 1e-12 * idle.size)
            if best is None or score > best[0]:
                best = (score, idle, chain)
        if best is not None:
            found.append(best)
    found.sort(key=lambda x: (-x[0], -x[1].size, x[1].group))
    return found
