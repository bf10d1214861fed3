"""What runs models: `run`, `measure`, `compare`, `doctor`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from onnx_symmem.errors import UsageError
from onnx_symmem.graph.load import load_model
from onnx_symmem.report.diagnosis import DiagnosisFigures
from onnx_symmem.report.measurements import Comparison, MeasuredRun, measured_run
from onnx_symmem.report.trial import compare_models
from onnx_symmem.run.deployment import read_settings, settings_beside
from onnx_symmem.run.doctor import OPTIONS, diagnose
from onnx_symmem.run.inputs import Fill
from onnx_symmem.run.measure import measure
from onnx_symmem.run.session import SessionSettings, kept_for, unpacked
from onnx_symmem.run.session import shipped as shipped_settings

__all__ = ["compare", "doctor", "measure", "run"]

_LATENCY_RUNS = 5
_SWITCHES = {"on": True, "off": False, "true": True, "false": False}

_Progress = Callable[[str, int, int], None]


def run(
    model: Any,
    at: Mapping[str, int],
    *,
    provider: str = "cpu",
    inputs: Mapping[str, Fill] | None = None,
    runs: int = 2,
    prepacking: bool = True,
    progress: _Progress | None = None,
) -> MeasuredRun:
    """Run a model as planned at the shape `at`, and put prediction and measurement side by side.

    Sizes are bytes, times milliseconds; latency is the median of further runs without measurement.

    at: a size for every dim of the inputs.
    provider: `cpu` or `cuda`.
    inputs: how to fill inputs, an array or a text such as `randint:0:100` per name; default: what the
        model's operators need.
    runs: how many runs are measured, in one session.
    prepacking: whether kernels may lay weights out anew, as `create_session` has it.
    progress: called with (stage, steps done, steps in all).

    Errors: ModelFileError, DomainError, UsageError, RunFailed. Source: ONNX Runtime's profile of each node,
    `mem_bytes_requested_in_use` (docs/method.md, "Bytes").
    """
    loaded = load_model(model)
    settings = kept_for(loaded, provider)
    found = measure(
        loaded,
        at,
        settings=settings if prepacking else unpacked(settings),
        overrides=inputs,
        runs=runs,
        latency_runs=max(_LATENCY_RUNS, runs),
        tick=progress,
    )
    return measured_run(found)


def compare(
    before: Any,
    after: Any,
    at: Mapping[str, int],
    *,
    provider: str = "cpu",
    inputs: Mapping[str, Fill] | None = None,
    tolerance: float = 1e-3,
    ort_level: str = "extended",
    progress: _Progress | None = None,
) -> Comparison:
    """Measure two models at one shape, on the same inputs, and compare their outputs; see `.outputs.equal`.

    `before` runs as ONNX Runtime is shipped, then with its own graph and order in a session that keeps the
    plan, `after` in such a session. Sizes are bytes, times milliseconds.

    at: a size for every dim of the inputs.
    provider: `cpu` or `cuda`.
    inputs: how to fill inputs, as in `run`.
    tolerance: largest difference that counts as rounding, relative to the largest number of an output.
    ort_level: graph optimisations of ONNX Runtime that `before` is run with: none, basic, extended.
    progress: called with (stage, steps done, steps in all).

    Errors: ModelFileError, DomainError, UsageError, RunFailed; outputs that differ are none.
    Source: as `run`.
    """
    return compare_models(
        before,
        after,
        at,
        provider=provider,
        overrides=inputs,
        tolerance=tolerance,
        level=ort_level,
        tick=progress,
    )


def doctor(
    model: Any,
    at: Mapping[str, int],
    *,
    shipped: bool = False,
    session: str | os.PathLike[str] | None = None,
    changes: Mapping[str, str | bool] | None = None,
    provider: str = "cpu",
    inputs: Mapping[str, Fill] | None = None,
    progress: _Progress | None = None,
) -> DiagnosisFigures:
    """Whether a session keeps a model's plan at the shape `at`, and which setting breaks it; see `.problem`.

    The settings in question are those of `create_session`, unless one of the next two says others.

    at: a size for every dim of the inputs.
    shipped: diagnose ONNX Runtime's own defaults.
    session: diagnose the settings in this file, as `optimize` writes them beside the model.
    changes: settings to change: optimization (none, basic, extended, all), execution_order (priority,
        default), mem_pattern and mem_reuse (on, off), arena (same_as_requested, power_of_two).
    provider: `cpu` or `cuda`; settings in a file say their own.
    inputs: how to fill inputs, as in `run`.
    progress: called with (stage, steps done, steps in all).

    Errors: ModelFileError, DomainError, UsageError, RunFailed; a plan that is not kept is none. Source: the
    order and the bytes in ONNX Runtime's profile (docs/deployment.md).
    """
    settings = _settings(model, provider, shipped, session, changes or {})
    return DiagnosisFigures(diagnose(model, at, settings, inputs, tick=progress))


def _settings(
    model: Any,
    provider: str,
    shipped: bool,
    session: str | os.PathLike[str] | None,
    changes: Mapping[str, str | bool],
) -> SessionSettings:
    if shipped and session is not None:
        raise UsageError("ONNX Runtime's own settings and those of a file were both asked for; choose one")
    if session is not None:
        settings = read_settings(session)
        if provider not in ("cpu", settings.provider):
            raise UsageError(
                f"{session}: settings for provider '{settings.provider}', and '{provider}' was asked for"
            )
    elif shipped:
        settings = shipped_settings(provider)
    else:
        loaded = load_model(model)
        settings = settings_beside(loaded, provider) or kept_for(loaded, provider)
    for name, said in changes.items():
        if name not in OPTIONS:
            raise UsageError(f"--set '{name}' is not known; expected one of {', '.join(OPTIONS)}")
        value: Any = said
        if isinstance(getattr(settings, name), bool) and not isinstance(said, bool):
            if said not in _SWITCHES:
                raise UsageError(f"--set {name}={said}: expected on or off")
            value = _SWITCHES[said]
        settings = replace(settings, **{name: value})
    return settings
