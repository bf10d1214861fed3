"""How a model is to be optimised, and everything that was found out about it on the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import onnx

from onnx_symmem.graph.load import LoadedModel
from onnx_symmem.memory.peak import Peak
from onnx_symmem.memory.profile import MemoryProfile
from onnx_symmem.order.candidates import SearchLimits
from onnx_symmem.order.dispatch import Dispatch
from onnx_symmem.order.explanation import OrderExplanation
from onnx_symmem.order.selection import OrderChoice
from onnx_symmem.run.delivery import Delivered
from onnx_symmem.run.inputs import Fill
from onnx_symmem.run.several import LevelPlan, LevelWish
from onnx_symmem.run.verify import Verification
from onnx_symmem.shapes.table import ModelShapes

__all__ = ["OptimizeOptions", "OptimizedModel"]


@dataclass(frozen=True, slots=True)
class OptimizeOptions:
    """How to optimise; see `api.optimize` for the meaning of each."""

    provider: str = "cpu"
    ort_level: str = "extended"
    verify: bool = True
    verify_at: tuple[Mapping[str, int], ...] = ()
    inputs: Mapping[str, Fill] = field(default_factory=dict)
    search: SearchLimits = field(default_factory=SearchLimits)
    seed: int = 0
    dispatch: bool = True
    levels: LevelWish | None = None
    explain: bool = False
    delivery: str = "order"
    deployment: bool = False


@dataclass(frozen=True)
class OptimizedModel:
    """Everything that was found out about a model on the way to its plan.

    `shapes` and both profiles are those of the planned graph. `before` is the profile of the plan that
    would have run. `files` are what was written, empty without a target; `proto` then holds its weights
    (at level none without verification it is left as it came), else it refers to its data file. `seconds`
    are per stage. `dispatch` are the orders among which the shapes decide, `levels` the schedules among which
    a memory limit decides, the first being the chosen order; None where that alone was written. `delivered`
    is the model with anchors where they keep the order. `added_weights` are bytes of constants with which
    versions or levels are chosen.
    """

    source: LoadedModel
    provider: str
    ort_level: str
    notices: tuple[str, ...]
    shapes: ModelShapes
    samples: tuple[Mapping[str, int], ...]
    before: MemoryProfile
    choice: OrderChoice
    bound: Peak
    optimal: bool
    order_before: str
    verified: tuple[Verification, ...]
    files: tuple[Path, ...]
    proto: onnx.ModelProto
    seconds: Mapping[str, float]
    dispatch: Dispatch | None = None
    levels: LevelPlan | None = None
    floor: tuple[int, ...] = ()
    explanation: OrderExplanation | None = None
    delivered: Delivered | None = None
    added_weights: int = 0
    ran: tuple[int, ...] = ()

    @property
    def after(self) -> Peak:
        """Peak of the model that is written; of several levels that of the first."""
        if self.levels is not None:
            return self.levels.peak(self.levels.only or 0)
        return self.choice.after if self.dispatch is None else self.dispatch.peak

    @property
    def never_worse(self) -> str:
        """Proved, kept, dispatched, or unproved; see `docs/json.md`."""
        if self.dispatch is not None:
            return "dispatched"
        if self.levels is not None and self.levels.above is None:
            return "unproved"
        return self.choice.never_worse

    @property
    def moved_nodes(self) -> int:
        """Nodes that do not stand where they would have run."""
        order = self.choice.chosen.order
        if self.delivered is not None:  # with nodes that are new
            number = {place: node for node, place in enumerate(self.delivered.places)}
            order = tuple(number[node] for node in order if node in number)
        count = len(self.ran)
        now = (node for node in order if node < count)  # plan_freed may have added some behind the others
        return sum(a != b for a, b in zip(self.ran, now, strict=True))
