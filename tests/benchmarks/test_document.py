import csv
import math

import pytest

from benchmarks.document import Finding, Page, Table, geometric_mean, write_page

MADE = {
    "command": "make bench",
    "date": "2030-01-02 03:04 UTC",
    "took": "5 s",
    "hardware": "Abacus, 2 cores",
    "versions": "Python 3.11",
}
TABLE = Table(
    "small", "Small numbers", ("name", "count", "ratio"), (("a|b", 1234, 1.25), ("mean", None, math.nan))
)
PAGE = Page("part", "A part", "What it is.", (Finding("ratio", "1.2", "<= 1.1", False),), (TABLE,))


def test_geometric_mean():
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)
    assert math.isnan(geometric_mean([]))


def test_numbers_stand_right_and_what_is_missing_is_a_dash():
    lines = TABLE.markdown()
    assert lines[-3:] == ["| --- | ---: | ---: |", "| a\\|b | 1,234 | 1.250 |", "| mean | - | - |"]


def test_page_csv_and_list_are_written(tmp_path):
    write_page(PAGE, MADE, tmp_path / "tables", tmp_path / "docs")
    rows = list(csv.reader((tmp_path / "tables" / "small.csv").read_text().splitlines()))
    assert rows == [["name", "count", "ratio"], ["a|b", "1234", "1.25"], ["mean", "", "nan"]]
    text = (tmp_path / "docs" / "part.md").read_text()
    assert all(value in text for value in MADE.values())
    assert "| ratio | 1.2 | <= 1.1 | no |" in text
    listed = (tmp_path / "docs" / "README.md").read_text()
    assert "## [A part](part.md)\n\n- **command**: `make bench`\n- **date**: 2030" in listed
    assert "| ratio | 1.2 | <= 1.1 | no |" in listed
    assert "Small numbers" not in listed


def test_list_has_every_page_that_is_there(tmp_path):
    other = Page("other", "Another", "", (Finding("x", "y"),), ())
    for page in (PAGE, other, PAGE):
        write_page(page, MADE, tmp_path, tmp_path / "docs")
    listed = (tmp_path / "docs" / "README.md").read_text()
    assert listed.count("## [") == 2


def test_docs_are_left_alone_unless_asked_for(tmp_path):
    write_page(PAGE, MADE, tmp_path / "tables", None)
    assert [p.name for p in tmp_path.iterdir()] == ["tables"]
