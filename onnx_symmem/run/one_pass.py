"""What would have run where ONNX Runtime changes its own graph again: the graph of one pass.

A file that is to keep its plan by itself is optimised whenever it is loaded, so it is planned as the graph
that is left in the end (baseline.py). A session of the model itself stops after one pass. Casts of float16
that the next pass takes away may have been what freed a buffer early, so the two graphs are compared, and not
taken for one: wanted is the best order of the last that is never worse than the first. Where there is none
the best that is never worse than the last's own is written, and it is said what is not proved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from onnx_symmem.errors import VerificationFailed
from onnx_symmem.expr.domain import Domain
from onnx_symmem.expr.plan_order import plan_le
from onnx_symmem.graph.load import LoadedModel
from onnx_symmem.memory.peak import peak
from onnx_symmem.memory.profile import MemoryProfile, profile
from onnx_symmem.memory.sizes import value_sizes
from onnx_symmem.order.planner import PlannedOrder
from onnx_symmem.order.selection import OrderChoice, choose_order
from onnx_symmem.run.baseline import baseline_plan
from onnx_symmem.run.per_branch import branch_rows, chosen_per_branch, has_ifs, never_worse_in
from onnx_symmem.run.written import most_above
from onnx_symmem.shapes.engine import infer_shapes
from onnx_symmem.shapes.table import ModelShapes

__all__ = ["UNLIKE", "about_rounding", "against_one_pass", "ran_once"]

UNLIKE = (
    "sizes that data decides are others after ONNX Runtime's first pass than in the end: what would have run "
    "is counted as it is left in the end"
)
_ROUNDS = (
    "ONNX Runtime changes its own graph again, and what it fuses then rounds otherwise than the model does "
    "(float16: factors of products, whose Casts it computes ahead); `--delivery order` keeps the bits, and "
    "so does `--ort-level none`"
)
_LITTLE = 256  # bytes that a file may be above, as an order may


def ran_once(
    base: LoadedModel, shapes: ModelShapes, spec: Domain, level: str, provider: str
) -> MemoryProfile | None:
    """The profile of a graph that ONNX Runtime wrote in one pass, with reuse of buffers.

    None where a size that only data decides does not stand for the same dim in `shapes`, of the last graph.
    """
    first = infer_shapes(base.view(), spec)
    found = profile(baseline_plan(base, first.graph, level, provider, True, True), value_sizes(first.graph))
    used = {name for row in set(found.in_use.exprs()) for name in row.symbols()}
    ours, theirs = ({u.symbol: (u.tensor, u.axis) for u in s.unknowns} for s in (first, shapes))
    return None if any(ours.get(name) != theirs.get(name) for name in used) else found


def planned_against(
    planned: PlannedOrder, ran: MemoryProfile, domain: Domain
) -> tuple[tuple[PlannedOrder, MemoryProfile], ...]:
    """The plan with the best of its orders that is never worse than `ran`, beside that; () without any."""
    choice = choose_order(ran, planned.candidates, domain, shapes=planned.shapes)
    choice = chosen_per_branch(replace(planned, choice=choice), ran, domain)
    if choice.never_worse != "proved":
        return ()
    choice = replace(choice, tally=planned.choice.tally + choice.tally)
    return ((replace(planned, choice=choice), ran),)


def against_one_pass(
    choice: OrderChoice, ran: MemoryProfile, domain: Domain, samples: Sequence[Mapping[str, int]]
) -> tuple[OrderChoice, tuple[str, ...]]:
    """The choice held against what ran in one pass: proved never worse than that, or said not to be.

    Also notices for the user.
    """
    before, most = peak(ran, domain), choice.overhead + _LITTLE
    above = most_above([choice.after.members], before.members, domain, samples, most + 1)
    if above <= most:
        overhead = max(above, choice.overhead)
        proof = plan_le(choice.after.members, [m + overhead for m in before.members], domain)
        rows = branch_rows(choice.chosen.profile), branch_rows(ran)
        if proof.proved and (not has_ifs(ran) or never_worse_in(*rows, domain, overhead)):
            return replace(choice, before=before, proof=proof, overhead=overhead), ()
    needed = {s for m in (*before.members, *choice.after.members) for s in m.symbols()}
    known = [s for s in map(domain.completed, samples) if needed <= s.keys()]
    more = max((choice.after.at(s) - before.at(s) for s in known), default=0)
    seen = f"; at the sample shapes it needs {more:,} bytes more at most" if more > 0 else ""
    words = (
        "that the file never needs more than what would have run, ONNX Runtime's graph after one pass, is "
        f"not proved{seen}"
    )
    return replace(choice, before=before, proof=None, overhead=0, never_worse="unproved"), (words,)


@contextmanager
def about_rounding(again: bool) -> Iterator[None]:
    """Says why outputs may differ, where they do and the graph is one that was changed `again`."""
    try:
        yield
    except VerificationFailed as error:
        if not again:
            raise
        raise VerificationFailed(f"{error}; {_ROUNDS}", error.absolute, error.relative) from error
