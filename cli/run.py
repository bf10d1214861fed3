"""`onnx-symmem run`: run a model as planned, and show prediction and measurement side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from onnx_symmem.cli.options import at_option, ep_option, input_option, json_option, model_argument
from onnx_symmem.cli.output import answer, notify
from onnx_symmem.cli.progress import progress

__all__ = ["command"]

_LATENCY_RUNS = 5


@click.command("run")
@model_argument()
@at_option
@ep_option
@input_option
@click.option(
    "--runs", type=click.IntRange(1, 1000), default=2, show_default=True,
    help="Runs whose memory is measured, in one session.",
)  # fmt: skip
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    model: Path,
    at: dict[str, int],
    ep: str,
    inputs: dict[str, str],
    runs: int,
    as_json: bool,
) -> Any:
    """Run a model as planned and measure its peak memory.

    Inputs are generated; latency is the median of further runs without measurement.
    """
    from onnx_symmem.report.measurements import measured_run
    from onnx_symmem.report.text.measurements import show_run
    from onnx_symmem.run.measure import measure

    with progress(verbose=ctx.obj.verbose) as tell:
        tell.stage("running")
        found = measure(
            model, at, provider=ep, overrides=inputs, runs=runs, latency_runs=max(_LATENCY_RUNS, runs)
        )
    figures = measured_run(found)
    if figures.why_not:
        notify([f"no prediction: {figures.why_not}"])
    answer(figures, as_json, lambda console: show_run(console, figures))
