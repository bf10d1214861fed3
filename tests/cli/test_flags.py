"""The flags that every verb takes: what each verb then says, and that it stays in one colour on a pipe."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from onnx_symmem.cli.main import VERBS, cli

from tests.cli.conftest import Command

AT = ("--at", "batch=2,seq=8")
CALLS = {
    "optimize": ("plain.onnx", "-o", "planned.onnx", "--time-budget", "0", "--no-verify"),
    "run": ("plain.onnx", *AT),
    "compare": ("plain.onnx", "plain.onnx", *AT),
    "shapes": ("plain.onnx",),
    "report": ("plain.onnx", "-o", "report.md"),
    "fit": ("plain.onnx", "--budget", "1GiB", "--solve", "batch", "--at", "seq=8"),
    "doctor": ("plain.onnx", *AT),
    "deploy": ("plain.onnx", "--language", "python"),
    "check": ("plain.onnx", "--max-peak", "1GiB", *AT),
    "completion": ("bash",),
}
COLOUR = re.compile(r"\x1b\[(?:[0-9;]*;)?(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])[0-9;]*m")


def test_every_verb_is_called_here() -> None:
    assert CALLS.keys() == VERBS.keys()


@pytest.mark.parametrize("verb", CALLS)
def test_a_pipe_gets_the_result_and_no_control_characters(command: Command, verb: str) -> None:
    done = command(verb, *CALLS[verb])
    assert done.code == 0
    assert "\x1b" not in done.out + done.err
    assert "\r" not in done.out + done.err
    assert all(line.startswith("onnx-symmem: note: ") for line in done.err.splitlines())


@pytest.mark.parametrize("verb", CALLS)
def test_quiet_says_nothing_on_stderr_and_the_same_in_json(command: Command, verb: str) -> None:
    calls = CALLS[verb]
    assert command("-q", verb, *calls).err == command(verb, *calls, "--quiet").err == ""
    takes_json = any(param.name == "as_json" for param in VERBS[verb].load().params)
    assert takes_json == (verb not in ("deploy", "completion"))


def test_quiet_leaves_out_what_is_no_result(command: Command) -> None:
    call = ("report", "plain.onnx", "-o", "report.md")
    assert command(*call).out == "report.md: written\n"
    assert "onnx-symmem: note: bytes of the file's own nodes" in command(*call).err
    assert command(*call, "-q").out == ""


def test_quiet_keeps_errors(command: Command) -> None:
    done = command("-q", "check", "plain.onnx", "--max-peak", "1kB", *AT)
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert done.err.startswith("onnx-symmem: error: plain.onnx: needs ")


@pytest.mark.parametrize("argv", [["-q", "-v", "shapes"], ["-v", "shapes", "-q"], ["shapes", "-q", "-v"]])
def test_quiet_and_verbose_contradict_each_other(command: Command, argv: list[str]) -> None:
    done = command(*argv, "plain.onnx")
    assert (done.code, done.out) == (2, "")
    assert "-q and -v contradict each other" in done.err


@pytest.mark.parametrize("verb", [v for v in CALLS if v not in ("deploy", "completion")])
def test_verbose_says_a_line_per_stage(command: Command, verb: str) -> None:
    done = command(verb, *CALLS[verb], "-v")
    stages = [line for line in done.err.splitlines() if not line.startswith("onnx-symmem: note: ")]
    assert stages
    assert all(re.fullmatch(r"onnx-symmem: [a-z].*", line) for line in stages)
    assert len(stages) == len(set(stages)) or verb == "optimize"  # whose search comes back to a stage


@pytest.mark.parametrize("verb", CALLS)
def test_debug_shows_the_traceback_of_any_verb(command: Command, verb: str) -> None:
    wrong = ("no-such-shell",) if verb == "completion" else ("missing.onnx", *CALLS[verb][1:])
    if verb == "compare":
        wrong = ("missing.onnx", *CALLS[verb][1:])
    plain, debugged = command(verb, *wrong), command(verb, *wrong, "--debug")
    assert plain.code == debugged.code == 2
    assert plain.err.count("\n") == 1
    assert debugged.err.startswith("Traceback")
    assert debugged.err.endswith(plain.err)


# ------------------------------------------------------------------------------------------------ terminals


def on_a_terminal(folder: Path, *argv: str, **environ: str) -> str:
    """What the command writes where both streams are a terminal."""
    pty = pytest.importorskip("pty")  # not on Windows
    script = (
        "import os, pty, sys\n"
        "code = pty.spawn([sys.executable, '-m', 'onnx_symmem.cli.main', *sys.argv[1:]])\n"
        "sys.exit(os.waitstatus_to_exitcode(code))"
    )
    assert pty is not None
    clean = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "CI")}
    done = subprocess.run(
        [sys.executable, "-c", script, *argv],
        cwd=folder,
        env={**clean, "TERM": "xterm-256color", **environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout.decode()


def test_a_terminal_gets_colours_and_a_live_line(folder: Path) -> None:
    seen = on_a_terminal(folder, "-v", "compare", *CALLS["compare"])
    assert COLOUR.search(seen)
    assert "onnx-symmem: running after, as planned" in seen
    assert "\x1b[?25l" in seen


def test_no_color_is_heard(folder: Path) -> None:
    seen = on_a_terminal(folder, "-v", "compare", *CALLS["compare"], NO_COLOR="1")
    assert "running after, as planned" in seen
    assert not COLOUR.search(seen)


def test_quiet_takes_the_live_line_away(folder: Path) -> None:
    seen = on_a_terminal(folder, "compare", *CALLS["compare"], "-q")
    assert "running after, as planned" not in seen
    assert "\x1b[?25l" not in seen
    assert COLOUR.search(seen)


# ------------------------------------------------------------------------------------------------ help


def examples(verb: str) -> list[list[str]]:
    """The words of every example in a verb's help."""
    text = VERBS[verb].load().help or ""
    lines = text.partition("Examples:")[2].splitlines()
    return [line.split()[1:] for line in lines if line.strip().startswith("onnx-symmem ")]


@pytest.mark.parametrize("verb", VERBS)
def test_the_examples_in_the_help_are_legal_calls(folder: Path, verb: str) -> None:
    found = examples(verb)
    assert len(found) >= 2
    for words in found:
        argv = words[: next((k for k, w in enumerate(words) if w in (">", ">>")), None)]
        assert argv[0] == verb
        with click.Context(cli, info_name="onnx-symmem", **cli.context_settings) as root:
            VERBS[verb].load().make_context(verb, argv[1:], parent=root)


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_a_verb_has_its_flags_and_no_option_without_words(command: Command, verb: str) -> None:
    out = command(verb, "--help").out
    for flag in ("-q, --quiet", "-v, --verbose", "--debug", "-h, --help"):
        assert f"  {flag} " in out
    assert "Examples:" in out
    options = [p for p in VERBS[verb].load().params if isinstance(p, click.Option)]
    assert all(option.help for option in options)
    assert max(map(len, out.splitlines())) <= 110
