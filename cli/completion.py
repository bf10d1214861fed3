"""`onnx-symmem completion`: the script that completes this command in a shell."""

from __future__ import annotations

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

__all__ = ["COMPLETE_VAR", "command"]

COMPLETE_VAR = "_ONNX_SYMMEM_COMPLETE"
"""What a shell sets when it asks for completions; click derives it from the command's name."""

_SHELLS: dict[str, type[ShellComplete]] = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}


@click.command("completion")
@click.argument("shell", type=click.Choice(list(_SHELLS)))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print what completes verbs, options, and model files in a shell.

    \b
    bash, in ~/.bashrc:
      eval "$(onnx-symmem completion bash)"
    zsh, in ~/.zshrc:
      eval "$(onnx-symmem completion zsh)"
    fish, once:
      onnx-symmem completion fish > ~/.config/fish/completions/onnx-symmem.fish

    \b
    Examples:
      onnx-symmem completion bash
      onnx-symmem completion fish
    """
    root = ctx.find_root()
    script = _SHELLS[shell](root.command, {}, root.info_name or "onnx-symmem", COMPLETE_VAR)
    # Not its own `source()`: that starts a bash to ask for its version, and there may be none here.
    click.echo(ShellComplete.source(script), nl=False)
