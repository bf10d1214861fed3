"""From the plan that would have run to the one that is kept: search, proof, and search again where refuted.

Orders that look better at the steering shapes may be worse at others. The proof attempt finds such a shape;
it becomes a steering shape, and orders that are good there too are looked for; so does a shape at which the
peak is an expression that it was at no other. After a few rounds the best order that was proved is kept, or
the one that would have run (facts/ALGORITHMS, 8.5 and 8.6).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from onnx_symmem.expr.domain import Domain
from onnx_symmem.expr.samples import legal_near
from onnx_symmem.memory.peak import peak
from onnx_symmem.memory.plan import PlanInput
from onnx_symmem.memory.profile import MemoryProfile
from onnx_symmem.memory.sizes import ValueSizes
from onnx_symmem.order.candidates import CandidateOrder, CandidateSearch, Tick, rank
from onnx_symmem.order.limits import SearchLimits
from onnx_symmem.order.selection import OrderChoice, Proofs, allowance, choose_order
from onnx_symmem.order.steering import further_shapes, shapes_of_members
from onnx_symmem.order.version_search import version_orders

__all__ = ["PlannedOrder", "plan_order", "whole_shape"]

_BETWEEN, _SEED = 4, 3  # shapes that are added where no other is asked for, and what draws them
_PER_ROUND = 2  # shapes that are added at a time
_OF_MEMBERS, _TOLD = 4, 2  # shapes that are added where the best order is proved, and how often


@dataclass(frozen=True)
class PlannedOrder:
    """The choice, the candidates it was made of, and the steering shapes: the given ones come first.

    `choice.tried` has peaks at the given shapes, the candidates at all. `specialists` are the best orders at
    each of the shapes, where they were asked for. `floor` are bytes that no order is below at each given
    shape: they hold there, while `lower_bound` holds at all.
    """

    choice: OrderChoice
    candidates: tuple[CandidateOrder, ...]
    shapes: tuple[Mapping[str, int], ...]
    notices: tuple[str, ...] = ()
    specialists: tuple[CandidateOrder, ...] = ()
    floor: tuple[int, ...] = ()


def plan_order(
    prepared: Mapping[str, PlanInput],
    sizes: ValueSizes,
    domain: Domain,
    shapes: Sequence[Mapping[str, int]],
    before: MemoryProfile,
    given: Mapping[str, Sequence[int]],
    limits: SearchLimits | None = None,
    tick: Tick | None = None,
    specialists: bool = False,
) -> PlannedOrder:
    """The order of least peak that is proved never worse than `before`, the plan that would have run.

    `given` starts with the order that would have run; see `CandidateSearch` for it and `prepared`.
    """
    search = CandidateSearch(prepared, sizes, given, limits, tick)
    base = peak(before, domain)
    search.steer(shapes, [base.at(shape) for shape in shapes])
    memo = Proofs()
    told = 0
    between: list[Mapping[str, int]] = []
    for number in range(search.limits.rounds + 1):
        candidates = search.candidates()
        choice = choose_order(
            base, candidates, domain, tick, search.shapes, search.limits.proofs, search.floor, memo
        )
        if number == search.limits.rounds:
            break
        if rank(candidates, search.floor)[0] is not choice.chosen:
            found = [shape for w in choice.witnesses if (shape := whole_shape(domain, w, shapes)) is not None]
            new = [shape for shape in found if shape not in search.shapes][:_PER_ROUND]
            more = _PER_ROUND - len(new)
        else:
            new, more = [], _OF_MEMBERS if told < _TOLD else 0
            told += 1
        new += shapes_of_members(choice.after.members, domain, (*search.shapes, *new), more)
        if not new and not between:
            # Sizes that are rounded up compare otherwise between the corners.
            new = between = further_shapes(domain, search.shapes, 2 * _BETWEEN, _SEED)[:_BETWEEN]
        if not new:
            break
        limit = [base.at(shape) for shape in (*search.shapes, *new)]
        search.steer(new, [most + allowance(limit) for most in limit])
    notices = () if search.notice is None else (search.notice,)
    tried = tuple(replace(t, peaks=t.peaks[: len(shapes)]) for t in choice.tried)
    floor = tuple(int(b) for b in search.bound(len(shapes)).bytes)
    special = version_orders(search, domain) if specialists else ()
    return PlannedOrder(replace(choice, tried=tried), candidates, search.shapes, notices, special, floor)


def whole_shape(
    domain: Domain, witness: Mapping[str, int], shapes: Sequence[Mapping[str, int]]
) -> Mapping[str, int] | None:
    """A witness with a size for every symbol of the steering shapes; its own sizes stay."""
    names = dict.fromkeys(name for shape in shapes for name in shape)
    missing = {name: domain.range_of(name).lo for name in names if name not in domain.equalities}
    shape = legal_near(domain, {**missing, **witness}, fixed=witness.keys() - domain.equalities.keys())
    if shape is None or any(shape.get(name) != size for name, size in witness.items()):
        return None
    return {name: shape[name] for name in (*names, *(n for n in shape if n not in names))}
