"""From the last valley down: rules 1 and 2 of `order.valleys` read backwards.

A buffer has many readers but one producer, so that from the end each move takes back one node: mostly far
fewer sets are met than from the start.
"""

from __future__ import annotations

from collections.abc import Iterator

from onnx_symmem.order.valley_run import NEW, STEP, Valley, ValleyRun
from onnx_symmem.order.valley_tables import ValleyTables, bits_of, places_of

__all__ = ["BackwardRun"]


class BackwardRun(ValleyRun):
    """States are the sets of nodes that were taken back, which all others ran before.

    Only nodes that make bytes are ready; with one of them all that needs it and is left is taken back.
    """

    def __init__(self, tables: ValleyTables, cap: int) -> None:
        super().__init__(tables, cap, tables.makers)

    def _first(self) -> Valley:
        t = self.tables
        live = t.start + sum(t.makes) - sum(s for s, r in zip(t.sizes, t.readers, strict=True) if r)
        ready = bits_of(k for k in places_of(t.makers) if not t.makers_after[k])
        first = Valley(0, ready, live, None, [], [], first=True)
        self._close(first, ready)
        return first

    def _order(self, moved: list[int]) -> tuple[int, ...]:
        taken = bits_of(moved)
        return (*(k for k in range(self.tables.count) if not taken >> k & 1), *reversed(moved))

    def _is_least(self, base: int, new: int) -> bool:
        full = self.tables.all
        return self._saturates(full & ~new, full & ~base, makes=False)

    def _moves(self, state: Valley) -> Iterator[Valley | None]:
        """States after taking back one more node that makes bytes."""
        for node in places_of(state.ready):
            nodes, live, moment = self._taken(state.done, state.live, node)
            if not self.tables.at_most(moment, self.cap):
                yield None
                continue
            done = state.done | nodes
            new = self.reached.get(done)
            if new is None:
                self.spent += NEW
                new = self.reached[done] = Valley(state.done, state.ready, live, state, [], [state])
                self._close(new, self._take(new, node, nodes))
            yield new

    def _taken(self, done: int, live: int, node: int) -> tuple[int, int, int]:
        """What is taken back with a node, what is live before it all runs, and the most while it does."""
        t = self.tables
        nodes = t.downward[node] & ~done
        others = nodes & ~(1 << node)
        self.spent += STEP * (1 + nodes.bit_count())
        taken = done
        for k in reversed(tuple(places_of(others))) if others else ():
            for b in t.reads[k]:
                # By its first reader that is taken back, which is the one of the highest place.
                if not t.readers[b] & taken:
                    live += t.sizes[b]
            taken |= 1 << k
        freed = 0
        for b in t.reads[node]:
            if not t.readers[b] & taken:
                freed += t.sizes[b]
        moment = live + freed
        if t.saves[node]:
            moment -= t.least(t.saves[node], freed)
        return nodes, live + freed - t.makes[node], moment

    def _take(self, state: Valley, node: int, nodes: int) -> int:
        """Take nodes back, in place, but for what is live; returns those that this can have made safe."""
        t, near = self.tables, 0
        state.done |= nodes
        state.ready &= ~(1 << node)
        if nodes == 1 << node:
            state.moved.append(node)
            near = t.near_before[node]
        else:
            taken = list(places_of(nodes))
            state.moved += reversed(taken)
            for k in taken:
                near |= t.near_before[k]
        for other in places_of(t.makers_before[node]):
            if not t.makers_after[other] & ~state.done:
                state.ready |= 1 << other
                near |= 1 << other
        return near

    def _close(self, state: Valley, look: int) -> None:
        """Take back, in place, every node that gives what it takes and fits; `look` at some first."""
        t, cap = self.tables, self.cap
        look &= state.ready
        while look:
            node = look.bit_length() - 1
            look ^= 1 << node
            nodes, live, moment = self._taken(state.done, state.live, node)
            if t.at_most(live, state.live) and t.at_most(moment, cap):
                state.live = live
                look = (look | self._take(state, node, nodes)) & state.ready
