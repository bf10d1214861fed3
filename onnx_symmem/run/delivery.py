"""A chosen order -> a file that keeps it under ONNX Runtime's default traversal, for those who have no other.

The order is kept by anchors (memory/anchoring.py), as few as do for its peak. Outside Python freed buffers
are reused; where that raises the peak, texts of dims keep it from happening (rewrite/separation.py). The plan
of the file, anchors and reuse counted, is proved anew never to need more than what would have run, which
reused buffers too. Where that fails for the best orders, the one that would have run is written.

ONNX Runtime's own settings optimise the file once more when it is loaded. Dims that would make it change
nodes are not told (unchanged.py); what it changes all the same is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx

from onnx_symmem.expr.plan_order import PlanOrder, plan_le
from onnx_symmem.expr.samples import legal_near
from onnx_symmem.graph.load import LoadedModel
from onnx_symmem.graph.view import GraphView
from onnx_symmem.memory.anchoring import Anchoring, anchored_file, fewer_anchors
from onnx_symmem.memory.execution_order import default_order
from onnx_symmem.memory.peak import Peak, peak
from onnx_symmem.memory.plan import PlanInput, PlanOptions, prepare
from onnx_symmem.memory.profile import MemoryProfile, profile
from onnx_symmem.memory.sizes import ValueSizes, from_written, value_sizes
from onnx_symmem.order.buffers import buffer_bytes, buffer_graph
from onnx_symmem.order.candidates import CandidateOrder, peaks_at, rank
from onnx_symmem.order.moments import Moments
from onnx_symmem.order.planner import PlannedOrder
from onnx_symmem.order.selection import OrderChoice
from onnx_symmem.rewrite.anchors import Anchor, add_anchors, can_slice, is_copied_for_size
from onnx_symmem.rewrite.reorder import reorder_nodes
from onnx_symmem.rewrite.reticence import Reticence, reticent
from onnx_symmem.rewrite.separation import separate_buffers
from onnx_symmem.rewrite.steady_layout import SteadyLayout, steady, unused_mark
from onnx_symmem.rewrite.value_info import write_dims
from onnx_symmem.run.at_load import keys_at_load
from onnx_symmem.run.kept_levels import anchor_values
from onnx_symmem.run.per_branch import branch_rows, never_worse_in
from onnx_symmem.run.unchanged import changed_nodes, kept_layout, telling_dims
from onnx_symmem.shapes.engine import infer_shapes
from onnx_symmem.shapes.table import ModelShapes

__all__ = ["Delivered", "changed_words", "deliver_anchored", "left_alone", "with_producers"]

_ALIKE = 3  # orders of equal peaks of which the one with the fewest anchors is taken
_FEW = 50  # one anchor to so many nodes is few enough
_OTHERS = 3  # orders that are tried where anchors make these need more than what would have run
_TRIALS = 256  # orders that are tried to do without anchors, per order and round
_SAMPLES = 32  # shapes besides the steering ones at which anchors must not be missed
_ROUNDS = 6  # of leaving out anchors; each but the first has a shape more, at which too few were left


@dataclass(frozen=True)
class Delivered:
    """A model with anchors, all dims written, and its plan.

    `base` has the anchors behind its nodes; those of the planned graph are at `places`, others keep ONNX
    Runtime's layout. `shapes` and `sizes` are inferred of it, `proto` is the same with all dims;
    `choice.chosen.file` is the order in which its nodes are to stand. `anchors` counts those that keep the
    order, `separated` says that texts of dims keep buffers from being reused. `changed_at_load` counts the
    nodes that a session that is told nothing changes as it loads the file, None where that is unknown.
    """

    base: LoadedModel
    shapes: ModelShapes
    sizes: ValueSizes
    proto: onnx.ModelProto
    choice: OrderChoice
    anchors: int
    separated: bool
    places: tuple[int, ...]
    notices: tuple[str, ...] = ()
    changed_at_load: int | None = None

    @property
    def plan(self) -> tuple[LoadedModel, ModelShapes, ValueSizes, OrderChoice]:
        """What takes the place of the plan without anchors."""
        return self.base, self.shapes, self.sizes, self.choice


def deliver_anchored(
    base: LoadedModel,
    shapes: ModelShapes,
    sizes: ValueSizes,
    prepared: PlanInput,
    planned: PlannedOrder,
    ran: Sequence[int],
    samples: Sequence[Mapping[str, int]],
    level: str = "none",
    before: MemoryProfile | None = None,
) -> Delivered:
    """The best of the planned orders as a file that keeps it, or `ran`, the one that would have run.

    `base` was optimised at `level`, and ONNX Runtime is to leave it so. `planned` is over `prepared`, the
    graph under the default traversal without reuse of buffers; its `choice.before` is what would have run,
    with it. `samples` are those of the choice's peaks. `before` is the profile of what would have run, where
    it has Ifs: the file is then to need no more whatever branches run.
    """
    choice, domain = planned.choice, shapes.domain
    less, layout = left_alone(base, shapes, prepared.options.provider, level)
    writer = _Writer(base, shapes, sizes, prepared, planned.shapes, less, layout)
    outcomes = {choice.chosen.name: "proved"} if choice.never_worse == "proved" else {}
    limit = [member + choice.overhead for member in choice.before.members]
    theirs = None if before is None else branch_rows(before)

    def in_branches(written: _Written, more: int) -> bool:
        return theirs is None or never_worse_in(branch_rows(written.profile), theirs, domain, more)

    for candidate, order, found, empty in _in_turn(writer, planned):
        written = writer.written(order, found, empty)
        after = peak(written.profile, domain)
        verdict = plan_le(after.members, limit, domain)
        if verdict.proved and in_branches(written, choice.overhead):
            outcomes[candidate.name] = "chosen"
            return _delivered(written, candidate.name, after, choice, samples, outcomes, proof=verdict)
        outcomes[candidate.name] = "undecided" if verdict.witness is None else "refuted"
    written = writer.written(*writer.file_of(ran))
    name = planned.candidates[0].name
    outcomes[name] = "chosen"
    found_better = choice.never_worse == "proved" and choice.chosen.order != tuple(ran)
    words = (
        "better orders need more than they save for their anchors at some shape: ONNX Runtime's own is kept"
    )
    after = peak(written.profile, domain)
    notices: tuple[str, ...] = (words,) if found_better else ()
    if not (plan_le(after.members, choice.before.members, domain).proved and in_branches(written, 0)):
        notices += ("that the file never needs more than what would have run is not proved",)
    return _delivered(written, name, after, choice, samples, outcomes, notices)


def left_alone(
    base: LoadedModel, shapes: ModelShapes, provider: str, level: str
) -> tuple[Reticence, SteadyLayout]:
    """How a file of a graph that was optimised at `level` is written so that it is not changed at load."""
    less, layout = Reticence(), SteadyLayout(unused_mark(base.proto))
    if level == "none":
        return less, layout
    told = replace(base, proto=write_dims(base.proto, shapes))
    # Left to itself it optimises at every level; blocks of channels are for the CPU.
    loaded = "all" if provider == "cpu" else level
    layout = kept_layout(told, loaded, provider)
    less = telling_dims(replace(told, proto=steady(told.proto, layout)), loaded, provider)
    return replace(less, silent=less.silent | layout.unsaid), layout


def _in_turn(
    writer: _Writer, planned: PlannedOrder
) -> Iterator[tuple[CandidateOrder, tuple[int, ...], Anchoring, bool]]:
    """Orders to be proved: those with the peaks of the chosen one, fewest anchors first, then the others.

    Each with anchors of eight bytes, then with empty ones, where it can have them.
    """
    choice = planned.choice
    if choice.never_worse != "proved":
        return
    chosen = choice.chosen
    others = [c for c in rank(planned.candidates) if c is not chosen]
    alike = [chosen, *(c for c in others if c.peaks == chosen.peaks)][:_ALIKE]
    files: list[tuple[CandidateOrder, tuple[int, ...], Anchoring]] = []
    for candidate in alike:
        files.append((candidate, *writer.fewest(candidate)))
        if len(files[-1][2].anchored) * _FEW <= len(candidate.order):
            break
    for candidate, order, found in sorted(files, key=lambda f: len(f[2].anchored)):
        for empty in (False, True) if found.anchored and writer.slices else (False,):
            yield candidate, order, found, empty
    limit = [choice.before.at(shape) for shape in planned.shapes]
    below = [c for c in others if c not in alike and all(p <= b for p, b in zip(c.peaks, limit, strict=True))]
    for candidate in below[:_OTHERS]:
        yield candidate, *writer.fewest(candidate), writer.slices


@dataclass(frozen=True)
class _Written:
    """A file with anchors, and its exact profile."""

    base: LoadedModel
    shapes: ModelShapes
    sizes: ValueSizes
    proto: onnx.ModelProto
    file: tuple[int, ...]
    profile: MemoryProfile
    anchors: int
    separated: bool
    places: tuple[int, ...]


class _Writer:
    """Orders of one graph as files with anchors."""

    def __init__(
        self,
        base: LoadedModel,
        shapes: ModelShapes,
        sizes: ValueSizes,
        prepared: PlanInput,
        at: Sequence[Mapping[str, int]],
        less: Reticence,
        layout: SteadyLayout,
    ) -> None:
        self.base, self.shapes, self.sizes, self.prepared = base, shapes, sizes, prepared
        self.less, self.layout = less, layout
        self.view = shapes.graph.view
        self.values = anchor_values(shapes.graph)
        self.graph = buffer_graph(prepared)
        symbols = tuple(dict.fromkeys(name for shape in at for name in shape))
        self._judge_at((*at, *shapes.domain.samples(_SAMPLES, symbols=symbols)))

    def file_of(self, order: Sequence[int]) -> tuple[tuple[int, ...], Anchoring]:
        """A file that runs the order; where there is none, what runs of the nearest."""
        found = anchored_file(self.view, order, self.values.keys())
        if found is not None:
            return tuple(order), found
        return default_order(self.view, order), Anchoring(tuple(order), ())

    def fewest(self, candidate: CandidateOrder) -> tuple[tuple[int, ...], Anchoring]:
        """The same, or with fewer anchors another order that is not known to need more at any shape."""
        order, found = self.file_of(candidate.order)
        wanted = peak(profile(self.prepared.plan(order), self.sizes), self.shapes.domain)
        for _ in range(_ROUNDS if found.anchored else 0):
            other, fewer = fewer_anchors(self.view, found, self._no_worse_than(order), _TRIALS)
            after = peak(profile(self.prepared.plan(other), self.sizes), self.shapes.domain)
            verdict = plan_le(after.members, wanted.members, self.shapes.domain)
            if verdict.witness is None:  # proved, or neither: what would have run is compared with later
                again = anchored_file(self.view, other, self.values.keys())
                better = again is not None and len(again.anchored) < len(fewer.anchored)
                return other, again if again is not None and better else fewer
            shape = legal_near(self.shapes.domain, {**self.at[0], **verdict.witness})
            if shape is None or shape in self.at:
                break
            self._judge_at((*self.at, shape))
        return order, found

    def _no_worse_than(self, order: Sequence[int]) -> Callable[[tuple[int, ...]], bool]:
        most = self._peaks(order)
        return lambda other: bool((self._peaks(other) <= most).all())

    def _judge_at(self, shapes: tuple[Mapping[str, int], ...]) -> None:
        self.at = shapes
        self.moments = Moments(self.graph, buffer_bytes(self.graph, self.sizes, shapes))

    def _peaks(self, order: Sequence[int]) -> np.ndarray:
        return np.asarray(self.moments.along(order).max(axis=0, initial=0.0))

    @property
    def slices(self) -> bool:
        """Whether anchors can be empty."""
        return can_slice(self.base.proto.opset_import)

    def _is_copied(self, value: int) -> bool:
        """Whether a `Size` of it would cost a copy, and need not."""
        kind = self.shapes.graph.elem_types[value]
        return self.slices and is_copied_for_size(kind, self.prepared.options.provider)

    def written(self, order: Sequence[int], found: Anchoring, empty: bool = False) -> _Written:
        """The file with its anchors and dims, and its profile with reuse of buffers."""
        dims, values = self.shapes.graph.dims, [self.values[node] for node in found.anchored]
        anchors = [
            Anchor(v, node, self.view.values[v].name, (empty or self._is_copied(v)) and bool(dims[v]))
            for node, v in zip(found.anchored, values, strict=True)
        ]
        kept = steady(self.base.proto, self.layout)
        base = replace(self.base, proto=add_anchors(kept, anchors, "anchor"))
        shapes = infer_shapes(base.view(), self.shapes.domain)
        view, sizes = shapes.graph.view, value_sizes(shapes.graph)
        place = [k for k, node in enumerate(kept.graph.node) if not self.layout.is_added(node)]
        number = {node: len(kept.graph.node) + k for k, node in enumerate(found.anchored)}
        file = with_producers(view, [place[n] if n >= 0 else number[~n] for n in found.file])
        runs = default_order(view, file)
        proto = reticent(write_dims(base.proto, shapes), self.less)
        provider = self.prepared.options.provider
        free = prepare(view, from_written(shapes.graph), PlanOptions(provider), default_order).plan(runs)
        options = PlanOptions(provider, mem_reuse=True)

        def reusing(model: onnx.ModelProto) -> MemoryProfile:
            keys = keys_at_load(replace(base, proto=model), shapes.graph)
            return profile(prepare(view, keys, options, default_order).plan(runs), sizes)

        plain, least = reusing(proto), profile(free, sizes)
        pairs = zip(peaks_at(plain, self.at), peaks_at(least, self.at), strict=True)
        separated = any(with_reuse > without for with_reuse, without in pairs)
        if separated:
            proto = separate_buffers(proto, shapes, free)
            plain = reusing(proto)
        return _Written(base, shapes, sizes, proto, file, plain, len(anchors), separated, tuple(place))


def with_producers(view: GraphView, file: Sequence[int]) -> tuple[int, ...]:
    """The file with nodes that it has not, each just before the first that reads its results."""
    placed = set(file)
    order: list[int] = []

    def place(node: int) -> None:
        for producer in view.predecessors[node]:
            if producer not in placed:
                placed.add(producer)
                place(producer)
        order.append(node)

    for node in file:
        place(node)
    return tuple(order)


def _delivered(
    written: _Written,
    name: str,
    after: Peak,
    choice: OrderChoice,
    samples: Sequence[Mapping[str, int]],
    outcomes: Mapping[str, str],
    notices: tuple[str, ...] = (),
    proof: PlanOrder | None = None,
) -> Delivered:
    found = written.profile
    chosen = CandidateOrder(
        name, found.plan.order, "default", written.file, found, peaks_at(found, samples)
    )  # fmt: skip
    tried = tuple(replace(t, outcome=outcomes.get(t.name, t.outcome)) for t in choice.tried)
    never_worse = "kept" if proof is None else "proved"
    overhead = 0 if proof is None else choice.overhead
    made = replace(
        choice, chosen=chosen, never_worse=never_worse, after=after, proof=proof, tried=tried,
        overhead=overhead,
    )  # fmt: skip
    changed = _changed_at_load(written)
    notices += changed_words(changed)
    return Delivered(
        written.base, written.shapes, written.sizes, written.proto, made, written.anchors, written.separated,
        written.places, notices, changed,
    )  # fmt: skip


def changed_words(changed: int | None) -> tuple[str, ...]:
    """What the user should know of nodes that are changed at load."""
    if not changed:
        return ()
    words = (
        f"ONNX Runtime's own settings change {changed} nodes of the file at load: deploy it with the "
        "settings beside it"
    )
    return (words,)


def _changed_at_load(written: _Written) -> int | None:
    """Nodes that are changed at load where a session is told nothing, if its provider can be asked."""
    provider = written.profile.plan.source.options.provider
    if provider != "cpu":
        return None
    file = reorder_nodes(written.proto, written.file, "default")
    return len(changed_nodes(replace(written.base, proto=file), "all"))
