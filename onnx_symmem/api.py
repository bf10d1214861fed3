"""The public Python functions. Models are given as a path, an `onnx.ModelProto`, or a `gs.Graph`.

Planning multiplies many small matrices, which threads do not make faster: with `OPENBLAS_NUM_THREADS=1` (or
the like of another BLAS) set before numpy is imported, other cores stay free, as they do under the command.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx

from onnx_symmem.errors import UsageError
from onnx_symmem.graph.load import check_external_data, load_model
from onnx_symmem.memory.execution_order import RULES
from onnx_symmem.memory.plan import PlanOptions, prepare
from onnx_symmem.memory.profile import MemoryProfile, profile
from onnx_symmem.memory.sizes import value_sizes
from onnx_symmem.order.limits import SearchLimits, within_budget
from onnx_symmem.remat.cost import Machine
from onnx_symmem.remat.levels import LevelOptions
from onnx_symmem.remat.search import RematLimits
from onnx_symmem.report.optimization import optimization_figures
from onnx_symmem.report.results import Optimization
from onnx_symmem.rewrite.reorder import delivery_of, execution_order_of
from onnx_symmem.run.at_load import keys_at_load
from onnx_symmem.run.deployment import settings_beside
from onnx_symmem.run.inputs import Fill
from onnx_symmem.run.measure import measure
from onnx_symmem.run.pipeline import DomainSpec, OptimizedModel, OptimizeOptions, domain_of, optimize_model
from onnx_symmem.run.session import SessionSettings, kept_for
from onnx_symmem.run.session import create_session as make_session
from onnx_symmem.run.several import SCOPES, LevelWish
from onnx_symmem.shapes.engine import infer_shapes as infer
from onnx_symmem.shapes.names import dims_by_name
from onnx_symmem.shapes.table import ModelShapes

if TYPE_CHECKING:
    import onnxruntime

__all__ = [
    "Optimized",
    "create_session",
    "dims_by_name",
    "infer_shapes",
    "measure",
    "memory_profile",
    "optimize",
]


@dataclass(frozen=True, slots=True)
class Optimized:
    """What `optimize` returns: the planned model, the figures, and everything behind them.

    `proto` holds its weights where no `out` was given; else its external data is the file that was written.
    """

    proto: onnx.ModelProto
    figures: Optimization
    details: OptimizedModel

    def to_json(self) -> dict[str, Any]:
        """The figures in the documented JSON form (docs/json.md)."""
        return self.figures.to_json()


def optimize(
    model: Any,
    out: str | os.PathLike[str] | None = None,
    *,
    domain: DomainSpec = None,
    provider: str = "cpu",
    ort_level: str = "extended",
    verify: bool = True,
    verify_at: Mapping[str, int] | Sequence[Mapping[str, int]] = (),
    inputs: Mapping[str, Fill] | None = None,
    search: SearchLimits | None = None,
    seed: int = 0,
    dispatch: bool = True,
    memory_limit: int | None = None,
    levels: int | None = None,
    max_slowdown: float = 1.3,
    recompute: bool | None = None,
    offload: bool | None = None,
    host_bandwidth: float | None = None,
    counts: Sequence[str] = SCOPES,
    reserve: int = 0,
    time_budget: float | None = None,
    explain: bool = False,
    delivery: str = "order",
    deployment: bool | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Optimized:
    """Plan a model so that ONNX Runtime needs less memory at every shape of `domain`, and write it to `out`.

    domain: what is known of the input dims, e.g. `{"batch": (1, 64), "seq": (1, None)}`. ort_level: graph
    optimisations of ONNX Runtime applied before planning (none, basic, extended). verify: run original and
    result, at `verify_at` or at small shapes found by trying, on generated `inputs`, and require equal bits
    before anything is written. dispatch: where no order is good at all shapes, write several that the shapes
    of the inputs choose from. memory_limit (bytes), levels: write up to `levels` (4) further schedules that
    repeat operators for a lower peak, each at most `max_slowdown` times as slow by a model of time; at run
    time the first runs that stays within the limit, which is also the input `symmem_memory_limit`. It covers
    `counts` and `reserve` bytes. recompute, offload: which ways to a lower peak are allowed, by default to
    run operators again, and on cuda to send tensors to the host and back at `host_bandwidth` (2e10) bytes per
    second; asking for one of them asks for levels.
    time_budget: seconds on a usual core that the search may take, counted in
    steps: a budget gives the same model everywhere (default 20, less for large graphs; 0: heuristics only).
    seed: of the search and of generated inputs. explain: say in `figures.explanation` what pins the peak.
    delivery: what keeps the plan, `order` (the session of `create_session`) or `anchors` (the file, under
    ONNX Runtime's default order and with memory reuse, as outside Python). deployment: write the session's
    settings beside `out` (default: with anchors). progress: called with (stage, steps done, steps in all).
    """
    target = None if out is None else Path(out)
    shapes = (verify_at,) if isinstance(verify_at, Mapping) else tuple(verify_at)
    limits = search or SearchLimits(seed=seed)
    if time_budget is not None:
        limits = within_budget(time_budget, limits)
    wish = None
    if memory_limit is not None or levels is not None or recompute or offload:
        if host_bandwidth is not None and not host_bandwidth > 0:
            raise UsageError(f"host bandwidth {host_bandwidth}: expected bytes per second, more than 0")
        wanted = LevelOptions(
            4 if levels is None else levels,
            max_slowdown,
            machine=Machine() if host_bandwidth is None else Machine(host_bandwidth=host_bandwidth),
            limits=_ways(provider, recompute, offload),
        )
        wish = LevelWish(memory_limit, tuple(counts), reserve, wanted)
    options = OptimizeOptions(
        provider,
        ort_level,
        verify,
        shapes,
        inputs or {},
        limits,
        seed,
        dispatch,
        explain=explain,
        levels=wish,
        delivery=delivery,
        deployment=delivery == "anchors" if deployment is None else deployment,
    )
    found = optimize_model(model, target, domain, options, progress)
    return Optimized(found.proto, optimization_figures(found, target), found)


def _ways(provider: str, recompute: bool | None, offload: bool | None) -> RematLimits:
    """What levels may be made with; UsageError where that is nothing."""
    if offload and provider == "cpu":
        raise UsageError(
            "offloading needs the provider cuda: on the CPU the host's memory is the memory that is limited"
        )
    ways = RematLimits(recompute=recompute is not False, offload=provider != "cpu" and offload is not False)
    if not (ways.recompute or ways.offload):
        raise UsageError(
            "levels are asked for, but neither recomputing nor offloading is allowed to make them with"
        )
    return ways


def infer_shapes(model: Any, domain: DomainSpec = None) -> ModelShapes:
    """Every tensor's dims as exact expressions over the input dims; see `shapes.table.ModelShapes`."""
    view = load_model(model).view()
    return infer(view, domain_of(view, domain))


def memory_profile(
    model: Any, domain: DomainSpec = None, *, provider: str = "cpu", order: str | None = None
) -> MemoryProfile:
    """Bytes in use along a model's execution, as polynomials of the input dims.

    order: `priority`, the file's with shape arithmetic hoisted; `default`, ONNX Runtime's own; None, the one
    that `create_session` follows. The model is taken as it is, with the dims that ONNX Runtime knows once it
    has loaded it; weights are not read.
    """
    loaded = load_model(model)
    view = loaded.view()
    shapes = infer(view, domain_of(view, domain))
    name = order or execution_order_of(loaded.proto)
    if name not in RULES:
        raise UsageError(f"order '{name}' is not known; expected one of {', '.join(RULES)}")
    rule = RULES[name]
    options = PlanOptions(provider, mem_reuse=delivery_of(loaded.proto) == "anchors")
    prepared = prepare(view.graph, keys_at_load(loaded, shapes.graph), options, rule)
    return profile(prepared.plan(rule(view.graph)), value_sizes(shapes.graph))


def create_session(
    model: Any, provider: str | None = None, settings: SessionSettings | None = None
) -> onnxruntime.InferenceSession:
    """An ONNX Runtime session that runs a planned model exactly as planned.

    Without `settings` they are those in MODEL.session.json, where that lies beside the file, was written for
    the same plan and says the same `provider`; else those the model says it was planned for, on the CPU by
    default.
    """
    loaded = load_model(model)
    check_external_data(loaded)
    settings = settings or settings_beside(loaded, provider) or kept_for(loaded, provider or "cpu")
    # From a path ONNX Runtime maps the weights file instead of reading it.
    return make_session(loaded if loaded.path is None else loaded.path, settings)
