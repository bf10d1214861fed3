"""`onnx-symmem deploy`: code and configuration that keep a model's plan where it is deployed."""

from __future__ import annotations

from pathlib import Path

import click
from onnx_symmem.cli.options import ep_option, model_argument

__all__ = ["command"]


@click.command("deploy")
@model_argument()
@click.option(
    "--language", type=click.Choice(["cpp", "csharp", "python", "triton", "json"]), default="cpp",
    show_default=True, help="json: all settings as data, as `optimize --deployment` writes them.",
)  # fmt: skip
@ep_option
def command(model: Path, language: str, ep: str) -> None:
    """Print what makes a session that keeps a model's plan: code, or a part of Triton's config.pbtxt.

    Outside Python only models that were written with `optimize --delivery anchors` keep their plan.

    \b
    Examples:
      onnx-symmem deploy planned.onnx --language csharp > Planned.cs
      onnx-symmem deploy planned.onnx --language triton >> repository/planned/config.pbtxt
    """
    from onnx_symmem import api

    click.echo(api.deploy(model, language, provider=ep), nl=False)
