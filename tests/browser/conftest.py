"""A headless Chromium for the tests of the page, where one is installed; `.ci/run` installs it on Debian.

Without one these tests are skipped and say so, unless SYMMEM_BROWSER=required turns that into a failure.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest

from onnx_symmem.report.analysis import Analysis, analyse
from onnx_symmem.report.html.page import render_page

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1280,900",
)
MISSING = "the browser tests need Debian's packages chromium and chromium-driver"


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A WebDriver, started once."""
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if binary is None or driver is None:
        if os.environ.get("SYMMEM_BROWSER") == "required":
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    opened = webdriver.Chrome(options=options, service=Service(driver))
    opened.set_script_timeout(60)
    yield opened
    opened.quit()


class Opened:
    """A page in the browser, with the analysis that it was made of."""

    def __init__(self, browser: Any, analysis: Analysis, other: Analysis | None = None) -> None:
        self.browser, self.analysis, self.other = browser, analysis, other

    def run(self, script: str, *arguments: Any) -> Any:
        """What a script returns; `page` is the page's object."""
        return self.browser.execute_script(script, *arguments)

    def text(self, element_id: str) -> str:
        """The text that an element shows."""
        return str(self.run("return document.getElementById(arguments[0]).innerText", element_id))

    def settle(self) -> None:
        """Wait until what was asked for has been drawn."""
        self.browser.execute_async_script(
            "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => done()))"
        )

    def slide(self, symbol: str, part: float) -> int:
        """Move a symbol's slider to a part of its way, as dragging does; the size it stands for."""
        size = self.run(
            """
            const slider = document.querySelector(`.dial[data-symbol="${arguments[0]}"] input[type=range]`);
            slider.value = Math.round(arguments[1] * slider.max);
            slider.dispatchEvent(new Event("input"));
            return Number(slider.parentElement.querySelector("input[type=number]").value);
            """,
            symbol,
            part,
        )
        self.settle()
        return int(size)

    def type(self, symbol: str, text: str) -> str:
        """Type a size into a symbol's field; what the field then holds."""
        held = self.run(
            """
            const field = document.querySelector(`.dial[data-symbol="${arguments[0]}"] input[type=number]`);
            field.value = arguments[1];
            field.dispatchEvent(new Event("change"));
            return field.value;
            """,
            symbol,
            text,
        )
        self.settle()
        return str(held)

    def complaints(self) -> list[str]:
        """What the browser's console has got since the last call."""
        return [entry["message"] for entry in self.browser.get_log("browser")]


@pytest.fixture
def open_page(browser: Any, tmp_path: Path) -> Callable[..., Opened]:
    """`open_page(model, against=None, domain=None, at=())`: the page of a model, opened from a file."""

    def open_it(
        model: Path | onnx.ModelProto,
        against: Path | onnx.ModelProto | None = None,
        domain: Any = None,
        at: Any = (),
    ) -> Opened:
        analysis = analyse(model, domain, at)
        other = None if against is None else analyse(against, domain, other=True)
        file = tmp_path / "page.html"
        file.write_text(render_page(analysis, other), encoding="utf-8")
        browser.get("about:blank")
        browser.get_log("browser")
        browser.get(file.as_uri())
        opened = Opened(browser, analysis, other)
        assert opened.run("return document.documentElement.className") == "ready", opened.complaints()
        return opened

    return open_it
