"""Results that are alike in all but when they can be made: one order among them is as good as any.

Two groups of nodes that lead to one result each are twins where node by node they make and read the same
bytes, and whatever the nodes of one wait for, or what else reads their operands, runs before those of the
other anyway. Let each node of the one take the earlier and its twin the later of their two places: at every
moment as many of their buffers were made, and no fewer have died. So an order in which the one is first, node
by node, holds no more at any moment, and a search may leave out all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from onnx_symmem.order.problem import OrderProblem, ancestors, result_groups

__all__ = ["twins_in_turn"]


def twins_in_turn(problem: OrderProblem) -> OrderProblem:
    """The problem with twins bound to an order; it has an order below any caps where the given one has."""
    above = ancestors(problem)
    alike: dict[object, list[_Group]] = {}
    for nodes in result_groups(problem.before, problem.after):
        group = _group(problem, nodes, above)
        if group is not None:
            alike.setdefault(group.kind, []).append(group)
    before = [list(nodes) for nodes in problem.before]
    after = [list(nodes) for nodes in problem.after]
    for groups in alike.values():
        groups.sort(key=lambda group: (sum(above[k].bit_count() for k in group.nodes), group.nodes))
        for place, then in enumerate(groups):
            # The last of those before that may be first; changing places always leaves fewer pairs inverted.
            first = next((g for g in groups[:place][::-1] if _first_anyway(problem, above, g, then)), None)
            for one, other in zip(first.nodes, then.nodes, strict=True) if first else ():
                before[other].append(one)
                after[one].append(other)
    return replace(problem, before=tuple(map(tuple, before)), after=tuple(map(tuple, after)))


class _Group:
    """Nodes of one result in an order that twins share, and the operands from outside, by node."""

    def __init__(self, nodes: Sequence[int], operands: Sequence[frozenset[int]], kind: object) -> None:
        self.nodes, self.operands, self.kind = tuple(nodes), tuple(operands), kind


def _group(problem: OrderProblem, group: Sequence[int], above: Sequence[int]) -> _Group | None:
    """A group with all that twins have in common; None where a buffer of it is not its own in full."""
    inside = set(group)
    nodes = sorted(
        group, key=lambda k: (sum(above[k] >> other & 1 for other in group), problem.makes[k].tolist(), k)
    )
    place = {node: k for k, node in enumerate(nodes)}
    kinds: list[object] = []
    operands: list[frozenset[int]] = []
    for node in nodes:
        read: list[tuple[object, ...]] = []
        outside: set[int] = set()
        for buffer in problem.reads[node]:
            size = problem.sizes[buffer]
            if not size.any():
                continue
            users = tuple(sorted(place[r] for r in problem.readers[buffer] if r in inside))
            if problem.makers[buffer] in inside:
                if len(users) < len(problem.readers[buffer]):
                    return None
                read.append((place[problem.makers[buffer]], size.tobytes(), users))
            elif len(users) > 1:
                return None
            else:
                outside.add(buffer)
                read.append((-1, size.tobytes(), ()))
        waits = tuple(sorted(place[p] for p in problem.before[node] if p in inside))
        kinds.append((waits, tuple(sorted(read, key=repr)), _bytes(problem, node)))
        operands.append(frozenset(outside))
    return _Group(nodes, operands, tuple(kinds))


def _bytes(problem: OrderProblem, node: int) -> tuple[bytes, bytes]:
    return np.asarray(problem.makes[node]).tobytes(), np.asarray(problem.needs[node]).tobytes()


def _first_anyway(problem: OrderProblem, above: Sequence[int], first: _Group, then: _Group) -> bool:
    """Whether all that the first waits for, and what else reads its operands, is before its twin anyway."""
    own = set(first.nodes)
    for k, (one, other) in enumerate(zip(first.nodes, then.nodes, strict=True)):
        waits = {p for p in problem.before[one] if p not in own}
        for buffer in first.operands[k] - then.operands[k]:
            waits.update(r for r in problem.readers[buffer] if r != one)
            waits.add(problem.makers[buffer])
        if any(not above[other] >> node & 1 for node in waits - {-1}):
            return False
    return True
