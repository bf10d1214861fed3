"""The command as it explains itself -> docs/reference/cli.md."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click
from onnx_symmem.cli.flags import flag_options
from onnx_symmem.cli.main import PROGRAM, VERBS, cli

__all__ = ["cli_page"]

_HEAD = f"""# The command

*Written by `make docs` from what `{PROGRAM} VERB --help` says.*

    {PROGRAM} VERB [OPTIONS] ARGUMENTS

{{verbs}}

## Flags of every verb

They stand before or after the verb.

{{flags}}

Colours and the live line of progress are for terminals: a pipe gets neither, and `NO_COLOR` takes the colours
away.

## Sizes, dims, shapes

| what | how it is written |
| --- | --- |
| `SIZE` | `24GiB` (1024 to the third), `24GB` (1000 to the third), or `25769803776` bytes |
| `--dim` | `batch=1..64`, `seq=1..`, `heads=8`, `seq%8` (a multiple of 8), `seq=8..512%8`; default 1 and up |
| `--dim @FILE` | a table `dim` in TOML or YAML, `batch = "1..64"`; `tool.onnx-symmem.dim` in pyproject.toml |
| `--at` | `batch=2,seq=64`: one size for every dim; names with `=`, `,` or `%` in double quotes |

## Exit codes

| code | meaning |
| --- | --- |
| 0 | done |
| 1 | outputs differ, or could not be verified, or a limit cannot be met; nothing was written |
| 2 | bad input or usage |
| 3 | unsupported model |
| 4 | the run failed, or a defect of this tool |
| 130 | interrupted |

An error is one line on stderr that names the file, what was met, what was expected and what to do.
"""


def cli_page() -> str:
    """The page, in Markdown."""
    verbs = "\n".join(
        ["| verb | what it does |", "| --- | --- |"]
        + [f"| [`{name}`](#{name}) | {verb.help} |" for name, verb in VERBS.items()]
    )
    with click.Context(cli, info_name=PROGRAM, **cli.context_settings) as root:
        flags = _table(flag_options(), root)
        sections = [_section(name, root) for name in VERBS]
    return "\n\n".join([_HEAD.format(verbs=verbs, flags=flags).strip(), *sections]) + "\n"


def _section(name: str, root: click.Context) -> str:
    command = VERBS[name].load()
    parts = [f"## {name}"]
    with click.Context(command, info_name=name, parent=root) as ctx:
        usage = " ".join(command.collect_usage_pieces(ctx))
        parts += [f"    {PROGRAM} {name} {usage}", *_words(command)]
        options = [
            param for param in command.params if isinstance(param, click.Option) and param.expose_value
        ]
        if options:
            parts.append(_table(options, ctx))
    return "\n\n".join(parts)


def _words(command: click.Command) -> Iterator[str]:
    """Paragraphs of the help; those that click leaves as they are have lines of code."""
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        if not paragraph.startswith("\b"):
            yield paragraph
            continue
        code: list[str] = []
        for line in paragraph.splitlines()[1:]:
            if line.startswith(" "):
                code.append(f"    {line.strip()}")
                continue
            if code:
                yield "\n".join(code)
                code = []
            yield line
        yield "\n".join(code)


def _table(options: list[click.Option], ctx: click.Context) -> str:
    rows = ["| option | meaning |", "| --- | --- |"]
    for option in options:
        record = option.get_help_record(ctx)
        assert record is not None, option.name
        spelled, words = (" ".join(text.split()).replace("|", "\\|") for text in record)
        rows.append(f"| `{spelled}` | {words} |")
    return "\n".join(rows)
