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
found soon where there are many. Bytes of several shapes are lanes of one integer, each with a bit above it
that tells which of two is larger.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import chain

import numpy as np

from onnx_symmem.order.downsets import Reached
from onnx_symmem.order.flow import FlowNetwork
from onnx_symmem.order.problem import OrderProblem

__all__ = ["ValleySearch"]

_STEP = 4  # work of running a node, in units of looking at a buffer
_LOOKS = 3  # sets that a lower one is tried to stand for, the smallest first
_TOGETHER = 4  # operands that a node may work in the place of, at most
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


class ValleySearch:
    """One problem, for any caps. What is compared are whole numbers, `units` per byte."""

    def __init__(self, problem: OrderProblem, units: int = 1) -> None:
        count = self.count = len(problem.nodes)
        self.problem, self.units = problem, units
        sizes, needs, makes, live = (
            np.rint(part * units) for part in (problem.sizes, problem.needs, problem.makes, problem.live)
        )
        most = float((live + makes.sum(axis=0)).max(initial=0.0))
        self.lane = max(int(most), 1).bit_length() + 1
        shapes = sizes.shape[1]
        self.lanes = range(0, self.lane * shapes, self.lane)
        self.guard = sum(1 << (at + self.lane - 1) for at in self.lanes)
        self.sizes = [self._packed(row) for row in sizes]
        self.makes = [self._packed(row) for row in makes]
        self.saves = [self._packed(row) for row in makes - needs]
        self.start = self._packed(live)
        rank = _topological(problem)
        place = {node: k for k, node in enumerate(rank)}
        # Nodes by place in a topological order, so that the lowest bit of a set may run first.
        self.nodes = rank
        self.makes = [self.makes[node] for node in rank]
        self.saves = [self.saves[node] for node in rank]
        self.before = [_bits(place[p] for p in problem.before[node]) for node in rank]
        self.after = [tuple(sorted(place[a] for a in problem.after[node])) for node in rank]
        self.readers = [_bits(place[r] for r in readers) for readers in problem.readers]
        sized = [bool(size) for size in self.sizes]
        self.reads = [tuple(b for b in problem.reads[node] if sized[b]) for node in rank]
        upward: list[int] = []
        for k in range(count):
            bits = 1 << k
            for p in _places(self.before[k]):
                bits |= upward[p]
            upward.append(bits)
        # What it takes to free a buffer, in any order but that some node has to be the last, or -1. One that
        # may work in the place of what it reads has to be, with any of that.
        takes = [_joined(upward, readers) if sized[b] else 0 for b, readers in enumerate(self.readers)]
        frees = {(need, -1) for need in takes if need}
        for node, saved in enumerate(self.saves):
            read = self.reads[node] if saved else ()
            for some in range(1, 1 << min(len(read), _TOGETHER)):
                nodes = _union(takes, [b for k, b in enumerate(read) if some >> k & 1])
                if not any(nodes >> after & 1 for after in self.after[node]):
                    frees.add((nodes, node))
        self.frees = sorted(frees)
        self.near = [
            (_bits(self.after[k]) | _union(self.readers, self.reads[k])) & ~(1 << k) for k in range(count)
        ]
        self.all = (1 << count) - 1

    def below_caps(self, caps: np.ndarray, work: int = 1 << 60) -> Reached:
        """An order all of whose moments are below `caps`, bytes per shape; infinite ones bind nothing."""
        return _Run(self, caps, work).reached()

    def _packed(self, row: np.ndarray) -> int:
        return sum(int(value) << (self.lane * k) for k, value in enumerate(row))

    def top(self, caps: np.ndarray) -> int | None:
        """The most that a moment may take, as lanes; None where a cap leaves nothing."""
        large = 1 << (self.lane - 1)  # no lane comes up to it
        found = [int(min(np.ceil(cap * self.units), large)) - 1 for cap in caps]
        return None if min(found, default=0) < 0 else self._packed(np.array(found, dtype=object))

    def at_most(self, one: int, other: int) -> bool:
        """Whether no lane is larger than the other's."""
        return ((other | self.guard) - one) & self.guard == self.guard

    def least(self, one: int, other: int) -> int:
        """The smaller of both, lane by lane."""
        if self.at_most(one, other):
            return one
        mask = (1 << self.lane) - 1
        return sum(min(one >> at & mask, other >> at & mask) << at for at in self.lanes)


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
        ready = _bits(k for k in range(t.count) if not t.before[k])
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
        for k in _places(state.ready):
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
        for node in chain(_places(first), (last,) * (last >= 0)):
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
        nodes = list(_places(top & ~base))
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
                for reader in _places(t.readers[b] & ~base):
                    network.arc(k, place[reader], size)
            made = 0
            total = sum(t.sizes[b] >> shift & mask for b in freed)
            for node in nodes:
                size = t.makes[node] >> shift & mask
                made += size
                network.arc(place[node], sink, size)
                for before in _places(t.before[node] & ~base):
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
                ready = _bits(k for k in range(t.count) if not t.before[k])
                self._close(_State(0, ready, t.start, None, (), []), ready, order)
                continue
            order += state.moved
            done, live, near = base.done | _bits(state.moved), base.live, 0
            for node in state.moved:
                near |= t.near[node]
                live += t.makes[node]
            for b in {b for node in state.moved for b in t.reads[node] if not t.readers[b] & ~done}:
                live -= t.sizes[b]
            ready = self._ready(base.ready, state.moved, done)
            self._close(_State(done, ready, live, None, (), []), near, order)
        return tuple(t.nodes[k] for k in order)


def _topological(problem: OrderProblem) -> list[int]:
    """Places of the nodes, each after those before it; ties by place."""
    left = [len(before) for before in problem.before]
    waiting = [k for k, count in enumerate(left) if not count]
    found: list[int] = []
    while waiting:
        node = heappop(waiting)
        found.append(node)
        for after in problem.after[node]:
            left[after] -= 1
            if not left[after]:
                heappush(waiting, after)
    return found


def _bits(places: Iterable[int]) -> int:
    found = 0
    for place in places:
        found |= 1 << place
    return found


def _places(bits: int) -> Iterator[int]:
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


def _joined(sets: Sequence[int], bits: int) -> int:
    found = 0
    for place in _places(bits):
        found |= sets[place]
    return found


def _union(sets: Sequence[int], which: Sequence[int]) -> int:
    found = 0
    for k in which:
        found |= sets[k]
    return found
