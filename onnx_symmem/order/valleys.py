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

Exact where `work` sufficed. Sets that hold little and have many nodes are gone on from first, so an order is
found soon where there are many.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import chain

import numpy as np

from onnx_symmem.order.downsets import Reached
from onnx_symmem.order.flow import FlowNetwork
from onnx_symmem.order.valley_tables import ValleyTables, bits_of, places_of

__all__ = ["ValleySearch"]

_STEP = 4  # work of running a node, in units of looking at a buffer
_LOOKS = 3  # sets that a lower one is tried to stand for, the smallest first
_PUSH = 2.0  # how much of the caps it is worth that all nodes ran: what finds orders soonest
_CUT = 50  # work of a minimum cut, per node between the sets


@dataclass(slots=True, eq=False)
class _State:
    """A down-set, what is ready and live after it, and how it was reached.

    `moved` are the nodes that led from `origin` here first, but for those that run at once. `below` are all
    states that it was reached from, or a state that it stands for was. `stand_in` stands for it.
    """

    done: int
    ready: int
    live: int
    origin: _State | None
    moved: tuple[int, ...]
    below: list[_State]
    stand_in: _State | None = None
    first: bool = False
    via: _State | None = None
    open: int = -1
    shut: int = -1


class ValleySearch(ValleyTables):
    """One problem, searched below any caps."""

    def below_caps(self, caps: np.ndarray, work: int = 1 << 60) -> Reached:
        """An order all of whose moments are below `caps`, bytes per shape; infinite ones bind nothing."""
        return _Run(self, caps, work).reached()


class _Run:
    """The search below some caps."""

    def __init__(self, tables: ValleySearch, caps: np.ndarray, most: int) -> None:
        self.tables, self.most = tables, most
        cap = tables.top(caps)
        self.fits = cap is not None
        self.cap = cap or 0
        self.spent = 0
        self.stood = self.looked = 0  # how often something got a stand-in, and parked states were looked at

    def reached(self) -> Reached:
        """The order, or that there is none."""
        t = self.tables
        if not self.fits or not t.at_most(t.start, self.cap):
            return Reached(None, True, 0)
        first = self._first()
        seen = {first.done: first}
        waiting: list[tuple[float, int]] = []
        states: list[_State] = []
        parked: list[int] = []  # states that every known way to leads through one that has a stand-in

        def wait(state: _State) -> None:
            heappush(waiting, (self._rank(state), len(states)))
            states.append(state)

        wait(first)
        while waiting:
            number = heappop(waiting)[1]
            state = states[number]
            way = self._way(state)
            if way is None:
                if state.stand_in is None:
                    parked.append(number)
            elif state.done == t.all:
                return Reached(self._path(state), True, self.spent)
            else:
                left = False
                for new in self._moves(state):
                    left = True
                    if self.spent > self.most:
                        return Reached(None, False, self.spent)
                    if new is None:
                        continue
                    known = seen.get(new.done)
                    if known is not None:
                        self._also_from(state, known)
                        continue
                    seen[new.done] = new
                    wait(new)
                    if self._stands_for(new, way):
                        way = self._way(state)
                        if way is None:
                            parked.append(number)
                            break
                if not left:
                    rest = self._moved(state, t.all & ~state.done)
                    if rest is not None:
                        return Reached(self._path(rest), True, self.spent)
            if not waiting:
                # Other ways may have been found since.
                self.looked += 1
                again = {k for k in parked if self._way(states[k]) is not None}
                parked = [k for k in parked if k not in again]
                for k in sorted(again):
                    heappush(waiting, (self._rank(states[k]), k))
        return Reached(None, True, self.spent)

    def _rank(self, state: _State) -> float:
        """Less is more: little that is live, and many nodes that ran."""
        t = self.tables
        mask = (1 << t.lane) - 1
        held = max(((state.live >> at & mask) / (self.cap >> at & mask or 1) for at in t.lanes), default=0.0)
        return held - _PUSH * state.done.bit_count() / max(t.count, 1)

    def _first(self) -> _State:
        t = self.tables
        ready = bits_of(k for k in range(t.count) if not t.before[k])
        first = _State(0, ready, t.start, None, (), [], first=True)
        self._close(first, ready)
        return first

    def _way(self, state: _State) -> list[_State] | None:
        """From a state down to the first one, past none that has a stand-in; None if there is no such way."""
        if self._is_open(state):
            way = [state]
            while (below := way[-1].via) is not None:
                way.append(below)
            return way
        return None

    def _is_open(self, state: _State) -> bool:
        """Whether there is such a way, by what was found since the last stand-in or the last look again."""
        stack = [state]
        while stack:
            at = stack[-1]
            if at.open == self.stood or at.shut == self.looked or at.stand_in is not None:
                stack.pop()
                continue
            self.spent += 1
            at.via = None
            if at.first:
                at.open = self.stood
                continue
            unknown = None
            for below in at.below:
                if below.stand_in is not None or below.shut == self.looked:
                    continue
                if below.open == self.stood:
                    at.open, at.via = self.stood, below
                    break
                unknown = unknown or below
            else:
                if unknown is None:
                    at.shut = self.looked
                else:
                    stack.append(unknown)
        return state.stand_in is None and state.open == self.stood

    def _also_from(self, state: _State, known: _State) -> None:
        while known.stand_in is not None:
            known = known.stand_in
        if known is not state:
            known.below.append(state)

    def _moves(self, state: _State) -> Iterator[_State | None]:
        """States after freeing one more buffer, None where that does not fit; nothing if none is left."""
        t, left = self.tables, ~state.done
        self.spent += len(t.frees)
        freeing = 0  # ready nodes that free something at once: no other move may contain them
        for k in places_of(state.ready):
            done = state.done | 1 << k
            if any(not t.readers[b] & ~done for b in t.reads[k]):
                freeing |= 1 << k
        tried: set[tuple[int, int]] = set()
        for need, last in t.frees:
            nodes = need & left
            if not nodes or (nodes, last) in tried or (last >= 0 and not nodes >> last & 1):
                continue
            tried.add((nodes, last))
            if nodes & freeing and nodes & (nodes - 1) and (last < 0 or nodes & freeing & ~(1 << last)):
                continue
            yield self._moved(state, nodes, last)

    def _moved(self, state: _State, nodes: int, last: int = -1) -> _State | None:
        """The state after some more nodes, of which none but the last may free anything."""
        t, done = self.tables, state.done
        live, freed, near = state.live, 0, 0
        order: list[int] = []
        first = nodes & ~(1 << last) if last >= 0 else nodes
        for node in chain(places_of(first), (last,) * (last >= 0)):
            if freed:
                return None
            self.spent += _STEP
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
        new = _State(done, self._ready(state.ready, order, done), live - freed, state, tuple(order), [state])
        self._close(new, near)
        return new

    def _ready(self, ready: int, ran: Sequence[int], done: int) -> int:
        for node in ran:
            for after in self.tables.after[node]:
                if not self.tables.before[after] & ~done:
                    ready |= 1 << after
        return ready & ~done

    def _close(self, state: _State, look: int, order: list[int] | None = None) -> None:
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
            self.spent += _STEP
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
            if order is not None:
                order.append(node)
        state.done, state.ready, state.live = done, ready, live

    def _stands_for(self, new: _State, way: Sequence[_State]) -> bool:
        """Let a new state stand for the smallest set on the way to it that it can stand for."""
        t = self.tables
        above = [state for state in way if t.at_most(new.live, state.live)]
        for base in above[: -_LOOKS - 1 : -1]:
            if self._is_least(base.done, new.done):
                base.stand_in = new
                self.stood += 1
                new.below += base.below
                new.first = new.first or base.first
                return True
        return False

    def _is_least(self, base: int, top: int) -> bool:
        """Whether no set between two holds less than the larger one at any shape.

        Between `base` and a set of further nodes Y, f grows by what Y makes less what it frees. The most that
        can be gained is a maximum closure; all of the nodes together gain it if what they make is all paid
        for by what needs it to be freed.
        """
        t = self.tables
        nodes = list(places_of(top & ~base))
        place = {node: k for k, node in enumerate(nodes)}
        self.spent += _CUT * len(nodes)
        freed = {b for node in nodes for b in t.reads[node] if not t.readers[b] & ~top}
        source, sink = len(nodes), len(nodes) + 1
        mask = (1 << t.lane) - 1
        for shift in t.lanes:
            network = FlowNetwork(len(nodes) + 2 + len(freed))
            for k, b in enumerate(sorted(freed), len(nodes) + 2):
                size = t.sizes[b] >> shift & mask
                network.arc(source, k, size)
                for reader in places_of(t.readers[b] & ~base):
                    network.arc(k, place[reader], size)
            made = 0
            total = sum(t.sizes[b] >> shift & mask for b in freed)
            for node in nodes:
                size = t.makes[node] >> shift & mask
                made += size
                network.arc(place[node], sink, size)
                for before in places_of(t.before[node] & ~base):
                    network.arc(place[node], place[before], total)
            if network.maximum(source, sink) != made:
                return False
        return True

    def _path(self, last: _State) -> tuple[int, ...]:
        """The order that led to a state, in places of the problem."""
        t = self.tables
        way: list[_State] = []
        at: _State | None = last
        while at is not None:
            way.append(at)
            at = at.origin
        order: list[int] = []
        for state in reversed(way):
            base = state.origin
            if base is None:
                ready = bits_of(k for k in range(t.count) if not t.before[k])
                self._close(_State(0, ready, t.start, None, (), []), ready, order)
                continue
            order += state.moved
            done, live, near = base.done | bits_of(state.moved), base.live, 0
            for node in state.moved:
                near |= t.near[node]
                live += t.makes[node]
            for b in {b for node in state.moved for b in t.reads[node] if not t.readers[b] & ~done}:
                live -= t.sizes[b]
            ready = self._ready(base.ready, state.moved, done)
            self._close(_State(done, ready, live, None, (), []), near, order)
        return tuple(t.nodes[k] for k in order)
