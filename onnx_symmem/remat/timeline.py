"""Bytes in use along a schedule at sample shapes, in numbers: the expanded graph's plan without that graph.

The rules are those of `memory.plan` without reuse and of `remat.expansion`, so rows equal the profile of the
expanded graph to the byte; it takes milliseconds where that takes a second. A schedule is written as codes:
node n is n, an offload of value v is nodes + 2v, a reload nodes + 2v + 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from onnx_symmem.remat.expansion import last_needed
from onnx_symmem.remat.schedule import OFFLOAD, RELOAD, RUN, Schedule, Step
from onnx_symmem.remat.tables import Tables

__all__ = ["Lifetime", "Timeline", "codes_of", "schedule_from", "timeline"]


def codes_of(tables: Tables, schedule: Schedule) -> list[int]:
    """A schedule as codes."""
    move = {OFFLOAD: 0, RELOAD: 1}
    return [s.index if s.kind == RUN else tables.nodes + 2 * s.index + move[s.kind] for s in schedule]


def schedule_from(tables: Tables, codes: Sequence[int]) -> Schedule:
    """Codes as a schedule."""
    n = tables.nodes
    return tuple(
        Step(RUN, c) if c < n else Step(RELOAD if (c - n) % 2 else OFFLOAD, (c - n) // 2) for c in codes
    )


@dataclass(frozen=True, slots=True)
class Lifetime:
    """One instance of a class: the steps at which it is made and read, reads ascending.

    `size` is the value whose bytes it takes. `step` is its index in the schedule, not a row. An instance on
    the host has `on_host`; a graph output stays to the end (`stays`).
    """

    group: int
    size: int
    made: int
    reads: tuple[int, ...]
    stays: bool
    on_host: bool


@dataclass(frozen=True)
class Timeline:
    """Rows of one schedule: `live` bytes (rows, shapes); `step_of` each row is the index in the schedule.

    Rows behind a step's own are the `Size` nodes that free what nobody reads.
    """

    live: np.ndarray
    step_of: np.ndarray
    lifetimes: tuple[Lifetime, ...]

    @cached_property
    def by_step(self) -> np.ndarray:
        """Most bytes in use at each step of the schedule, (steps, shapes)."""
        if not len(self.live):
            return self.live
        starts = np.flatnonzero(np.diff(self.step_of, prepend=-1))
        return np.asarray(np.maximum.reduceat(self.live, starts, axis=0))

    @cached_property
    def peaks(self) -> np.ndarray:
        """The peak per shape."""
        return np.asarray(self.live.max(axis=0, initial=0.0))


def timeline(tables: Tables, codes: Sequence[int]) -> Timeline:
    """Follow a schedule; every read must have an instance (`schedule.check_schedule`)."""
    nodes, prior, output = tables.nodes, tables.prior, tables.output
    reads_of, makes_of, alias_of = tables.reads, tables.makes, tables.alias
    count = len(prior)
    latest = list(range(count))
    on_host: dict[int, int] = {}
    base = list(range(count))  # per instance: the one whose buffer it always shares
    value_of = list(range(count))
    is_read = bytearray(count)
    ran = bytearray(nodes)
    read_at: list[list[int]] = [[] for _ in range(count)]  # per base: steps
    steps: list[tuple[list[int], list[int]]] = []  # instances read, instances made
    outside = [prior[g] for g in tables.group]
    for step, code in enumerate(codes):
        if code >= nodes:
            value, back = divmod(code - nodes, 2)
            source = on_host[value] if back else latest[value]
            made = len(base)
            base.append(made)
            value_of.append(value)
            is_read.append(0)
            read_at.append([])
            is_read[source] = 1
            read_at[base[source]].append(step)
            if back:
                latest[value] = made
            else:
                on_host[value] = made
            steps.append(([source], [made]))
            continue
        reads = [latest[v] for v in reads_of[code]]
        again = ran[code]
        ran[code] = 1
        for instance in reads:
            is_read[instance] = 1
            if not outside[value_of[instance]]:
                read_at[base[instance]].append(step)
        makes: list[int] = []
        sources = [latest[a] if a >= 0 else -1 for a in alias_of[code]]
        for value, source in zip(makes_of[code], sources, strict=True):
            if again:
                if output[value]:
                    makes.append(-1)
                    continue
                made = len(base)
                base.append(made)
                value_of.append(value)
                is_read.append(0)
                read_at.append([])
            else:
                made = value
            if source >= 0 and (again or not output[value]):
                base[made] = base[source]
            makes.append(made)
            latest[value] = made
        steps.append((reads, makes))
    return _planned(tables, codes, steps, base, value_of, is_read, read_at)


def _planned(
    tables: Tables,
    codes: Sequence[int],
    steps: Sequence[tuple[list[int], list[int]]],
    base: list[int],
    value_of: list[int],
    is_read: bytearray,
    read_at: list[list[int]],
) -> Timeline:
    """Decide who takes over whose buffer, and add up."""
    nodes, count, output = tables.nodes, len(tables.prior), tables.output
    outside = [tables.prior[g] for g in tables.group]
    sized: list[tuple[int, int]] = []  # (step, instance) that a Size reads
    dropped: set[int] = set()
    extra: list[tuple[int, int]] = []  # (step, value): outputs that a repeat has to make once more
    made_at = [-1] * len(base)
    for step, (_, makes) in enumerate(steps):
        code = codes[step]
        for instance in makes:
            if instance >= 0:
                made_at[instance] = step
        if code >= nodes:
            continue
        again = bool(makes) and (makes[0] < 0 or makes[0] >= count)
        if not again:
            for instance in makes:
                if not is_read[instance] and tables.consumed[instance] and not output[instance]:
                    sized.append((step, instance))
            continue
        unread = [i for i in makes if i >= 0 and not is_read[i]]
        alone = len(unread) == sum(i >= 0 for i in makes)
        last = last_needed(makes, is_read)
        for position, instance in enumerate(makes):
            if instance >= 0 and not is_read[instance]:
                free = position > last and tables.optional[code][position]
                if not (alone and instance == unread[0]) and free:
                    dropped.add(instance)
                else:
                    sized.append((step, instance))
        for position, instance in enumerate(makes):
            if instance < 0 and (position < last or not tables.optional[code][position]):
                extra.append((step, tables.makes[code][position]))
    for step, value in extra:
        instance = len(base)
        position = tables.makes[codes[step]].index(value)
        source = tables.alias[codes[step]][position]
        base.append(instance)
        value_of.append(value)
        read_at.append([])
        made_at.append(step)
        if source >= 0:
            base[instance] = base[steps[step][0][tables.reads[codes[step]].index(source)]]
        steps[step][1][position] = instance
        sized.append((step, instance))
    sizes_at: dict[int, list[int]] = {}
    left = [len(r) for r in read_at]
    for step, instance in sized:
        sizes_at.setdefault(step, []).append(instance)
        left[base[instance]] += 1
    for value in range(count):
        if output[value]:
            left[value] += 1

    owner = list(range(len(base)))
    row = 0
    step_of: list[int] = []
    born: list[tuple[int, int]] = []  # (row, instance)
    died: list[tuple[int, int]] = []
    ends = 0
    end_rows: list[int] = []
    for step, (reads, makes) in enumerate(steps):
        code = codes[step]
        if code < nodes:
            over = tables.in_place[code]
            for position, instance in enumerate(makes):
                if instance < 0 or instance in dropped or base[instance] != instance:
                    continue
                taken = -1
                if over[position] and not (instance < count and output[instance]):
                    for value in over[position]:
                        source = base[reads[tables.reads[code].index(value)]]
                        if outside[value_of[source]]:
                            continue
                        if left[owner[source]] == 1:
                            taken = owner[source]
                            break
                if taken >= 0:
                    owner[instance] = taken
                    left[taken] += left[instance]
                else:
                    born.append((row, instance))
        elif not tables.on_device or (code - nodes) % 2:
            born.append((row, makes[0]))
        for instance in reads:
            b = base[instance]
            if outside[value_of[b]]:
                continue
            root = owner[b]
            left[root] -= 1
            if not left[root]:
                died.append((row, root))
        step_of.append(step)
        row += 1
        for instance in sizes_at.get(step, ()):
            ends += 1
            end_rows.append(row)
            root = owner[base[instance]]
            left[root] -= 1
            if not left[root] and not outside[value_of[root]]:
                died.append((row, root))
            step_of.append(step)
            row += 1
    table = tables.bytes
    change = np.zeros((row + 1, table.shape[1]))
    rows, values = _columns(born, value_of)
    np.add.at(change, rows, table[values])
    alive = {instance for _, instance in born}
    rows, values = _columns([(r + 1, i) for r, i in died if i in alive], value_of)
    np.subtract.at(change, rows, table[values])
    if tables.end_bytes:
        np.add.at(change, np.array(end_rows, dtype=np.int64), tables.end_bytes)
    live = np.cumsum(change[:row], axis=0)
    steps_of = np.array(step_of, dtype=np.int64)
    if tables.inner.any() and row:
        own = np.flatnonzero(np.diff(steps_of, prepend=-1))
        ids = np.array([c if c < nodes else 0 for c in codes], dtype=np.int64)
        moves = np.array([c < nodes for c in codes])
        live = live.copy()
        live[own] += np.where(moves[:, None], tables.inner[ids], 0.0)
    return Timeline(live, steps_of, _lifetimes(tables, codes, base, value_of, read_at, made_at))


def _columns(pairs: Sequence[tuple[int, int]], value_of: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    rows = np.array([row for row, _ in pairs], dtype=np.int64)
    return rows, np.array([value_of[i] for _, i in pairs], dtype=np.int64)


def _lifetimes(
    tables: Tables,
    codes: Sequence[int],
    base: Sequence[int],
    value_of: Sequence[int],
    read_at: Sequence[list[int]],
    made_at: Sequence[int],
) -> tuple[Lifetime, ...]:
    found = []
    for instance, made in enumerate(made_at):
        if base[instance] != instance or made < 0:
            continue
        value = value_of[instance]
        code = codes[made]
        host = code >= tables.nodes and (code - tables.nodes) % 2 == 0
        reads = tuple(dict.fromkeys(read_at[instance]))
        stays = instance < len(tables.prior) and tables.output[instance]
        found.append(Lifetime(tables.group[value], value, made, reads, stays, host))
    return tuple(found)
