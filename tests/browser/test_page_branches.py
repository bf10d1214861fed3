"""Ifs whose branch the shapes decide: the page counts the branch that runs, as the other verbs do."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from onnx import helper

from tests.browser.conftest import Opened
from tests.browser.test_numbers import shown_bytes
from tests.run.test_decided import _model

Page = Callable[..., Opened]


def rows_of(page: Opened) -> list[int]:
    return [int(row) for row in page.run("return page.model.run.rows")]


@pytest.mark.parametrize("sign", ["Less", "GreaterOrEqual"])
def test_the_page_counts_the_branches_that_run(open_page: Page, sign: str) -> None:
    page = open_page(_model((9, 3), (2, 12), sign=sign), domain={"n": (1, 64)})
    in_use = page.analysis.profile.in_use
    for n in (1, 7, 8, 15, 16, 40):
        page.type("n", str(n))
        shape, rows = {"n": n}, page.analysis.rows_at({"n": n})
        assert rows_of(page) == sorted(rows)
        peak = max(int(v) for v in in_use.evaluate([shape])[list(rows), 0])
        assert shown_bytes(page, "peak-exact") == peak
        assert max(page.run("return page.state.members.map(Number)")) == peak
        assert (
            page.run("return page.model.peakAt(page.model.shape({ n: arguments[0] }), false).bytes", n)
            == peak
        )
        assert page.run("return page.state.peakRow") in rows
        assert page.text("peak-label") == page.analysis.label_at(shape) == "exact"
        assert shown_bytes(page, "peak-exact") >= int(page.run("return page.state.bound"))
        taken = ["then" if (n < at) == (sign == "Less") else "else" for at in (8, 16)]
        said = ", ".join(f"the {branch} branch of If 'if{k}'" for k, branch in enumerate(taken))
        assert page.text("data-note") == f"At this shape runs {said}."
    assert page.complaints() == []


def test_against_another_model_each_has_its_own_branches(open_page: Page) -> None:
    page = open_page(_model((9, 3)), _model((2, 12)), domain={"n": (1, 64)})
    for n in (7, 8):
        page.type("n", str(n))
        for subject, analysis in (("state", page.analysis), ("theirs.state", page.other)):
            assert analysis is not None
            rows = list(analysis.rows_at({"n": n}))
            peak = max(int(v) for v in analysis.profile.in_use.evaluate([{"n": n}])[rows, 0])
            assert page.run(f"return Number(page.{subject}.peak)") == peak
    assert page.complaints() == []


def test_what_data_decides_stays_a_bound_over_both_branches(open_page: Page) -> None:
    page = open_page(_model((9, 3), decided=False))
    assert page.run("return page.data.model.branches") is None
    assert rows_of(page) == list(range(len(page.analysis.profile.moments)))
    assert page.text("peak-label") == "upper bound"
    assert page.run("return page.model.branchText") == ""


def test_an_if_whose_condition_is_no_formula_stays_a_bound(open_page: Page) -> None:
    """The program of a condition runs in ONNX Runtime; the page has formulas only."""
    proto = _model((9, 3))
    for node in proto.graph.node:
        if node.op_type == "Less":
            node.input[:] = ["bits", "c0"]
    shifted = helper.make_node("BitwiseAnd", ["n", "c0"], ["bits"])
    proto.graph.node.insert(1, shifted)
    proto.opset_import[0].version = 18
    page = open_page(proto)
    assert page.analysis.decided.nodes
    assert page.run("return page.data.model.branches") is None
    assert page.text("peak-label") == "upper bound"
