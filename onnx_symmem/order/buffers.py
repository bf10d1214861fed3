"""The graph as schedulers see it: nodes that allocate buffers, buffers that die with their last reader."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

__all__ = ["BufferGraph"]


@dataclass(frozen=True)
class BufferGraph:
    """Nodes 0..n-1 with their dependences, and buffers 0..b-1 with producer and readers.

    A buffer stands for all values that share its memory in every order (aliases, and in-place results
    that no order can prevent). `pinned[b]`: the buffer stays until the run ends (graph outputs, results
    that nobody reads). `optional_share` holds (node, buffer made, buffer that it may overwrite) for
    in-place results that depend on the order: the schedulers count both buffers, bounds must not.
    Sizes are not part of the structure: every scheduler takes them in bytes, one per buffer.
    """

    predecessors: tuple[tuple[int, ...], ...]
    successors: tuple[tuple[int, ...], ...]
    producer: tuple[int, ...]
    readers: tuple[tuple[int, ...], ...]
    pinned: tuple[bool, ...]
    optional_share: tuple[tuple[int, int, int], ...]

    @property
    def size(self) -> int:
        """Number of nodes."""
        return len(self.predecessors)

    @cached_property
    def makes(self) -> tuple[tuple[int, ...], ...]:
        """Per node: the buffers it allocates."""
        made: list[list[int]] = [[] for _ in range(self.size)]
        for buffer, node in enumerate(self.producer):
            made[node].append(buffer)
        return tuple(map(tuple, made))

    @cached_property
    def reads(self) -> tuple[tuple[int, ...], ...]:
        """Per node: the buffers whose release waits for it, ascending, once each."""
        read: list[list[int]] = [[] for _ in range(self.size)]
        for buffer, nodes in enumerate(self.readers):
            for node in nodes:
                read[node].append(buffer)
        return tuple(map(tuple, read))

    @cached_property
    def topological(self) -> tuple[int, ...]:
        """One topological order: Kahn's, first in first out, ties by index."""
        waiting = [len(p) for p in self.predecessors]
        order = [node for node, count in enumerate(waiting) if not count]
        for node in order:
            for after in self.successors[node]:
                waiting[after] -= 1
                if not waiting[after]:
                    order.append(after)
        return tuple(order)

    @cached_property
    def ancestors(self) -> tuple[int, ...]:
        """Per node: bit set (Python int) of the node itself and everything it depends on."""
        sets = [0] * self.size
        for node in self.topological:
            bits = 1 << node
            for before in self.predecessors[node]:
                bits |= sets[before]
            sets[node] = bits
        return tuple(sets)

    @cached_property
    def descendants(self) -> tuple[int, ...]:
        """Per node: bit set (Python int) of the node itself and everything that depends on it."""
        sets = [0] * self.size
        for node in reversed(self.topological):
            bits = 1 << node
            for after in self.successors[node]:
                bits |= sets[after]
            sets[node] = bits
        return tuple(sets)

    def allocation(self, sizes: Sequence[int]) -> list[int]:
        """Bytes each node allocates."""
        return [sum(sizes[b] for b in made) for made in self.makes]
