"""The check on a CUDA machine: one command of six minutes for what could never be measured without one.

    python -m benchmarks.gpu_check --prepare build/gpu_check   anywhere: plan the models, two minutes
    python -m benchmarks.gpu_check --models build/gpu_check    on the GPU: all parts, results in $OUT
    python -m benchmarks.gpu_check --ep cpu --small            the same path on the CPU, in a minute

The machine needs no network and nothing but Python with numpy, onnx, sympy, click, rich, jinja2 and NVIDIA's
libraries; ONNX Runtime is unpacked from pieces `ort.*` in ~/ort where they lie there. Each part runs in a
process of its own, the most valuable first: one that hangs, crashes or spoils the device is a row of the
results, and what it had found is kept. results.csv grows while the check runs; log.txt has all that was said.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from benchmarks.gpu.record import FAILED, Row, Sheet, row_in, table

__all__ = ["PARTS", "main"]


@dataclass(frozen=True, slots=True)
class _Part:
    """What a part answers, the seconds it may take, and the module that holds it."""

    about: str
    seconds: float
    where: str


PARTS: Mapping[str, _Part] = {
    "environment": _Part("what is there; what a CUDA context takes", 40, "order.environment"),
    "order": _Part(
        "is the executed order the planned one, by option, anchors and in branches", 55, "order.order"
    ),
    "bytes": _Part("predicted against measured bytes, with and without levels", 70, "memory.measured_bytes"),
    "paper": _Part("the paper's training step, with and without levels", 120, "steps.paper"),
    "copies": _Part("copies to the host and back: freed, right, fast", 45, "copies.copies"),
    "branches": _Part("what a branch costs, with one stream for all and without", 25, "memory.branch_cost"),
    "arena": _Part("held against in use", 35, "memory.arena"),
    "latency": _Part("original, planned and levels at three shapes", 60, "steps.latency"),
}
_BUDGET = 340.0  # seconds; a minute's sixths are left for the start and the end
_GRACE = 8.0  # seconds that a part has to end by itself


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the check; 1 where a part failed."""
    given = _arguments(arguments)
    if given.part:
        return _run_part(given)
    if given.prepare is not None:
        return _prepare(given.prepare, given.small)
    started = time.monotonic()
    out = Path(given.out or os.environ.get("OUT", "gpu_results"))
    out.mkdir(parents=True, exist_ok=True)
    sheet = Sheet(out / "results.csv")
    with (out / "log.txt").open("w") as log, tempfile.TemporaryDirectory(prefix="onnx-symmem-") as folder:
        try:
            from benchmarks.gpu.machine import child_environment, unpack_runtime

            site = unpack_runtime() if given.ep == "cuda" else None
            environment = child_environment(site)
            models = Path(folder, "models")
            if given.models is not None:
                shutil.copytree(given.models, models)  # weights are written beside them
            else:
                # Planned on the spot, small or not: in a process of its own, so that it too can be stopped.
                options = ["--prepare", str(models), *(["--small"] if given.small else [])]
                _child("prepare", options, environment, given.budget / 2, sheet, log)
            for name in given.parts or PARTS:
                left = given.budget - (time.monotonic() - started)
                if left < _GRACE:
                    sheet.add(Row(name, "", "", "result", FAILED, note="no time was left"))
                    continue
                seconds = min(PARTS[name].seconds, left)
                options = [
                    "--part",
                    name,
                    "--ep",
                    given.ep,
                    "--models",
                    str(models),
                    "--budget",
                    f"{seconds - _GRACE / 2:.1f}",
                ]
                options += ["--small"] if given.small else []
                _child(name, options, environment, seconds, sheet, log)
        except Exception as error:
            sheet.add(Row("check", "", "", "result", FAILED, note=f"{type(error).__name__}: {error}"))
    sheet.close()
    taken = time.monotonic() - started
    summary = [*table(sheet.rows), f"{len(sheet.rows)} rows in {taken:.0f} s: {sheet.path}"]
    (out / "summary.txt").write_text("\n".join(summary) + "\n")
    print("\n".join(summary), flush=True)
    return 1 if any(row.value == FAILED for row in sheet.rows) else 0


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu_check",
        description=(__doc__ or "").partition("\n")[0],
        epilog="parts:\n" + "\n".join(f"  {name:13}{part.about}" for name, part in PARTS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help="which parts (default: all)")
    parser.add_argument("--ep", choices=("cuda", "cpu"), default="cuda", help="execution provider")
    parser.add_argument("--small", action="store_true", help="small models, few repetitions")
    parser.add_argument("--models", type=Path, metavar="FOLDER", help="models that were prepared")
    parser.add_argument("--prepare", type=Path, metavar="FOLDER", help="plan the models, run nothing")
    parser.add_argument(
        "--budget", type=float, default=_BUDGET, metavar="SECONDS", help="wall time for all parts"
    )
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", help="where results go (default: $OUT, gpu_results)"
    )
    parser.add_argument("--part", default="", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    unknown = [part for part in [*given.parts, *([given.part] if given.part else [])] if part not in PARTS]
    if unknown:
        parser.error(f"no part {unknown[0]}; there are {', '.join(PARTS)}")
    return given


# ------------------------------------------------------------------------------------------------- parts


def _child(
    name: str,
    options: Sequence[str],
    environment: Mapping[str, str],
    seconds: float,
    sheet: Sheet,
    log: IO[str],
) -> None:
    """Run a part, keep its rows as they come, and end it where it takes too long."""
    log.write(f"== {name}\n")
    log.flush()
    command = [sys.executable, "-m", "benchmarks.gpu_check", *options]
    start = time.monotonic()
    overdue = threading.Event()

    def stop() -> None:
        overdue.set()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    # A session of its own: whatever the part started ends with it.
    with subprocess.Popen(
        command, env=dict(environment), cwd=Path(__file__).resolve().parents[1], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace", start_new_session=True,
    ) as process:  # fmt: skip
        timer = threading.Timer(seconds, stop)
        timer.start()
        for line in process.stdout or ():
            row = row_in(line)
            if row is None:
                log.write(line)
                log.flush()
            else:
                sheet.add(row)
        code = process.wait()
        timer.cancel()
    if overdue.is_set():
        sheet.add(Row(name, "", "", "result", FAILED, note=f"stopped after {seconds:.0f} s"))
    elif code:
        reason = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}, see log.txt"
        sheet.add(Row(name, "", "", "result", FAILED, note=reason))
    sheet.add(Row(name, "", "", "took", f"{time.monotonic() - start:.1f}", unit="s"))


def _run_part(given: argparse.Namespace) -> int:
    """One part, in its own process: its rows go to stdout as they are found."""
    from importlib import import_module

    from benchmarks.gpu.prepared import read_prepared
    from benchmarks.gpu.setting import Setting

    end = time.monotonic() + given.budget
    models = read_prepared(given.models)
    setting = Setting(given.ep, given.small, given.models, models, end)
    module, _, name = PARTS[given.part].where.partition(".")
    rows: Callable[[Setting], Iterator[Row]] = getattr(import_module(f"benchmarks.gpu.{module}"), name)
    for row in rows(setting):
        print(row.line(), flush=True)
    return 0


def _prepare(folder: Path, small: bool) -> int:
    from benchmarks.gpu.prepared import prepare

    started = time.monotonic()
    models = prepare(folder, small, tell=lambda text: print(text, flush=True))
    size = sum(path.stat().st_size for path in folder.iterdir())
    missing = [note for model in models for note in model.notes]
    print(
        f"{folder}: {len(models)} models, {size / 1e6:.1f} MB, {time.monotonic() - started:.0f} s", flush=True
    )
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
