"""The page's numbers are those of the Python side, at every position of its sliders, to the byte."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models.build import build
from onnx_symmem.report.analysis import Analysis
from onnx_symmem.report.growth import same_shape
from onnx_symmem.run.measure import measure
from tests.browser.conftest import Opened
from tests.cli.small import free_model, odd_model, plain_model
from tests.conftest import CASES

Page = Callable[..., Opened]
POSITIONS = 10
BUILT = ("decoder", "unet", "transformer_train")


def slider_positions(symbols: list[str]) -> list[dict[str, float]]:
    """Ten places for every slider: both ends, and points in between that do not move in step."""
    rng = np.random.default_rng(7)
    inner = [{name: float(rng.uniform(0, 0.6)) for name in symbols} for _ in range(POSITIONS - 2)]
    return [dict.fromkeys(symbols, 0.0), *inner, dict.fromkeys(symbols, 1.0)]


def shown_bytes(page: Opened, element_id: str) -> int:
    """The exact number of bytes that an element shows."""
    match = re.match(r"([\d,]+) bytes?", page.text(element_id))
    assert match, page.text(element_id)
    return int(match[1].replace(",", ""))


def on_page(page: Opened) -> dict[str, Any]:
    """What the page holds of the present shape; numbers as texts, which JSON does not round."""
    found: dict[str, Any] = page.run(
        """
        const { state, made, model } = page;
        return {
          shape: Object.fromEntries(Object.entries(made.shape).map(([name, size]) => [name, String(size)])),
          problems: made.problems,
          rows: Array.from(state.inUse, (_, row) => String(state.inUseAt(row))),
          outputs: Array.from(state.outputs, (_, row) => String(state.outputsAt(row))),
          row: state.peakRow,
          bound: String(state.bound), weights: String(state.weights), inputs: String(state.inputs),
          members: state.members.map(String),
          alive: model.alive(state.peakRow, state).map(
            ({ tensor, bytes }) => [model.data.tensors.name[tensor], String(bytes)]),
        };
        """
    )
    return found


def check(page: Opened, analysis: Analysis) -> Mapping[str, int]:
    """Compare all of the page with the profile at the shape that the page is at; that shape."""
    here = on_page(page)
    shape = {name: int(size) for name, size in here["shape"].items()}
    profile = analysis.profile
    in_use = [int(v) for v in profile.in_use.evaluate([shape])[:, 0]]
    peak = max(in_use, default=0)
    assert shown_bytes(page, "peak-exact") == peak == analysis.peak.at(shape)
    inputs, weights = profile.inputs.evaluate(shape), profile.weights.evaluate(shape)
    assert shown_bytes(page, "total-exact") == peak + inputs + weights
    assert (int(here["inputs"]), int(here["weights"])) == (inputs, weights)
    assert [int(v) for v in here["rows"]] == in_use
    assert [int(v) for v in here["outputs"]] == [int(v) for v in profile.outputs.evaluate([shape])[:, 0]]
    assert here["row"] == in_use.index(peak)
    assert int(here["bound"]) == max(b.evaluate(shape) for b in analysis.bound)
    assert [int(m) for m in here["members"]] == [m.evaluate(shape) for m in analysis.peak.members]
    alive = {(slot.name, slot.bytes.evaluate(shape)) for slot in profile.live(here["row"]) if slot.bytes}
    assert {(name, int(size)) for name, size in here["alive"] if int(size)} == {a for a in alive if a[1]}
    return shape


def check_positions(page: Opened, analysis: Analysis) -> None:
    """Move all sliders to ten positions and compare everything at each."""
    symbols = [s["name"] for s in page.run("return page.data.model.domain.free")]
    seen = set()
    for position in slider_positions(symbols):
        for name, part in position.items():
            page.slide(name, part)
        shape = check(page, analysis)
        # Where one dim limits another, sliders reach shapes that no run takes; the page says so.
        assert (page.run("return page.made.problems") == []) == analysis.shapes.domain.contains(shape)
        seen.add(tuple(shape.items()))
    assert len(seen) == POSITIONS
    assert page.complaints() == []


@pytest.mark.parametrize("name", CASES)
def test_ten_slider_positions_of_real_models(open_page: Page, name: str) -> None:
    page = open_page(CASES[name].structure)
    check_positions(page, page.analysis)


@pytest.mark.parametrize("name", BUILT)
def test_ten_slider_positions_of_built_models(open_page: Page, name: str) -> None:
    page = open_page(build(name))
    check_positions(page, page.analysis)


def test_sizes_that_data_decides_and_dims_that_follow(open_page: Page) -> None:
    """An If, a bound of data, `seq == length`, `seq <= 16`."""
    page = open_page(odd_model())
    assert [s["name"] for s in page.run("return page.data.model.domain.free")] == ["batch", "seq"]
    check_positions(page, page.analysis)
    page.slide("batch", 0.2)
    page.slide("seq", 0.5)
    shape = check(page, page.analysis)
    assert shape["length"] == shape["seq"]
    assert shape["u0"] == 8 * shape["batch"] * shape["seq"]
    # A size that data decides may be set too; a size that cannot be is told.
    script = """
        const dial = page.controls.data[0]; dial.field.value = arguments[0];
        dial.field.dispatchEvent(new Event("change"));
    """
    page.run(script, "5")
    page.settle()
    assert check(page, page.analysis)["u0"] == 5
    page.run(script, str(shape["u0"] + 1))
    page.settle()
    assert "is more than" in page.text("problems")
    page.run(script, "")
    page.settle()
    assert page.text("problems") == ""
    assert check(page, page.analysis) == shape


def test_what_nothing_limits_is_said_and_can_be_set(open_page: Page) -> None:
    page = open_page(free_model())
    assert "Nothing limits u0" in page.text("data-note")
    page.run("page.controls.data[0].size = 12345; page.draw()")
    assert check(page, page.analysis)["u0"] == 12345


def test_sizes_beyond_2_to_the_53_stay_exact(open_page: Page) -> None:
    page = open_page(plain_model())
    for batch, seq in ((3_000_000_001, 7_000_000_003), (94_906_267, 46_341)):
        assert page.type("batch", str(batch)) == str(batch)
        page.type("seq", str(seq))
        peak = page.analysis.peak.at({"batch": batch, "seq": seq})
        assert peak > 1 << 53
        assert shown_bytes(page, "peak-exact") == peak
    assert page.complaints() == []


def test_ranges_and_divisors_are_kept(open_page: Page) -> None:
    from onnx_symmem.expr.domain import SymbolRange

    page = open_page(plain_model(), domain={"batch": (2, 9), "seq": SymbolRange(8, 512, 8)})
    sizes = [page.slide("seq", k / 40) for k in range(41)]
    assert sizes[0] == 8
    assert sizes[-1] == 512
    assert sizes == sorted(sizes)
    assert all(size % 8 == 0 for size in sizes)
    assert (page.type("batch", "100"), page.type("batch", "1"), page.type("seq", "30")) == ("9", "2", "24")
    assert "30 is not, took 24" in page.run("return page.controls.dial('seq').note.textContent")
    assert page.type("seq", "nonsense") == "24"
    check(page, page.analysis)


def test_a_slider_without_an_end_stops_at_multiples_only(open_page: Page) -> None:
    from onnx_symmem.expr.domain import SymbolRange

    page = open_page(plain_model(), domain={"seq": SymbolRange(1, None, 3)})
    sizes = page.run("return page.controls.dial('seq').sizes")
    assert sizes[0] == 3
    assert sizes[-1] > 4000
    assert all(size % 3 == 0 for size in sizes)
    assert page.type("seq", "1000000") == "999999"


def test_the_page_says_what_a_run_is_predicted_and_measured_to_take(
    open_page: Page, filled_model: Callable[[str], Path]
) -> None:
    model = filled_model("whisper_decoder")
    shape = {"batch": 2, "dec_seq": 5, "enc_seq": 21}
    page = open_page(model, at=[shape])
    assert {k: int(v) for k, v in on_page(page)["shape"].items()} == shape
    run = measure(model, shape, latency_runs=0)
    assert shown_bytes(page, "peak-exact") == run.prediction.peak
    assert max(n.measured for n in run.prediction.nodes) == run.prediction.peak


def test_both_models_of_a_comparison(open_page: Page) -> None:
    before = plain_model()
    after = plain_model()
    thin = next(n for n in after.graph.node if n.name == "thin/up")
    after.graph.node.remove(thin)
    after.graph.node.insert(4, thin)  # before wide/down, as long as the wide one is there
    page = open_page(after, against=before)
    other = page.other
    assert other is not None
    for position in slider_positions(["batch", "seq"]):
        for name, part in position.items():
            page.slide(name, part)
        shape = check(page, page.analysis)
        assert shown_bytes(page, "their-exact") == other.peak.at(same_shape(other, shape))
    rows = page.run("return page.theirs.state.inUse.length")
    assert rows == len(other.profile.moments)
    assert page.complaints() == []


def test_the_map_and_the_budget_agree_with_the_peak(open_page: Page) -> None:
    page = open_page(plain_model())
    page.slide("batch", 0.3)
    page.slide("seq", 0.3)
    shape = dict(check(page, page.analysis))
    profile = page.analysis.profile

    def total(sizes: Mapping[str, int]) -> int:
        return page.analysis.peak.at(sizes) + profile.inputs.evaluate(sizes) + profile.weights.evaluate(sizes)

    script = """
        const cell = (batch, seq) => String(page.map.peakAt({ batch, seq }).bytes);
        return page.map.lines.map((v) => page.map.columns.map((u) => cell(u, v)));
    """
    columns, lines = page.run("return [page.map.columns, page.map.lines]")
    for v, line in zip(lines[::5], page.run(script)[::5], strict=True):
        assert [int(cell) for cell in line] == [total({"batch": u, "seq": v}) for u in columns]
    page.run(
        "const b = document.getElementById('budget'); b.value = '8 MiB'; b.dispatchEvent(new Event('input'))"
    )
    page.settle()
    assert page.text("budget-note") == "8,388,608 bytes"
    words = page.run("return page.map.words.textContent")
    for name in ("batch", "seq"):
        match = re.search(rf"{name}: ([\d,]+) fits, ([\d,]+) does not", words)
        assert match, words
        fits, over = (int(text.replace(",", "")) for text in match.groups())
        assert over == fits + 1
        assert total({**shape, name: fits}) <= 8 << 20 < total({**shape, name: over})
