"""Completion: what click answers a shell, and that shells take the script."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from onnx_symmem.cli.completion import COMPLETE_VAR
from onnx_symmem.cli.main import VERBS, cli

from tests.cli.conftest import Command


def answers(*typed: str) -> list[str]:
    """What is offered for the last of the words."""
    complete = ShellComplete(cli, {}, "onnx-symmem", COMPLETE_VAR)
    return [item.value for item in complete.get_completions(list(typed[:-1]), typed[-1])]


@pytest.fixture
def models(folder: Path) -> Path:
    """Beside the models of the folder: notes, a folder of models, one without, and hidden ones."""
    (folder / "notes.txt").touch()
    for name in ("nets/deep/one.onnx", "nets/deep/two.onnx", "nets/readme.md", "empty/x.txt", ".git/y.onnx"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


def test_verbs_options_and_choices(folder: Path) -> None:
    assert set(answers("")) >= VERBS.keys()
    assert answers("sh") == ["shapes"]
    assert answers("optimize", "--max-") == ["--max-slowdown"]
    assert answers("run", "--q") == ["--quiet"]
    assert answers("run", "--ep", "") == ["cpu", "cuda"]
    assert answers("completion", "") == ["bash", "zsh", "fish"]


@pytest.mark.parametrize("words", [["shapes"], ["optimize"], ["check", "a.onnx"], ["compare", "a.onnx"]])
def test_models_are_files_of_their_suffix_and_folders_that_hold_some(models: Path, words: list[str]) -> None:
    assert answers(*words, "") == ["free.onnx", "nets/", "odd.onnx", "plain.onnx"]
    assert answers(*words, "pl") == ["plain.onnx"]
    assert answers(*words, "no") == []


def test_a_folder_that_is_the_only_answer_is_opened(models: Path) -> None:
    assert answers("report", "ne") == ["nets/deep/one.onnx", "nets/deep/two.onnx"]
    assert answers("report", "m.onnx", "--against", "nets/deep/o") == ["nets/deep/one.onnx"]
    assert answers("report", f"{models}/pl") == [f"{models}/plain.onnx"]


def test_hidden_folders_and_homes(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(models))
    assert answers("report", ".") == [".git/y.onnx"]
    assert answers("report", "~/od") == ["~/odd.onnx"]
    assert answers("report", "missing/") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_each_shell(command: Command, shell: str) -> None:
    done = command("completion", shell)
    assert (done.code, done.err) == (0, "")
    assert f"{COMPLETE_VAR}={shell}_complete" in done.out
    assert done.out.count("onnx-symmem") >= 1
    if shutil.which(shell) and shell != "fish":
        subprocess.run([shell, "-n"], input=done.out, text=True, check=True, timeout=60)


def test_an_unknown_shell_is_one_line(command: Command) -> None:
    done = command("completion", "tcsh")
    assert (done.code, done.err.count("\n")) == (2, 1)


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_by_the_script(models: Path, command: Command) -> None:
    (models / "onnx-symmem").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m onnx_symmem.cli.main "$@"\n')
    (models / "onnx-symmem").chmod(0o755)
    asked = (
        command("completion", "bash").out
        + "\nCOMP_WORDS=(onnx-symmem report pl); COMP_CWORD=2; "
        + '_onnx_symmem_completion onnx-symmem 2>/dev/null; echo "${COMPREPLY[@]}"'
    )
    environ = {**os.environ, "PATH": f"{models}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", asked], capture_output=True, text=True, check=True, env=environ, timeout=60
    )
    assert done.stdout == "plain.onnx\n"
