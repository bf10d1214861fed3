"""Models that hold several schedules: the page shows the one that runs, as the guard picks it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from models.build import build
from onnx_symmem.expr.domain import Domain, SymbolRange
from onnx_symmem.order.limits import SearchLimits, within_budget
from onnx_symmem.remat.levels import LevelOptions
from onnx_symmem.remat.schedule import schedule_of
from onnx_symmem.run.measure import measure
from onnx_symmem.run.optimized import OptimizeOptions
from onnx_symmem.run.pipeline import optimize_model
from onnx_symmem.run.several import LevelWish
from tests.browser.conftest import Opened
from tests.browser.test_numbers import shown_bytes, slider_positions
from tests.rewrite.test_versions import Emitted, _crossing, _with_levels
from tests.run.towers import towers

Page = Callable[..., Opened]


def set_limit(page: Opened, text: str) -> None:
    page.run("const e = document.getElementById('limit'); e.value = arguments[0]; page.draw()", text)


def own_peak(page: Opened, version: int, shape: dict[str, int]) -> int:
    """The most of the rows of a version, found without the page."""
    profile = page.analysis.profile
    rows = page.run("return page.model.runs[arguments[0]].rows", version)
    values = profile.in_use.evaluate([shape])[:, 0]
    return max(int(values[row]) for row in rows)


def test_the_first_version_that_fits_is_the_one_that_is_shown(open_page: Page) -> None:
    emitted = _with_levels("transformer_train")
    page = open_page(emitted.proto)
    count = len(emitted.versions)
    branches = page.analysis.branches
    assert branches is not None
    assert page.run("return page.data.model.versions.list.length") == count
    for shape in ({"batch": 1, "seq": 3}, {"batch": 3, "seq": 17}, {"batch": 12, "seq": 130}):
        page.run("page.controls.set(arguments[0])", shape)
        peaks = [peak.at(shape) + emitted.overhead for peak in emitted.said]
        for limit in {*peaks, *(p - 1 for p in peaks)}:
            set_limit(page, str(limit))
            wanted = branches.version_at(shape, limit)
            assert page.run("return page.model.version") == wanted
            alone = emitted.peaks[wanted].at(shape)
            assert alone <= shown_bytes(page, "peak-exact") <= alone + emitted.overhead
            assert shown_bytes(page, "peak-exact") == own_peak(page, wanted, shape)
            members = page.run("return page.state.members.map(Number)")
            assert max(members) == shown_bytes(page, "peak-exact")
        assert page.text("versions").count("runs here") == 1
    assert page.complaints() == []


def check_positions(page: Opened, limits: list[str]) -> set[int]:
    """At ten positions of the sliders the page shows what the guard in the file runs; which versions ran."""
    branches, profile = page.analysis.branches, page.analysis.profile
    assert branches is not None
    symbols = [s["name"] for s in page.run("return page.data.model.domain.free")]
    seen, ran = set(), set()
    for place, position in enumerate(slider_positions(symbols)):
        shape = {name: page.slide(name, part) for name, part in position.items()}
        limit = limits[place % len(limits)]
        if limits != [""]:
            set_limit(page, limit)
        version = branches.version_at(shape, int(limit) if limit else None)
        assert page.run("return page.model.version") == version
        in_use = profile.in_use.evaluate([shape])[:, 0]
        peak = max(int(in_use[row]) for row in branches.rows(profile, version))
        assert shown_bytes(page, "peak-exact") == peak
        assert max(page.run("return page.state.members.map(Number)")) == peak
        bound = max(b.evaluate(shape) for b in page.analysis.version_bounds[version])
        assert 0 < page.run("return Number(page.state.bound)") == bound <= peak
        seen.add(tuple(shape.values()))
        ran.add(version)
    assert len(seen) == 10
    assert page.complaints() == []
    return ran


def test_ten_positions_of_orders_among_which_shapes_decide(open_page: Page) -> None:
    found = optimize_model(towers(2), None, {"n0": (8, None), "n1": (8, None)})
    assert found.dispatch is not None
    page = open_page(found.proto)
    assert check_positions(page, [""]) == {0, 1}
    # Sliders begin at 1: the last shapes were not planned, where the file runs one certain version.
    for shape in ({"n0": 300, "n1": 20}, {"n0": 20, "n1": 300}, {"n0": 7, "n1": 300}, {"n0": 300, "n1": 7}):
        page.run("page.controls.set(arguments[0])", shape)
        page.settle()
        ran = measure(found.proto, shape, runs=1, latency_runs=0)
        assert page.run("return page.model.version") == ran.version
        assert shown_bytes(page, "peak-exact") == ran.predicted_peak == ran.runs[0].requested_peak
        bound = page.run("return Number(page.state.bound)")
        assert ("was not planned" in page.text("unplanned")) == (min(shape.values()) < 8)
        # No order of the nodes before them is below either, but for what deciding takes.
        assert found.bound.at(shape) <= bound <= ran.predicted_peak
    assert page.run("return document.querySelectorAll('#timeline .bound').length") == 1
    assert page.text("least") != "not known"
    assert page.run("return document.querySelectorAll('.bound-key').length") == 1


def test_ten_positions_of_levels_under_a_limit(open_page: Page) -> None:
    proto = build("transformer_train", layers=1, width=64)
    wish = LevelWish(None, options=LevelOptions(levels=2))
    options = OptimizeOptions(levels=wish, verify=False, search=within_budget(0, SearchLimits()))
    found = optimize_model(proto, None, {"batch": (1, 8), "seq": (1, 128)}, options)
    assert found.levels is not None
    page = open_page(found.proto)
    limits = ["", "0", *(str(found.levels.needed(k, {"batch": 4, "seq": 64})) for k in range(3))]
    assert len(check_positions(page, limits)) > 1


@pytest.mark.parametrize("limit", ["", "0"])
def test_a_run_is_predicted_to_take_what_the_page_says(open_page: Page, limit: str) -> None:
    emitted = _with_levels("mlp_train")
    page = open_page(emitted.proto)
    model = emitted.limited(0) if limit else emitted.proto
    shape = {"batch": 33}
    page.run("page.controls.set(arguments[0])", shape)
    set_limit(page, limit)
    found = measure(model, shape, latency_runs=0)
    assert shown_bytes(page, "peak-exact") == found.predicted_peak == found.runs[0].requested_peak
    assert page.run("return page.model.version") == (2 if limit else 0)
    label: Any = page.text("peak-label")
    assert label == "exact"


@pytest.mark.parametrize("policy", ["least", "fits"])
def test_the_version_of_the_least_peak(open_page: Page, policy: str) -> None:
    """Which is the one that runs, too, where none fits the limit."""
    orders = [(0, 1, 2, 3, 4, 5), (2, 3, 0, 1, 4, 5)]
    domain = Domain({"n": SymbolRange(1, 60)})
    emitted = Emitted(_crossing(), [schedule_of(o) for o in orders], policy, domain, lifted=False)
    page = open_page(emitted.proto, domain={"n": (1, 60)})
    if policy == "fits":
        set_limit(page, "0")
    a, b = emitted.peaks
    seen = set()
    for n, m in [(1, 1), (7, 3), (3, 7), (50, 51), (51, 50), (40, 2)]:
        shape = {"n": n, "m": m}
        page.run("page.controls.set(arguments[0])", shape)
        page.settle()
        version = int(b.at(shape) < a.at(shape))
        seen.add(version)
        assert page.run("return page.model.version") == version
        assert shown_bytes(page, "peak-exact") == own_peak(page, version, shape)
        # The timeline is that of one run: its steps are counted through.
        steps = page.run("return page.model.run.rows.map(row => page.model.step(row))")
        assert steps == list(range(1, len(steps) + 1))
        assert f"of {len(steps)}: " in page.text("moment")
    assert seen == {0, 1}
    page.run("document.getElementById('way').value = 'version'; page.draw()")
    cells = page.run(
        "return page.map.lines.map(m => page.map.columns.map(n => [n, m, page.map.peakAt({n, m}).version]))"
    )
    for n, m, version in (cell for line in cells for cell in line):
        shape = {"n": n, "m": m}
        assert version == int(b.at(shape) < a.at(shape))
    assert "version 1" in page.run("return page.map.legend.textContent")
    assert page.complaints() == []
