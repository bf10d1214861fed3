"""`onnx-symmem report`: a model's memory as it is, as a formula and at shapes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from onnx_symmem.cli.options import (
    DimRange,
    dim_option,
    domain_spec,
    ep_option,
    json_option,
    model_argument,
    shapes_option,
)
from onnx_symmem.cli.output import answer, notify
from onnx_symmem.cli.progress import progress

__all__ = ["command"]


@click.command("report")
@model_argument()
@dim_option
@shapes_option
@ep_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    model: Path,
    dims: tuple[DimRange, ...],
    shapes: tuple[dict[str, int], ...],
    ep: str,
    as_json: bool,
) -> Any:
    """Explain a model's memory: peak, timeline, tensors.

    The model is taken as it is, in the order of its file; neither weights nor a run are needed.
    """
    from onnx_symmem.report.memory import memory_report
    from onnx_symmem.report.text.memory import show_memory

    with progress(verbose=ctx.obj.verbose) as tell:
        tell.stage("planning")
        found = memory_report(model, domain_spec(dims), shapes, ep)
    if not as_json:  # the document has them
        notify(found.notices)
    detailed = range(len(found.moments)) if shapes else None
    answer(found, as_json, lambda console: show_memory(console, found, detailed))
