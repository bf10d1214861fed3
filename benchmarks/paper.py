"""The paper's table: its model under 40 GiB, our plan for all shapes against plans for exact shapes.

Planned without weights (fp32, no optimiser state). The limit covers weights, inputs, outputs and activations;
at every length the first level runs that stays within it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.case import NO_BOUND, Case, Planned, Shape, case_of
from benchmarks.document import Cell, Finding, Table, geometric_mean
from benchmarks.environment import Progress
from benchmarks.weights import CORPUS
from onnx_symmem.expr.domain import Domain, SymbolRange
from onnx_symmem.expr.expression import Expr
from onnx_symmem.expr.grid import evaluate
from onnx_symmem.graph.load import LoadedModel, load_model
from onnx_symmem.memory.execution_order import priority_order
from onnx_symmem.memory.sizes import from_written
from onnx_symmem.remat.levels import Level, LevelOptions, plan_levels
from onnx_symmem.shapes.engine import infer_shapes

__all__ = ["PAPER", "PaperPlan", "exact_table", "findings", "has_paper", "limit_table", "paper_plan"]

PAPER = "llama2_1b_paper_train"
LIMIT = 40 << 30
BATCHES = (14, 16, 18)
SEQ = (100, 3000)
TARGET = 1.002
_LENGTHS = 30  # sampled for plans of their own, per batch
_PUBLISHED = (1.0003, 1.0048, 1.0067)
_LIMIT_COLUMNS = ("batch", "plan", "longest seq that fits", "lengths that fit", "of", "level: lengths")
_EXACT_COLUMNS = (
    "batch", "longest seq as it would have run", "lengths", "dynamic / exact, mean", "largest", "at seq",
    "published", "order at seq 3000, GiB", "last level there, GiB",
)  # fmt: skip


@dataclass(frozen=True)
class PaperPlan:
    """The model on the whole domain: one order, and levels from it; `around` are inputs and weights."""

    model: LoadedModel
    case: Case
    planned: Planned
    levels: tuple[Level, ...]

    @property
    def around(self) -> Expr:
        """What the limit covers besides activations and outputs."""
        return self.case.before.inputs + self.case.before.weights


def has_paper() -> bool:
    """Whether the model is there."""
    return (CORPUS / f"{PAPER}.onnx").is_file()


def paper_plan(options: LevelOptions) -> PaperPlan:
    """Plan once for all shapes."""
    model = load_model(CORPUS / f"{PAPER}.onnx")
    ranges = {"batch": SymbolRange(min(BATCHES), max(BATCHES)), "seq": SymbolRange(*SEQ)}
    case = case_of(model, "none", ranges)
    planned = case.planned(NO_BOUND, dispatch=False)
    shapes = infer_shapes(model.view(), Domain(ranges))
    order = priority_order(case.prepared["priority"].view, planned.found.choice.chosen.order)
    levels = plan_levels(
        shapes.graph, from_written(shapes.graph), shapes.domain, order, case.shapes, options,
        opsets=model.view().opsets,
    )  # fmt: skip
    return PaperPlan(model, case, planned, levels)


def limit_table(plan: PaperPlan) -> Table:
    """Which lengths run under the limit, and with which level."""
    rows: list[tuple[Cell, ...]] = []
    for batch in BATCHES:
        at = [{"batch": batch, "seq": seq} for seq in range(SEQ[0], SEQ[1] + 1)]
        room = LIMIT - evaluate([plan.around], at)[0]
        before = _fits(plan.planned.found.choice.before.members, at, room)
        ours = [_fits(level.peak.members, at, room) for level in plan.levels]
        for name, fits in (("as it would have run", [before]), ("order", ours[:1]), ("levels", ours)):
            rows.append((batch, name, *_summary(fits), len(at), _taken(fits)))
    return Table(
        "paper_limit", "The paper's model under 40 GiB", _LIMIT_COLUMNS, tuple(rows),
        f"Lengths {SEQ[0]} to {SEQ[1]}. {(__doc__ or '').partition(chr(10) * 2)[2]}",
    )  # fmt: skip


def _fits(members: Sequence[Expr], at: Sequence[Shape], room: np.ndarray) -> np.ndarray:
    return np.asarray(evaluate(list(members), at).max(axis=0) <= room)


def _summary(fits: Sequence[np.ndarray]) -> tuple[int, int]:
    """The longest length that fits, and how many do."""
    some = np.any(np.array(fits), axis=0)
    return int(np.flatnonzero(some).max()) + SEQ[0] if some.any() else 0, int(some.sum())


def _taken(fits: Sequence[np.ndarray]) -> str:
    first, some = np.argmax(np.array(fits), axis=0), np.any(np.array(fits), axis=0)
    used = []
    for level in range(len(fits)):
        taken = np.flatnonzero(some & (first == level)) + SEQ[0]
        if len(taken):
            used.append(f"{level}: {taken.min()}..{taken.max()}")
    return ", ".join(used)


def exact_table(plan: PaperPlan, lengths: int = _LENGTHS) -> Table:
    """Our peak, inputs and weights included, over that of a plan made for the very shape."""
    progress = Progress("paper")
    rows: list[tuple[Cell, ...]] = []
    seqs = sorted({int(s) for s in np.linspace(*SEQ, lengths)})
    would = plan.planned.found.choice.before.members
    for batch, published in zip(BATCHES, _PUBLISHED, strict=True):
        ratios = []
        for seq in seqs:
            progress.tell(f"batch {batch}, seq {seq}")
            ratios.append(_against_exact(plan, {"batch": batch, "seq": seq}))
        top = {"batch": batch, "seq": SEQ[1]}
        at = [{"batch": batch, "seq": seq} for seq in range(SEQ[0], SEQ[1] + 1)]
        before = _fits(would, at, LIMIT - evaluate([plan.around], at)[0])
        around = plan.around.evaluate(top)
        worst = max(range(len(seqs)), key=ratios.__getitem__)
        rows.append(
            (batch, _summary([before])[0], len(seqs), geometric_mean(ratios), ratios[worst], seqs[worst],
             published, (plan.planned.one_order.at(top) + around) / 2**30,
             (min(v.peak.at(top) for v in plan.levels) + around) / 2**30)
        )  # fmt: skip
    text = """Lengths are spread evenly. At each, every dim is fixed and the order is planned again; the plan
    for the shape may also be ours, so no ratio is below 1. Published: the paper's peak with dynamic shapes
    over that with static ones. The last columns: weights, inputs, outputs and activations."""
    return Table("paper_exact", "One plan for all shapes against plans for exact shapes", _EXACT_COLUMNS,
                 tuple(rows), text, 4)  # fmt: skip


def _against_exact(plan: PaperPlan, shape: Shape) -> float:
    fixed = case_of(plan.model, "none", {n: SymbolRange(v, v) for n, v in shape.items()})
    around = plan.around.evaluate(shape)
    dynamic = plan.planned.at(shape) + around
    alone = fixed.planned(NO_BOUND, dispatch=False).at(fixed.domain.completed(shape)) + around
    return dynamic / min(dynamic, alone)


def findings(limit: Table, exact: Table) -> tuple[Finding, ...]:
    """What the tables show in short."""
    fits = {(row[0], row[1]): int(row[3] or 0) for row in limit.rows}
    before = sum(n for (_, name), n in fits.items() if name == "as it would have run")
    ours = sum(n for (_, name), n in fits.items() if name == "levels")
    worst = max(float(row[4] or 0) for row in exact.rows)
    mean = geometric_mean(float(row[3] or 0) for row in exact.rows)
    return (
        Finding("paper's model: plan for all shapes / plan for the exact shape", f"{mean:.4f}, at most "
                f"{worst:.4f}", f"<= {TARGET}", worst <= TARGET),
        Finding("paper's model: shapes that fit into 40 GiB, before and with levels",
                f"{before:,}, {ours:,} of {sum(int(r[4] or 0) for r in limit.rows) // 3:,}"),
    )  # fmt: skip
