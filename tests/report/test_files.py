"""`report -o FILE`: every form, all or nothing, and what grew against another model."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import onnx
import pytest

from onnx_symmem.errors import UsageError
from onnx_symmem.report import files
from onnx_symmem.report.analysis import analyse
from onnx_symmem.report.growth import growth
from onnx_symmem.report.memory import report_of
from onnx_symmem.run.pipeline import optimize_model
from tests.cli.conftest import Command, command, folder
from tests.cli.small import odd_model, plain_model

__all__ = ["command", "folder"]  # fixtures


def test_every_form_is_written(command: Command, folder: Path) -> None:
    names = ("out.html", "out.md", "out.json", "out.png")
    argv = [text for name in names for text in ("-o", name)]
    found = command("report", "plain.onnx", "--at", "batch=2,seq=3", *argv)
    assert found.code == 0
    assert [line.split(":")[0] for line in found.out.splitlines()] == list(names)
    html, md, text, png = ((folder / name).read_bytes() for name in names)
    assert html.startswith(b"<!DOCTYPE html>")
    assert html.rstrip().endswith(b"</html>")
    assert md.startswith(b"# Memory of plain.onnx\n")
    assert json.loads(text)["schema"] == "onnx-symmem/report"
    assert png.startswith(b"\x89PNG")
    printed = command("report", "plain.onnx", "--at", "batch=2,seq=3", "--json")
    both = [json.loads(t) for t in (text, printed.out)]
    for document in both:
        document.pop("seconds")
    assert both[0] == both[1]
    assert sorted(p.name for p in folder.iterdir()) == sorted([*names, "plain.onnx", "odd.onnx", "free.onnx"])


def test_a_failure_leaves_the_old_file_and_nothing_else(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    analysis = analyse(plain_model())
    report = report_of(analysis)
    out = folder / "page.html"
    out.write_text("old")
    before = sorted(folder.iterdir())

    def broken(*_: object) -> bytes:
        raise MemoryError

    monkeypatch.setitem(files.FORMS, ".html", broken)
    with pytest.raises(MemoryError):
        files.write_report(out, report, analysis)
    monkeypatch.undo()

    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(UsageError, match="page.html: cannot be written \\(No space left on device\\)"):
        files.write_report(out, report, analysis)
    monkeypatch.undo()
    assert out.read_text() == "old"
    assert sorted(folder.iterdir()) == before


def test_a_link_stays_a_link_and_modes_are_ordinary(folder: Path) -> None:
    analysis = analyse(plain_model())
    (folder / "real.md").write_text("old")
    (folder / "link.md").symlink_to("real.md")
    (folder / "plain.txt").write_text("")
    files.write_report(folder / "link.md", report_of(analysis), analysis)
    assert (folder / "link.md").is_symlink()
    assert (folder / "real.md").read_text().startswith("# Memory")
    assert (folder / "real.md").stat().st_mode == (folder / "plain.txt").stat().st_mode


def test_a_png_without_pillow_names_the_extra(
    command: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    found = command("report", "plain.onnx", "-o", "out.png")
    assert found.code == 2
    assert found.err == (
        "onnx-symmem: error: out.png: a PNG needs Pillow, which is not installed: "
        "pip install 'onnx-symmem[png]'\n"
    )
    assert not (folder / "out.png").exists()


def test_the_picture_shows_both_runs(folder: Path) -> None:
    from PIL import Image

    one, other = analyse(plain_model()), analyse(plain_model(), other=True)
    alone, both = folder / "alone.png", folder / "both.png"
    files.write_report(alone, report_of(one), one)
    files.write_report(both, report_of(one, growth(one, other)), one, other)
    with Image.open(alone) as a, Image.open(both) as b:
        assert a.width == b.width
        assert b.height > a.height + 200
        colours = {colour for _, colour in a.convert("RGB").getcolors(1 << 24)}
    assert {(0x2F, 0x7B, 0xBD), (0xC3, 0xC9, 0xD0)} <= colours  # activations and weights


# ------------------------------------------------------------------------------------------------ growth


def test_what_grew_is_what_the_two_reports_say() -> None:
    planned = optimize_model(plain_model(), None).proto
    before, after = analyse(plain_model()), analyse(planned, at=[{"batch": 4, "seq": 64}])
    grown = growth(before, analyse(planned, other=True))
    for row in grown.shapes:
        assert row.after == before.peak.at(row.shape)
        assert row.before == after.peak.at(row.shape)
        assert row.total_after - row.after == row.total_before - row.before
        assert row.before <= row.after
        for tensor in row.tensors:
            assert tensor.before < tensor.after
    assert grown.operators == ()
    assert grown.nodes == len(planned.graph.node)


def test_a_shape_that_the_other_model_does_not_take_has_no_numbers() -> None:
    report = growth(analyse(plain_model(), at=[{"batch": 2, "seq": 40}]), analyse(odd_model(), other=True))
    (row,) = report.shapes
    assert row.before is None
    assert "length" in row.why or "seq" in row.why
    assert {o.op for o in report.operators} >= {"NonZero", "Tanh"}


def test_an_operator_more_and_a_larger_tensor_are_seen() -> None:
    after = plain_model()
    wide = next(n for n in after.graph.node if n.name == "wide/tanh")
    wide.output[0] = "early"
    copy = onnx.helper.make_node("Abs", ["early"], ["wide_active"], name="more")
    keep = onnx.helper.make_node("Add", ["early", "wide_active"], ["wide_sum"], name="sum")
    at = list(after.graph.node).index(wide)
    after.graph.node.insert(at + 1, copy)
    after.graph.node.insert(at + 2, keep)
    down = next(n for n in after.graph.node if n.name == "wide/down")
    down.input[0] = "wide_sum"
    one = analyse(after, at=[{"batch": 2, "seq": 3}])
    grown = growth(one, analyse(plain_model(), other=True))
    assert {(o.op, o.before, o.after) for o in grown.operators} == {("Abs", 0, 1), ("Add", 1, 2)}
    (row,) = grown.shapes
    assert row.after > (row.before or 0)
    assert ("early", 0, 2 * 3 * 256 * 4) in {(t.name, t.before, t.after) for t in row.tensors}
