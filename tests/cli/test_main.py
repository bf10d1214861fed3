"""The command's contract: one line per error, and the exit code that belongs to it."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import onnx
import pytest
from onnx import helper
from onnx_symmem.cli import main as main_module
from onnx_symmem.cli.main import VERBS, Verb, main
from onnx_symmem.cli.options import dim_option

from onnx_symmem.errors import LimitNotMet, ModelFileError, RunFailed, UnsupportedModel

Install = Callable[[Callable[[], object]], None]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Make `onnx-symmem probe` run the given function."""

    def put(body: Callable[[], object]) -> None:
        @click.command("probe")
        @dim_option
        def command(dims: object) -> object:
            return body()

        module = types.ModuleType("symmem_probe")
        module.command = command  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "symmem_probe", module)
        monkeypatch.setitem(main_module.VERBS, "probe", Verb("symmem_probe:command", "Probe."))

    return put


def raising(error: BaseException) -> Callable[[], object]:
    def body() -> object:
        raise error

    return body


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (LimitNotMet("the limit is 3 bytes short"), 1),
        (ModelFileError("m.onnx: the file is empty"), 2),
        (UnsupportedModel("m.onnx: node 'n' (Foo) is unknown"), 3),
        (RunFailed("m.onnx: ONNX Runtime said\n  no"), 4),
    ],
)
def test_an_error_of_the_package_is_one_line_and_its_code(
    install: Install, capsys: pytest.CaptureFixture[str], error: Exception, code: int
) -> None:
    install(raising(error))
    assert main(["probe"]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"onnx-symmem: error: {' '.join(str(error).split())}\n"


def test_an_unexpected_error_is_named_in_one_line(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install(raising(KeyError("x")))
    assert main(["probe"]) == 4
    err = capsys.readouterr().err
    assert err == "onnx-symmem: error: unexpected KeyError: 'x' (--debug shows the traceback)\n"


@pytest.mark.parametrize("argv", [["--debug", "probe"], ["probe", "--debug"]])
@pytest.mark.parametrize("error", [KeyError("x"), RunFailed("no")])
def test_debug_shows_the_traceback_wherever_it_stands(
    install: Install, capsys: pytest.CaptureFixture[str], argv: list[str], error: Exception
) -> None:
    install(raising(error))
    assert main(argv) == 4
    err = capsys.readouterr().err
    assert err.startswith("Traceback")
    assert err.splitlines()[-1].startswith("onnx-symmem: error: ")
    assert "--debug" not in err.splitlines()[-1]


def test_debug_holds_for_options_too(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install(lambda: None)
    assert main(["probe", "--dim", "batch=4..1", "--debug"]) == 2
    assert capsys.readouterr().err.startswith("Traceback")


def test_a_bad_option_text_is_one_line(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install(lambda: None)
    assert main(["probe", "--dim", "batch=4..1"]) == 2
    assert capsys.readouterr().err == (
        "onnx-symmem: error: --dim 'batch=4..1': the range is upside down, 4 is above 1\n"
    )


@pytest.mark.parametrize("argv", [["no-such-verb"], ["--no-such-option"], ["probe", "--no-such-option"]])
def test_wrong_usage_is_one_line_and_two(
    install: Install, capsys: pytest.CaptureFixture[str], argv: list[str]
) -> None:
    install(lambda: None)
    assert main(argv) == 2
    err = capsys.readouterr().err
    assert err.startswith("onnx-symmem: error: No such ")
    assert err.endswith("--help' explains)\n")
    assert err.count("\n") == 1


def test_no_arguments_show_help_and_exit_two(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "Usage: onnx-symmem" in capsys.readouterr().err


def test_an_interrupt_is_130(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install(raising(KeyboardInterrupt()))
    assert main(["probe"]) == 130
    assert capsys.readouterr().err.endswith("onnx-symmem: error: interrupted\n")


def test_what_the_system_refuses_is_no_defect(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install(raising(OSError(errno.ENOSPC, "No space left on device", "page.html")))
    assert main(["probe"]) == 4
    assert capsys.readouterr().err == "onnx-symmem: error: page.html: No space left on device\n"


def program(script: str, **streams: Any) -> subprocess.Popen[bytes]:
    """The command as a process, with a verb `probe` that runs the script."""
    code = f"""
import sys, types, time, tempfile, click
from onnx_symmem.cli import main
@click.command("probe")
def command():
    {script}
sys.modules["symmem_probe"] = module = types.ModuleType("symmem_probe")
module.command = command
main.VERBS["probe"] = main.Verb("symmem_probe:command", "Probe.")
sys.argv = ["onnx-symmem", "probe"]
sys.exit(main.main())
"""
    return subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, **streams)


def test_a_reader_that_leaves_is_not_a_model_that_differs() -> None:
    ended, begun = os.pipe()
    os.close(ended)
    with program("click.echo('x' * 100)", stdout=begun) as run:
        os.close(begun)
        assert (run.communicate()[1], run.returncode) == (b"", 141)


def test_closed_streams_are_no_error() -> None:
    with program("click.echo('x'); print(sys.stdout.isatty())", preexec_fn=lambda: os.close(1)) as run:
        assert (run.communicate()[1], run.returncode) == (b"", 0)


def test_the_end_that_is_asked_for_leaves_nothing(tmp_path: Path) -> None:
    script = f"""with tempfile.TemporaryDirectory(dir={str(tmp_path)!r}):
        print("begun", flush=True); time.sleep(60)"""
    with program(script, stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        run.stdout.readline()
        assert [*tmp_path.iterdir()]
        run.terminate()
        assert (run.communicate()[1], run.returncode) == (b"", 143)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(("returned", "code"), [(None, 0), (0, 0), (1, 1), ("text", 0)])
def test_a_verb_may_return_its_code(install: Install, returned: object, code: int) -> None:
    install(lambda: returned)
    assert main(["probe"]) == code


def test_a_verb_may_exit_by_its_context(install: Install) -> None:
    install(lambda: click.get_current_context().exit(1))
    assert main(["probe"]) == 1


def test_help_lists_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert set(VERBS) == {
        "optimize",
        "run",
        "compare",
        "shapes",
        "report",
        "fit",
        "check",
        "doctor",
        "deploy",
        "completion",
    }
    for name, verb in VERBS.items():
        assert f"  {name} " in out
        assert verb.help in out


def test_flags_reach_the_verb_from_both_sides(install: Install) -> None:
    seen = []
    install(lambda: seen.append(click.get_current_context().obj.verbose))
    assert main(["-v", "probe"]) == main(["probe", "--verbose"]) == main(["probe"]) == 0
    assert seen == [True, True, False]


def test_the_version_is_the_package_s(capsys: pytest.CaptureFixture[str]) -> None:
    from onnx_symmem import __version__

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"onnx-symmem {__version__}\n"


@pytest.mark.parametrize(
    ("before", "given", "threads"), [("", None, "1"), ("", "3", "3"), ("import numpy;", None, "None")]
)
def test_numpy_works_on_one_thread_unless_told_otherwise(
    before: str, given: str | None, threads: str
) -> None:
    script = (
        f"{before}import os; from onnx_symmem.cli.main import main; main(['--version']);"
        "print(os.environ.get('OPENBLAS_NUM_THREADS'))"
    )
    environ = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    environ |= {} if given is None else {"OPENBLAS_NUM_THREADS": given}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environ, capture_output=True, text=True, check=True
    )
    assert done.stdout.split()[-1] == threads


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_names_that_the_terminal_cannot_show_are_no_error(
    tmp_path: Path, encoding: str, form: list[str]
) -> None:
    name = "é出🙂\x1b[31m"
    dims = helper.make_tensor_value_info("x", 1, ["バッチ"])
    nodes = [helper.make_node("Relu", ["x"], [name])]
    graph = helper.make_graph(nodes, "g", [dims], [onnx.ValueInfoProto(name=name)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), tmp_path / "m.onnx")
    result = subprocess.run(
        [sys.executable, "-m", "onnx_symmem.cli.main", "shapes", str(tmp_path / "m.onnx"), *form],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": encoding},
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, b"")
    text = result.stdout.decode(encoding)
    if form:
        assert [t["name"] for t in json.loads(text)["tensors"]] == ["x", name]
    else:
        assert "\x1b" not in text
        assert ("出" in text) == (encoding == "utf-8")


def test_an_error_does_not_steer_the_terminal(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    def body() -> object:
        raise ModelFileError("node '\x1b[2J\n' reads nothing")

    install(body)
    assert main(["probe"]) == 2
    assert capsys.readouterr().err == "onnx-symmem: error: node '?[2J ' reads nothing\n"
