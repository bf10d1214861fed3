"""The whole way from a model to a planned model: optimise offline, infer, plan, choose, rewrite, verify.

What would have run is the graph that ONNX Runtime makes of the model at the chosen level, in the order and
with the dims it knows: the offline optimiser saves exactly that (facts/ONNXRUNTIME, 1.3). At level none it is
the model itself in ONNX Runtime's default order. Nothing appears at the target before the result has given
the same outputs as the original, bit by bit.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from onnx_symmem.errors import UnsupportedModel, UsageError, naming
from onnx_symmem.expr.envelope import plan_le
from onnx_symmem.expr.least_order import least_le
from onnx_symmem.graph.load import LoadedModel, check_external_data, external_entry, graphs_of, load_model
from onnx_symmem.graph.save import StagedModel, check_target
from onnx_symmem.memory.peak import peak, peak_of
from onnx_symmem.memory.profile import MemoryProfile, profile
from onnx_symmem.memory.sizes import from_written, value_sizes
from onnx_symmem.order.bound import lower_bound
from onnx_symmem.order.buffers import buffer_graph
from onnx_symmem.order.check import check_choice
from onnx_symmem.order.dispatch import Dispatch, check_dispatch, check_written, choose_versions
from onnx_symmem.order.explanation import explain_order
from onnx_symmem.order.selection import OrderChoice
from onnx_symmem.order.steering import steering_shapes
from onnx_symmem.rewrite.choice import FITS
from onnx_symmem.rewrite.reorder import DELIVERIES, reorder_nodes
from onnx_symmem.rewrite.value_info import write_dims
from onnx_symmem.rewrite.version_record import versions_of
from onnx_symmem.run.added_nodes import stays_as_it_is
from onnx_symmem.run.baseline import baseline_plan, file_order, settled_baseline, usable_baseline
from onnx_symmem.run.delivery import deliver_anchored
from onnx_symmem.run.deployment import deployment_files
from onnx_symmem.run.dispatched import dispatched_model
from onnx_symmem.run.freeing import plan_freed
from onnx_symmem.run.inputs import check_names, resolve_shape
from onnx_symmem.run.level_delivery import ReadyForLevels, ready_for_levels
from onnx_symmem.run.one_pass import UNLIKE, about_rounding, against_one_pass, planned_against, ran_once
from onnx_symmem.run.optimized import OptimizedModel, OptimizeOptions
from onnx_symmem.run.per_branch import chosen_per_branch, has_ifs
from onnx_symmem.run.processor import mark_blocks
from onnx_symmem.run.session import cuda_problem
from onnx_symmem.run.several import LevelPlan, held_against, levelled_model, plan_limit
from onnx_symmem.run.stages import Stages, Tick
from onnx_symmem.run.stated_domain import DomainSpec, domain_of
from onnx_symmem.run.trials import runnable_shapes
from onnx_symmem.run.verify import Verification, verify
from onnx_symmem.run.version_trials import trials_of, verify_trials
from onnx_symmem.run.written import added_weights
from onnx_symmem.shapes.engine import infer_shapes
from onnx_symmem.shapes.table import ModelShapes

__all__ = ["optimize_model"]

_SHARES = {
    "loading": 1, "optimising with ONNX Runtime": 5, "inferring shapes": 2, "planning": 4, "trying orders": 4,
    "improving segments": 5, "improving orders": 50, "improving orders at one shape": 6, "proving": 5,
    "proving that no order is better": 2, "improving orders for parts of the domain": 20,
    "explaining the order": 2, "placing anchors": 20,
    "checking the plan": 1, "searching levels": 200, "comparing orders shape by shape": 2, "writing": 2,
    "verifying outputs": 10,
}  # fmt: skip
"""Of the time that `optimize` takes, by what it says it does."""

_AGAIN = (
    "the file holds several orders already, and choosing among them does not keep its outputs late any more: "
    "optimise the model that it was made of"
)
_NOT_AS_IT_IS = (
    "ONNX Runtime adds or removes Casts for float16 when it loads the file: what runs may take more than "
    "what is said"
)
_VERIFIED = 2  # shapes at which the result is compared with the original


def optimize_model(
    source: Any,
    out: Path | None,
    domain: DomainSpec = None,
    options: OptimizeOptions | None = None,
    tick: Tick | None = None,
) -> OptimizedModel:
    """Plan a model, write it to `out` (None: do not write), and say everything about it.

    Raises the errors of `onnx_symmem.errors`; nothing is written in that case.
    """
    options = options or OptimizeOptions()
    anchored = _anchored(options)
    clock = Stages(tick, _SHARES, _left_out(options, anchored))
    if out is not None:
        check_target(out)
    with clock.stage("load", "loading"):
        model = load_model(source)
        if (versions_of(model.proto) or {}).get("policy") == FITS:
            raise UnsupportedModel(
                f"{model.label}: has levels; ONNX Runtime's optimisations merge what they repeat, and they "
                "would take more than the guard counts on; give the model that they were made from"
            )
        spec = domain_of(model.view(), domain)
        level, notices = _level(options)
        if versions_of(model.proto) is not None:
            notices += (_AGAIN,)
        as_it_is = options.ort_level == "none"
        if not as_it_is or options.verify:
            check_external_data(model)
    with naming(model.label), ExitStack() as stack:
        with clock.stage("offline", f"optimising with ONNX Runtime ({level})"):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="onnx-symmem-")))
            base, more = usable_baseline(model, level, options.provider, folder)
            notices += more
            one_pass = base
            if anchored and level != "none":
                base, more = settled_baseline(base, level, options.provider, folder)
                notices += more
            again = base is not one_pass
        with clock.stage("shapes", "inferring shapes"):
            view = base.view()
            shapes = infer_shapes(view, spec)
            sizes = value_sizes(shapes.graph)
            check_names(shapes, options.inputs)
            for at in options.verify_at:
                resolve_shape(shapes, at)
            samples = steering_shapes(shapes.domain, shapes.input_symbols)
        with clock.stage("plan", "planning"):
            before = profile(
                baseline_plan(base, shapes.graph, level, options.provider, anchored, base is not model), sizes
            )
            ran: MemoryProfile | None = before
            if again:
                ran = ran_once(one_pass, shapes, spec, level, options.provider)
                notices += () if ran is not None else (UNLIKE,)
            given: Mapping[str, Sequence[int]] = {
                "onnxruntime": before.plan.order,
                "file": file_order(model, base, view),
            }
            freed = plan_freed(
                base, shapes, spec, before, given, samples, options.provider, options.search, clock.tick,
                specialists=options.dispatch and not anchored,
            )  # fmt: skip
            base, shapes, sizes = freed.base, freed.shapes, freed.sizes
            prepared, given, planned = freed.prepared, freed.given, freed.planned
            keys = from_written(shapes.graph)
            planned = replace(planned, choice=chosen_per_branch(planned, before, shapes.domain))
            in_turn = [(planned, before)]
            if ran is not None and ran is not before:
                in_turn = [*planned_against(planned, ran, shapes.domain), *in_turn]
            choice = in_turn[0][0].choice
            branching, notices = has_ifs(before), (*notices, *planned.notices)
            notices += () if anchored else _hoisted(choice, before)
        with clock.stage("prove", "proving"):
            orders = [candidate.order for candidate in planned.candidates]
            least = lower_bound(prepared["priority"], sizes, shapes.domain, orders, samples)
            bound = peak_of(least, shapes.domain)
        explanation = None
        if options.explain:
            with clock.stage("explain", "explaining the order"):
                buffers = buffer_graph(prepared["priority"])
                explanation = explain_order(choice, buffers, sizes, samples, planned.floor)
        delivered = None
        ready: ReadyForLevels | None = None
        if anchored and options.levels is not None:
            with clock.stage("anchor", "placing anchors"):
                ready = ready_for_levels(base, shapes, choice, samples, options.provider, level)
                base, shapes, keys, sizes = ready.base, ready.shapes, ready.keys, ready.sizes
                choice, prepared = ready.choice, {"priority": ready.prepared}
        elif anchored:
            with clock.stage("anchor", "placing anchors"):
                for planned, held in in_turn:
                    delivered = deliver_anchored(
                        base, shapes, sizes, prepared["default"], planned, given["onnxruntime"], samples,
                        level, held if branching else None,
                    )  # fmt: skip
                    if delivered.choice.never_worse == "proved":
                        break
                assert delivered is not None
                base, shapes, sizes, choice = delivered.plan
                notices += delivered.notices
                if ran is not None and ran is not before:
                    choice, more = against_one_pass(choice, ran, shapes.domain, samples)
                    notices += more
        with clock.stage("prove", "proving"):
            optimal = plan_le(choice.after.members, bound.members, shapes.domain).proved
        with clock.stage("check", "checking the plan"):
            check_choice(choice, sizes, shapes.domain, samples)
        proto, dispatch, levels = None, None, None
        if delivered is not None:
            proto = reorder_nodes(delivered.proto, choice.chosen.file, "default", options.delivery)
        elif options.levels is not None:
            with clock.stage("levels", "searching levels"):
                levels, more = plan_limit(
                    options.levels, shapes, keys, sizes, prepared["priority"], choice, samples, clock.tick
                )
                proto, levels = levelled_model(
                    base, shapes, levels, samples, model.label, options.provider,
                    None if ready is None else ready.kept,
                )  # fmt: skip
                notices += more
                if ran is not None and ran is not before:
                    choice = replace(choice, before=peak(ran, shapes.domain), proof=None)
                levels, more = held_against(
                    levels, choice, samples, replace(base, proto=proto), ran or before, options.provider
                )
                notices += more
                if ready is not None:
                    delivered = ready.delivered(proto, levels)
                    notices += delivered.notices
        elif options.dispatch and _is_version(choice, before) and not branching:
            comparing = "comparing orders shape by shape"
            with clock.stage("dispatch", comparing):
                dispatch = choose_versions(
                    choice.chosen, (*planned.candidates, *planned.specialists), shapes.domain,
                    shapes.input_symbols, planned.shapes, before=choice.before, above=choice.overhead,
                )  # fmt: skip
                if dispatch is not None:
                    clock.tick(comparing, 1, 4)
                    check_dispatch(dispatch, samples)
                    clock.tick(comparing, 2, 4)
                    wanted = dispatch
                    proto, dispatch, more = dispatched_model(
                        base, shapes, wanted, choice.before, samples, options.provider, None, planned.floor,
                        choice.after,
                    )  # fmt: skip
                    notices += more
                if dispatch is not None:
                    clock.tick(comparing, 3, 4)
                    check_written(dispatch, wanted, choice.before, samples)
                    plans = [version.peak.members for version in wanted.versions]
                    optimal = least_le(plans, bound.members, shapes.domain).proved
        with clock.stage("write", "writing"):
            if proto is None:
                proto = reorder_nodes(write_dims(base.proto, shapes), choice.chosen.file, choice.chosen.rule)
            several = dispatch is not None or levels is not None
            added = added_weights(base.proto, proto) if several else 0
            mark_blocks(proto)
            if options.provider == "cpu" and not stays_as_it_is(proto, folder):
                notices += (_NOT_AS_IT_IS,)
            staged = None
            if out is not None or options.verify or not as_it_is:
                target = out or Path(stack.enter_context(tempfile.TemporaryDirectory()), "planned.onnx")
                inline = _is_one_file(model)
                staged = stack.enter_context(
                    StagedModel(
                        proto,
                        target,
                        base.folder,
                        inline=inline,
                        keep=as_it_is,
                        foreign=_data_of(model, out),
                        beside=_beside(proto, options),
                    )
                )
                # Without a target the caller gets the model as an object, so it has to hold its weights.
                proto = onnx.load(staged.path, format="protobuf", load_external_data=out is None)
        verified: tuple[Verification, ...] = ()
        if options.verify and staged is not None:
            with clock.stage("verify", "verifying outputs"), about_rounding(again):
                verified = _verify(
                    model, base, staged.path, shapes, choice, dispatch or levels, level, options
                )
        files = staged.commit() if staged is not None and out is not None else ()
        if out is not None and _is_source(model, out):
            notices += (
                f"{out}: the model that was given is replaced; what was asked for is all that is left",
            )
    return OptimizedModel(
        model, options.provider, level, notices, shapes, samples, ran or before, choice, bound, optimal,
        "default" if level == "none" else f"default at {level}", verified, files, proto, clock.seconds,
        dispatch, levels, planned.floor, explanation, delivered, added,
        before.plan.order,
    )  # fmt: skip


def _left_out(options: OptimizeOptions, anchored: bool) -> list[str]:
    """What is not done under these options."""
    several = options.dispatch and options.levels is None and not anchored
    done = {
        "explaining the order": options.explain,
        "placing anchors": anchored,
        "searching levels": options.levels is not None,
        "improving orders for parts of the domain": several,
        "comparing orders shape by shape": several,
        "verifying outputs": options.verify,
    }
    return [words for words, happens in done.items() if not happens]


def _anchored(options: OptimizeOptions) -> bool:
    """Whether the file is to keep the plan by itself."""
    if options.delivery not in DELIVERIES:
        raise UsageError(
            f"delivery '{options.delivery}' is not known; expected one of {', '.join(DELIVERIES)}"
        )
    anchored = options.delivery == "anchors"
    offloads = options.levels is not None and options.levels.options.limits.offload
    if anchored and offloads and options.provider != "cpu":
        raise UsageError(
            "delivery 'anchors' keeps repeats, not copies to the host and back, which ONNX Runtime would "
            "merge: ask for levels without offloading"
        )
    return anchored


def _beside(proto: onnx.ModelProto, options: OptimizeOptions) -> dict[str, str]:
    return deployment_files(proto, options.provider) if options.deployment else {}


def _is_version(choice: OrderChoice, before: MemoryProfile) -> bool:
    """Whether the chosen order may be the first of several: proved never worse, or what would have run."""
    return choice.never_worse == "proved" or choice.chosen.order == before.plan.order


def _hoisted(choice: OrderChoice, before: MemoryProfile) -> tuple[str, ...]:
    """What the user should know where ONNX Runtime's own order was to be kept and could not be."""
    ran = before.plan.order
    if choice.never_worse != "kept" or tuple(n for n in choice.chosen.order if n < len(ran)) == ran:
        return ()
    words = (
        "nothing better was proved, and no file makes ONNX Runtime run its own order again: the nearest was "
        "written, with shape arithmetic hoisted"
    )
    return (words,)


def _is_source(model: LoadedModel, out: Path) -> bool:
    """Whether the result takes the place of the model that was given."""
    return model.path is not None and out.resolve() == model.path.resolve()


def _data_of(model: LoadedModel, out: Path | None) -> frozenset[Path]:
    """Data files of the source, which must survive unless the source itself is replaced."""
    if model.folder is None or model.path is None or (out is not None and _is_source(model, out)):
        return frozenset()
    entries = (external_entry(t) for g in graphs_of(model.proto.graph) for t in g.initializer)
    return frozenset(Path(model.folder, entry[0]).resolve() for entry in entries if entry is not None)


def _is_one_file(model: LoadedModel) -> bool:
    """Whether a model holds its weights itself; so will the result."""
    return not any(external_entry(t) for g in graphs_of(model.proto.graph) for t in g.initializer)


def _level(options: OptimizeOptions) -> tuple[str, tuple[str, ...]]:
    """The offline level that can be used here, and what the user should know about it."""
    if options.ort_level == "all" and options.provider != "cpu":
        raise UsageError("level 'all' is for the processor at hand: choose the provider 'cpu', or 'extended'")
    problem = cuda_problem() if options.provider == "cuda" else None
    if problem is not None and options.verify:
        raise UsageError(
            f"provider 'cuda': {problem}, so no outputs can be verified; run it where there is one, or plan "
            "without verifying (--no-verify)"
        )
    if problem is not None and options.ort_level == "extended":
        return "basic", (f"planned at level basic instead of extended: {problem}",)
    return options.ort_level, ()


def _verify(
    model: LoadedModel,
    base: LoadedModel,
    result: Path,
    shapes: ModelShapes,
    choice: OrderChoice,
    several: Dispatch | LevelPlan | None,
    level: str,
    options: OptimizeOptions,
) -> tuple[Verification, ...]:
    at = options.verify_at or runnable_shapes(
        base, shapes, choice.after.at, _VERIFIED, options.provider, options.inputs, options.seed, model.label
    )

    def compared(
        at: Sequence[Mapping[str, int]], packing: bool = True, fed: Mapping[str, np.ndarray] | None = None
    ) -> tuple[Verification, ...]:
        return verify(
            model, result, shapes, at, level=level, provider=options.provider, overrides=options.inputs,
            seed=options.seed, packing=packing, result_feeds=fed,
        )  # fmt: skip

    if several is None:
        return compared(at)
    full = [resolve_shape(shapes, shape) for shape in at]
    searched = not options.verify_at
    trials = trials_of(several, base, shapes, full, options.provider, options.inputs, options.seed, searched)
    count = len(several.versions) if isinstance(several, Dispatch) else len(several.levels)
    return verify_trials(trials, count, compared)
