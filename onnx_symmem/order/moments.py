"""Bytes live along orders of one graph at several shapes at once, in numbers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from onnx_symmem.order.buffers import BufferGraph

__all__ = ["Moments", "live_bytes"]


class Moments:
    """What does not depend on the order is computed once; `sizes` are bytes, (buffers, shapes)."""

    def __init__(self, graph: BufferGraph, sizes: np.ndarray) -> None:
        self.graph = graph
        self.sizes = np.asarray(sizes, dtype=np.float64)
        self.producer = np.array(graph.producer, dtype=np.int64)
        dying = [b for b, pinned in enumerate(graph.pinned) if not pinned]
        self.dying = np.array(dying, dtype=np.int64)
        self.readers = np.array([r for b in dying for r in graph.readers[b]], dtype=np.int64)
        counts = np.array([len(graph.readers[b]) for b in dying], dtype=np.int64)
        self.starts = np.cumsum(counts) - counts
        self.alloc = np.zeros((graph.size, self.sizes.shape[1]))
        np.add.at(self.alloc, self.producer, self.sizes)

    @cached_property
    def _reading(self) -> tuple[np.ndarray, np.ndarray]:
        """Every reader of a buffer, and the buffer."""
        readers = self.graph.readers
        nodes = np.array([r for rs in readers for r in rs], dtype=np.int64)
        return nodes, np.repeat(np.arange(len(readers)), [len(rs) for rs in readers])

    def touching(self, buffers: np.ndarray) -> np.ndarray:
        """Per node whether it makes or reads any of some buffers, which are told by a flag each."""
        nodes, read = self._reading
        found = np.zeros(self.graph.size, dtype=bool)
        found[self.producer[buffers]] = True
        found[nodes[buffers[read]]] = True
        return found

    def positions(self, order: Sequence[int] | np.ndarray) -> np.ndarray:
        """Step of every node."""
        position = np.empty(self.graph.size, dtype=np.int64)
        position[np.asarray(order, dtype=np.int64)] = np.arange(self.graph.size)
        return position

    def last_use(self, position: np.ndarray) -> np.ndarray:
        """Step of the last reader of every buffer in `dying`."""
        if not self.dying.size:
            return np.zeros(0, dtype=np.int64)
        return np.asarray(np.maximum.reduceat(position[self.readers], self.starts))

    def live(self, position: np.ndarray) -> np.ndarray:
        """Bytes live while each step runs, (steps, shapes)."""
        change = np.zeros((self.graph.size + 1, self.sizes.shape[1]))
        np.add.at(change, position[self.producer], self.sizes)
        np.subtract.at(change, self.last_use(position) + 1, self.sizes[self.dying])
        return np.asarray(np.cumsum(change, axis=0)[:-1])

    def along(self, order: Sequence[int] | np.ndarray) -> np.ndarray:
        """Bytes live while each step of an order runs, (steps, shapes)."""
        return self.live(self.positions(order))


def live_bytes(graph: BufferGraph, sizes: np.ndarray, order: Sequence[int]) -> np.ndarray:
    """Bytes live while each step runs, float64 of shape (steps, shapes); `sizes` is (buffers, shapes)."""
    return Moments(graph, sizes).along(order)
