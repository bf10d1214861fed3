"""`onnx-symmem fit`: the largest dim that stays within a memory budget."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from onnx_symmem.cli.model_path import OutPath
from onnx_symmem.cli.options import (
    DimRange,
    against_option,
    at_option,
    budget_options,
    dim_option,
    domain_spec,
    ep_option,
    json_option,
    model_argument,
    parse_names,
    size_option,
)
from onnx_symmem.cli.output import answer, notify
from onnx_symmem.cli.progress import progress, ticker

__all__ = ["command"]


@click.command("fit")
@model_argument()
@size_option("--budget", required=True, words="Memory that there is, e.g. 24GiB, 24GB or a number of bytes.")
@click.option(
    "--solve", required=True, metavar="NAME[,NAME]",
    callback=lambda _ctx, _param, text: parse_names(text, "--solve"),
    help="The dim to make as large as fits; with a second dim, for a ladder of its sizes.",
)  # fmt: skip
@against_option("Another model to solve for as well, such as the one before `optimize`.")
@at_option
@dim_option
@budget_options
@size_option(
    "--memory-limit", required=False,
    words="The limit that a model of several levels is given at run time. Default: the one in the file.",
)  # fmt: skip
@click.option(
    "-o", "--out", type=OutPath(), metavar="FILE.png",
    help="With two dims: draw the frontier, too.",
)  # fmt: skip
@ep_option
@json_option
def command(
    model: Path,
    budget: int,
    solve: tuple[str, ...],
    against: Path | None,
    at: dict[str, int],
    dims: tuple[DimRange, ...],
    counts: tuple[str, ...],
    reserve: int,
    memory_limit: int | None,
    out: Path | None,
    ep: str,
    as_json: bool,
) -> Any:
    """Find the largest dim at which a model fits into memory.

    Exact, from the formulas of the plan: nothing is run and no weights are read. A model is taken as
    `create_session` runs it, one that was not planned in the order of its file. The answer has the bytes that
    it needs, and what the next larger size would need. That none fits is an answer, too, with exit code 0;
    `check` is the test that fails.

    \b
    Examples:
      onnx-symmem fit planned.onnx --budget 24GiB --solve batch --at seq=2048
      onnx-symmem fit planned.onnx --against model.onnx --budget 24GiB --solve batch,seq -o frontier.png
    """
    from onnx_symmem import api
    from onnx_symmem.report.text.capacity import show_fit

    with progress() as tell:
        found = api.fit(
            model,
            budget,
            solve,
            against=against,
            at=at,
            domain=domain_spec(dims),
            counts=counts,
            reserve=reserve,
            memory_limit=memory_limit,
            out=out,
            provider=ep,
            progress=ticker(tell),
        )
    if not as_json:  # the document has them
        notify(found.notices)
    answer(found, as_json, lambda console: show_fit(console, found))
