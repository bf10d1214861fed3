"""An order below given caps, or the proof that there is none: from one valley of what is live to the next.

The live bytes f(D) after a down-set D of nodes ran are submodular: f(D + X) - f(D) falls as D grows. Three
exchange arguments follow, each of which keeps every moment of an order below the caps.

1. A node that grows f at no shape, and fits, runs at once.
2. A node that frees nothing when it runs may wait, past every node that does not need it. So after D an
   order may begin with what it takes to free one more buffer: that buffer's readers and all that these
   need, where none of them but the last frees anything. These few moves are all there are, until nothing
   is left to free.
3. If from A some E above it was reached below the caps, and f(E) is least among the sets between the two,
   then whatever can be done from A can be done from E: all else that began at A is forgotten. Whether it
   is least, a minimum cut tells.

An order read backwards has the same moments, and of the sets that are left f is submodular, too. So the same
holds from the end: a node that gives at least what it takes is taken back at once; one that makes nothing
waits for one that does and has to go after it; a set that was reached and is least stands for where that
began. Each search alone is exact. They take turns, as either may end a thousand times sooner than the other:
mostly that from the end in wired networks, that from the start in training.

Exact where `work` sufficed.
"""

from __future__ import annotations

import numpy as np

from onnx_symmem.order.backward_valleys import BackwardRun
from onnx_symmem.order.downsets import Reached
from onnx_symmem.order.forward_valleys import ForwardRun
from onnx_symmem.order.valley_run import ValleyRun
from onnx_symmem.order.valley_tables import ValleyTables

__all__ = ["ValleySearch"]

_TURN = 50_000  # work of one direction before it is the other's turn


class ValleySearch(ValleyTables):
    """One problem, searched below any caps."""

    def below_caps(self, caps: np.ndarray, work: int = 1 << 60) -> Reached:
        """An order all of whose moments are below `caps`, bytes per shape; infinite ones bind nothing."""
        cap = self.top(caps)
        if cap is None or not self.at_most(self.start, cap):
            return Reached(None, True, 0)
        runs: list[ValleyRun] = [BackwardRun(self, cap), ForwardRun(self, cap)]
        spent = 0
        while spent <= work:
            for run in runs:
                before = run.spent
                order = run.go_on(before + min(_TURN, work - spent))
                spent += run.spent - before
                if order is not None:
                    return Reached(tuple(self.nodes[k] for k in order), True, spent)
                if run.ended:
                    return Reached(None, True, spent)
        return Reached(None, False, spent)
