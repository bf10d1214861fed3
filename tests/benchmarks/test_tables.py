from dataclasses import replace

import pytest

from benchmarks.results import Difference, ModelResult, Report
from benchmarks.tables import END, START, mean_text, readme_section, results_page, write_documents
from tests.benchmarks.sample import MODEL, ROW

MADE = {
    "command": "make bench",
    "date": "2030-01-02 03:04 UTC",
    "took": "5 s",
    "hardware": "Abacus, 2 cores",
    "versions": "Python 3.11",
}


def report(*models: ModelResult) -> Report:
    return Report(MADE, models, ((1002, {"shapes": 0.1, "plan": 0.5, "prove": 0.2, "write": 9.0}),))


def section(page: str, title: str) -> str:
    return page.partition(f"## {title}\n")[2].partition("\n## ")[0]


def test_page_says_how_it_was_made():
    page = results_page(report(MODEL))
    for text in MADE.values():
        assert text in page


def test_all_lines_of_a_table_have_as_many_cells():
    page = results_page(report(MODEL))
    tables = [part.splitlines() for part in page.split("\n\n") if part.startswith("|")]
    assert len(tables) == 6
    for table in tables:
        assert len({line.count("|") for line in table}) == 1


def test_rows_of_a_model_stand_together():
    text = section(results_page(report(MODEL)), "Predicted and measured peak")
    assert "| small | n=4 | 0.00 | 0.00 | 10 of 10 |" in text
    assert "|  | n=1 |" in text


def test_planning_time_counts_the_stages_that_think():
    assert "| 1,002 | 0.10 | 0.50 | 0.20 | 0.80 |" in results_page(report(MODEL))


def test_every_fate_of_a_plan_is_counted():
    models = [replace(MODEL, never_worse=fate) for fate in ("proved", "dispatched", "dispatched", "kept")]
    text = section(results_page(report(*models)), "In short")
    assert "Never worse: 1 proved, 2 decided by the shape, 1 kept the order" in text


def test_notes_are_empty_where_nothing_differs():
    assert section(results_page(report(MODEL)), "Notes").strip() == "Nothing differs from what was predicted."


def test_notes_name_the_op_that_breaks_equality():
    row = replace(ROW, measured=604, nodes_equal=0.9, differences=(Difference("Clip", 1, 4),))
    notes = section(results_page(report(replace(MODEL, shapes=(row,)))), "Notes")
    assert (
        "- **small** at n=4: 9 of 10 nodes equal; differences arise at Clip (1 nodes, up to +4 bytes)"
        in notes
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"why_not": "it was changed at load", "predicted": None, "nodes_equal": None},
            "nothing is predicted",
        ),
        ({"before_measured": 900}, "predicted to take 800 bytes and took 900"),
        (
            {"before_predicted": 590, "before_measured": 590},
            "takes 10 bytes more than ONNX Runtime's own order",
        ),
        ({"reasons": ("t: unknown rank",)}, "not counted: t: unknown rank"),
        ({"taken": {"u0": 3}}, "1 sizes depend on data (u0)"),
    ],
)
def test_notes_say_what_is_not_exact(change, words):
    page = results_page(report(replace(MODEL, shapes=(replace(ROW, **change),))))
    assert words in section(page, "Notes")


def test_failure_is_a_note_and_no_row():
    page = results_page(report(ModelResult("broken", "", failed="optimize: no")))
    assert "- **broken**: optimize: no" in page
    assert "| broken" not in page


def test_readme_table_is_written_between_its_markers(tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text(f"# Title\n\n{START}\nold\n{END}\n\nrest\n")
    write_documents(report(MODEL), tmp_path / "docs" / "RESULTS.md", readme)
    text = readme.read_text()
    assert text.startswith(f"# Title\n\n{START}\n\nMiB at the largest of 2 shapes")
    assert "| small | n=4 |" in text
    assert "old" not in text
    assert text.endswith(f"\n{END}\n\nrest\n")
    assert (tmp_path / "docs" / "RESULTS.md").read_text() == results_page(report(MODEL))
    write_documents(report(MODEL), tmp_path / "docs" / "RESULTS.md", readme)
    assert readme.read_text() == text


def test_readme_without_markers_is_left_alone(tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text("# Title\n")
    with pytest.raises(ValueError, match="markers"):
        write_documents(report(MODEL), tmp_path / "RESULTS.md", readme)
    assert not (tmp_path / "RESULTS.md").exists()


def test_nothing_measured():
    assert mean_text([]) == "-"
    assert "- of" not in readme_section(Report(MADE, ()))


def test_use_that_no_order_goes_below_counts_the_bound_and_weights_laid_out_anew():
    text = results_page(report(MODEL))
    assert "| arena in use that no order goes below | 0.52 | 0.40 |" in section(text, "In short")
    assert "| 0.50 | 0.40 | 0.40 | 0.00 |" in section(text, "Beside ONNX Runtime as shipped")


def test_weights_that_are_not_laid_out_anew_have_columns_of_their_own():
    text = results_page(report(MODEL))
    short, table = section(text, "In short"), section(text, "Beside ONNX Runtime as shipped")
    # 600 of 1500 and 600 of 900, 800 of 4000 twice
    assert (
        "| arena in use, weights as they are in the file (`--no-prepacking`) | 0.52 | 0.40 | 0.50 |" in short
    )
    assert "| arena held, weights as they are in the file | 0.20 | 0.20 | 0.40 |" in short
    assert "| 0.25 | 0.20 |" in table
    assert "bit-equal in 1 of 1 models" in short
    other = replace(MODEL, unpacked_equal=False)
    assert "bit-equal in 0 of 1 models" in section(results_page(report(other)), "In short")


def test_use_stands_for_its_floor_where_that_depends_on_data():
    unknown = replace(MODEL, shapes=(replace(ROW, least=None),))
    text = results_page(report(unknown))
    assert "| arena in use that no order goes below | 0.50 | 0.50 |" in section(text, "In short")
    assert "| 0.50 | - | 0.40 | 0.00 |" in section(text, "Beside ONNX Runtime as shipped")
