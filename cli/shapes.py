"""`onnx-symmem shapes`: every tensor's dims as expressions of the input dims."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from onnx_symmem.cli.model_path import OutPath
from onnx_symmem.cli.options import DimRange, dim_option, domain_spec, json_option, model_argument
from onnx_symmem.cli.output import answer
from onnx_symmem.cli.progress import progress, ticker

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["command"]


@click.command("shapes")
@model_argument()
@dim_option
@click.option(
    "--write", "out", type=OutPath(), metavar="OUT",
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

    \b
    Examples:
      onnx-symmem shapes model.onnx
      onnx-symmem shapes model.onnx --why logits
      onnx-symmem shapes model.onnx --dim batch=1..64 --write annotated.onnx
    """
    from onnx_symmem import api
    from onnx_symmem.report.explanation import Explanation
    from onnx_symmem.report.text.explanation import show_explanation
    from onnx_symmem.report.text.inference import show_shapes

    if why is not None and (relations or weights):
        raise click.UsageError("--why shows one tensor; --relations and --weights do not go with it", ctx)
    with progress() as tell:
        found = api.shapes(model, domain_spec(dims), out=out, why=why, progress=ticker(tell))

    def show(console: Console) -> None:
        if isinstance(found, Explanation):
            show_explanation(console, found)
        else:
            show_shapes(console, found, relations, weights)

    answer(found, as_json, show)
