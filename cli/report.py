"""`onnx-symmem report`: a model's memory as it is, as a formula and at shapes, shown or written to files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from onnx_symmem.cli.model_path import OutPath
from onnx_symmem.cli.options import (
    DimRange,
    against_option,
    dim_option,
    domain_spec,
    ep_option,
    json_option,
    model_argument,
    shapes_option,
)
from onnx_symmem.cli.output import answer, notify
from onnx_symmem.cli.progress import progress, ticker

__all__ = ["command"]


@click.command("report")
@model_argument()
@click.option(
    "-o",
    "--out",
    "outs",
    type=OutPath(),
    multiple=True,
    metavar="FILE",
    help="Write the report to a file instead: .html (a page with sliders that opens offline), .md, .json or "
    ".png; repeatable.",
)
@against_option("Another model to hold this one against: show what grew.")
@dim_option
@shapes_option
@ep_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    model: Path,
    outs: tuple[Path, ...],
    against: Path | None,
    dims: tuple[DimRange, ...],
    shapes: tuple[dict[str, int], ...],
    ep: str,
    as_json: bool,
) -> Any:
    """Explain a model's memory: peak, timeline, tensors.

    The model is taken as it is, in the order of its file; neither weights nor a run are needed.

    \b
    Examples:
      onnx-symmem report model.onnx --dim batch=1..64 --dim seq=1..2048 -o report.html
      onnx-symmem report model.onnx --at batch=8,seq=512
      onnx-symmem report planned.onnx --against model.onnx -o growth.md
    """
    from onnx_symmem import api
    from onnx_symmem.report.text.memory import show_memory

    with progress() as tell:
        found = api.report(
            model,
            outs,
            against=against,
            domain=domain_spec(dims),
            at=shapes,
            provider=ep,
            progress=ticker(tell),
        )
    if not as_json:  # the document has them
        notify(found.notices)
    if outs and not as_json:
        for out in () if ctx.obj.quiet else outs:
            click.echo(f"{out}: written")
        return
    detailed = range(len(found.moments)) if shapes else None
    answer(found, as_json, lambda console: show_memory(console, found, detailed))
