"""The flags that every verb takes, before it or after it: how much is said on stderr.

    (nothing)   notes, and on a terminal a line of progress with the time left
    -q          errors only: the result is all that is printed
    -v          what is being done, a line per stage, and more of the result
    --debug     the traceback of an error

What is printed on stdout with `--json` does not depend on them.
"""

from __future__ import annotations

from dataclasses import dataclass

import click

__all__ = ["Flags", "flag_options", "given_flags"]


@dataclass(slots=True)
class Flags:
    """The flags of one call; `ctx.obj` of every command."""

    debug: bool = False
    verbose: bool = False
    quiet: bool = False


def given_flags() -> Flags:
    """The flags of the present call; those of a call without any where there is none."""
    ctx = click.get_current_context(silent=True)
    found = None if ctx is None else ctx.find_object(Flags)
    return found or Flags()


def _raise_flag(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if not value:
        return
    assert param.name is not None
    flags = ctx.ensure_object(Flags)
    setattr(flags, param.name, True)
    if flags.quiet and flags.verbose:
        raise click.UsageError("-q and -v contradict each other", ctx)


def flag_options() -> list[click.Option]:
    """The flags as options of a command; they are not among what its function is given."""
    said = {
        ("-q", "--quiet"): "No progress and no notes: the result and errors only.",
        ("-v", "--verbose"): "Say on stderr what is being done, and show more of the result.",
        ("--debug",): "Show the traceback of an error.",
    }
    # Eager: a bad --dim must already know whether it may show its traceback.
    return [
        click.Option(
            list(names), is_flag=True, is_eager=True, expose_value=False, callback=_raise_flag, help=words
        )
        for names, words in said.items()
    ]
