"""`onnx-symmem doctor`: whether a session or a deployment keeps a model's plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from onnx_symmem.cli.options import (
    at_option,
    ep_option,
    input_option,
    json_option,
    model_argument,
    parse_assignments,
)
from onnx_symmem.cli.output import answer
from onnx_symmem.cli.progress import progress, ticker

from onnx_symmem.errors import VerificationFailed

__all__ = ["command"]


@click.command("doctor")
@model_argument()
@at_option
@click.option("--shipped", is_flag=True, help="Diagnose ONNX Runtime's own defaults.")
@click.option(
    "--session", type=click.Path(path_type=Path), metavar="FILE",
    help="Diagnose the settings in a file, as `optimize` writes them beside the model.",
)  # fmt: skip
@click.option(
    "--set", "changes", multiple=True, metavar="NAME=VALUE",
    callback=lambda _ctx, _param, texts: parse_assignments("--set", texts),
    help="Change one setting: optimization=none|basic|extended|all, execution_order=priority|default, "
    "mem_pattern=on|off, mem_reuse=on|off, arena=same_as_requested|power_of_two; repeatable.",
)  # fmt: skip
@ep_option
@input_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    model: Path,
    at: dict[str, int],
    shipped: bool,
    session: Path | None,
    changes: dict[str, str],
    ep: str,
    inputs: dict[str, str],
    as_json: bool,
) -> Any:
    """Say whether a session keeps a model's plan, and which setting breaks it.

    The model runs as planned and under the given settings (by default those of `create_session`): the order
    in which nodes ran and their bytes are compared, then every setting that differs is tried alone. Ends
    with code 1 where the plan is not kept.

    \b
    Examples:
      onnx-symmem doctor planned.onnx --at batch=2,seq=64 --shipped
      onnx-symmem doctor planned.onnx --at batch=2,seq=64 --set mem_pattern=on
    """
    if shipped and session is not None:
        raise click.UsageError("--shipped and --session contradict each other", ctx)
    from onnx_symmem import api
    from onnx_symmem.report.text.diagnosis import show_diagnosis

    with progress() as tell:
        found = api.doctor(
            model,
            at,
            shipped=shipped,
            session=session,
            changes=changes,
            provider=ep,
            inputs=inputs,
            progress=ticker(tell),
        )
    answer(found, as_json, lambda console: show_diagnosis(console, found))
    if found.problem:
        raise VerificationFailed(found.problem)
