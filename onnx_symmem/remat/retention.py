"""What is not kept, and the schedule that follows from it.

A state of the search is an order of the nodes and, per class of values, *absences*: moments at which no
instance of the class may be in memory. Everything else follows: a value that a step needs is made again,
right before the step, if an absence lies between its latest instance and the step; otherwise it is kept
until then. What making it again needs is treated alike, so a repeat of a repeat, chains that share
producers, and several repeats of one value need no rules of their own; and any set of absences of movable
classes is a valid schedule, so that they may be added and taken away one by one. A run of which nothing is
read before its node runs again is left out: then an absence costs nothing, it has moved the node.

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
"""Nodes as they run, and the moment of each."""


def is_absent(absent: Absences, group: int, after: int, before: int) -> bool:
    """Whether an absence of a class lies strictly between two moments."""
    moments = absent.get(group)
    if not moments:
        return False
    at = bisect_right(moments, after)
    return at < len(moments) and moments[at] < before


def derive(tables: Tables, order: Sequence[int], absent: Absences) -> Derived:
    """The nodes in the order they run, repeats included, and their moments."""
    count = len(tables.prior)
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
                maker = producer[wanted]
                missing = [v for v in reads[maker] if not kept(v, 2 * step)]
                if missing:
                    stack.extend(reversed(missing))
                else:
                    run(maker, 2 * step)
                    stack.pop()
        run(node, 2 * step + 1)
    return _without_idle_runs(tables, codes, moments) if absent else (codes, moments)


def _without_idle_runs(tables: Tables, codes: Sequence[int], moments: Sequence[int]) -> Derived:
    """Leave out runs of which nothing is read before the node runs again: such a node only runs later."""
    left = [0] * tables.nodes
    for node in codes:
        left[node] += 1
    if max(left) == 1:
        return list(codes), list(moments)
    needed = bytearray(len(tables.prior))
    staying = [any(tables.output[v] for v in made) for made in tables.makes]
    kept = bytearray(tables.nodes)
    chosen: list[int] = []
    for at in range(len(codes) - 1, -1, -1):
        node = codes[at]
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
