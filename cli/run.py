"""`onnx-symmem run`: run a model as planned, and show prediction and measurement side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from onnx_symmem.cli.options import at_option, ep_option, input_option, json_option, model_argument
from onnx_symmem.cli.output import answer, notify
from onnx_symmem.cli.progress import progress, ticker

__all__ = ["command"]


@click.command("run")
@model_argument()
@at_option
@ep_option
@input_option
@click.option(
    "--runs", type=click.IntRange(1, 1000), default=2, show_default=True, metavar="N",
    help="Runs whose memory is measured, in one session.",
)  # fmt: skip
@click.option(
    "--prepacking/--no-prepacking",
    default=True,
    show_default=True,
    help="Whether kernels may lay weights out anew; without it, less memory, more time, other last bits.",
)
@json_option
def command(
    model: Path,
    at: dict[str, int],
    ep: str,
    inputs: dict[str, str],
    runs: int,
    prepacking: bool,
    as_json: bool,
) -> Any:
    """Run a model as planned and measure its peak memory.

    Inputs are generated; latency is the median of further runs without measurement.

    \b
    Examples:
      onnx-symmem run planned.onnx --at batch=8,seq=512
      onnx-symmem run planned.onnx --at batch=1,seq=64 --input ids=randint:0:30000 --runs 4
      onnx-symmem run planned.onnx --at batch=8,seq=512 --no-prepacking
    """
    from onnx_symmem import api
    from onnx_symmem.report.text.measurements import show_run

    with progress() as tell:
        figures = api.run(
            model, at, provider=ep, inputs=inputs, runs=runs, prepacking=prepacking, progress=ticker(tell)
        )
    if figures.why_not:
        notify([f"no prediction: {figures.why_not}"])
    answer(figures, as_json, lambda console: show_run(console, figures))
