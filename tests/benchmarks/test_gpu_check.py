"""The check for CUDA machines, on the CPU: the same path, small."""

import csv
import io
import tarfile

import numpy as np
import pytest

from benchmarks import gpu_check
from benchmarks.gpu import machine
from benchmarks.gpu.graphs import anchored_model, branches, interleaved, offload, pinned
from benchmarks.gpu.record import FAILED, Row, Sheet, row_in, table
from benchmarks.gpu.runner import opened
from benchmarks.gpu.setting import attempt
from models.transformer_train import build_transformer_train
from onnx_symmem.graph.load import load_model
from onnx_symmem.memory.execution_order import default_order


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """All that a small check finds, as its CSV file has it; the exit code must be 0."""
    out = tmp_path_factory.mktemp("check")
    assert gpu_check.main(["--ep", "cpu", "--small", "--out", str(out)]) == 0, (out / "log.txt").read_text()
    with (out / "results.csv").open(newline="") as file:
        found = [Row(**row) for row in csv.DictReader(file)]
    assert (out / "summary.txt").read_text().splitlines()[:-1] == list(table(found))
    return found


def of(rows, part, what):
    found = [row for row in rows if (row.part, row.what) == (part, what)]
    assert found, f"{part}: no row says {what}"
    return found


def test_every_part_ran_to_its_end(rows):
    assert [row.part for row in rows if row.what == "took"] == ["prepare", *gpu_check.PARTS]
    assert FAILED not in {row.value for row in rows}


def test_order_is_the_planned_one(rows):
    found = of(rows, "order", "nodes as planned")
    assert {row.subject for row in found} >= {"order option", "anchors", "inside the If, levels"}
    for row in found:
        assert row.value == row.expected != "0"


def test_bytes_are_the_predicted_ones_at_every_level(rows):
    for row in of(rows, "bytes", "nodes equal") + of(rows, "bytes", "tensors at the peak"):
        assert row.value == row.expected != ""
    assert {row.note for row in of(rows, "bytes", "tensors at the peak")} >= {
        "the guard took level 0",
        "the guard took level 1",
    }


def test_steps_of_the_paper_take_what_the_formulas_say(rows):
    found = [row for row in of(rows, "paper", "tensors at the peak") if row.subject != "as shipped"]
    assert {row.subject for row in found} == {
        "original", "planned", "levels, each forced", "levels under 40 GiB",
    }  # fmt: skip
    for row in found:
        assert row.value == row.expected
    forced = {(r.shape, r.note): float(r.value) for r in found if r.subject == "levels, each forced"}
    for (shape, level), peak in forced.items():
        assert level == "level 0" or peak < forced[shape, "level 0"]


def test_what_makes_no_sense_on_the_cpu_says_so(rows):
    for part, what in (
        ("environment", "context and libraries"),
        ("environment", "operators without a kernel"), ("branches", "device memory per branch"),
        ("arena", "driver's count"),
    ):  # fmt: skip
        assert {row.note for row in of(rows, part, what)} == {"no device"}
    assert "same memory" in of(rows, "copies", "tensors less in use between")[0].note


def test_copies_are_right(rows):
    assert of(rows, "copies", "wrong results")[0].value == "0"


# ------------------------------------------------------------------------------------------------ pieces


def test_a_part_that_hangs_or_dies_is_a_row(tmp_path):
    sheet, log = Sheet(tmp_path / "rows.csv"), io.StringIO()
    environment = machine.child_environment(None)
    gpu_check._child("order", ["--part", "order"], environment, 0.05, sheet, log)
    gpu_check._child("bytes", ["--part", "bytes", "--models", str(tmp_path)], environment, 60, sheet, log)
    sheet.close()
    notes = [row.note for row in sheet.rows if row.value == FAILED]
    assert notes == ["stopped after 0 s", "exit code 1, see log.txt"]
    assert f"{tmp_path}: no models were prepared there" in log.getvalue()


def test_what_fails_inside_a_part_is_a_row():
    rows = []
    with attempt(rows, "order", "anchors"):
        raise ValueError("two\nlines")
    assert rows == [Row("order", "anchors", "", "result", FAILED, note="ValueError: two lines")]


def test_table_counts_what_is_as_expected_and_lists_the_rest():
    rows = [
        Row("order", "a", "", "nodes", "3", "3"),
        Row("order", "b", "seed 0", "nodes", "2", "3", note="first at 1"),
        Row("order", "", "", "took", "1.0", unit="s"),
    ]
    assert list(table(rows)) == [
        "-- order", "nodes: 1 of 2 as expected", "    b seed 0: 2, expected 3  [first at 1]", "took: 1.0 s",
    ]  # fmt: skip
    assert row_in(rows[1].line()) == rows[1]
    assert row_in("something else") is None


def test_runtime_is_unpacked_from_its_pieces_once(tmp_path):
    site = tmp_path / "made"
    (site / "onnxruntime").mkdir(parents=True)
    (site / "onnxruntime" / "__init__.py").write_text("x = 1\n" * 1000)
    packed = tmp_path / "packed"
    with tarfile.open(packed, "w:xz") as archive:
        archive.add(site, ".")
    data, home = packed.read_bytes(), tmp_path / "ort"
    for number, start in enumerate(range(0, len(data), 100)):
        piece = home / f"part-{number}" / f"ort.{number}"
        piece.parent.mkdir(parents=True)
        piece.write_bytes(data[start : start + 100])
    found = machine.unpack_runtime(home)
    assert found == home / "site"
    assert (found / "onnxruntime" / "__init__.py").read_text() == "x = 1\n" * 1000
    for piece in home.glob("part-*/ort.*"):
        piece.write_bytes(b"")
    assert machine.unpack_runtime(home) == found
    assert machine.unpack_runtime(tmp_path / "nothing") is None


def test_broken_pieces_are_no_runtime(tmp_path):
    (tmp_path / "ort.0").write_bytes(b"no archive")
    with pytest.raises(RuntimeError, match="cannot be unpacked"):
        machine.unpack_runtime(tmp_path)
    assert not (tmp_path / "site").exists()


def test_libraries_of_python_packages_are_found_beside_the_runtime(tmp_path, monkeypatch):
    library = tmp_path / "packages" / "nvidia" / "cu13" / "lib" / "libcudart.so.13"
    library.parent.mkdir(parents=True)
    library.touch()
    monkeypatch.setattr(machine.sysconfig, "get_path", lambda _: str(tmp_path / "packages"))
    site = tmp_path / "site"
    site.mkdir()
    environment = machine.child_environment(site)
    assert environment["PYTHONPATH"].startswith(f"{site}:{machine.ROOT}")
    assert str(library.parent) in environment["LD_LIBRARY_PATH"].split(":")
    # ONNX Runtime looks in the folder that holds its own.
    assert (site / "nvidia" / "cu13" / "lib" / "libcudart.so.13").exists()


# ------------------------------------------------------------------------------------------------ graphs


def test_interleaved_orders_need_anchors():
    model = load_model(build_transformer_train(8, 16, 1, 2, 5))
    view = model.view().graph
    orders = {interleaved(view, seed) for seed in range(3)}
    assert len(orders) == 3
    for order in orders:
        assert sorted(order) == list(range(len(view.nodes)))
        assert default_order(view) != order
        made = anchored_model(model.proto, view, order)
        assert made is not None
        assert len(made.graph.node) > len(view.nodes)


@pytest.mark.parametrize("moved", [False, True])
def test_offload_computes_the_same(moved):
    x = np.linspace(-1, 1, 50, dtype=np.float32)
    with opened(offload(moved), "cpu") as runner:
        y = runner.run({"x": x}, ["y"])["y"]
        assert ("MemcpyToHost" in {e.op for e in runner.profiles()[0].events}) == moved
    np.testing.assert_allclose(y, -x + np.exp(-np.exp(x)), rtol=1e-5)


def test_pinned_adds_noise_after_every_way():
    x, c = np.arange(6, dtype=np.float32), np.full(6, 3, np.float32)
    with opened(pinned(2), "cpu", profiled=False) as runner:
        y = runner.run({"x": x, "c": c}, ["y"])["y"]
    np.testing.assert_array_equal(y, -x + 2 * (3 + 6) / 2)


def test_branches_take_the_way_they_are_told():
    x = np.ones((2, 8), np.float32)
    with opened(branches(2, 8), "cpu") as runner:
        runner.run({"x": x, "c0": np.array(True), "c1": np.array(False)})
        ran = [e.op for e in runner.profiles()[0].walk() if e.op in ("Relu", "Tanh")]
    assert ran == ["Relu", "Tanh"]
