"""Levels measured for the benchmark, the picture of them, and the tables of the paper's model."""

from xml.etree import ElementTree as ET

import numpy as np
import onnx
import pytest

from benchmarks import level_runs as part
from benchmarks import paper
from benchmarks.document import Page, Picture, write_page
from benchmarks.frontier import frontier_picture
from benchmarks.levels import picture
from models.build import build
from tests.benchmarks.test_document import MADE

SHAPES = ({"batch": 8, "seq": 64}, {"batch": 8, "seq": 128})


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    path = tmp_path_factory.mktemp("levels") / "train.onnx"
    onnx.save(build("transformer_train", layers=1, width=64), path)
    return part.level_runs("train", path, SHAPES, levels=2, slowdown=1.3, rounds=1)


def test_every_level_is_as_predicted_and_gives_the_same_outputs(found):
    assert [r.shape for r in found.runs if r.level == 0] == list(SHAPES)
    assert {r.level for r in found.runs} == {0, 1, 2}
    assert all(r.as_predicted and r.bits for r in found.runs)
    first, *others = (r for r in found.runs if r.shape == SHAPES[1])
    assert (first.peak, first.operations, first.slower) == (1, 0, 1)
    assert [first, *others] == sorted((first, *others), key=lambda r: -r.peak)
    assert all(r.peak < 1 and r.operations > 0 and r.slower > 0 for r in others)
    assert 0 < found.guard <= 100
    assert part.runs_table([found]).rows[0][4:8] == ("yes", first.nodes, first.nodes, "yes")


def test_findings_tell_what_differs(found):
    assert [f.met for f in part.findings([found])[:3]] == [True, True, True]
    wrong = part.LevelRun("m", SHAPES[0], 0, 5, 6, 9, 8, False, 1.0, 0.0, 1.0, 1.0)
    assert not wrong.as_predicted
    assert "no: 5 predicted" in wrong.row
    short = part.findings([part.LevelRuns("m", (wrong,), 101, 7)])
    assert [f.met for f in short[:3]] == [False, False, False]


def test_the_picture_has_a_line_per_model_and_a_point_per_level(found, tmp_path):
    svg = picture([found])
    tree = ET.fromstring(svg)
    name = "{http://www.w3.org/2000/svg}"
    assert len(tree.findall(f"{name}polyline")) == 1
    points = tree.findall(f"{name}circle")
    assert len(points) == len([r for r in found.runs if r.shape == SHAPES[1]])
    height = [float(p.get("cy")) for p in points]
    assert height == sorted(height)  # lower peaks are drawn lower
    page = Page("part", "A part", "", (), (), pictures=(Picture("points", "Points", svg),))
    write_page(page, MADE, tmp_path / "tables", tmp_path / "docs")
    assert "![Points](points.svg)" in (tmp_path / "docs" / "part.md").read_text()
    assert (tmp_path / "docs" / "points.svg").read_text() == svg


def test_names_in_a_picture_are_text():
    tree = ET.fromstring(frontier_picture({"<a&b>": [(1.0, 1.0), (0.9, 0.5)]}, "time", "peak"))
    assert "<a&b>" in [t.text for t in tree.iter() if t.text]
    xs = [float(c.get("cx")) for c in tree.iter() if c.tag.endswith("circle")]
    assert xs[1] < xs[0]


def test_the_first_level_that_fits_is_taken():
    low, high = paper.SEQ
    count = high - low + 1
    seqs = np.arange(low, high + 1)
    fits = [seqs <= 500, seqs <= 400, (seqs <= 900) & (seqs != 700)]
    assert paper._summary(fits) == (900, 900 - low)
    assert paper._taken(fits) == f"0: {low}..500, 2: 501..900"
    assert paper._summary([np.zeros(count, bool)]) == (0, 0)
    assert paper._taken([np.zeros(count, bool)]) == ""
