"""What is not kept, and the schedule that follows from it.

A state of the search is an order of the nodes and, per class of values, *absences*: moments at which no
instance of the class may be in memory. Everything else follows: a value that a step needs is made again,
right before the step, if an absence lies between its latest instance and the step; otherwise it is kept
until then. What making it again needs is treated alike, so a repeat of a repeat, chains that share
producers, and several repeats of one value need no rules of their own; and any set of absences of movable
classes is a valid schedule, so that they may be added and taken away one by one. A run of which nothing is
read before its node runs again is left out: then an absence costs nothing, it has moved the node.

Classes that are *moved* come back from the host instead; their copy there is made right after their first
instance, so that it reads what no later node may have overwritten.

Moments: step s of the order is 2s + 1, and what is made again for it happens at 2s.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence

from onnx_symmem.remat.tables import Tables

__all__ = ["Absences", "Derived", "derive", "is_absent"]

Absences = Mapping[int, Sequence[int]]
"""Per class: its moments of absence, ascending."""

Derived = tuple[list[int], list[int]]
"""Codes of what runs (`remat.timeline`), and the moment of each."""


def is_absent(absent: Absences, group: int, after: int, before: int) -> bool:
    """Whether an absence of a class lies strictly between two moments."""
    moments = absent.get(group)
    if not moments:
        return False
    at = bisect_right(moments, after)
    return at < len(moments) and moments[at] < before


def derive(
    tables: Tables, order: Sequence[int], absent: Absences, moved: frozenset[int] = frozenset()
) -> Derived:
    """What runs, in order, repeats and moves included, and the moments."""
    count, back = len(tables.prior), tables.nodes + 1
    group, reads, makes, producer = tables.group, tables.reads, tables.makes, tables.producer
    fixed = [tables.prior[g] or tables.output[g] for g in group]
    born = [-1] * count  # per class: the moment of its latest instance
    version = [0] * count  # per class: number of its latest instance
    held = [0] * count  # per value: the instance of its class that it lies in
    codes: list[int] = []
    moments: list[int] = []

    def kept(value: int, moment: int) -> bool:
        g = group[value]
        if fixed[value]:
            return True
        if held[value] != version[g]:
            return False
        return g not in absent or not is_absent(absent, g, born[g], moment)

    def run(node: int, moment: int) -> None:
        for value in makes[node]:
            g = group[value]
            if g == value:
                version[g] += 1
                born[g] = moment
            held[value] = version[g]
        codes.append(node)
        moments.append(moment)

    for step, node in enumerate(order):
        for value in reads[node]:
            if kept(value, 2 * step + 1):
                continue
            stack = [value]
            while stack:
                wanted = stack[-1]
                # The first thing wanted has to last through the step itself.
                if kept(wanted, 2 * step + (len(stack) == 1)):
                    stack.pop()
                    continue
                if wanted in moved:
                    version[wanted] += 1
                    born[wanted] = 2 * step
                    held[wanted] = version[wanted]
                    codes.append(back + 2 * wanted)
                    moments.append(2 * step)
                    stack.pop()
                    continue
                maker = producer[wanted]
                missing = [v for v in reads[maker] if not kept(v, 2 * step)]
                if missing:
                    stack.extend(reversed(missing))
                else:
                    run(maker, 2 * step)
                    stack.pop()
        run(node, 2 * step + 1)
    if not absent:
        return codes, moments
    return _without_idle_runs(tables, *(_with_copies(tables, codes, moments) if moved else (codes, moments)))


def _with_copies(tables: Tables, codes: Sequence[int], moments: Sequence[int]) -> Derived:
    """Copies to the host put in, behind the first run that makes what is reloaded later."""
    n = tables.nodes
    waiting: dict[int, list[int]] = {}
    for code in dict.fromkeys(c for c in codes if c >= n):
        value = (code - n) // 2
        waiting.setdefault(tables.producer[value], []).append(value)
    found: list[int] = []
    at: list[int] = []
    for code, moment in zip(codes, moments, strict=True):
        found.append(code)
        at.append(moment)
        for value in waiting.pop(code, ()):
            found.append(n + 2 * value)
            at.append(moment)
    return found, at


def _without_idle_runs(tables: Tables, codes: Sequence[int], moments: Sequence[int]) -> Derived:
    """Leave out runs of which nothing is read before the node runs again: such a node only runs later."""
    left = [0] * tables.nodes
    for node in codes:
        if node < tables.nodes:
            left[node] += 1
    if max(left) == 1:
        return list(codes), list(moments)
    needed = bytearray(len(tables.prior))
    copied = bytearray(len(tables.prior))  # the copy on the host is needed
    staying = [any(tables.output[v] for v in made) for made in tables.makes]
    kept = bytearray(tables.nodes)
    chosen: list[int] = []
    for at in range(len(codes) - 1, -1, -1):
        node = codes[at]
        if node >= tables.nodes:
            value, back = divmod(node - tables.nodes, 2)
            here, there = (needed, copied) if back else (copied, needed)
            if here[value]:
                here[value], there[value] = 0, 1
                chosen.append(at)
            continue
        left[node] -= 1
        makes = tables.makes[node]
        if not (left[node] or kept[node]) or staying[node] or any(needed[v] for v in makes):
            kept[node] = 1
            chosen.append(at)
            for value in makes:
                needed[value] = 0
            for value in tables.reads[node]:
                needed[value] = 1
    chosen.reverse()
    return [codes[at] for at in chosen], [moments[at] for at in chosen]
