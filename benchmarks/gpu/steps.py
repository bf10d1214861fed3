"""Whole steps: latency of original and planned models level by level (question 6), and the paper's model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.gpu.machine import memory_in_use
from benchmarks.gpu.prepared import level_peaks
from benchmarks.gpu.record import FAILED, Row, mib, words
from benchmarks.gpu.runner import Runner, figures, opened, provider_name
from benchmarks.gpu.setting import NO_DEVICE, Setting, Tasks, attempt, counted, each
from onnx_symmem.api import memory_profile
from onnx_symmem.errors import SymmemError
from onnx_symmem.run.baseline import baseline_settings
from onnx_symmem.run.session import SessionSettings, shipped

__all__ = ["latency", "lengths", "paper"]

_RUNS, _SECONDS = 10, 2.0  # at most, of one shape
_LIMIT = 40 << 30  # bytes of the paper's device
_BATCHES, _SMALL_BATCHES = (14, 16, 18), (2, 3)
_SHORTEST, _LONGEST, _LONGEST_SMALL = 100, 1536, 24
_DRAWN = 6
_END = 5.0  # seconds kept for the rows


def latency(setting: Setting) -> Iterator[Row]:
    """Original, planned, and every level, at three shapes; outputs stay on the device."""
    settings: dict[str, SessionSettings | None] = {
        "as shipped": shipped(setting.provider),
        "original": baseline_settings("none", setting.provider),
        "planned": None,
    }

    def plain(name: str, label: str) -> Iterator[Row]:
        path = setting.file(name, "planned" if label == "planned" else "original")
        with opened(path, setting.provider, settings[label], profiled=False) as runner:
            for shape in setting.shapes(name):
                yield _latency_row(runner, f"{name} {label}", shape, setting.feeds(name, shape))

    def levels(variant: str) -> Iterator[Row]:
        path = setting.file("transformer", variant)
        with opened(path, setting.provider, profiled=False) as runner:
            for shape in setting.shapes("transformer"):
                for level, limit in enumerate(level_peaks(path, shape)):
                    feeds = setting.feeds("transformer", shape, limit)
                    yield _latency_row(runner, f"transformer {variant} level {level}", shape, feeds)

    tasks: Tasks = [(f"transformer {s}", lambda s=s: plain("transformer", s)) for s in settings]
    tasks += [(f"transformer {v}", lambda v=v: levels(v)) for v in ("levels", "offload")]
    tasks += [(f"unet {s}", lambda s=s: plain("unet", s)) for s in settings]
    yield from each("latency", tasks)


def _latency_row(
    runner: Runner, subject: str, shape: Mapping[str, int], feeds: Mapping[str, np.ndarray]
) -> Row:
    taken, runs = runner.latency(feeds, _RUNS, _SECONDS)
    return Row("latency", subject, words(shape), "run", f"{taken:.3f}", unit="ms", note=f"median of {runs}")


# ------------------------------------------------------------------------------------------------- paper


@dataclass(frozen=True, slots=True)
class _Step:
    """One step of training: its shape, the limit that is fed, and the peak by formula, None where unknown."""

    shape: Mapping[str, int]
    limit: int | None = None
    expected: int | None = None
    note: str = ""


def lengths(shortest: int, longest: int, count: int = _DRAWN, seed: int = 0) -> tuple[int, ...]:
    """Lengths of mixed batches: their logarithms are spread evenly."""
    ends = np.log(shortest), np.log(longest)
    return tuple(int(n) for n in np.exp(np.random.default_rng(seed).uniform(*ends, count)))


def paper(setting: Setting) -> Iterator[Row]:
    """The paper's training step: peaks at its batches and at mixed lengths, with and without levels."""
    seq = setting.shapes("paper")[0]["seq"]
    batches = _SMALL_BATCHES if setting.small else _BATCHES
    drawn = lengths(1, _LONGEST_SMALL, 2) if setting.small else lengths(_SHORTEST, _LONGEST)
    fixed = [{"batch": batch, "seq": seq} for batch in batches]
    mixed = [{"batch": batches[0], "seq": n} for n in drawn]

    def without(label: str, variant: str, settings: SessionSettings | None) -> Iterator[Row]:
        path = setting.file("paper", variant)
        shapes = [*fixed, *mixed]
        peaks: Sequence[int | None] = [None] * len(shapes)
        if label != "as shipped":  # its memory pattern is beyond the plan
            peaks = _peaks(path, None if settings is None else "default", setting.provider, shapes)
        steps = [_Step(s, None, n) for s, n in zip(shapes, peaks, strict=True)]
        yield from _steps(setting, label, path, steps, settings)

    def levels_forced() -> Iterator[Row]:
        path = setting.file("paper", "levels")
        steps = [
            _Step(shape, need, need, f"level {level}")
            for shape in fixed
            for level, need in enumerate(level_peaks(path, shape))
        ]
        yield from _steps(setting, "levels, each forced", path, steps, None)

    def levels_chosen() -> Iterator[Row]:
        path = setting.file("paper", "levels")
        limit = _LIMIT - _weights(setting.file("paper", "original"))
        if setting.small:
            limit = min(level_peaks(path, mixed[0]))
        steps = []
        for shape in mixed:
            needs = level_peaks(path, shape)
            level = next((k for k, n in enumerate(needs) if n <= limit), len(needs) - 1)
            steps.append(_Step(shape, limit, needs[level], f"level {level}"))
        yield from _steps(setting, "levels under 40 GiB", path, steps, None)

    note = f"batches {batches} at length {seq}; batch {batches[0]} at lengths {drawn}"
    yield Row("paper", "", "", "model", setting.models["paper"].about, note=note)
    before = baseline_settings("none", setting.provider)
    tasks: Tasks = [
        ("levels, each forced", levels_forced),
        ("original", lambda: without("original", "original", before)),
        ("planned", lambda: without("planned", "planned", None)),
        ("levels under 40 GiB", levels_chosen),
        ("as shipped", lambda: without("as shipped", "original", shipped(setting.provider))),
    ]
    yield from each("paper", tasks)


def _steps(
    setting: Setting, label: str, path: Path, steps: Sequence[_Step], settings: SessionSettings | None
) -> Iterator[Row]:
    """All steps in one session; rows of what each took, read off the profile at the end."""
    failed: list[Row] = []
    done: list[_Step] = []
    with opened(path, setting.provider, settings) as runner:
        for step in steps:
            if setting.left < _END:
                failed.append(
                    Row("paper", label, words(step.shape), "result", FAILED, note="no time was left")
                )
                break
            with attempt(failed, "paper", label, words(step.shape)):
                runner.run(setting.feeds("paper", step.shape, step.limit))
                done.append(step)
                continue
            break  # a session whose memory ran out is in no state to go on
        used = memory_in_use(setting.provider)
        profiles = runner.profiles() if done else ()
    for step, run in zip(done, profiles, strict=True):
        most, _, _ = figures(run, profiles[0], setting.provider)
        expected = "" if step.expected is None else mib(step.expected)
        at = words(step.shape)
        yield Row("paper", label, at, "tensors at the peak", mib(most), expected, "MiB", step.note)
        yield Row("paper", label, at, "run", f"{run.duration_us / 1e3:.1f}", "", "ms", step.note)
    if done:
        _, in_use, held = figures(profiles[-1], profiles[0], setting.provider)
        note = f"in use at most {mib(in_use)}; driver's count {NO_DEVICE if used is None else mib(used)}"
        yield Row("paper", label, "after all", "held", mib(held), "", "MiB", note)
        mine = provider_name(setting.provider)
        elsewhere = Counter(e.op for e in profiles[0].walk() if e.provider != mine or "Memcpy" in e.op)
        yield Row(
            "paper", label, "first run", "nodes on the CPU", str(elsewhere.total()), note=counted(elsewhere)
        )
    yield from failed


def _peaks(
    path: Path, order: str | None, provider: str, shapes: Sequence[Mapping[str, int]]
) -> list[int | None]:
    """Peaks of outputs and activations by formula; None where there is none."""
    try:
        found = memory_profile(path, provider=provider, order=order).in_use.evaluate(list(shapes))
    except (SymmemError, KeyError):  # a size that only data tells
        return [None] * len(shapes)
    return [int(n) for n in found.max(axis=0)]


def _weights(path: Path) -> int:
    """Bytes of the weights."""
    return int(memory_profile(path).weights.as_int() or 0)
