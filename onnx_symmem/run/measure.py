"""What one run really takes: bytes per node from ONNX Runtime's profile, beside what the plan predicts.

Every measurement makes sessions of its own, with arenas of their own, and drops outputs before the next run.
Tensor bytes are those in use as requested, less what is static (weights laid out anew for the kernels, and on
a GPU weights and inputs): this is what the plan predicts. The arena shows more, namely kernels' scratch
buffers and the slack of its chunks, and holds more than it uses.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

from onnx_symmem.errors import RunFailed, UsageError, naming
from onnx_symmem.expr.domain import Domain, SymbolRange
from onnx_symmem.graph.load import LoadedModel, load_model
from onnx_symmem.order.candidates import Tick
from onnx_symmem.rewrite.choice import LIMIT
from onnx_symmem.run.baseline import baseline_settings, predict_baseline
from onnx_symmem.run.branches import branches_of
from onnx_symmem.run.device import device_bytes_in_use
from onnx_symmem.run.inputs import Fill, generate_inputs, resolve_shape
from onnx_symmem.run.predict import Mismatch, NodeBytes, Prediction, WrongDims, predict
from onnx_symmem.run.profile import RunProfile, read_profile
from onnx_symmem.run.session import (
    PROVIDERS,
    ModelSource,
    SessionSettings,
    create_session,
    feeds_of,
    kept_for,
    label_of,
    run_session,
)
from onnx_symmem.shapes.engine import infer_shapes
from onnx_symmem.shapes.table import ModelShapes

__all__ = ["Measurement", "RunFigures", "count_runs", "domain_at", "measure", "measure_baseline"]

_Predict = Callable[[ModelShapes, Mapping[str, int], RunProfile], Prediction]


@dataclass(frozen=True, slots=True)
class RunFigures:
    """One profiled run, in bytes.

    `requested_peak` is the most that tensors took (static bytes not counted), `in_use_peak` the most that was
    taken from the arena since the session was made (static bytes and scratch counted), `held` what the
    arena has of the system at the end.
    """

    requested_peak: int
    in_use_peak: int
    held: int


@dataclass(frozen=True)
class Measurement:
    """A model at one shape under given settings, measured, with the prediction for its first run.

    `scratch` is how far use of the arena went beyond the tensors: kernels' buffers and chunk slack.
    `first_ms` and `latency_ms` (median of further runs) are without profiling, None where not asked for.
    `device_bytes` is the growth of all memory in use on the GPU, libraries included; None on the CPU.
    `version` is the one that runs, of a model that `optimize` wrote with `versions` of them; else None and 0.
    """

    model: str
    shape: Mapping[str, int]
    settings: SessionSettings
    static_bytes: int
    runs: tuple[RunFigures, ...]
    scratch: int
    first_ms: float | None
    latency_ms: float | None
    device_bytes: int | None
    prediction: Prediction
    version: int | None = None
    versions: int = 0

    @property
    def provider(self) -> str:
        """cpu or cuda."""
        return self.settings.provider

    @property
    def nodes(self) -> tuple[NodeBytes, ...]:
        """Measured and predicted bytes of every node of the first run, subgraphs' nodes included."""
        return self.prediction.nodes

    @property
    def predicted_peak(self) -> int | None:
        """Predicted `requested_peak`; None where there is no prediction (`prediction.why_not`)."""
        return self.prediction.peak

    @property
    def nodes_equal(self) -> float | None:
        """Share of the nodes whose bytes came out exactly as predicted; None without a prediction."""
        compared = self.prediction.compared
        return self.prediction.equal / compared if compared else None

    @property
    def mismatches(self) -> tuple[Mismatch, ...]:
        """Nodes whose bytes came out other than predicted."""
        return self.prediction.mismatches()

    @property
    def wrong_dims(self) -> tuple[WrongDims, ...]:
        """Tensors that came out with other dims than inferred."""
        return self.prediction.wrong_dims


def measure(
    model: ModelSource,
    at: Mapping[str, int],
    provider: str | None = None,
    settings: SessionSettings | None = None,
    overrides: Mapping[str, Fill] | None = None,
    runs: int = 2,
    seed: int = 0,
    *,
    shapes: ModelShapes | None = None,
    latency_runs: int = 5,
    plan: SessionSettings | None = None,
    tick: Tick | None = None,
) -> Measurement:
    """Run a model at the shape `at` on generated inputs and compare with the plan.

    `settings` (default: `kept_for` the model) are those of the session; `shapes` spares inferring them again.
    `plan` are settings whose plan is expected of the session in place of the one for its own. Latency is
    measured in a further session without profiling, one run and the median of `latency_runs` more; 0 leaves
    it out. `tick` is called before each run.
    """
    loaded = load_model(model)
    if settings is None:
        settings = kept_for(loaded, provider or "cpu")
    elif provider is not None and provider != settings.provider:
        raise UsageError(f"provider '{provider}' was asked for, but the settings say '{settings.provider}'")

    def prediction(shapes: ModelShapes, shape: Mapping[str, int], run: RunProfile) -> Prediction:
        return predict(loaded, shapes, plan or settings, shape, run)

    with naming(loaded.label):
        return _measured(loaded, at, settings, overrides, runs, seed, shapes, latency_runs, prediction, tick)


def measure_baseline(
    model: ModelSource,
    at: Mapping[str, int],
    level: str = "extended",
    provider: str = "cpu",
    overrides: Mapping[str, Fill] | None = None,
    runs: int = 2,
    seed: int = 0,
    *,
    shapes: ModelShapes | None = None,
    latency_runs: int = 5,
    mem_reuse: bool = False,
    tick: Tick | None = None,
) -> Measurement:
    """The same for what would have run: ONNX Runtime's graph at `level` in its order, as it would plan it.

    `mem_reuse`: with reuse of buffers, as beside a model with anchors.
    """
    loaded = load_model(model)

    def prediction(_shapes: ModelShapes, shape: Mapping[str, int], run: RunProfile) -> Prediction:
        return predict_baseline(loaded, level, provider, shape, run, domain_at(at), mem_reuse)

    settings = baseline_settings(level, provider, mem_reuse)
    with naming(loaded.label):
        return _measured(loaded, at, settings, overrides, runs, seed, shapes, latency_runs, prediction, tick)


def count_runs(runs: int = 2, latency_runs: int = 5) -> int:
    """How often `measure` runs a model."""
    return runs + (latency_runs + 1 if latency_runs >= 1 else 0)


def domain_at(at: Mapping[str, int]) -> Domain:
    """A size of 0 is legal where it is asked for, though not assumed otherwise."""
    return Domain({name: SymbolRange(0) for name, size in at.items() if size == 0})


def _measured(
    loaded: LoadedModel,
    at: Mapping[str, int],
    settings: SessionSettings,
    overrides: Mapping[str, Fill] | None,
    runs: int,
    seed: int,
    shapes: ModelShapes | None,
    latency_runs: int,
    prediction: _Predict,
    tick: Tick | None,
) -> Measurement:
    if runs < 1:
        raise UsageError(f"runs = {runs}: expected at least 1")
    shapes = shapes or infer_shapes(loaded.view(), domain_at(at))
    shape = resolve_shape(shapes, at)
    arrays = generate_inputs(shapes, shape, overrides, seed)
    branches = branches_of(loaded, shapes) if settings.keeps_file else None
    limit = int(arrays[LIMIT]) if LIMIT in arrays else None
    feeds = feeds_of(arrays)
    before = device_bytes_in_use(settings)
    steps, done = count_runs(runs, latency_runs), count()

    def next_run() -> None:
        if tick is not None:
            tick("running", next(done), steps)

    profiles, device = _profiled(loaded, settings, feeds, runs, next_run)
    figures = tuple(_figures(p, profiles[0], settings) for p in profiles)
    first_ms, latency_ms = _latency(loaded, settings, feeds, latency_runs, next_run)
    return Measurement(
        model=loaded.label,
        shape=shape,
        settings=settings,
        static_bytes=profiles[0].static_bytes(PROVIDERS[settings.provider]),
        runs=figures,
        scratch=_scratch(figures[0], profiles[0], settings),
        first_ms=first_ms,
        latency_ms=latency_ms,
        device_bytes=None if before is None or device is None else device - before,
        prediction=prediction(shapes, shape, profiles[0]),
        version=None if branches is None else branches.version_at(shape, limit),
        versions=0 if branches is None else branches.count,
    )


def _profiled(
    model: ModelSource,
    settings: SessionSettings,
    feeds: Mapping[str, Any],
    runs: int,
    next_run: Callable[[], None],
) -> tuple[tuple[RunProfile, ...], int | None]:
    with tempfile.TemporaryDirectory(prefix="onnx-symmem-") as folder:
        session = create_session(model, replace(settings, profile_prefix=str(Path(folder, "profile"))))
        try:
            for _ in range(runs):
                next_run()
                run_session(session, feeds, label=label_of(model))
            device = device_bytes_in_use(settings)
        finally:
            file = session.end_profiling()
        return read_profile(file, runs), device


def _figures(run: RunProfile, first: RunProfile, settings: SessionSettings) -> RunFigures:
    provider = PROVIDERS[settings.provider]
    events = run.of_provider(provider)
    if not events:
        raise RunFailed(f"no node ran on {provider} with an arena; nothing was measured")
    return RunFigures(
        requested_peak=max(e.requested or 0 for e in events) - first.static_bytes(provider),
        in_use_peak=max(e.in_use_peak or 0 for e in events),
        held=events[-1].held or 0,
    )


def _scratch(figures: RunFigures, run: RunProfile, settings: SessionSettings) -> int:
    static = run.static_bytes(PROVIDERS[settings.provider])
    return max(figures.in_use_peak - static - figures.requested_peak, 0)


def _latency(
    model: ModelSource,
    settings: SessionSettings,
    feeds: Mapping[str, Any],
    runs: int,
    next_run: Callable[[], None],
) -> tuple[float | None, float | None]:
    if runs < 1:
        return None, None
    session = create_session(model, replace(settings, profile_prefix=None))
    times = []
    for _ in range(runs + 1):
        next_run()
        start = time.perf_counter()
        run_session(session, feeds, label=label_of(model))
        times.append((time.perf_counter() - start) * 1e3)
    return times[0], statistics.median(times[1:])
