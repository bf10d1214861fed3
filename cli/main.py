"""The `onnx-symmem` command: finds the verb, and turns every outcome into one line and an exit code.

    0 done · 1 outputs differ, could not be verified, or a limit is not met · 2 bad input or usage
    3 unsupported model · 4 the run failed, or a defect of this tool
    130 interrupted · 141 nobody reads stdout · 143 terminated

Verbs are imported when they are called, so that `--help` needs click alone.

numpy works on one thread here unless the environment says otherwise: planning multiplies many small matrices,
which more threads do not make faster, and sums then do not depend on the number of cores. ONNX Runtime has
threads of its own.
"""

from __future__ import annotations

import importlib
import io
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import click
from onnx_symmem.cli.flags import Flags, flag_options

from onnx_symmem import __version__
from onnx_symmem.errors import SymmemError

__all__ = ["VERBS", "Flags", "Verb", "cli", "main"]

PROGRAM = "onnx-symmem"
UNEXPECTED, USAGE, INTERRUPTED, UNREAD, ENDED = 4, 2, 130, 141, 143
_NUMPY_THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")  # read at its import


@dataclass(frozen=True, slots=True)
class Verb:
    """Where a verb's click command lives, as `module:attribute`, and its line in `--help`."""

    target: str
    help: str

    def load(self) -> click.Command:
        """Import the command."""
        module, attribute = self.target.split(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command), self.target
        return command


VERBS: dict[str, Verb] = {
    "optimize": Verb("onnx_symmem.cli.optimize:command", "Write a model that needs less memory."),
    "run": Verb("onnx_symmem.cli.run:command", "Run a model as planned and measure its peak memory."),
    "compare": Verb("onnx_symmem.cli.compare:command", "Measure two models and compare their outputs."),
    "shapes": Verb("onnx_symmem.cli.shapes:command", "Show tensor shapes as expressions of input dims."),
    "report": Verb("onnx_symmem.cli.report:command", "Explain a model's memory: peak, timeline, tensors."),
    "fit": Verb("onnx_symmem.cli.fit:command", "Find the largest dim that fits into a memory budget."),
    "doctor": Verb("onnx_symmem.cli.doctor:command", "Say whether a session keeps a model's plan."),
    "deploy": Verb("onnx_symmem.cli.deploy:command", "Print code that keeps a model's plan elsewhere."),
    "check": Verb("onnx_symmem.cli.check:command", "Check that a model stays within a memory budget."),
    "completion": Verb("onnx_symmem.cli.completion:command", "Print what completes this command in a shell."),
}


class _LazyGroup(click.Group):
    """A group that lists its verbs from a table and imports the one that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command = VERBS[cmd_name].load()
        present = {param.name for param in command.params}
        command.params.extend(option for option in flag_options() if option.name not in present)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl([(name, verb.help) for name, verb in VERBS.items()])


@click.group(
    cls=_LazyGroup,
    params=flag_options(),
    subcommand_metavar="VERB [ARGS]...",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done; 1 outputs differ or could not be verified, or a limit is not met: nothing "
    "was written; 2 bad input or usage; 3 unsupported model; 4 the run failed, or a defect of this tool.",
)
@click.version_option(__version__, prog_name=PROGRAM, message="%(prog)s %(version)s")
def cli() -> None:
    """Plan the memory of ONNX models with symbolic shapes: infer, reorder, run, report."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; a verb may return one, None means 0."""
    flags = Flags()
    if "numpy" not in sys.modules:
        for name in _NUMPY_THREADS:
            os.environ.setdefault(name, "1")
    sys.stdout, sys.stderr = sys.stdout or _nowhere(), sys.stderr or _nowhere()
    if argv is None:  # the program itself: what it has begun to write goes, as with Ctrl-C
        signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(ENDED))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a name that the terminal cannot show is no reason to fail
            stream.reconfigure(errors="backslashreplace")
    try:
        result: Any = cli.main(args=argv, prog_name=PROGRAM, standalone_mode=False, obj=flags)
    except SymmemError as error:
        return _fail(flags, _one_line(error), error.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return USAGE
    except click.ClickException as error:
        return _fail(flags, _usage_line(error), USAGE)
    except (click.Abort, KeyboardInterrupt):
        return _fail(flags, "interrupted", INTERRUPTED)
    except SystemExit as error:  # click ends with 1 where the reader of stdout is gone
        return ENDED if error.code == ENDED else UNREAD
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _fail(flags, f"{where}{error.strerror or error}", UNEXPECTED)
    except Exception as error:
        hint = "" if flags.debug else " (--debug shows the traceback)"
        text = f": {line}" if (line := _one_line(error)) else ""
        return _fail(flags, f"unexpected {type(error).__name__}{text}{hint}", UNEXPECTED)
    return result if isinstance(result, int) else 0


def _nowhere() -> TextIO:
    """For a stream that was closed before the start: nobody wants what it would be told."""
    return Path(os.devnull).open("w", encoding="utf-8")


def _fail(flags: Flags, message: str, code: int) -> int:
    if flags.debug:
        traceback.print_exc()
    click.echo(f"{PROGRAM}: error: {message}", err=True)
    return code


def _usage_line(error: click.ClickException) -> str:
    line = " ".join(error.format_message().split())
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    return f"{line} ('{ctx.command_path} --help' explains)" if ctx else line


def _one_line(error: BaseException) -> str:
    line = " ".join(str(error).split())
    return "".join(char if char.isprintable() else "?" for char in line)


if __name__ == "__main__":
    sys.exit(main())
