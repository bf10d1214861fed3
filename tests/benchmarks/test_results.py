import json
from dataclasses import replace

import pytest

from benchmarks.results import Difference, ModelResult, Report, geometric_mean, read_report, write_report
from tests.benchmarks.sample import MODEL, ROW


def test_geometric_mean():
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)
    assert geometric_mean([]) is None


def test_ratios():
    assert (ROW.in_use_ratio, ROW.held_ratio, ROW.tensor_ratio) == (0.5, 0.25, 0.75)
    assert MODEL.total_seconds == 1.5


@pytest.mark.parametrize(
    "change",
    [{"measured": 601}, {"formula": 599}, {"nodes_equal": 0.9}, {"predicted": None, "formula": None}],
)
def test_any_difference_counts(change):
    assert ROW.equal
    assert not replace(ROW, **change).equal


def test_peak_that_depends_on_data_has_no_formula():
    assert replace(ROW, formula=None).equal


def test_largest_row_is_the_one_that_uses_most_as_shipped():
    report = Report({}, (MODEL, ModelResult("broken", "", failed="optimize: no")))
    assert report.largest == (ROW,)
    assert len(report.rows) == 2


def test_written_results_are_read_back(tmp_path):
    row = replace(ROW, differences=(Difference("Clip", 2, -4),), reasons=("t: why",), taken={"u0": 3})
    made = {"command": "make bench"}
    report = Report(made, (replace(MODEL, shapes=(row,), notes=("a note",)),), ((1000, {"plan": 1.0}),))
    file = tmp_path / "new" / "results.json"
    write_report(report, file)
    assert read_report(file) == report


def test_other_json_is_refused(tmp_path):
    file = tmp_path / "other.json"
    file.write_text(json.dumps({"schema": "onnx-symmem/run"}))
    with pytest.raises(ValueError, match="not a result of benchmarks"):
        read_report(file)
