"""Nodes whose place follows from another's: they become part of it, and an exact search has less to choose.

Two kinds, each proved by an exchange. What one node alone reads, and what is as large as all that went into
it, may wait as well as its operands: it is made when it is read. A small node that gives up at least what it
makes runs as soon as it can do so; one that would gain nothing before that waits for it, if nothing waits for
the node. In both cases every order of the nodes given becomes one of those left that holds no more at any
moment, but for the small nodes' own bytes while the node runs that they became part of: the *slack*.

So where no order of what is left is below caps and slack, none of the given nodes is below the caps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from onnx_symmem.order.problem import OrderProblem, ancestors

__all__ = ["Absorbed", "absorbed"]

_PASSES = 2


@dataclass(frozen=True, slots=True, eq=False)
class Absorbed:
    """The nodes left, and the slack in bytes per shape."""

    problem: OrderProblem
    slack: np.ndarray


def absorbed(problem: OrderProblem, small: np.ndarray) -> Absorbed:
    """The problem with fewer nodes; what makes more than `small`, bytes per shape, is no small node."""
    left = _Left(problem)
    left.wait_for_readers()
    for _ in range(_PASSES):
        left.follow_at_once(small)
    return left.found()


class _Left:
    """What is left of a problem, by node and by buffer; a node that is gone is part of another."""

    def __init__(self, problem: OrderProblem) -> None:
        self.problem, self.sizes = problem, problem.sizes
        self.before = [set(nodes) for nodes in problem.before]
        self.after = [set(nodes) for nodes in problem.after]
        self.reads = [set(buffers) for buffers in problem.reads]
        self.readers = [set(nodes) for nodes in problem.readers]
        self.makers = list(problem.makers)
        self.made: list[set[int]] = [set() for _ in problem.nodes]
        for buffer, maker in enumerate(self.makers):
            if maker >= 0:
                self.made[maker].add(buffer)
        self.makes = problem.makes.copy()
        self.saved = problem.makes - problem.needs
        self.gone = [False] * len(problem.nodes)
        self.lost: set[int] = set()
        self.slack = np.zeros_like(problem.makes)
        self.above = ancestors(problem)
        # Numbers of ancestors rank nodes: what is part of another keeps all that it waited for before it.
        self.ranked = sorted(range(len(self.gone)), key=lambda k: (self.above[k].bit_count(), k))

    def _sum(self, buffers: Sequence[int] | set[int]) -> np.ndarray:
        return np.asarray(self.sizes[sorted(buffers)].sum(axis=0))

    def wait_for_readers(self) -> None:
        """Make what is as large as its operands when its one reader runs."""
        for node in self.ranked[::-1]:
            if self.gone[node] or len(self.after[node]) != 1 or self.saved[node].any():
                continue
            (reader,) = self.after[node]
            if any(self.readers[b] != {reader} for b in self.made[node]):
                continue
            own = self._sum(self.made[node])
            if (own == self.makes[node]).all() and (own == self._sum(self.reads[node])).all():
                self._drop(self.made[node])
                self._into(node, reader)

    def follow_at_once(self, small: np.ndarray) -> None:
        """Run small nodes right after the last node that they, or all that they give up, have to wait for."""
        for node in self.ranked:
            if self.gone[node] or self.saved[node].any() or (self.makes[node] > small).any():
                continue
            last = self._last_before(node)
            if last is None or self.saved[last].any():
                continue
            own = {b for b in self.made[last] if self.readers[b] == {node}}
            over = self.makes[node] - self._sum(own)
            self.slack[last] += np.maximum(over, 0.0)
            self.makes[last] = self.makes[last] + over
            self._drop(own)
            self._into(node, last)

    def _last_before(self, node: int) -> int | None:
        """The node after which this one gives up at least what it makes and may run, if it is one."""
        reads = sorted(b for b in self.reads[node] if self.makers[b] != node)
        for freed in dict.fromkeys([(), tuple(reads), *((b,) for b in reads)]):
            if not (self._sum(freed) >= self.makes[node]).all():
                continue
            others = {r for b in freed for r in self.readers[b]} - {node}
            last = self._latest(self.before[node] | others)
            if last is None:
                continue
            if any(m >= 0 and not self._reached(last, m) for m in (self.makers[b] for b in reads)):
                continue
            if last in self.before[node]:
                return last
            # It may run before that one: then what else it gives up must not be more than what stays of it.
            early = self._sum([b for b in reads if last not in self.readers[b]])
            stays = self.makes[node] - self._sum(self.made[node])
            if not self.after[node] and (early <= stays).all():
                return last
        return None

    def _latest(self, nodes: set[int]) -> int | None:
        """The node of some that all others of them come before."""
        if not nodes:
            return None
        last = max(nodes, key=lambda k: (self.above[k].bit_count(), k))
        return last if all(self._reached(last, other) for other in nodes) else None

    def _reached(self, last: int, node: int) -> bool:
        return node == last or bool(self.above[last] >> node & 1)

    def _drop(self, buffers: set[int]) -> None:
        for buffer in sorted(buffers):
            self.lost.add(buffer)
            self.made[self.makers[buffer]].discard(buffer)
            for reader in self.readers[buffer]:
                self.reads[reader].discard(buffer)

    def _into(self, node: int, whole: int) -> None:
        """Let a node be part of another, which is next to it."""
        self.gone[node] = True
        for buffer in self.reads[node]:
            self.readers[buffer].discard(node)
            self.readers[buffer].add(whole)
            self.reads[whole].add(buffer)
        for buffer in self.made[node]:
            self.makers[buffer] = whole
        self.made[whole] |= self.made[node]
        for other in self.before[node]:
            self.after[other].discard(node)
        for other in self.after[node]:
            self.before[other].discard(node)
        if whole in self.after[node]:
            for other in self.before[node]:
                self.before[whole].add(other)
                self.after[other].add(whole)
        for other in self.after[node] - {whole}:
            self.before[other].add(whole)
            self.after[whole].add(other)

    def found(self) -> Absorbed:
        """What is left as a problem of its own."""
        nodes = [k for k, gone in enumerate(self.gone) if not gone]
        buffers = [b for b in range(len(self.makers)) if b not in self.lost]
        place = {node: k for k, node in enumerate(nodes)}
        row = {buffer: k for k, buffer in enumerate(buffers)}
        problem = replace(
            self.problem,
            nodes=tuple(self.problem.nodes[k] for k in nodes),
            before=tuple(tuple(sorted(place[p] for p in self.before[k])) for k in nodes),
            after=tuple(tuple(sorted(place[a] for a in self.after[k])) for k in nodes),
            reads=tuple(tuple(sorted(row[b] for b in self.reads[k])) for k in nodes),
            readers=tuple(tuple(sorted(place[r] for r in self.readers[b])) for b in buffers),
            makers=tuple(-1 if self.makers[b] < 0 else place[self.makers[b]] for b in buffers),
            sizes=self.sizes[buffers].reshape(len(buffers), self.sizes.shape[1]),
            needs=(self.makes - self.saved)[nodes],
            makes=self.makes[nodes],
        )
        return Absorbed(problem, self.slack[nodes].max(axis=0, initial=0.0))
