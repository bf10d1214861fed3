"""Sessions as the check needs them: outputs stay on the device, profiles and memory can be asked for.

A run through numpy arrays would copy all gradients to the host, which takes longer than many a step. Outputs
are bound to the device and dropped before the next run; inputs are on the device before it starts, but for
the memory limit, which the guard reads on the CPU.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from onnx_symmem.graph.load import LoadedModel, load_model
from onnx_symmem.rewrite.choice import LIMIT
from onnx_symmem.run.profile import NodeEvent, RunProfile, read_profile
from onnx_symmem.run.session import PROVIDERS, SessionSettings, create_session, feeds_of, kept_for

__all__ = ["Runner", "figures", "opened", "provider_name"]

_ON_HOST = frozenset((LIMIT,))


@dataclass(frozen=True, slots=True)
class _Tuned(SessionSettings):
    """Settings with provider options of the check's own."""

    extra: tuple[tuple[str, str], ...] = ()

    def provider_options(self) -> dict[str, str]:
        options = SessionSettings.provider_options(self)
        return {**options, **dict(self.extra)} if self.provider == "cuda" else options


def _tuned(settings: SessionSettings, options: Mapping[str, str]) -> SessionSettings:
    own = {f.name: getattr(settings, f.name) for f in fields(SessionSettings)}
    return _Tuned(**own, extra=tuple(options.items()))


def provider_name(provider: str) -> str:
    """CPUExecutionProvider or CUDAExecutionProvider."""
    return PROVIDERS[provider]


@dataclass
class Runner:
    """A session; `runs` counts those that were profiled."""

    session: Any
    provider: str
    on_host: frozenset[str] = _ON_HOST
    runs: int = 0
    profiled: bool = False
    _profiles: tuple[RunProfile, ...] = field(default=())

    def run(self, feeds: Mapping[str, np.ndarray], fetch: Sequence[str] = ()) -> dict[str, np.ndarray]:
        """One run, waited for; only outputs in `fetch` come to the host."""
        binding = self._bound(feeds)
        self._once(binding)
        names = [o.name for o in self.session.get_outputs()]
        values = dict(zip(names, binding.get_outputs(), strict=True))
        return {name: np.array(values[name].numpy()) for name in fetch}  # not the memory of the arena

    def latency(self, feeds: Mapping[str, np.ndarray], runs: int, most: float = 6.0) -> tuple[float, int]:
        """Milliseconds, the median of up to `runs` runs in `most` seconds, after one that does not count."""
        binding = self._bound(feeds)
        self._once(binding)
        taken: list[float] = []
        started = time.perf_counter()
        while len(taken) < runs and (not taken or time.perf_counter() - started < most):
            self._rebind(binding)
            start = time.perf_counter()
            self._once(binding)
            taken.append(1e3 * (time.perf_counter() - start))
        return statistics.median(taken), len(taken)

    def _once(self, binding: Any) -> None:
        self.session.run_with_iobinding(binding)
        binding.synchronize_outputs()
        self.runs += 1

    def _bound(self, feeds: Mapping[str, np.ndarray]) -> Any:
        import onnxruntime as ort

        binding = self.session.io_binding()
        for name, value in feeds_of(feeds).items():
            if self.provider == "cuda" and name not in self.on_host:
                value = ort.OrtValue.ortvalue_from_numpy(np.asarray(feeds[name], order="C"), "cuda", 0)
            binding.bind_ortvalue_input(name, value)
        self._rebind(binding)
        return binding

    def _rebind(self, binding: Any) -> None:
        """Let go of the outputs of the run before."""
        binding.clear_binding_outputs()
        for output in self.session.get_outputs():
            binding.bind_output(output.name, self.provider)

    def profiles(self) -> tuple[RunProfile, ...]:
        """What ONNX Runtime wrote of all runs; asked for first, it ends the profile."""
        if self.profiled:
            self.profiled = False
            self._profiles = read_profile(self.session.end_profiling(), self.runs)
        return self._profiles


@contextmanager
def opened(
    model: onnx.ModelProto | LoadedModel | Path,
    provider: str,
    settings: SessionSettings | None = None,
    options: Mapping[str, str] | None = None,
    profiled: bool = True,
    on_host: frozenset[str] = frozenset(),
) -> Iterator[Runner]:
    """A session on a model; `options` are provider options beyond those of the settings, CUDA only.

    Inputs named `on_host` stay on the CPU.
    """
    loaded = model if isinstance(model, LoadedModel) else load_model(model)
    settings = settings or kept_for(loaded, provider)
    with tempfile.TemporaryDirectory(prefix="onnx-symmem-") as folder:
        if profiled:
            settings = replace(settings, profile_prefix=str(Path(folder, "profile")))
        session = create_session(model, _tuned(settings, options or {}))
        runner = Runner(session, provider, _ON_HOST | on_host, profiled=profiled)
        try:
            yield runner
        finally:
            if runner.profiled:
                session.end_profiling()  # in this folder, also where a run broke off
            runner.session = None  # else its memory would stay as long as the runner


def figures(run: RunProfile, first: RunProfile, provider: str) -> tuple[int, int, int]:
    """Most bytes that tensors took in a run, most of the arena so far, and what the arena holds after it."""
    events: Sequence[NodeEvent] = run.of_provider(PROVIDERS[provider])
    if not events:
        return 0, 0, 0
    peak = max(e.requested or 0 for e in events) - first.static_bytes(PROVIDERS[provider])
    return peak, max(e.in_use_peak or 0 for e in events), events[-1].held or 0
