"""`onnx-symmem shapes`: every tensor's dims as expressions of the input dims."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click
from onnx_symmem.cli.options import DimRange, dim_option, domain_spec, json_option, model_argument
from onnx_symmem.cli.output import answer
from onnx_symmem.cli.progress import progress

__all__ = ["command"]


@click.command("shapes")
@model_argument()
@dim_option
@click.option(
    "--write", "out", type=click.Path(path_type=Path), metavar="OUT",
    help="Also write the model with all dims as value_info.",
)  # fmt: skip
@click.option("--relations", is_flag=True, help="Also show what operators say about dims.")
@click.option("--weights", is_flag=True, help="Also show weights.")
@click.option("--why", metavar="TENSOR", help="Explain the dims of one tensor, back to the inputs, instead.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    model: Path,
    dims: tuple[DimRange, ...],
    out: Path | None,
    relations: bool,
    weights: bool,
    why: str | None,
    as_json: bool,
) -> Any:
    """Show tensor shapes as expressions of input dims.

    Also what stayed unknown and why, what the model needs in order to run, and which shapes it accepts.
    """
    from onnx_symmem.api import infer_shapes
    from onnx_symmem.graph.load import load_model
    from onnx_symmem.graph.save import StagedModel, check_target
    from onnx_symmem.report.explanation import explain
    from onnx_symmem.report.inference import shape_table
    from onnx_symmem.report.text.explanation import show_explanation
    from onnx_symmem.report.text.inference import show_shapes
    from onnx_symmem.rewrite.value_info import write_dims

    if why is not None and (relations or weights):
        raise click.UsageError("--why shows one tensor; --relations and --weights do not go with it", ctx)
    if out is not None:
        check_target(out)
    with progress(verbose=ctx.obj.verbose) as tell:
        start = time.perf_counter()
        tell.stage("loading")
        loaded = load_model(model)
        read = time.perf_counter()
        tell.stage("inferring shapes")
        shapes = infer_shapes(loaded, domain_spec(dims))
        seconds = {"load": read - start, "shapes": time.perf_counter() - read}
        explained = None if why is None else explain(loaded.label, shapes, why)
        if out is not None:
            tell.stage("writing")
            with StagedModel(write_dims(loaded.proto, shapes), out, loaded.folder) as staged:
                staged.commit()
    if explained is not None:
        answer(explained, as_json, lambda console: show_explanation(console, explained))
        return
    figures = shape_table(loaded.label, shapes, None if out is None else str(out), seconds)
    answer(figures, as_json, lambda console: show_shapes(console, figures, relations, weights))
