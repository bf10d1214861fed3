"""The planned graph made ready for levels in a file that keeps them by itself.

Like a file of one order (delivery.py) it says no dims that would have nodes changed at load, and lays out
convolutions so that they stay. Levels are planned on what is written: nodes that are added for it are theirs
to repeat.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import onnx

from onnx_symmem.expr.domain import Domain
from onnx_symmem.expr.plan_order import plan_le
from onnx_symmem.graph.load import LoadedModel
from onnx_symmem.memory.peak import peak
from onnx_symmem.memory.plan import PlanInput, PlanOptions, prepare
from onnx_symmem.memory.profile import profile
from onnx_symmem.memory.sizes import DimKeys, ValueSizes, from_written, value_sizes
from onnx_symmem.order.candidates import CandidateOrder, peaks_at
from onnx_symmem.order.selection import OrderChoice
from onnx_symmem.rewrite.steady_layout import SteadyLayout, steady
from onnx_symmem.run.delivery import Delivered, changed_words, left_alone, with_producers
from onnx_symmem.run.kept_levels import KeptByFile
from onnx_symmem.run.several import LevelPlan
from onnx_symmem.shapes.engine import infer_shapes
from onnx_symmem.shapes.table import ModelShapes

__all__ = ["ReadyForLevels", "ready_for_levels"]

_JUDGED = 32  # shapes besides the steering ones at which anchors must not be missed


@dataclass(frozen=True)
class ReadyForLevels:
    """The graph that levels are made of, its chosen order, and what keeps them.

    `places` are where the nodes of the planned graph stand now.
    """

    base: LoadedModel
    shapes: ModelShapes
    keys: DimKeys
    sizes: ValueSizes
    prepared: PlanInput
    choice: OrderChoice
    kept: KeptByFile
    places: tuple[int, ...]

    def delivered(self, proto: onnx.ModelProto, plan: LevelPlan) -> Delivered:
        """The file of levels, as it was made last."""
        kept, choice = self.kept, self.choice
        notices = changed_words(kept.changed)
        return Delivered(
            self.base, self.shapes, self.sizes, proto, choice, kept.anchors, True, self.places, notices,
            kept.changed,
        )  # fmt: skip


def ready_for_levels(
    base: LoadedModel,
    shapes: ModelShapes,
    choice: OrderChoice,
    samples: Sequence[Mapping[str, int]],
    provider: str,
    level: str,
) -> ReadyForLevels:
    """Make the graph that was optimised at `level` ready; `choice` is of its orders, without reuse."""
    domain = shapes.domain
    less, layout = left_alone(base, shapes, provider, level)
    base = replace(base, proto=steady(base.proto, layout))
    places = tuple(k for k, node in enumerate(base.proto.graph.node) if not layout.is_added(node))
    shapes = infer_shapes(base.view(), domain)
    keys, sizes = from_written(shapes.graph), value_sizes(shapes.graph)
    prepared = prepare(shapes.graph.view, keys, PlanOptions(provider))
    order = with_producers(shapes.graph.view, [places[n] for n in choice.chosen.order])
    choice = _chosen_there(
        choice, order, prepared, sizes, domain, samples, _added(base, layout, shapes, sizes)
    )
    at = (*samples, *domain.samples(_JUDGED, symbols=shapes.input_symbols))
    fixed = not shapes.input_symbols
    kept = KeptByFile(base, domain, at, provider, less, _reused(shapes, sizes), fixed)
    return ReadyForLevels(base, shapes, keys, sizes, prepared, choice, kept, places)


def _chosen_there(
    choice: OrderChoice,
    order: Sequence[int],
    prepared: PlanInput,
    sizes: ValueSizes,
    domain: Domain,
    samples: Sequence[Mapping[str, int]],
    added: int,
) -> OrderChoice:
    """The chosen order with nodes that are new, by which it takes `added` bytes more at most."""
    found = profile(prepared.plan(order), sizes)
    chosen = CandidateOrder(
        choice.chosen.name, tuple(order), "priority", tuple(order), found, peaks_at(found, samples)
    )  # fmt: skip
    after = peak(found, domain)
    proof, overhead = None, choice.overhead
    if choice.never_worse == "proved":
        for overhead in (choice.overhead, choice.overhead + added):
            proof = plan_le(after.members, [m + overhead for m in choice.before.members], domain)
            if proof.proved:
                break
    return replace(choice, chosen=chosen, after=after, proof=proof, overhead=overhead)


def _added(base: LoadedModel, layout: SteadyLayout, shapes: ModelShapes, sizes: ValueSizes) -> int:
    """Bytes of all that the added nodes make and that is no alias: shapes, and zeros."""
    made = [v for n in shapes.graph.view.nodes for v in n.outputs if v >= 0]
    nodes = shapes.graph.view.nodes
    own = [
        sizes.bytes[v]
        for v in made
        if layout.is_added(base.proto.graph.node[shapes.graph.view.values[v].producer])
        and nodes[shapes.graph.view.values[v].producer].op != "Reshape"
    ]
    return sum((size.as_int() or 0) for size in own if size is not None)


def _reused(shapes: ModelShapes, sizes: ValueSizes) -> int:
    """Bytes of all buffers of fixed size, which may be held for later ones."""
    view = shapes.graph.view
    made = (v for n in view.nodes for v in n.outputs if v >= 0)
    fixed = (sizes.bytes[v] for v in made if v not in view.outputs)
    return sum((size.as_int() or 0) for size in fixed if size is not None)
