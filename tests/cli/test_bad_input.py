"""Bad input ends in one line on stderr, the right exit code, and an untouched folder."""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_symmem.cli.main import VERBS

from tests.cli.conftest import Command

SHAPE = "batch=2,seq=3"
FULL = ("--at", SHAPE)
FIT = ("--budget", "1GiB", "--at", "seq=3", "--solve")
CASES = [
    # The file.
    ("missing.onnx", "no such file"),
    ("empty.onnx", "the file is empty"),
    ("text.onnx", "not an ONNX model"),
    ("cut.onnx", "not an ONNX model"),
    ("zeros.onnx", "not an ONNX model"),
    ("unfinished.onnx", "not an ONNX model"),
    ("nograph.onnx", "not an ONNX model"),
    (".", "cannot be read"),
]
OPTIONS = [
    (("optimize", "plain.onnx"), "Missing option '-o'"),
    (("optimize", "plain.onnx", "-o", "no/out.onnx"), "the folder 'no' does not exist"),
    (("optimize", "plain.onnx", "-o", "."), "is a folder"),
    (("optimize", "plain.onnx", "-o", "out.onnx", "--dim", "bach=1..4"), "'bach' is not a dim"),
    (("optimize", "plain.onnx", "-o", "out.onnx", "--dim", "batch=4..1"), "upside down"),
    (("optimize", "plain.onnx", "-o", "out.onnx", "--input", "z=ones"), "the model has no such input"),
    (("optimize", "plain.onnx", "-o", "out.onnx", "--input", "x=zwei"), "'zwei' is not understood"),
    (("optimize", "plain.onnx", "-o", "out.onnx", "--no-verify", "--input", "z=1"), "no such input"),
    (("optimize", "plain.onnx", "-o", "out.onnx", "--verify-at", "batch=2"), "no size for dim 'seq'"),
    (("optimize", "plain.onnx", "-o", "out.onnx", "--verify-at", "batch:2"), "--verify-at 'batch:2'"),
    (("optimize", "plain.onnx", "-o", "out.onnx", "--verify-at", SHAPE, "--no-verify"), "contradict"),
    (("optimize", "plain.onnx", "-o", "out.onnx", "--ort-level", "most"), "'most' is not one of"),
    (("optimize", "plain.onnx", "-o", "-"), "'-' is no file"),
    (("optimize", "-", "-o", "out.onnx"), "'-' is no file"),
    (("optimize", "plain.onnx", "-o", "C:\\models\\out.onnx"), "expected '/' between folders"),
    (("report", "plain.onnx", "-o", "-"), "'-' is no file"),
    (("shapes", "plain.onnx", "--write", "-"), "'-' is no file"),
    (("run", "plain.onnx"), "no size for dim 'batch', 'seq'"),
    (("run", "plain.onnx", "--at", "batch=2"), "no size for dim 'seq'"),
    (("run", "plain.onnx", "--at", "batch=2,seq=3,time=4"), "'time' is not a dim"),
    (("run", "plain.onnx", "--at", "batch=-2,seq=3"), "not understood"),
    (("run", "plain.onnx", *FULL, "--input", "z=ones"), "the model has no such input; it has x"),
    (("run", "plain.onnx", *FULL, "--input", "x=absent.npy"), "absent.npy: no such file"),
    (("run", "plain.onnx", *FULL, "--input", "x=text.onnx"), "is not understood"),
    (("run", "plain.onnx", *FULL, "--input", "x=other.npy"), "other.npy has dims [4]; expected [2, 3, 8]"),
    (("run", "plain.onnx", *FULL, "--runs", "0"), "0 is not in the range"),
    (("run", "odd.onnx", "--at", "batch=2,seq=17"), "seq <= 16"),
    (("run", "odd.onnx", "--at", "batch=2,seq=3,length=4"), "length"),
    (("compare", "plain.onnx"), "Missing argument 'AFTER'"),
    (("compare", "plain.onnx", "plain.onnx", "--at", "batch=2"), "no size for dim 'seq'"),
    (("compare", "plain.onnx", "odd.onnx", *FULL), "its input 'extra' is no input of plain.onnx"),
    (("compare", "odd.onnx", "plain.onnx", *FULL), "it has no input 'extra'"),
    (("shapes", "plain.onnx", "--dim", "bach=1"), "'bach' is not a dim"),
    (("shapes", "plain.onnx", "--why", "wde_out"), "has no such tensor; did you mean wide_out, "),
    (("shapes", "plain.onnx", "--why", "wide_out", "--weights"), "do not go with it"),
    (("shapes", "plain.onnx", "--write", "no/out.onnx"), "the folder 'no' does not exist"),
    (("report", "plain.onnx", "--at", "batch=2"), "no size for dim 'seq'"),
    (("report", "plain.onnx", "--dim", "batch=4..1"), "upside down"),
    (("report", "plain.onnx", "-o", "no/page.html"), "the folder 'no' does not exist"),
    (("report", "plain.onnx", "-o", "page.pdf"), "expected a name that ends in .html, .md, .json, .png"),
    (("report", "plain.onnx", "-o", "page.html", "--at", "batch=2"), "no size for dim 'seq'"),
    (("report", "plain.onnx", "-o", "page.html", "--against", "missing.onnx"), "no such file"),
    (("fit", "plain.onnx", *FIT, ""), "'' is not understood; expected NAME or NAME,NAME"),
    (("fit", "plain.onnx", *FIT, "batch,"), "'' is not understood"),
    (("fit", "plain.onnx", *FIT, "bach"), "'bach' is not a dim of the inputs; they have batch, seq"),
    (("fit", "plain.onnx", *FIT, "batch=2"), "'batch=2' is not a dim"),
    (("fit", "plain.onnx", *FIT, "batch,batch"), "two different ones"),
    (("fit", "plain.onnx", *FIT, "seq"), "not given by --at"),
    (("fit", "plain.onnx", "--budget", "1GiB", "--solve", "batch"), "'seq'"),
    (("fit", "plain.onnx", "--budget", "1GiB", "--solve", "batch,seq,length"), "'length'"),
    (("fit", "plain.onnx", "--budget", "much", "--solve", "batch"), "'much' is not a size"),
    (("fit", "plain.onnx", *FIT, "batch", "-o", "frontier.png"), "--solve"),
    (("check", "plain.onnx", "--max-peak", "-1"), "'-1' is not a size"),
    (("check", "plain.onnx", "--max-peak", "1GiB", "--at", "batch=2"), "no size for dim 'seq'"),
    (("doctor", "plain.onnx", *FULL, "--session", "missing.json"), "missing.json"),
    (("doctor", "plain.onnx", *FULL, "--session", "text.onnx"), "text.onnx"),
    (("doctor", "plain.onnx", *FULL, "--set", "mem_pattern=maybe"), "mem_pattern"),
]


@pytest.fixture
def bad_folder(folder: Path) -> Path:
    """The folder with files that are no models besides."""
    whole = (folder / "plain.onnx").read_bytes()
    (folder / "empty.onnx").write_bytes(b"")
    (folder / "text.onnx").write_text("batch,seq\n1,2\n")
    (folder / "cut.onnx").write_bytes(whole[: len(whole) // 2])
    (folder / "zeros.onnx").write_bytes(bytes(4096))
    # Cut where a field ends, so that what is left is a message by itself: the graph, and no opset behind it.
    graph = onnx.ModelProto(ir_version=10, graph=onnx.load(folder / "plain.onnx").graph)
    (folder / "unfinished.onnx").write_bytes(graph.SerializeToString())
    (folder / "nograph.onnx").write_bytes(onnx.ModelProto(ir_version=10).SerializeToString())
    np.save(folder / "other.npy", np.zeros(4, np.float32))
    return folder


def listing(folder: Path) -> dict[str, int]:
    """Every file below the folder, hidden ones too, with its time of change."""
    return {str(p.relative_to(folder)): p.stat().st_mtime_ns for p in sorted(folder.rglob("*"))}


def verbs(file: str) -> list[tuple[str, ...]]:
    """Every verb on a file."""
    return [
        ("optimize", file, "-o", "out.onnx"),
        ("run", file, *FULL),
        ("compare", file, "plain.onnx", *FULL),
        ("compare", "plain.onnx", file, *FULL),
        ("shapes", file),
        ("shapes", file, "--write", "out.onnx"),
        ("report", file),
        ("report", file, "-o", "page.html"),
        ("report", "plain.onnx", "--against", file),
        ("fit", file, *FIT, "batch"),
        ("fit", "plain.onnx", *FIT, "batch", "--against", file),
        ("check", file, "--max-peak", "1GiB"),
        ("doctor", file, *FULL),
        ("deploy", file),
    ]


def test_every_verb_that_takes_a_model_is_tried() -> None:
    takes = {name for name, verb in VERBS.items() if _takes_a_model(verb.load())}
    assert {argv[0] for argv in verbs("m.onnx")} == takes == VERBS.keys() - {"completion"}


def _takes_a_model(verb: click.Command) -> bool:
    return any(isinstance(p, click.Argument) and "shell" not in (p.name or "") for p in verb.params)


def check(command: Command, folder: Path, argv: tuple[str, ...], words: str) -> None:
    before = listing(folder)
    found = command(*argv, *(() if argv[0] == "deploy" else ("--json",)))
    assert found.code == 2, found
    assert found.out == ""
    assert found.err.startswith("onnx-symmem: error: ")
    assert words in found.err
    assert found.err.count("\n") == 1
    assert "Traceback" not in found.err
    assert listing(folder) == before


@pytest.mark.parametrize(("file", "words"), CASES)
def test_a_file_that_is_no_model(command: Command, bad_folder: Path, file: str, words: str) -> None:
    for argv in verbs(file):
        check(command, bad_folder, argv, words)


@pytest.mark.parametrize(
    ("argv", "words"), OPTIONS, ids=lambda v: " ".join(v) if isinstance(v, tuple) else ""
)
def test_an_option_that_does_not_fit(
    command: Command, bad_folder: Path, argv: tuple[str, ...], words: str
) -> None:
    check(command, bad_folder, argv, words)


def test_a_missing_weights_file_is_bad_input(command: Command, folder: Path) -> None:
    model = onnx.load(folder / "plain.onnx")
    onnx.save(
        model, folder / "apart.onnx", save_as_external_data=True, location="apart.bin", size_threshold=0
    )
    (folder / "apart.bin").unlink()
    for argv in (("optimize", "apart.onnx", "-o", "out.onnx"), ("run", "apart.onnx", *FULL)):
        check(command, folder, argv, "'apart.bin' of tensor")


def test_shapes_and_report_need_no_weights(command: Command, folder: Path) -> None:
    model = onnx.load(folder / "plain.onnx")
    onnx.save(
        model, folder / "apart.onnx", save_as_external_data=True, location="apart.bin", size_threshold=1024
    )
    (folder / "apart.bin").unlink()
    assert command("shapes", "apart.onnx").code == 0
    assert command("report", "apart.onnx").code == 0


def test_cuda_without_a_gpu_is_one_line(
    command: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onnx_symmem.run.session.cuda_problem", lambda: "no driver")
    check(command, folder, ("run", "plain.onnx", *FULL, "--ep", "cuda"), "provider 'cuda': no driver")


def test_a_run_that_breaks_off_is_code_4(command: Command, folder: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "ids"], ["y"], name="look_up")],
        "table",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, ["n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])],
        [numpy_helper.from_array(np.zeros(4, np.float32), "table")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.save(model, folder / "table.onnx")
    assert command("run", "table.onnx", "--at", "n=3").code == 0
    before = listing(folder)
    found = command("run", "table.onnx", "--at", "n=3", "--input", "ids=value:9")
    assert (found.code, found.out) == (4, "")
    assert found.err.startswith("onnx-symmem: error: table.onnx: the run broke off: ")
    assert "look_up" in found.err
    assert found.err.count("\n") == 1
    assert listing(folder) == before


@pytest.mark.parametrize("tolerance", ["inf", "nan", "-1"])
def test_a_tolerance_is_a_finite_number(command: Command, tolerance: str) -> None:
    found = command("compare", "plain.onnx", "plain.onnx", "--at", "batch=2,seq=3", "--tolerance", tolerance)
    assert found.code == 2
    assert "not a finite number" in found.err
    assert found.err.count("\n") == 1


def test_that_the_given_model_is_replaced_is_said(command: Command, folder: Path) -> None:
    before = (folder / "plain.onnx").read_bytes()
    elsewhere = command("optimize", "plain.onnx", "-o", "planned.onnx", "--time-budget", "0")
    assert "is replaced" not in elsewhere.err
    failed = command("optimize", "plain.onnx", "-o", "plain.onnx", "--memory-limit", "1kB")
    assert failed.code == 1
    assert (folder / "plain.onnx").read_bytes() == before
    found = command("optimize", "plain.onnx", "-o", "./plain.onnx", "--time-budget", "0")
    assert found.code == 0
    assert "plain.onnx: the model that was given is replaced" in found.err
    assert (folder / "plain.onnx").read_bytes() == (folder / "planned.onnx").read_bytes() != before
