"""`onnx-symmem check`: whether a model stays within a memory budget, for pipelines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from onnx_symmem.cli.options import (
    DimRange,
    budget_options,
    dim_option,
    domain_spec,
    ep_option,
    json_option,
    models_argument,
    shapes_option,
    size_option,
)
from onnx_symmem.cli.output import answer, notify
from onnx_symmem.cli.progress import progress, ticker

from onnx_symmem.errors import LimitNotMet
from onnx_symmem.expr.shape_text import place_text

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["command"]


@click.command("check")
@models_argument
@size_option("--max-peak", required=True, words="The budget, e.g. 8GiB, 8GB or a number of bytes.")
@shapes_option
@dim_option
@budget_options
@size_option(
    "--memory-limit", required=False,
    words="The limit that a model of several levels is given at run time. Default: the one in the file.",
)  # fmt: skip
@ep_option
@json_option
def command(
    models: tuple[Path, ...],
    max_peak: int,
    shapes: tuple[dict[str, int], ...],
    dims: tuple[DimRange, ...],
    counts: tuple[str, ...],
    reserve: int,
    memory_limit: int | None,
    ep: str,
    as_json: bool,
) -> Any:
    """Check that models stay within a memory budget.

    At the shapes given with --at; without these, for every shape of the domain given with --dim, by proof.
    Ends with code 1 where one does not. Nothing is run and no weights are read.

    \b
    Examples:
      onnx-symmem check model.onnx --max-peak 8GiB --at batch=8,seq=512
      onnx-symmem check model.onnx --max-peak 8GiB --dim batch=1..8 --dim seq=1..512
    """
    from onnx_symmem import api
    from onnx_symmem.report.text.capacity import show_check

    with progress() as tell:
        found = api.check(
            models,
            max_peak,
            at=shapes,
            domain=domain_spec(dims),
            counts=counts,
            reserve=reserve,
            memory_limit=memory_limit,
            provider=ep,
            progress=ticker(tell),
        )

    def show(console: Console) -> None:
        for each in found.checks:
            show_check(console, each)

    if not as_json:  # the document has them
        notify(f"{each.model}: {notice}" for each in found.checks for notice in each.notices)
    answer(found, as_json, show)
    broken = [_reason(each) for each in found.checks if not each.holds]
    if broken:
        more = f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
        raise LimitNotMet(broken[0] + more)


def _reason(found: Any) -> str:
    over = [(shape, needed) for shape, needed in found.needed if needed > found.budget]
    if not over and found.witness is not None:
        over = [(found.witness, found.witness_needed)]
    if not over:
        return f"{found.model}: not proved to stay within {found.budget:,} bytes on the whole domain"
    shape, needed = max(over, key=lambda item: item[1])
    return f"{found.model}: needs {needed:,} bytes {place_text(shape)}, more than {found.budget:,}"
