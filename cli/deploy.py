"""`onnx-symmem deploy`: code and configuration that keep a model's plan where it is deployed."""

from __future__ import annotations

from pathlib import Path

import click
from onnx_symmem.cli.options import ep_option, model_argument

from onnx_symmem.errors import UsageError

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
    from onnx_symmem.graph.load import load_model
    from onnx_symmem.rewrite.reorder import delivery_of
    from onnx_symmem.run.deployment import SESSION_FILE, deployment_files
    from onnx_symmem.run.session import kept_for
    from onnx_symmem.run.snippets import snippet

    loaded = load_model(model)
    if language == "json":
        click.echo(deployment_files(loaded.proto, ep)[SESSION_FILE], nl=False)
        return
    if language != "python" and delivery_of(loaded.proto) != "anchors":
        raise UsageError(
            f"{model}: only Python can set the order and the memory reuse that it is planned for; write it "
            "with `onnx-symmem optimize --delivery anchors`"
        )
    click.echo(snippet(language, kept_for(loaded, ep), model.name), nl=False)
