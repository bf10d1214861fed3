"""A model as it is -> everything that its reports are made of: shapes, profile, peak and lower bound.

The model is taken as `create_session` runs it: in the order it was planned for (the file's where it does not
say), with nothing changed at load. Neither weights nor a run are needed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from onnx_symmem.expr.domain import Domain
from onnx_symmem.expr.expression import Expr
from onnx_symmem.graph.load import LoadedModel, load_model
from onnx_symmem.memory.execution_order import default_order, priority_order
from onnx_symmem.memory.peak import Peak, peak, peak_of
from onnx_symmem.memory.plan import PlanOptions, prepare
from onnx_symmem.memory.profile import BOUND, EXACT, MemoryProfile, profile
from onnx_symmem.memory.sizes import value_sizes
from onnx_symmem.order.bound import lower_bound
from onnx_symmem.order.candidates import Tick
from onnx_symmem.order.steering import steering_shapes
from onnx_symmem.report.findings import data_symbols, settled, unplanned
from onnx_symmem.report.version_bounds import version_bounds
from onnx_symmem.rewrite.reorder import delivery_of, execution_order_of
from onnx_symmem.run.at_load import keys_at_load
from onnx_symmem.run.branches import Branches, branches_of
from onnx_symmem.run.decided import DecidedIfs, decided_ifs
from onnx_symmem.run.inputs import resolve_shape
from onnx_symmem.run.stated_domain import DomainSpec, domain_of, input_dims
from onnx_symmem.shapes.engine import infer_shapes
from onnx_symmem.shapes.table import ModelShapes

__all__ = ["Analysis", "analyse"]


@dataclass(frozen=True)
class Analysis:
    """One model with its shapes, its memory profile, and what was proved about its peak.

    `at` are the shapes that were `asked` for, or a few spread over the domain, as sizes of the dims of the
    inputs. `data_symbols` are the sizes in the profile that only data decides, `bound` the members of the
    lower bound.
    """

    model: LoadedModel
    provider: str
    execution_order: str
    shapes: ModelShapes
    profile: MemoryProfile
    peak: Peak
    bound: tuple[Expr, ...]
    at: tuple[Mapping[str, int], ...]
    asked: bool
    data_symbols: tuple[str, ...]
    seconds: Mapping[str, float]

    @cached_property
    def branches(self) -> Branches | None:
        """The versions of a model that holds several; which one runs at a shape."""
        return branches_of(self.model, self.shapes)

    @cached_property
    def version_bounds(self) -> tuple[tuple[Expr, ...], ...]:
        """Per version the members of its lower bound."""
        if self.branches is None:
            return ()
        return version_bounds(self.model, self.branches, self.shapes.domain, self.provider)

    @cached_property
    def decided(self) -> DecidedIfs:
        """The Ifs whose branch is known at a shape."""
        return decided_ifs(self.model, self.shapes)

    def rows_at(self, shape: Mapping[str, int]) -> Sequence[int]:
        """Rows of the profile that a run at a shape goes through, as far as shapes decide which."""
        if self.branches is not None:
            return self.branches.rows(self.profile, self.branches.version_at(shape))
        return self.decided.rows(self.profile, self.decided.taken(shape))

    def label_at(self, shape: Mapping[str, int]) -> str:
        """How to read what is said of a shape: exact; bound, also of data at its largest; or unknown."""
        if self.branches is not None:
            label = self.branches.label(self.profile, self.branches.version_at(shape))
        else:
            label = self.decided.label(self.profile, self.rows_at(shape))
        return BOUND if label == EXACT and self.data_symbols else label

    @property
    def planned(self) -> bool:
        """Whether the file says in which order it was planned, as `optimize` writes it."""
        return not unplanned(self.model)

    def settled(self, at: Sequence[Mapping[str, int]] | None = None) -> list[dict[str, int]]:
        """Shapes with the largest legal size of what only data decides; without those that nothing limits."""
        wanted = self.at if at is None else at
        return [settled(self.shapes, shape, self.data_symbols) for shape in wanted]

    def notices(self) -> tuple[str, ...]:
        """What holds for a file as it came: its nodes may not be the nodes that run."""
        return unplanned(self.model)


def analyse(
    source: Any,
    domain: DomainSpec = None,
    at: Sequence[Mapping[str, int]] = (),
    provider: str = "cpu",
    *,
    other: bool = False,
    tick: Tick | None = None,
) -> Analysis:
    """Analyse a path, proto or gs.Graph, for a report at the shapes `at`.

    `other`: as the model that another one is held against; what `domain` says of dims it lacks is left out.
    """
    tick = tick or (lambda _stage, _done, _total: None)
    tick("inferring shapes", 0, 0)
    start = time.perf_counter()
    model = load_model(source)
    view = model.view()
    if other and domain is not None and not isinstance(domain, Domain):
        dims = input_dims(view)
        domain = {name: said for name, said in domain.items() if name in dims}
    shapes = infer_shapes(view, domain_of(view, domain))
    wanted = tuple(resolve_shape(shapes, shape) for shape in at) or _spread(shapes)
    inferred = time.perf_counter()
    tick("planning", 0, 0)
    sizes = value_sizes(shapes.graph)
    order = execution_order_of(model.proto)
    rule = default_order if order == "default" else priority_order
    options = PlanOptions(provider, mem_reuse=delivery_of(model.proto) == "anchors")
    prepared = prepare(view.graph, keys_at_load(model, shapes.graph), options, rule)
    found = profile(prepared.plan(rule(view.graph)), sizes)
    planned = time.perf_counter()
    tick("finding the peak", 0, 0)
    top = peak(found, shapes.domain)
    tick("finding what no order is below", 0, 0)
    least = lower_bound(
        prepared, sizes, shapes.domain, [found.plan.order],
        tick=lambda done, total: tick("finding what no order is below", done, total),
    )  # fmt: skip
    bound = peak_of(least, shapes.domain).members
    return Analysis(
        model=model,
        provider=provider,
        execution_order=order,
        shapes=shapes,
        profile=found,
        peak=top,
        bound=bound,
        at=wanted,
        asked=bool(at),
        data_symbols=tuple(data_symbols(shapes, _symbols(found))),
        seconds={
            "shapes": inferred - start,
            "plan": planned - inferred,
            "prove": time.perf_counter() - planned,
        },
    )


def _spread(shapes: ModelShapes) -> tuple[Mapping[str, int], ...]:
    """A few shapes spread over the domain, as sizes of the dims of the inputs."""
    spread = steering_shapes(shapes.domain, shapes.input_symbols)
    return tuple({name: shape[name] for name in shapes.input_symbols} for shape in spread)


def _symbols(found: MemoryProfile) -> frozenset[str]:
    """Every symbol of the profile."""
    atoms = {atom for monomial in found.in_use.basis for atom, _ in monomial}
    inner = (atom.symbols() for atom in atoms)
    return frozenset().union(*inner, found.inputs.symbols(), found.weights.symbols())
