"""All orders of some kept nodes below caps: where there is none, no order of the whole graph is below them.

What is kept is the caller's choice; any order of the graph leaves one of the kept nodes that holds no more
(`order.problem.restriction`). Buffers that are small beside the peak at all shapes count as nothing, nodes
become part of others (`order.absorption`), and twins come in turn (`order.twins`): each of these bounds no
more than the graph does, and leaves far fewer orders to the exact search (`order.valleys`).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from onnx_symmem.order.absorption import absorbed
from onnx_symmem.order.buffers import BufferGraph
from onnx_symmem.order.contraction import offshoots
from onnx_symmem.order.downsets import Reached
from onnx_symmem.order.problem import restriction
from onnx_symmem.order.twins import twins_in_turn
from onnx_symmem.order.valleys import ValleySearch

__all__ = ["KeptSearch", "result_nodes"]

_ABSORBED = 2.0**-12  # of the peak: what smaller nodes hold while they run may be left out


class KeptSearch:
    """The search; `table` is bytes (buffers, shapes), `peaks` bytes per shape that smallness is measured by.

    Buffers of at most the part `small` of the peak at all shapes count as nothing. `fewer` lets nodes be part
    of others, and twins come in turn: next to nothing is lost where results that may wait decide, much may be
    where each node's own moment does.
    """

    def __init__(
        self,
        graph: BufferGraph,
        table: np.ndarray,
        peaks: np.ndarray,
        kept: Iterable[int],
        small: float,
        fewer: bool = True,
    ) -> None:
        counted: np.ndarray = np.any(table > peaks * small, axis=1)
        self.problem = restriction(graph, np.where(counted[:, np.newaxis], table, 0.0), kept)
        self.slack = np.zeros(len(peaks))
        if fewer:
            part = absorbed(self.problem, peaks * _ABSORBED)
            self.problem, self.slack = twins_in_turn(part.problem), part.slack
        self._search = ValleySearch(self.problem)

    def below(self, caps: np.ndarray, work: int) -> Reached:
        """An order below the caps, bytes per shape; it is one of what is left, and proves nothing.

        Where there is none and the search was exact, no order of the graph is below all of them.
        """
        return self._search.below_caps(caps + self.slack, work)


def result_nodes(graph: BufferGraph) -> tuple[int, ...]:
    """The nodes that nothing waits for, those that make what they read, and all that make outputs: which of
    these come last decides in training."""
    kept = {node for group in offshoots(graph) for node in group}
    kept |= {graph.producer[b] for node in kept for b in graph.reads[node]}
    kept |= {graph.producer[b] for b in np.flatnonzero(graph.pinned).tolist()}
    return tuple(sorted(kept))
