"""From the first valley up: rules 1 and 2 of `order.valleys`, with what frees buffers as moves."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from onnx_symmem.order.valley_run import NEW, STEP, Valley, ValleyRun
from onnx_symmem.order.valley_tables import ValleyTables, bits_of, places_of

__all__ = ["ForwardRun"]


class ForwardRun(ValleyRun):
    """States are the sets of nodes that ran."""

    def __init__(self, tables: ValleyTables, cap: int) -> None:
        super().__init__(tables, cap, tables.all)

    def _first(self) -> Valley:
        t = self.tables
        ready = bits_of(k for k in range(t.count) if not t.before[k])
        first = Valley(0, ready, t.start, None, [], [], first=True)
        self._close(first, ready)
        return first

    def _order(self, moved: list[int]) -> tuple[int, ...]:
        return tuple(moved)

    def _is_least(self, base: int, new: int) -> bool:
        return self._saturates(base, new, makes=True)

    def _moves(self, state: Valley) -> Iterator[Valley | None]:
        """States after freeing one more buffer; after all that is left where nothing is left to free."""
        t, left = self.tables, ~state.done
        self.spent += len(t.frees) // 2
        freeing = 0  # ready nodes that free something at once: no other move may contain them
        for k in places_of(state.ready):
            done = state.done | 1 << k
            if any(not t.readers[b] & ~done for b in t.reads[k]):
                freeing |= 1 << k
        tried: set[int | tuple[int, int]] = set()
        met: list[int] = []  # what frees something: what contains it is no move, but by its own last node
        for need, last in t.frees:
            nodes = need & left
            if not nodes:
                continue
            if last < 0:
                if nodes in tried:
                    continue
                tried.add(nodes)
                if nodes & freeing and nodes & (nodes - 1):
                    continue
                for some in met:
                    if some & nodes == some:
                        break
                else:
                    met.append(nodes)
                    yield self._moved(state, nodes)
            elif nodes >> last & 1 and (nodes, last) not in tried:
                tried.add((nodes, last))
                if nodes & freeing & ~(1 << last) and nodes & (nodes - 1):
                    continue
                if not any(some & nodes == some and not some >> last & 1 for some in met):
                    yield self._moved(state, nodes, last)
        if not tried:
            yield self._moved(state, t.all & left)

    def _moved(self, state: Valley, nodes: int, last: int = -1) -> Valley | None:
        """The state after some more nodes, of which none but the last may free anything."""
        t, done = self.tables, state.done
        live, freed, near = state.live, 0, 0
        order: list[int] = []
        first = nodes & ~(1 << last) if last >= 0 else nodes
        for node in chain(places_of(first), (last,) * (last >= 0)):
            if freed:
                return None
            self.spent += STEP
            order.append(node)
            done |= 1 << node
            live += t.makes[node]
            near |= t.near[node]
            for b in t.reads[node]:
                if not t.readers[b] & ~done:
                    freed += t.sizes[b]
            moment = live - t.least(t.saves[node], freed) if freed and t.saves[node] else live
            if not t.at_most(moment, self.cap):
                return None
        known = self.reached.get(done)
        if known is not None:
            return known
        self.spent += NEW
        ready, reached = state.ready, done
        for node in order:
            for after in t.after[node]:
                if not t.before[after] & ~done:
                    ready |= 1 << after
        new = Valley(done, ready & ~done, live - freed, state, order, [state])
        self._close(new, near)
        self.reached[reached] = new
        return new

    def _close(self, state: Valley, look: int) -> None:
        """Run every ready node that grows memory at no shape and fits, in place; `look` at some first."""
        t, cap = self.tables, self.cap
        done, ready, live = state.done, state.ready, state.live
        look &= ready
        while look:
            low = look & -look
            look ^= low
            node = low.bit_length() - 1
            after = done | low
            freed = 0
            self.spent += STEP
            for b in t.reads[node]:
                if not t.readers[b] & ~after:
                    freed += t.sizes[b]
            if not t.at_most(t.makes[node], freed):
                continue
            moment = live + t.makes[node]
            if t.saves[node]:
                moment -= t.least(t.saves[node], freed)
            if not t.at_most(moment, cap):
                continue
            done, live = after, live + t.makes[node] - freed
            ready &= ~low
            for other in t.after[node]:
                if not t.before[other] & ~done:
                    ready |= 1 << other
            look = (look | t.near[node]) & ready
            state.moved.append(node)
        state.done, state.ready, state.live = done, ready, live
