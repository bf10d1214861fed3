"""Whether all that sources hold can flow into vessels, or all vessels be filled: a flow of one step.

What may flow where is a set of vessels per source, by place, as bits. Sources are poured one by one into the
vessels that come last, which mostly does; where those are full, what others poured into them is led on,
along the shortest way to one that is not (a shortest augmenting path). A source from which there is no such
way has none later either: what it reaches is full and leads nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["all_flows"]


def all_flows(sources: Sequence[tuple[int, int]], vessels: Mapping[int, int], fill: bool) -> bool:
    """Whether all vessels can be filled, with `fill`, else whether all sources can be emptied.

    `sources` are (vessels as bits, amount), best those with fewest vessels first; `vessels` are amounts that
    they take, by place. All amounts are whole numbers above 0.
    """
    room = dict(vessels)
    waiting = 0
    for place in room:
        waiting |= 1 << place
    flow: dict[int, dict[int, int]] = {place: {} for place in room}  # into a vessel, by source
    for number, (to, amount) in enumerate(sources):
        open_ = to & waiting
        while open_ and amount:
            place = open_.bit_length() - 1
            part = room[place]
            if part > amount:
                part = amount
                room[place] -= part
            else:
                open_ ^= 1 << place
                waiting ^= 1 << place
            amount -= part
            flow[place][number] = part
        if fill and not waiting:
            return True
        while amount:
            part, full = _led_on(sources, room, flow, waiting, number, amount)
            if not part:
                break
            amount -= part
            waiting ^= full
        if amount and not fill:
            return False
    return not (fill and waiting)


def _led_on(
    sources: Sequence[tuple[int, int]],
    room: dict[int, int],
    flow: dict[int, dict[int, int]],
    waiting: int,
    number: int,
    amount: int,
) -> tuple[int, int]:
    """Pour more of a source by leading on what others poured: how much, and the vessel that got full as bits.

    Nothing where there is no way.
    """
    filled_by: dict[int, int] = {}  # a full vessel on the way, and the source that would be poured into it
    leaves: dict[int, int] = {number: -1}  # a source on the way, and the vessel that it would be led on from
    queue, seen = [number], 0
    for source in queue:
        to = sources[source][0]
        if to & waiting:
            break
        for place, by in flow.items():
            if to >> place & 1 and not seen >> place & 1:
                seen |= 1 << place
                filled_by[place] = source
                for other in by:
                    if other not in leaves:
                        leaves[other] = place
                        queue.append(other)
    else:
        return 0, 0
    last = (to & waiting).bit_length() - 1
    part, at = min(amount, room[last]), source
    while (place := leaves[at]) >= 0:
        part = min(part, flow[place][at])
        at = filled_by[place]
    room[last] -= part
    full = 0 if room[last] else 1 << last
    flow[last][source] = flow[last].get(source, 0) + part
    at = source
    while (place := leaves[at]) >= 0:
        flow[place][at] -= part
        if not flow[place][at]:
            del flow[place][at]
        at = filled_by[place]
        flow[place][at] = flow[place].get(at, 0) + part
    return part, full
