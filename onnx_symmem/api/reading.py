"""What is read off a model without running it: shapes, reports, and what fits into a budget."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from onnx_symmem.errors import UsageError
from onnx_symmem.expr.domain import Domain
from onnx_symmem.graph.load import LoadedModel, load_model
from onnx_symmem.graph.save import StagedModel, check_target
from onnx_symmem.memory.execution_order import RULES
from onnx_symmem.memory.plan import PlanOptions, prepare
from onnx_symmem.memory.profile import MemoryProfile, profile
from onnx_symmem.memory.sizes import value_sizes
from onnx_symmem.report.analysis import analyse
from onnx_symmem.report.capacity import BudgetChecks, Fit, check_budget, check_limit, fit_models
from onnx_symmem.report.demand import SCOPES, model_demand
from onnx_symmem.report.explanation import Explanation, explain
from onnx_symmem.report.files import check_report_target, write_report
from onnx_symmem.report.frontier import check_frontier_target, write_frontier
from onnx_symmem.report.growth import growth
from onnx_symmem.report.inference import ShapeTable, shape_table
from onnx_symmem.report.memory import MemoryReport, report_of
from onnx_symmem.rewrite.reorder import delivery_of, execution_order_of
from onnx_symmem.rewrite.value_info import write_dims
from onnx_symmem.run.at_load import keys_at_load
from onnx_symmem.run.stated_domain import DomainSpec, check_shared, domain_of, input_dims
from onnx_symmem.shapes.engine import infer_shapes as infer
from onnx_symmem.shapes.names import dims_by_name
from onnx_symmem.shapes.table import ModelShapes

__all__ = ["check", "dims_by_name", "fit", "infer_shapes", "memory_profile", "report", "shapes"]

_Progress = Callable[[str, int, int], None]
_Shapes = Mapping[str, int] | Sequence[Mapping[str, int]]
_File = str | os.PathLike[str]


def infer_shapes(model: Any, domain: DomainSpec = None) -> ModelShapes:
    """Every tensor's dims as exact expressions over the input dims; see `shapes.table.ModelShapes`.

    domain: what is known of the dims of the inputs.

    Errors: ModelFileError, DomainError, UnsupportedModel. Source: docs/method.md, "Shapes".
    """
    view = load_model(model).view()
    return infer(view, domain_of(view, domain))


def shapes(
    model: Any,
    domain: DomainSpec = None,
    *,
    out: _File | None = None,
    why: str | None = None,
    progress: _Progress | None = None,
) -> ShapeTable | Explanation:
    """The table of every tensor's dims, of what stayed unknown and why; or why one tensor has its dims.

    domain: what is known of the dims of the inputs.
    out: also write the model there, with all dims as value_info.
    why: the name of a tensor; the answer is then the way back from its dims to the inputs.
    progress: called with (stage, steps done, steps in all).

    Errors: ModelFileError, DomainError, UsageError (no such tensor). Source: docs/method.md, "Shapes".
    """
    tick = progress or _silent
    target = None if out is None else Path(out)
    if target is not None:
        check_target(target)
    start = time.perf_counter()
    tick("loading", 0, 0)
    loaded = load_model(model)
    read = time.perf_counter()
    tick("inferring shapes", 0, 0)
    found = infer_shapes(loaded, domain)
    seconds = {"load": read - start, "shapes": time.perf_counter() - read}
    answer = None if why is None else explain(loaded.label, found, why)
    if target is not None:
        tick(f"writing {target.name}", 0, 0)
        with StagedModel(write_dims(loaded.proto, found), target, loaded.folder) as staged:
            staged.commit()
    return answer or shape_table(loaded.label, found, None if target is None else str(target), seconds)


def memory_profile(
    model: Any, domain: DomainSpec = None, *, provider: str = "cpu", order: str | None = None
) -> MemoryProfile:
    """Bytes in use along a model's execution, as polynomials of the input dims.

    The model is taken as it is, with the dims that ONNX Runtime knows once it has loaded it; weights are not
    read.

    domain: what is known of the dims of the inputs.
    provider: `cpu` or `cuda`.
    order: `priority`, the file's with shape arithmetic hoisted; `default`, ONNX Runtime's own; None, the one
        that `create_session` follows.

    Errors: ModelFileError, DomainError, UsageError. Source: docs/method.md, "Bytes".
    """
    loaded = load_model(model)
    view = loaded.view()
    known = infer(view, domain_of(view, domain))
    name = order or execution_order_of(loaded.proto)
    if name not in RULES:
        raise UsageError(f"order '{name}' is not known; expected one of {', '.join(RULES)}")
    rule = RULES[name]
    options = PlanOptions(provider, mem_reuse=delivery_of(loaded.proto) == "anchors")
    prepared = prepare(view.graph, keys_at_load(loaded, known.graph), options, rule)
    return profile(prepared.plan(rule(view.graph)), value_sizes(known.graph))


def report(
    model: Any,
    out: _File | Sequence[_File] = (),
    *,
    against: Any = None,
    domain: DomainSpec = None,
    at: _Shapes = (),
    provider: str = "cpu",
    progress: _Progress | None = None,
) -> MemoryReport:
    """A model's memory as it is: the peak as a formula and at shapes, a lower bound, what is unknown.

    Neither weights nor a run are needed. All sizes are bytes.

    out: files to write it to, .html, .md, .json or .png, whose name tells the form; one or several.
    against: another model to hold this one against; the report then says what grew.
    domain: what is known of the dims of the inputs.
    at: a shape or several to look at; default: a few spread over the domain.
    provider: `cpu` or `cuda`.
    progress: called with (stage, steps done, steps in all).

    Errors: ModelFileError, DomainError, UsageError (a file that cannot be written). Source: docs/report.md.
    """
    tick = progress or _silent
    targets = [Path(out)] if isinstance(out, str | os.PathLike) else [Path(each) for each in out]
    for target in targets:
        check_report_target(target)
    analysis = analyse(model, domain, _shapes(at), provider, tick=tick)
    other = None
    if against is not None:
        second = load_model(against)
        name = Path(second.label).name
        other = analyse(
            second, domain, (), provider, other=True, tick=lambda stage, *n: tick(f"{name}: {stage}", *n)
        )
    tick("evaluating", 0, 0)
    found = report_of(analysis, None if other is None else growth(analysis, other))
    for target in targets:
        tick(f"writing {target.name}", 0, 0)
        write_report(target, found, analysis, other)
    return found


def fit(
    model: Any,
    budget: int,
    solve: str | Sequence[str],
    *,
    against: Any = None,
    at: Mapping[str, int] | None = None,
    domain: DomainSpec = None,
    counts: Sequence[str] = SCOPES,
    reserve: int = 0,
    memory_limit: int | None = None,
    out: _File | None = None,
    provider: str = "cpu",
    progress: _Progress | None = None,
) -> Fit:
    """The largest size of a dim at which a model stays within `budget` bytes: exact; nothing is run.

    solve: the dim to make as large as fits; of two dims, the first, for a ladder of sizes of the second.
    against: another model to solve for as well; what is said of dims that it lacks is left out.
    at: sizes of the other dims.
    domain: what is known of the dims of the inputs.
    counts: what the budget covers: activations (with outputs), inputs, weights.
    reserve: bytes of the budget that are kept free, for kernels and gaps in the arena.
    memory_limit: bytes that a model of several levels is given at run time; default: those in the file.
    out: a .png to draw the frontier to; needs two dims, and the extra `png`.
    provider: `cpu` or `cuda`.
    progress: called with (stage, steps done, steps in all).

    Errors: DomainError, UsageError, UnsupportedModel (bytes that are not known), ModelFileError. Source: the
    formulas of docs/method.md, "Bytes", evaluated at the answer and one above.
    """
    tick = progress or _silent
    names = tuple(part.strip() for part in solve.split(",")) if isinstance(solve, str) else tuple(solve)
    if out is not None:
        check_frontier_target(Path(out), names)
    sources = [model] if against is None else [model, against]
    others = () if against is None else (input_dims(load_model(against).view()),)
    demands = [
        model_demand(
            source,
            _said_of(dims, domain),
            provider,
            counts,
            reserve,
            limit=memory_limit,
            tick=_nth(tick, number, len(sources), source),
        )
        for number, (source, dims) in enumerate(zip(sources, (None, *others), strict=True))
    ]
    check_limit(demands, memory_limit)
    tick("solving", 0, 0)
    found = fit_models(demands, budget, names, at, provider)
    if out is not None:
        write_frontier(Path(out), found)
    return found


def check(
    models: Any,
    max_peak: int,
    *,
    at: _Shapes = (),
    domain: DomainSpec = None,
    counts: Sequence[str] = SCOPES,
    reserve: int = 0,
    memory_limit: int | None = None,
    provider: str = "cpu",
    progress: _Progress | None = None,
) -> BudgetChecks:
    """Whether models stay within `max_peak` bytes, at shapes or, by proof, on a whole domain; see `.holds`.

    models: one model, or a list of them; what is said of a dim goes to those that have it.
    at: a shape or several; without any, every shape of the domain counts.
    domain: what is known of the dims of the inputs.
    counts: what the budget covers: activations (with outputs), inputs, weights.
    reserve: bytes of the budget that are kept free.
    memory_limit: bytes that a model of several levels is given at run time; default: those in the file.
    provider: `cpu` or `cuda`.
    progress: called with (stage, steps done, steps in all).

    Errors: DomainError, UsageError, UnsupportedModel, ModelFileError; a budget that is not kept is none.
    Source: docs/method.md, "Comparing sizes".
    """
    tick = progress or _silent
    sources = list(models) if isinstance(models, list | tuple) else [models]
    shapes = _shapes(at)
    dims: list[tuple[str, ...] | None] = [None] * len(sources)
    if len(sources) > 1:
        several = [input_dims(load_model(source).view()) for source in sources]
        ranges = () if domain is None or isinstance(domain, Domain) else domain
        check_shared((*ranges, *(name for shape in shapes for name in shape)), several)
        dims = [*several]
    demands = [
        model_demand(
            source, _said_of(names, domain), provider, counts, reserve, limit=memory_limit,
            tick=_nth(tick, number, len(sources), source),
        )
        for number, (source, names) in enumerate(zip(sources, dims, strict=True))
    ]  # fmt: skip
    check_limit(demands, memory_limit)
    return BudgetChecks(
        tuple(
            check_budget(demand, max_peak, [_said_of(names, s) for s in shapes], provider)
            for demand, names in zip(demands, dims, strict=True)
        )
    )


def _said_of(names: Collection[str] | None, said: Any) -> Any:
    """What is said of the dims called `names`; None: all is."""
    if names is None or said is None or isinstance(said, Domain):
        return said
    return {name: each for name, each in said.items() if name in names}


def _silent(_stage: str, _done: int, _total: int) -> None:
    pass


def _nth(tick: _Progress, number: int, count: int, source: Any) -> _Progress:
    """The progress of one of several models: its stages where there is one only, else one step for each."""
    if count == 1:
        return tick
    name = Path(source).name if isinstance(source, str | os.PathLike) else _label(source)
    return lambda _stage, _done, _total: tick(f"planning {name}", number, count)


def _label(source: Any) -> str:
    return source.label if isinstance(source, LoadedModel) else "a model"


def _shapes(at: _Shapes) -> Sequence[Mapping[str, int]]:
    return (at,) if isinstance(at, Mapping) else tuple(at)
