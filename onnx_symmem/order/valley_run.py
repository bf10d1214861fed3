"""What searches from valley to valley share, whichever end they begin at: sets, ways to them, stand-ins.

A state is a set of nodes, reached below the caps, with what is live there. From each the next ones are moved
to; states that hold little and have gone far are gone on from first, so an order is found soon where there
are many. Where a state stands for another (rule 3 of `order.valleys`), all that can only be reached through
the other is forgotten.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from onnx_symmem.order.pouring import all_flows
from onnx_symmem.order.valley_tables import ValleyTables, places_of

__all__ = ["NEW", "STEP", "Valley", "ValleyRun"]

STEP = 4  # work of running a node, in units of looking at a buffer
NEW = 30  # work of a new state
_LOOKS = 3  # sets that a lower one is tried to stand for, the earliest first
_PUSH = 2.0  # how much of the caps it is worth that all nodes ran: what finds orders soonest
_CUT = 50  # work of a minimum cut, per node between the sets


@dataclass(slots=True, eq=False)
class Valley:
    """A set of nodes that ran (from the end: were taken back), what is ready and live, how it was reached.

    `moved` are the nodes that led here from `origin`, all of them. `below` are all states that it was reached
    from, or a state that it stands for was. `stand_in` stands for it.
    """

    done: int
    ready: int
    live: int
    origin: Valley | None
    moved: list[int]
    below: list[Valley]
    stand_in: Valley | None = None
    first: bool = False
    via: Valley | None = None
    open: int = -1
    shut: int = -1


class ValleyRun(ABC):
    """A search below some caps, from one end of all orders to the other; it may be stopped and gone on with.

    `goal` is what has to be in a state's set for it to be the other end.
    """

    def __init__(self, tables: ValleyTables, cap: int, goal: int) -> None:
        self.tables, self.cap, self.goal = tables, cap, goal
        self.length = max(goal.bit_count(), 1)
        self.mask = (1 << tables.lane) - 1
        self.caps = [(at, cap >> at & self.mask or 1) for at in tables.lanes]
        self.spent = 0
        self.stood = self.looked = 0  # how often something got a stand-in, and parked states were looked at
        self.waiting: list[tuple[float, int]] = []
        self.states: list[Valley] = []
        self.parked: list[int] = []  # states that every known way to leads through one that has a stand-in
        self.reached: dict[int, Valley] = {}  # where what runs at once led to, by what ran before that
        first = self._first()
        self.seen = {first.done: first}
        self._wait(first)

    @abstractmethod
    def _first(self) -> Valley:
        """Where the search begins."""

    @abstractmethod
    def _moves(self, state: Valley) -> Iterator[Valley | None]:
        """States that may come next, None for moves that do not fit."""

    @abstractmethod
    def _is_least(self, base: int, new: int) -> bool:
        """Whether no set between two, of which the second was reached later, holds less than that does."""

    @abstractmethod
    def _order(self, moved: list[int]) -> tuple[int, ...]:
        """The order of all nodes, by what was moved on the way to the other end."""

    @property
    def ended(self) -> bool:
        """Whether all that can be reached was: there is no order."""
        return not self.waiting

    def go_on(self, until: int) -> tuple[int, ...] | None:
        """An order, by places in the tables; None at the end, or once so much work was spent in all."""
        while self.waiting and self.spent <= until:
            number = heappop(self.waiting)[1]
            state = self.states[number]
            way = self._way(state)
            if way is None:
                if state.stand_in is None:
                    self.parked.append(number)
            elif not self.goal & ~state.done:
                return self._order(_moved(state))
            else:
                self._spread(number, way)
            if not self.waiting:
                # Other ways may have been found since.
                self.looked += 1
                again = {k for k in self.parked if self._way(self.states[k]) is not None}
                self.parked = [k for k in self.parked if k not in again]
                for k in sorted(again):
                    heappush(self.waiting, (self._rank(self.states[k]), k))
        return None

    def _spread(self, number: int, way: list[Valley]) -> None:
        """Go on from a state, until all its moves are made or something stands for it."""
        state = self.states[number]
        for new in self._moves(state):
            if new is None:
                continue
            known = self.seen.get(new.done)
            if known is None:
                self.seen[new.done] = new
                self._wait(new)
            else:
                while known.stand_in is not None:
                    known = known.stand_in
                if known is state:
                    continue
                known.below.append(state)
                new = known
            if self._stands_for(new, way):
                on = self._way(state)
                if on is None:
                    self.parked.append(number)
                    return
                way = on

    def _wait(self, state: Valley) -> None:
        heappush(self.waiting, (self._rank(state), len(self.states)))
        self.states.append(state)

    def _rank(self, state: Valley) -> float:
        """Less is more: little that is live, and most of the way gone."""
        live, mask = state.live, self.mask
        held = max([(live >> at & mask) / cap for at, cap in self.caps], default=0.0)
        return held - _PUSH * (state.done & self.goal).bit_count() / self.length

    def _way(self, state: Valley) -> list[Valley] | None:
        """From a state down to the first one, past none that has a stand-in; None if there is no such way."""
        if self._is_open(state):
            way = [state]
            while (below := way[-1].via) is not None:
                way.append(below)
            return way
        return None

    def _is_open(self, state: Valley) -> bool:
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

    def _stands_for(self, new: Valley, way: Sequence[Valley]) -> bool:
        """Let a state stand for the earliest on the way to it that it can stand for."""
        t, among = self.tables, 0
        while among < len(way) and t.at_most(new.live, way[among].live):
            among += 1  # past one that holds less at some shape it is not the least
        self.spent += among
        for base in way[max(0, among - _LOOKS) : among][::-1]:
            if self._is_least(base.done, new.done):
                base.stand_in = new
                self.stood += 1
                new.below += base.below
                new.first = new.first or base.first
                return True
        return False

    def _saturates(self, base: int, top: int, makes: bool) -> bool:
        """Whether no set between two that ran holds less than `top`, with `makes`, else than `base`, at any
        shape.

        Between `base` and a set of further nodes Y, what is live grows by what Y makes less what it frees.
        What is freed may flow to what was made on the way to it: none holds less than `top` where all that
        is made can be filled, none less than `base` where all that is freed can flow off.
        """
        t, mask = self.tables, self.mask
        inside = top & ~base
        nodes = list(places_of(inside))
        dying = {b for node in nodes for b in t.reads[node] if not t.readers[b] & ~top}
        ways = sorted((t.takes[b] & inside, b) for b in dying)
        ways.sort(key=lambda way: way[0].bit_count())
        for shift in t.lanes:
            self.spent += _CUT * len(nodes)
            made = {node: size for node in nodes if (size := t.makes[node] >> shift & mask)}
            freed = [(to, size) for to, b in ways if (size := t.sizes[b] >> shift & mask)]
            if not all_flows(freed, made, makes):
                return False
        return True


def _moved(last: Valley) -> list[int]:
    """All nodes that were moved on the way to a state, first ones first."""
    way: list[Valley] = []
    at: Valley | None = last
    while at is not None:
        way.append(at)
        at = at.origin
    return [node for state in reversed(way) for node in state.moved]
