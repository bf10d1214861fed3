"""The page in use: offline, by keyboard, by screen reader, in the dark, on paper, quick, with any names."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

from onnx_symmem.report.html.page import render_page
from tests.browser.conftest import Opened
from tests.cli.small import odd_model, plain_model
from tests.conftest import CASES
from tests.run.towers import towers

Page = Callable[..., Opened]
WHISPER = CASES["whisper_decoder"].structure


def press(page: Opened, *keys: str) -> None:
    """Press keys, one after another, on what has the focus."""
    from selenium.webdriver.common.action_chains import ActionChains

    ActionChains(page.browser).send_keys(*keys).perform()
    page.settle()


def key(name: str) -> str:
    from selenium.webdriver.common.keys import Keys

    return str(getattr(Keys, name))


def test_nothing_is_loaded_from_anywhere(open_page: Page) -> None:
    page = open_page(plain_model())
    assert page.run("return performance.getEntriesByType('resource').map(e => e.name)") == []
    assert (
        page.run("return document.querySelectorAll('script[src], link[rel=stylesheet], img, iframe').length")
        == 0
    )
    assert "default-src 'none'" in page.run("return document.querySelector('meta[http-equiv]').content")
    assert page.complaints() == []


def test_sliders_and_timeline_answer_to_keys(open_page: Page) -> None:
    page = open_page(WHISPER)
    page.run("page.controls.dial('batch').slider.focus()")
    before, peak = page.run("return page.controls.dial('batch').size"), page.text("peak-exact")
    press(page, key("ARROW_RIGHT"))
    assert page.run("return page.controls.dial('batch').size") > before
    assert page.text("peak-exact") != peak
    assert page.run("return document.activeElement.getAttribute('aria-valuetext')").startswith("batch ")
    page.run("page.timeline.cursor.focus()")
    row = page.run("return page.row")
    press(page, key("ARROW_RIGHT"))
    assert page.run("return page.row") == row + 1
    assert page.text("alive-title").startswith("In memory at step")
    press(page, key("HOME"))
    assert page.text("moment").startswith("Step 1 ")
    shown = page.run("return page.timeline.to - page.timeline.from")
    press(page, "+")
    assert page.run("return page.timeline.to - page.timeline.from") < shown
    press(page, "p", "0")
    assert page.run("return [page.row, page.timeline.to - page.timeline.from]") == [row, shown]
    assert page.text("alive-title") == "In memory at the peak"
    assert f"step {row + 1}," in page.run("return page.timeline.cursor.getAttribute('aria-valuetext')")


def test_the_focus_goes_through_the_page_in_reading_order(open_page: Page) -> None:
    page = open_page(WHISPER)
    names = []
    for _ in range(24):
        press(page, key("TAB"))
        names.append(
            page.run(
                "const e = document.activeElement;"
                "return e.getAttribute('aria-label') || e.labels?.[0]?.innerText || e.innerText || e.id"
            )
        )
    wanted = ["Skip to the results", "batch", "batch, slider", "dec_seq", "enc_seq", "Find a tensor or node"]
    places = [names.index(name) for name in wanted]
    assert places == sorted(places)
    assert places[0] == 0


def test_everything_that_can_be_used_has_a_name(open_page: Page) -> None:
    page = open_page(odd_model(), against=plain_model())
    page.run("document.querySelectorAll('details').forEach(d => { d.open = true })")
    tree = page.browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    used = {"button", "slider", "spinbutton", "textbox", "searchbox", "combobox", "checkbox", "link", "table"}

    def value(node: dict[str, Any], field: str) -> str:
        return str(node.get(field, {}).get("value", ""))

    nodes = [n for n in tree if not n.get("ignored")]
    roles = {value(n, "role") for n in nodes}
    assert {"slider", "spinbutton", "searchbox", "checkbox", "button", "status"} <= roles
    nameless = [
        value(n, "role") for n in nodes if value(n, "role") in used - {"table"} and not value(n, "name")
    ]
    assert nameless == []
    headings = [value(n, "name") for n in nodes if value(n, "role") == "heading"]
    assert "In use over the run" in headings
    assert "What the numbers cover" in headings


def test_the_peak_is_said_once_a_slider_rests(open_page: Page) -> None:
    page = open_page(plain_model())
    page.slide("batch", 0.5)
    page.browser.execute_async_script("setTimeout(arguments[0], 700)")
    said = page.run(
        "const e = document.getElementById('said'); return [e.textContent, e.getAttribute('aria-live')]"
    )
    assert said[1] == "polite"
    assert page.text("peak") in said[0]
    assert "Tanh wide/tanh" in said[0]


def test_pointing_tells_and_clicking_goes(open_page: Page) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    page = open_page(plain_model())
    timeline, shapes = page.run(
        "return ['.timeline', '.map'].map((q) => document.querySelector(q))",
    )
    page.run("arguments[0].scrollIntoView({block: 'center'})", timeline)
    ActionChains(page.browser).move_to_element_with_offset(timeline, 120, 20).perform()
    tip = page.run("return page.timeline.tip.innerText")
    assert tip.startswith("step ")
    assert "in use" in tip
    ActionChains(page.browser).click().perform()
    page.settle()
    assert page.text("moment").split(" of ")[0].lower() == tip.split(",")[0]
    page.run("arguments[0].scrollIntoView({block: 'center'})", shapes)
    ActionChains(page.browser).move_to_element_with_offset(shapes, 60, -40).perform()
    tip = page.run("return page.map.tip.innerText")
    ActionChains(page.browser).click().perform()
    page.settle()
    shape, total = tip.split("\n")
    assert shape == ", ".join(f"{k} {v:,}" for k, v in page.run("return page.controls.chosen()").items())
    assert total == f"{page.text('total')} with inputs and weights"
    assert page.complaints() == []


def test_search_finds_tensors_and_nodes(open_page: Page) -> None:
    page = open_page(plain_model())
    page.run("document.getElementById('find').focus()")
    press(page, *"gate")
    found = page.run("return [...document.querySelectorAll('#found button')].map(b => b.innerText)")
    assert [text.split("\n")[-1] for text in found] == ["gated", "Mul gate"] or len(found) == 2
    assert page.text("found-count") == "2 found"
    press(page, key("ARROW_DOWN"), key("ENTER"))
    card = page.text("card")
    assert "thin_out" not in card.splitlines()[0]
    press(page, key("ESCAPE"))
    page.run("page.pick({tensor: page.model.data.tensors.name.indexOf('back')})")
    card = page.text("card")
    assert "lies in that of" in card
    assert "[batch, seq, 8]" in card
    page.run("page.pick({row: page.model.data.rows.name.indexOf('wide/tanh')})")
    assert "wide_active" in page.text("card")
    assert page.run("return document.querySelectorAll('.lifetime').length") == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_stand_out_from_their_ground(open_page: Page, scheme: str) -> None:
    page = open_page(odd_model())
    page.browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )
    try:
        low = page.run(
            """
            const channel = (c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
            const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
            const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
            const ground = (e) => {
              for (; e; e = e.parentElement) {
                const c = rgb(getComputedStyle(e).backgroundColor);
                if (c.length < 4 || c[3] > 0) return c;
              }
              return [255, 255, 255];
            };
            const low = [];
            for (const e of document.querySelectorAll("main *, header *, aside *, footer *")) {
              const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
              if (!own || e.closest("svg") || e.disabled || !e.getClientRects().length) continue;
              const [a, b] = [light(rgb(getComputedStyle(e).color)), light(ground(e))].sort((x, y) => y - x);
              const name = `${e.tagName}.${e.className} ${e.textContent.slice(0, 20)}`;
              if ((a + 0.05) / (b + 0.05) < 4.5) low.push(name);
            }
            return [getComputedStyle(document.body.parentElement).backgroundColor, low];
            """
        )
    finally:
        page.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert (sum(map(int, low[0][4:-1].split(","))) < 200) == (scheme == "dark")
    assert low[1] == []


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_no_width_makes_the_page_scroll_sideways(open_page: Page, width: int) -> None:
    page = open_page(WHISPER)
    metrics = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    page.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        page.settle()
        assert page.run("return document.documentElement.scrollWidth") <= width
    finally:
        page.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_names_in_the_map_leave_each_other_room(open_page: Page) -> None:
    page = open_page(towers(2))
    boxes = page.run(
        """
        const shown = [...document.querySelectorAll("#map .cell-name")].map((t) => t.getBoundingClientRect());
        return shown.map(({ x, y, width, height }) => [x, y, width, height]);
        """
    )
    assert len(boxes) > 3
    for k, (x, y, width, height) in enumerate(boxes):
        for u, v, wide, high in boxes[:k]:
            apart = x + width <= u or u + wide <= x or y + height <= v + 4 or v + high <= y + 4
            assert apart, (x, y, u, v)


def test_on_paper_there_are_figures_and_no_controls(open_page: Page) -> None:
    page = open_page(plain_model())
    page.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        seen = page.run(
            "const seen = (q) => document.querySelector(q).getClientRects().length > 0;"
            "return ['#peak', '#timeline svg', '#members', '#coverage', '#to-peak', '#find',"
            " 'input[type=range]'].map(seen)"
        )
    finally:
        page.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    assert seen == [True, True, True, True, False, False, False]
    paper = page.browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": False})
    assert base64.b64decode(paper["data"]).startswith(b"%PDF")


def test_a_name_is_never_markup(open_page: Page) -> None:
    model = plain_model()
    evil = "</script><img src=x onerror=window.hit=1>&amp;\u2028'\"`"
    for node in model.graph.node:
        node.output[:] = [evil if o == "wide_active" else o for o in node.output]
        node.input[:] = [evil if i == "wide_active" else i for i in node.input]
    model.graph.node[3].name = evil + "node"
    for dim in (d for v in (*model.graph.input, *model.graph.output) for d in v.type.tensor_type.shape.dim):
        if dim.dim_param == "batch":
            dim.dim_param = "<b>batch</b> size"
    page = open_page(model, against=model)
    page.run("page.pick({tensor: page.model.data.tensors.name.indexOf(arguments[0])})", evil)
    assert page.run("return window.hit ?? null") is None
    assert page.run("return document.querySelectorAll('img, main b b').length") == 0
    assert page.run("return document.querySelector('#card h3').textContent") == evil
    assert page.run("return page.controls.dials[0].range.name") == "<b>batch</b> size"
    assert page.complaints() == []


def test_the_address_keeps_the_shape(open_page: Page) -> None:
    page = open_page(plain_model())
    page.type("batch", "7")
    page.type("seq", "11")
    page.browser.execute_async_script("setTimeout(arguments[0], 500)")
    address = page.browser.current_url
    assert address.endswith("#batch=7&seq=11")
    peak = page.text("peak-exact")
    page.browser.get("about:blank")
    page.browser.get(address)
    assert page.text("peak-exact") == peak


def test_a_model_without_nodes_or_symbols_has_a_page(open_page: Page) -> None:
    info = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 3])
    empty = onnx.helper.make_model(onnx.helper.make_graph([], "empty", [info], [info]), ir_version=10)
    page = open_page(empty)
    assert page.text("peak-exact") == "0 bytes"
    assert page.text("total-exact") == "24 bytes"
    assert page.complaints() == []


def test_five_thousand_nodes_are_repainted_at_once(open_page: Page, tmp_path: Path) -> None:
    from models.transformer_train import build_transformer_train

    model = build_transformer_train(width=8, features=8, classes=8, layers=46, heads=2)
    assert len(model.graph.node) >= 5000
    page = open_page(model, domain={"batch": (1, 8), "seq": (64, 64)})
    assert len(render_page(page.analysis).encode()) < 1_500_000
    times = page.run(
        """
        const times = [];
        const { sizes } = page.controls.dials[0];
        for (let k = 0; k < 21; k += 1) {
          page.controls.dials[0].show(sizes[(k * 37) % sizes.length]);
          page.draw();
          times.push(page.took);
        }
        return times.sort((a, b) => a - b);
        """
    )
    # 50 ms on an idle machine; tests run beside each other on slow ones.
    assert times[0] < 100
    assert times[10] < 250
