"""The table of the algebra's speed on small graphs, and that its pairs are what it says."""

import pytest

from benchmarks import algebra


@pytest.fixture(autouse=True)
def few(monkeypatch):
    for name, count in (("_PAIRS", 60), ("_MANY", 500), ("_SYMPY_PAIRS", 3), ("_REPEATS", 1)):
        monkeypatch.setattr(algebra, name, count)


def test_tables_of_a_small_graph():
    page = algebra.run(["series_parallel_0", "random"])
    assert page.wrong == ()
    comparisons, beside, texts, envelopes = page.tables
    assert [row[0] for row in comparisons.rows] == ["random polynomials", "series_parallel_0"]
    for row in comparisons.rows:
        assert min(row[1:4]) > 0
        assert sum(float(cell.rstrip("%")) for cell in row[4:]) == pytest.approx(100, abs=0.5)
    assert [row[0] for row in envelopes.rows] == ["series_parallel_0"]
    _, rows, different, members, _, _ = envelopes.rows[0]
    assert rows >= different >= members >= 1
    assert len(beside.rows) == len(texts.rows) == 2


def test_questions_are_different_expressions():
    question = algebra.random_polynomials(40)
    assert len(set(question.exprs)) == 40
    assert all(a != b for a, b in question.pairs(100))
    assert question.pairs(100) == algebra.random_polynomials(40).pairs(100)
