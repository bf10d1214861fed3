"""What writes a plan, and what keeps it: `optimize`, `create_session`, `deploy`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx

from onnx_symmem.errors import UsageError
from onnx_symmem.graph.load import check_external_data, load_model
from onnx_symmem.order.limits import SearchLimits, within_budget
from onnx_symmem.remat.cost import Machine
from onnx_symmem.remat.levels import LevelOptions
from onnx_symmem.remat.search import RematLimits
from onnx_symmem.report.optimization import optimization_figures
from onnx_symmem.report.results import Optimization
from onnx_symmem.rewrite.reorder import delivery_of
from onnx_symmem.run.deployment import SESSION_FILE, deployment_files, settings_beside
from onnx_symmem.run.inputs import Fill
from onnx_symmem.run.optimized import OptimizedModel, OptimizeOptions
from onnx_symmem.run.pipeline import optimize_model
from onnx_symmem.run.session import SessionSettings, kept_for, unpacked
from onnx_symmem.run.session import create_session as make_session
from onnx_symmem.run.several import SCOPES, LevelWish
from onnx_symmem.run.snippets import LANGUAGES, snippet
from onnx_symmem.run.stated_domain import DomainSpec

if TYPE_CHECKING:
    import onnxruntime

__all__ = ["Optimized", "create_session", "deploy", "optimize"]


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
    """Plan a model so that ONNX Runtime needs less memory at every shape of `domain`, and write it.

    out: the file to write, its weights beside it as OUT.data where they were kept outside; None: none.
    domain: what is known of the dims of the inputs, e.g. `{"batch": (1, 64), "seq": (1, None)}`.
    provider: `cpu` or `cuda`, whose rules of working in place the plan follows.
    ort_level: graph optimisations of ONNX Runtime applied before planning: none, basic, extended, or
        all (convolutions laid out for the CPU at hand; the file is for such processors only).
    verify: run original and result and require equal bits before anything is written.
    verify_at: the shapes to do that at; default: small ones, found by trying.
    inputs: how to fill inputs for that, an array or a text such as `randint:0:100` per name.
    search: limits of the search, counted in steps; `time_budget` is the simple way to say them.
    seed: of the search and of generated inputs.
    dispatch: where no order is good at all shapes, write several that the shapes of the inputs choose from.
    memory_limit: bytes. Write further schedules that repeat operators for a lower peak; at run time the first
        that stays within the limit runs. It is an input of the model, too: `symmem_memory_limit`.
    levels: how many of these at most, 4 by default; without `memory_limit` the limit is given at run time.
    max_slowdown: how many times as slow as the first one may be, by a model of time.
    recompute: whether levels run operators again; by default they do.
    offload: whether levels send tensors to the host and back; needs `cuda`, and is the default there with
        the delivery `order`; anchors cannot keep them. Asking for `recompute` or `offload` asks for levels.
    host_bandwidth: bytes per second between device and host, 2e10 by default, for the model of time.
    counts: what the memory limit covers: activations (with outputs), inputs, weights.
    reserve: bytes of the limit that are kept free.
    time_budget: seconds on a usual core that the search may take, counted in steps: a budget gives the same
        model everywhere. Default 20, less for large graphs; 0: heuristics only.
    explain: say in `figures.explanation` what pins the peak.
    delivery: what keeps the plan: `order` (the session of `create_session`) or `anchors` (the file, under
        ONNX Runtime's default order and with memory reuse, as outside Python).
    deployment: write the session's settings beside `out`; default: with anchors.
    progress: called with (stage, steps done, steps in all).

    Errors: VerificationFailed, LimitNotMet (nothing was written), ModelFileError, DomainError, UsageError,
    UnsupportedModel, RunFailed. Source: docs/method.md, and docs/levels.md for levels.
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
            limits=_ways(provider, recompute, offload, delivery),
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


def _ways(provider: str, recompute: bool | None, offload: bool | None, delivery: str) -> RematLimits:
    """What levels may be made with; UsageError where that is nothing."""
    if offload and provider == "cpu":
        raise UsageError(
            "offloading needs the provider cuda: on the CPU the host's memory is the memory that is limited"
        )
    # A file cannot keep copies apart: with anchors they are made only where they are asked for, and refused.
    usual = provider != "cpu" and delivery == "order"
    ways = RematLimits(recompute=recompute is not False, offload=usual if offload is None else offload)
    if not (ways.recompute or ways.offload):
        raise UsageError(
            "levels are asked for, but neither recomputing nor offloading is allowed to make them with"
        )
    return ways


def create_session(
    model: Any,
    provider: str | None = None,
    settings: SessionSettings | None = None,
    *,
    prepacking: bool = True,
) -> onnxruntime.InferenceSession:
    """An ONNX Runtime session that runs a planned model exactly as planned.

    provider: `cpu` or `cuda`; default: what the settings say, else cpu.
    settings: those of the session. Default: MODEL.session.json where that lies beside the file, was written
        for the same plan and says the same provider; else those the model says it was planned for.
    prepacking: False: weights are used as they are in the file, which takes less memory and more time on the
        CPU, and may change last bits of the outputs.

    Errors: ModelFileError, UsageError, RunFailed. Source: docs/deployment.md has the settings and why.
    """
    loaded = load_model(model)
    check_external_data(loaded)
    settings = settings or settings_beside(loaded, provider) or kept_for(loaded, provider or "cpu")
    if not prepacking:
        settings = unpacked(settings)
    # From a path ONNX Runtime maps the weights file instead of reading it.
    return make_session(loaded if loaded.path is None else loaded.path, settings)


def deploy(model: Any, language: str = "cpp", *, provider: str = "cpu") -> str:
    """The text that keeps a model's plan elsewhere: code, or a part of Triton's configuration.

    language: cpp, csharp, python, triton (a part of config.pbtxt), or json (all settings as data).
    provider: `cpu` or `cuda`.

    Errors: UsageError where only Python can keep the plan, i.e. the model was not written with anchors.
    Source: docs/deployment.md.
    """
    if language != "json" and language not in LANGUAGES:
        raise UsageError(f"language '{language}' is not known; expected {', '.join(LANGUAGES)} or json")
    loaded = load_model(model)
    if language == "json":
        return deployment_files(loaded.proto, provider)[SESSION_FILE]
    if language != "python" and delivery_of(loaded.proto) != "anchors":
        raise UsageError(
            f"{loaded.label}: only Python can set the order and the memory reuse that it is planned for; "
            "write it with `onnx-symmem optimize --delivery anchors`"
        )
    name = "model.onnx" if loaded.path is None else Path(loaded.path).name
    return snippet(language, kept_for(loaded, provider), name)
