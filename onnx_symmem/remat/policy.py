"""Run-time policies in simulation: what is evicted when memory is short, and the time that costs.

A run-time system has no schedule with repeats. It follows the order; before a node runs, what it needs is
made again if it was evicted, and tensors are evicted until the node fits under the limit. Policies differ in
what goes first. Scores, the lowest of which is evicted (facts/ALGORITHMS, 6 and 8.10), with c the time of
making a tensor again including evicted ancestors, s its bytes, t the time since its last use, d the steps to
its next use:

    dtr      c / (s * t)        Dynamic Tensor Rematerialization
    size     1 / (s * d)        size x distance, BladeDISC's ranking
    lru      1 / t              least recently used
    belady   1 / d              furthest next use, which needs the future
    ours     c / (s * d)        all of them known before the run: the order is static

Tensors that nobody reads again are dropped at once. Aliases count with their root, nothing is in place: all
policies are compared under the same rules, and a schedule's peak under them is `static_peak`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from onnx_symmem.remat.tables import Tables

__all__ = ["POLICIES", "PolicyRun", "simulate", "static_peak"]

_LEAST = 1e-18


@dataclass(frozen=True, slots=True)
class PolicyRun:
    """One simulated run: whether it stayed below the limit, its peak, and what repeats cost.

    `added` is repeated time as a part of one run's, `evicted` the number of evictions, `repeated` of repeats.
    """

    fits: bool
    peak: float
    added: float
    evicted: int
    repeated: int


@dataclass(frozen=True, slots=True)
class _Tensor:
    """What a policy is told of an evictable tensor."""

    cost: float
    size: float
    idle: float
    distance: int


_Policy = Callable[[_Tensor], float]

POLICIES: Mapping[str, _Policy] = {
    "ours": lambda t: t.cost / (t.size * t.distance),
    "dtr": lambda t: t.cost / (t.size * max(t.idle, _LEAST)),
    "size": lambda t: 1 / (t.size * t.distance),
    "lru": lambda t: 1 / max(t.idle, _LEAST),
    "belady": lambda t: 1 / t.distance,
}
"""Scores by name; the tensor of the lowest is evicted."""


class _Runtime:
    """Memory and clock of one simulated run at one shape."""

    def __init__(
        self, tables: Tables, order: Sequence[int], shape: int, limit: float, policy: _Policy, most: float
    ) -> None:
        self.tables, self.policy, self.limit = tables, policy, limit
        self.bytes = tables.bytes[:, shape].tolist()
        self.seconds = tables.seconds[:, shape].tolist()
        self.once = max(sum(self.seconds), _LEAST)
        self.budget = most * self.once
        self.needs = [
            tuple(dict.fromkeys(g for v in reads if not tables.prior[g := tables.group[v]]))
            for reads in tables.reads
        ]
        self.gives = [tuple(v for v in makes if tables.group[v] == v) for makes in tables.makes]
        self.uses: dict[int, list[int]] = {}
        for step, node in enumerate(order):
            for group in self.needs[node]:
                self.uses.setdefault(group, []).append(step)
        self.held: dict[int, float] = {}  # class -> time of its last use
        self.clock = self.live = self.peak = self.added = 0.0
        self.step = self.evicted = self.repeated = 0
        self.fits = True

    def next_use(self, group: int) -> int | None:
        """The next step that reads a class."""
        uses = self.uses.get(group, [])
        at = bisect_right(uses, self.step - 1)
        return uses[at] if at < len(uses) else None

    def again(self, group: int) -> float:
        """Time of making a class once more, evicted ancestors included."""
        total, stack, seen = 0.0, [group], {group}
        while stack:
            node = self.tables.producer[stack.pop()]
            total += self.seconds[node]
            for need in self.needs[node]:
                if need not in self.held and need not in seen:
                    seen.add(need)
                    stack.append(need)
        return total

    def make_room(self, wanted: float, locked: set[int]) -> None:
        """Evict until `wanted` bytes fit, or nothing is left to evict."""
        while self.live + wanted > self.limit:
            best: tuple[float, int] | None = None
            for group in self.held:
                after = self.next_use(group)
                size = self.bytes[group]
                if group in locked or not self.tables.movable[group] or size <= 0:
                    continue
                if after is None:
                    if self.uses.get(group):
                        best = (-1.0, group)  # made again on the way to something, and done with
                        break
                    continue
                seen = _Tensor(
                    self.again(group) if self.policy in _COSTED else 0.0, size,
                    self.clock - self.held[group], max(after - self.step, 1),
                )  # fmt: skip
                score = (self.policy(seen), group)
                if best is None or score < best:
                    best = score
            if best is None:
                self.fits = False
                return
            self.drop(best[1])
            self.evicted += best[0] >= 0

    def drop(self, group: int) -> None:
        """Free a class."""
        del self.held[group]
        self.live -= self.bytes[group]

    def run(self, node: int, locked: set[int], again: bool) -> None:
        """Run a node whose inputs are there."""
        made = [g for g in self.gives[node] if g not in self.held]
        locked.update(self.needs[node])
        self.make_room(sum(self.bytes[g] for g in made), locked)
        for group in made:
            self.held[group] = self.clock
            self.live += self.bytes[group]
        self.peak = max(self.peak, self.live)
        self.clock += self.seconds[node]
        for group in (*self.needs[node], *made):
            self.held[group] = self.clock
        if again:
            self.added += self.seconds[node]
            self.repeated += 1

    def provide(self, group: int, locked: set[int]) -> None:
        """Make an evicted class again, and what that needs."""
        stack = [group]
        while stack and self.added <= self.budget:
            wanted = stack[-1]
            if wanted in self.held:
                stack.pop()
                continue
            node = self.tables.producer[wanted]
            missing = [g for g in self.needs[node] if g not in self.held]
            if missing:
                stack.extend(missing)
                continue
            # Held for what waits below; everything else made on the way may go again.
            waiting = {g for below in stack[:-1] for g in self.needs[self.tables.producer[below]]}
            self.run(node, locked | waiting, True)
            stack.pop()
        locked.add(group)


_COSTED = (POLICIES["ours"], POLICIES["dtr"])


def simulate(
    tables: Tables, order: Sequence[int], shape: int, limit: float, policy: str, most: float = 20.0
) -> PolicyRun:
    """Run an order under a limit in bytes; given up where repeats take more than `most` times a whole run."""
    run = _Runtime(tables, order, shape, limit, POLICIES[policy], most)
    for step, node in enumerate(order):
        run.step = step
        locked: set[int] = set()
        # Twice: making one input may have evicted another that was not locked yet.
        for _ in range(2):
            locked.update(g for g in run.needs[node] if g in run.held)
            for group in run.needs[node]:
                run.provide(group, locked)
        if run.added > run.budget or any(g not in run.held for g in run.needs[node]):
            run.fits = False
            break
        run.run(node, locked, False)
        run.step = step + 1
        for group in (*run.needs[node], *run.gives[node]):
            unread = group in run.held and run.next_use(group) is None
            if unread and not tables.output[group] and run.uses.get(group):
                run.drop(group)
    return PolicyRun(
        run.fits and run.peak <= limit, run.peak, run.added / run.once, run.evicted, run.repeated
    )  # fmt: skip


def static_peak(tables: Tables, codes: Sequence[int], shape: int) -> float:
    """The peak of a schedule of runs under the simulation's rules, which know no in-place results."""
    held: dict[int, float] = {}
    last: dict[int, list[int]] = {}
    group_of = tables.group
    for step, node in enumerate(codes):
        for value in tables.reads[node]:
            if not tables.prior[group_of[value]]:
                last.setdefault(group_of[value], []).append(step)
    born: dict[int, list[int]] = {}
    for step, node in enumerate(codes):
        for value in tables.makes[node]:
            if group_of[value] == value and not (tables.output[value] and value in born):
                born.setdefault(value, []).append(step)
    ends: dict[int, list[int]] = {}
    live = peak = 0.0
    for group, steps in born.items():
        reads = last.get(group, [])
        for k, made in enumerate(steps):
            until = steps[k + 1] if k + 1 < len(steps) else len(codes)
            seen = [r for r in reads if made < r <= until and not (r == until and k + 1 < len(steps))]
            stays = tables.output[group] or (not reads and len(steps) == 1)
            ends.setdefault(len(codes) if stays else max(seen, default=made), []).append(group)
    for step, node in enumerate(codes):
        for value in tables.makes[node]:
            if group_of[value] == value and step in born.get(value, ()):
                live += float(tables.bytes[value, shape])
                held[value] = live
        peak = max(peak, live)
        for group in ends.get(step, ()):
            live -= float(tables.bytes[group, shape])
    return peak
