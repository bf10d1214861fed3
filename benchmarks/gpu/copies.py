"""Copies to the host and back inside a model: what they free, if they are right, how fast (question 4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from benchmarks.gpu.graphs import offload, pinned, round_trips
from benchmarks.gpu.prepared import level_peaks
from benchmarks.gpu.record import Row, mib, words
from benchmarks.gpu.runner import opened
from benchmarks.gpu.setting import Setting, Tasks, counted, each
from onnx_symmem.rewrite.choice import LIMIT

__all__ = ["copies"]

CPU_COPIES = "on the CPU both copies stay in the same memory"


def copies(setting: Setting) -> Iterator[Row]:
    """Does a copy on the host free device memory, are results right every time, how fast is it (4)?"""
    size = 1 << 12 if setting.small else 1 << 24
    rng = np.random.default_rng(0)
    note = CPU_COPIES if setting.provider == "cpu" else ""

    def frees() -> Iterator[Row]:
        x = rng.standard_normal(size, dtype=np.float32)
        found = {}
        for moved in (False, True):
            with opened(offload(moved), setting.provider) as runner:
                runner.run({"x": x})
                run = runner.profiles()[0]
            at = {e.name: (e.requested or 0) - run.static_bytes(e.provider) for e in run.events}
            found[moved] = at["between"]
        saved = (found[False] - found[True]) / x.nbytes
        expected = "1.00" if setting.provider == "cuda" else "0.00"
        yield Row(
            "copies",
            f"{mib(x.nbytes)} MiB",
            "",
            "tensors less in use between",
            f"{saved:.2f}",
            expected,
            note=note,
        )

    def right() -> Iterator[Row]:
        count, times = (2, 5) if setting.small else (4, 100)
        few = size if setting.small else size // 4
        wrong, where, done = 0, Counter[str](), 0
        with opened(pinned(count), setting.provider, profiled=False, on_host=frozenset(["c"])) as runner:
            while done < times and setting.left > 5:
                x = rng.standard_normal(few, dtype=np.float32)
                c = rng.standard_normal(few, dtype=np.float32)
                y = runner.run({"x": x, "c": c}, ["y"])["y"]
                expected = -x
                for _ in range(count):
                    expected = expected + (c + np.float32(few)) / np.float32(2)
                wrong += not np.allclose(y, expected, rtol=1e-4, atol=1e-3)
                done += 1
        with opened(pinned(count), setting.provider, on_host=frozenset(["c"])) as runner:
            runner.run({"x": x, "c": c})
            where.update(f"{e.op} on {e.provider[:4]}" for e in runner.profiles()[0].events)
        shape = f"{done} runs of {count} ways"
        yield Row(
            "copies", f"{mib(x.nbytes)} MiB", shape, "wrong results", str(wrong), "0", note=counted(where)
        )

    def offloaded() -> Iterator[Row]:
        path, shape = setting.file("transformer", "offload"), setting.shapes("transformer")[1]
        feeds = setting.feeds("transformer", shape)
        times = 3 if setting.small else 10
        for level, limit in list(enumerate(level_peaks(path, shape)))[-2:]:
            feeds[LIMIT] = np.array(limit, np.int64)
            with opened(path, setting.provider, profiled=False) as runner:
                names = [o.name for o in runner.session.get_outputs()]
                first = runner.run(feeds, names)
                wrong = 0
                for _ in range(times):
                    again = runner.run(feeds, names)
                    wrong += any(not _close(again[n], first[n]) for n in names)
            subject = f"transformer offload level {level}"
            yield Row(
                "copies",
                subject,
                words(shape),
                f"runs of {times} that differ from the first",
                str(wrong),
                "0",
            )

    def speed() -> Iterator[Row]:
        x = rng.standard_normal(size * (1 if setting.small else 4), dtype=np.float32)
        taken = {}
        for count in (1, 5):
            with opened(round_trips(count), setting.provider, profiled=False) as runner:
                taken[count], _ = runner.latency({"x": x}, 5)
        seconds = (taken[5] - taken[1]) / 4e3
        value = f"{2 * x.nbytes / seconds / 1e9:.1f}" if seconds > 0 else "-"
        yield Row(
            "copies", f"{mib(x.nbytes)} MiB", "", "to the host and back, mean", value, unit="GB/s", note=note
        )

    tasks: Tasks = [("frees", frees), ("right", right), ("offload levels", offloaded), ("speed", speed)]
    yield from each("copies", tasks)


def _close(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal but for the order in which a device adds up."""
    return bool(np.allclose(a, b, rtol=1e-3, atol=1e-3 * max(float(np.abs(b).max(initial=0.0)), 1e-30)))
