"""`onnx-symmem report`: a model's memory as it is, as a formula and at shapes, shown or written to files."""

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
@click.option(
    "-o",
    "--out",
    "outs",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="FILE",
    help="Write the report to a file instead: .html (a page with sliders that opens offline), .md, .json or "
    ".png; repeatable.",
)
@click.option(
    "--against",
    type=click.Path(path_type=Path),
    metavar="OTHER",
    help="Another model to hold this one against: show what grew.",
)
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
    """
    from onnx_symmem.report.analysis import analyse
    from onnx_symmem.report.files import check_report_target, write_report
    from onnx_symmem.report.growth import growth
    from onnx_symmem.report.memory import report_of
    from onnx_symmem.report.text.memory import show_memory

    for out in outs:
        check_report_target(out)
    with progress(verbose=ctx.obj.verbose) as tell:
        tell.stage("planning")
        analysis = analyse(model, domain_spec(dims), shapes, ep)
        other = None
        if against is not None:
            tell.stage(f"planning {against.name}")
            other = analyse(against, domain_spec(dims), (), ep, other=True)
        found = report_of(analysis, None if other is None else growth(analysis, other))
        for out in outs:
            tell.stage(f"writing {out.name}")
            write_report(out, found, analysis, other)
    if not as_json:  # the document has them
        notify(found.notices)
    if outs and not as_json:
        for out in outs:
            click.echo(f"{out}: written")
        return
    detailed = range(len(found.moments)) if shapes else None
    answer(found, as_json, lambda console: show_memory(console, found, detailed))
