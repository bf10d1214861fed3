"""Peaks of a model of versions, read off the model as it is written: exact, with all that deciding takes.

Before a version starts the guard computes; while one runs, a few bytes of it stay, and outputs of constant
dims may be there early. How much that is depends on the version and the moment, so nothing is added up here:
the written model is inferred and planned like any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx

from onnx_symmem.expr.atom import Atom
from onnx_symmem.expr.domain import Domain
from onnx_symmem.expr.envelope import plan_le
from onnx_symmem.expr.expression import Expr
from onnx_symmem.expr.least_order import least_le
from onnx_symmem.graph.load import LoadedModel, graphs_of
from onnx_symmem.memory.execution_order import default_order, priority_order
from onnx_symmem.memory.peak import Peak, peak, peak_of
from onnx_symmem.memory.plan import PlanOptions, prepare
from onnx_symmem.memory.profile import MemoryProfile, profile
from onnx_symmem.memory.sizes import tensor_bytes, value_sizes
from onnx_symmem.rewrite.reorder import delivery_of, execution_order_of
from onnx_symmem.run.at_load import keys_at_load
from onnx_symmem.run.branches import Branches, branches_of
from onnx_symmem.run.per_branch import BranchRows, branch_rows
from onnx_symmem.shapes.engine import infer_shapes

__all__ = ["WrittenPeaks", "added_weights", "first_rows", "main_peak", "most_above", "written_peaks"]

_DRAWN = 256  # shapes at which is looked how far one peak is above another
_PROOFS = 4  # sizes that are tried to be proved


@dataclass(frozen=True)
class WrittenPeaks:
    """Peaks over `domain`: `guard` bytes before a version starts, and from then on those of `versions`."""

    guard: int
    versions: tuple[Peak, ...]
    domain: Domain

    def whole(self, version: int) -> Peak:
        """The peak of a run of a version, with the guard before it."""
        return peak_of([*self.versions[version].members, Expr.const(self.guard)], self.domain)

    @property
    def guard_is_below(self) -> bool:
        """Whether deciding is proved to take no more than any version does afterwards."""
        guard = [Expr.const(self.guard)]
        return all(plan_le(guard, p.members, self.domain).proved for p in self.versions)


def written_peaks(model: LoadedModel, domain: Domain, provider: str = "cpu") -> WrittenPeaks | None:
    """Peaks of a model of several versions; None of other models, or where not all bytes are known."""
    found, branches = _profile(model, domain, provider)
    if branches is None:
        return None
    before = [found.in_use.row(k).as_int() for k in branches.guard_rows(found)]
    if found.not_counted or None in before:
        return None
    versions = tuple(
        peak_of(found.in_use.take(branches.own_rows(found, version)), domain)
        for version in range(branches.count)
    )
    return WrittenPeaks(max((size or 0 for size in before), default=0), versions, domain)


def main_peak(model: LoadedModel, domain: Domain, provider: str = "cpu") -> Peak:
    """The peak of a model as it is written, in the order and with the reuse of buffers that it is for."""
    return peak(_profile(model, domain, provider)[0], domain)


def first_rows(model: LoadedModel, domain: Domain, provider: str = "cpu") -> BranchRows:
    """What a run of the first version goes through, per branch of the model's own Ifs; of one the only."""
    found, branches = _profile(model, domain, provider)
    if branches is None:
        return branch_rows(found)
    return branch_rows(found, branches.rows(found, 0), branches.about["branches"])


def _profile(model: LoadedModel, domain: Domain, provider: str) -> tuple[MemoryProfile, Branches | None]:
    """The profile of a model as it is written, in the order and with the reuse of buffers that it is for."""
    shapes = infer_shapes(model.view(), domain)
    view, branches = shapes.graph.view, branches_of(model, shapes)
    rule = default_order if execution_order_of(model.proto) == "default" else priority_order
    guard: list[int] = []
    if branches is not None and provider != "cpu":
        # Shapes are read, and sizes computed, on the host.
        guard = [n.index for n in view.nodes if not n.name.startswith(branches.about["branches"])]
    options = PlanOptions(provider, delivery_of(model.proto) == "anchors", frozenset(guard))
    prepared = prepare(view, keys_at_load(model, shapes.graph), options, rule)
    return profile(prepared.plan(rule(view)), value_sizes(shapes.graph)), branches


def added_weights(base: onnx.ModelProto, written: onnx.ModelProto) -> int:
    """Bytes of the weights that a model has and the one that it was made from has not."""
    known = {t.name for graph in graphs_of(base.graph) for t in graph.initializer}
    own = (t for graph in graphs_of(written.graph) for t in graph.initializer if t.name not in known)
    sizes = (tensor_bytes(t.dims, t.data_type) for t in own)
    return sum((size.as_int() or 0) for size in sizes if size is not None)


def most_above(
    plans: Sequence[Sequence[Expr]],
    others: Sequence[Expr],
    domain: Domain,
    samples: Sequence[Mapping[str, int]],
    known: int,
) -> int:
    """Bytes by which the least of plans is at most above the maximum of others, as few as could be proved.

    The peak of a plan is the maximum of its expressions. That it is at most `known` is proved already. What
    is seen at `samples` and other shapes is tried first.
    """
    needed = {s for e in (*others, *(e for plan in plans for e in plan)) for s in e.symbols()}
    shapes = [s for s in (*samples, *domain.samples(_DRAWN, symbols=needed)) if needed <= s.keys()]

    def above(shape: Mapping[str, int]) -> int:
        values: dict[Atom, int] = {}
        least = min(max(e.evaluate(shape, values) for e in plan) for plan in plans)
        return least - max(e.evaluate(shape, values) for e in others)

    size = max(0, *map(above, shapes)) if shapes else 0
    for _ in range(_PROOFS):
        if size >= known:
            break
        found = least_le(plans, [e + size for e in others], domain)
        if found.proved:
            return size
        if found.witness is None or not needed <= found.witness.keys():
            break
        size = max(size + 1, above(found.witness))
    return known
