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
from onnx_symmem.cli.progress import progress

from onnx_symmem.errors import UsageError, VerificationFailed

__all__ = ["command"]

_SWITCHES = {"on": True, "off": False, "true": True, "false": False}


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
    from onnx_symmem.report.diagnosis import DiagnosisFigures
    from onnx_symmem.report.text.diagnosis import show_diagnosis
    from onnx_symmem.run.doctor import diagnose

    settings = _settings(model, ep, shipped, session, changes)
    with progress(verbose=ctx.obj.verbose) as tell:
        found = DiagnosisFigures(diagnose(model, at, settings, inputs, tell=tell.stage))
    answer(found, as_json, lambda console: show_diagnosis(console, found))
    if found.problem:
        raise VerificationFailed(found.problem)


def _settings(model: Path, ep: str, shipped: bool, session: Path | None, changes: dict[str, str]) -> Any:
    from dataclasses import replace

    from onnx_symmem.graph.load import load_model
    from onnx_symmem.run.deployment import read_settings, settings_beside
    from onnx_symmem.run.doctor import OPTIONS
    from onnx_symmem.run.session import kept_for
    from onnx_symmem.run.session import shipped as defaults

    if session is not None:
        settings = read_settings(session)
    elif shipped:
        settings = defaults(ep)
    else:
        loaded = load_model(model)
        settings = settings_beside(loaded, ep) or kept_for(loaded, ep)
    for name, text in changes.items():
        if name not in OPTIONS:
            raise UsageError(f"--set '{name}' is not known; expected one of {', '.join(OPTIONS)}")
        value: Any = text
        if isinstance(getattr(settings, name), bool):
            if text not in _SWITCHES:
                raise UsageError(f"--set {name}={text}: expected on or off")
            value = _SWITCHES[text]
        settings = replace(settings, **{name: value})
    return settings
