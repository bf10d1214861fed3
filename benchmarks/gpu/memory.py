"""Bytes on the device: predicted and measured (question 2), per branch (3), of the arena and beyond (5)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np

from benchmarks.gpu.graphs import branches
from benchmarks.gpu.machine import memory_in_use
from benchmarks.gpu.prepared import level_peaks
from benchmarks.gpu.record import Row, mib, words
from benchmarks.gpu.runner import figures, opened
from benchmarks.gpu.setting import NO_DEVICE, Setting, Tasks, attempt, each
from onnx_symmem.rewrite.choice import LIMIT
from onnx_symmem.run.measure import Measurement, measure
from onnx_symmem.run.session import shipped

__all__ = ["arena", "branch_cost", "measured_bytes"]

_MISMATCHES = 6  # operators named per model


def measured_bytes(setting: Setting) -> Iterator[Row]:
    """Predicted against measured bytes of every node, with and without levels, and what comes on top (2)."""

    def one(
        name: str, variant: str, shape: Mapping[str, int], limit: int | None, level: str
    ) -> Iterator[Row]:
        given = {} if limit is None else {LIMIT: np.array(limit, np.int64)}
        path = setting.file(name, variant)
        found = measure(path, shape, setting.provider, overrides=given, runs=1, latency_runs=0)
        yield from _bytes_rows(f"{name} {variant}{level}", words(shape), found)

    tasks: Tasks = []
    for name in ("transformer", "unet"):
        shapes = setting.shapes(name)
        for shape in shapes[:1] if setting.small else shapes:
            tasks.append((f"{name} planned", lambda n=name, s=shape: one(n, "planned", s, None, "")))
    one_shape = setting.shapes("transformer")[1]
    tasks.append(("transformer anchors", lambda: one("transformer", "anchors", one_shape, None, "")))
    for variant in ("levels", "offload"):
        shape = setting.shapes("transformer")[-1 if setting.small else 1]
        rows: list[Row] = []
        with attempt(rows, "bytes", f"transformer {variant}", words(shape)):
            for level, limit in enumerate(level_peaks(setting.file("transformer", variant), shape)):
                tasks.append(
                    (f"transformer {variant}",
                     lambda v=variant, s=shape, m=limit, k=level: one("transformer", v, s, m, f" level {k}"))
                )  # fmt: skip
        yield from rows
    yield from each("bytes", tasks)


def _bytes_rows(subject: str, shape: str, found: Measurement) -> Iterator[Row]:
    run, prediction = found.runs[0], found.prediction
    taken = "" if found.version is None else f"the guard took level {found.version}"
    expected = "" if prediction.peak is None else mib(prediction.peak)
    yield Row("bytes", subject, shape, "tensors at the peak", mib(run.requested_peak), expected, "MiB", taken)
    if prediction.why_not:
        yield Row("bytes", subject, shape, "nodes equal", "-", note=prediction.why_not)
    else:
        changes: Counter[str] = Counter()
        for m in found.mismatches:
            changes[m.op] += abs(m.change)
        worst = ", ".join(f"{op} {mib(size)} MiB" for op, size in changes.most_common(_MISMATCHES) if size)
        note = f"differences arise at {worst}" if worst else "; ".join(prediction.reasons)
        yield Row(
            "bytes", subject, shape, "nodes equal", str(prediction.equal), str(prediction.compared), note=note
        )
    yield Row(
        "bytes", subject, shape, "workspace on top", mib(found.scratch), unit="MiB",
        note="kernels' buffers and chunk slack",
    )  # fmt: skip


def branch_cost(setting: Setting) -> Iterator[Row]:
    """What each branch that runs costs: streams and handles, with and without one stream for all (3)."""
    count, width = (3, 16) if setting.small else (8, 256)
    model = branches(count, width)
    names = frozenset(f"c{k}" for k in range(count))
    x = np.ones((4, width), np.float32)

    def one(unified: str) -> Iterator[Row]:
        subject = f"{count} Ifs"
        shape = f"use_ep_level_unified_stream={unified}"
        options = {"use_ep_level_unified_stream": unified}
        with opened(model, setting.provider, options=options, on_host=names) as runner:
            used, times = [memory_in_use(setting.provider)], []
            for way in (True, False, True):
                start = time.perf_counter()
                runner.run({"x": x, **dict.fromkeys(names, np.array(way))})
                times.append(time.perf_counter() - start)
                used.append(memory_in_use(setting.provider))
            held = [figures(run, runner.profiles()[0], setting.provider)[2] for run in runner.profiles()]
        numbers = [u for u in used if u is not None]
        if len(numbers) < len(used):
            yield Row("branches", subject, shape, "device memory per branch", "-", unit="MiB", note=NO_DEVICE)
        else:
            first = (numbers[1] - numbers[0] - held[0]) / count
            second = (numbers[2] - numbers[1] - held[1] + held[0]) / count
            note = f"first run {mib(first)} each, with what any first run loads"
            yield Row(
                "branches", subject, shape, "device memory per branch", mib(second), unit="MiB", note=note
            )
        shown = ", ".join(f"{1e3 * t:.2f}" for t in times)
        yield Row(
            "branches", subject, shape, "run", shown, unit="ms", note="then-branches, else-branches, again"
        )

    yield from each("branches", [(f"unified {u}", lambda u=u: one(u)) for u in ("1", "0")])


def arena(setting: Setting) -> Iterator[Row]:
    """What the arena holds beside what is in use, and what the driver counts (5)."""

    def one(name: str, variant: str, label: str) -> Iterator[Row]:
        path, shape = setting.file(name, variant), setting.shapes(name)[-1]
        settings = shipped(setting.provider) if label == "as shipped" else None
        before = memory_in_use(setting.provider)
        with opened(path, setting.provider, settings) as runner:
            loaded = memory_in_use(setting.provider)
            for _ in range(2):
                runner.run(setting.feeds(name, shape))
            after = memory_in_use(setting.provider)
            profiles = runner.profiles()
        peak, in_use, held = figures(profiles[-1], profiles[0], setting.provider)
        subject, at = f"{name} {label}", words(shape)
        note = f"tensors {mib(peak)}, in use {mib(in_use)}"
        yield Row("arena", subject, at, "held after two runs", mib(held), unit="MiB", note=note)
        yield Row("arena", subject, at, "held / in use", f"{held / max(in_use, 1):.3f}")
        if before is None or loaded is None or after is None:
            yield Row("arena", subject, at, "driver's count", "-", unit="MiB", note=NO_DEVICE)
        else:
            note = f"{mib(loaded - before)} before the first run (weights, context)"
            yield Row("arena", subject, at, "driver's count", mib(after - before), unit="MiB", note=note)

    tasks: Tasks = []
    for name in ("transformer", "unet"):
        tasks.append((f"{name} planned", lambda n=name: one(n, "planned", "planned")))
        tasks.append((f"{name} shipped", lambda n=name: one(n, "original", "as shipped")))
    yield from each("arena", tasks)
