"""The pages: links lead somewhere, commands exist, the reference is up to date, the site builds."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
import yaml
from onnx_symmem.cli.main import VERBS, cli

from documentation.__main__ import FOLDER, PAGES
from tests.docs.pages import ROOT, anchors_of, links_of, pages, shown_code, text_of

NAMES = [str(page.relative_to(ROOT)) for page in pages()]
_CALL = re.compile(r"^\s*(?:- )?(?:run: |entry: |\$ )?onnx-symmem (?P<words>[a-z-].*)$", re.MULTILINE)


def test_the_pages_are_found() -> None:
    assert {"README.md", "docs/tutorial.md", "docs/reference/cli.md", "docs/results/README.md"} <= {*NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_to_files_and_headings(name: str) -> None:
    page = ROOT / name
    broken = []
    for target in links_of(page):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        there = (page.parent / file).resolve() if file else page
        if (
            not there.is_relative_to(ROOT)
            or not there.exists()
            or (anchor and anchor not in anchors_of(there))
        ):
            broken.append(target)
    assert not broken


def test_a_broken_link_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A title, `code`\n[here](#a-title-code) [there](no.md) `[not](one.md)`\n```\n[n](o)\n```\n"
    )
    assert links_of(page) == ["#a-title-code", "no.md"]
    assert anchors_of(page) == {"a-title-code"}


@pytest.mark.parametrize("name", NAMES)
def test_commands_that_pages_show_are_legal(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dims.toml").write_text('[dim]\nbatch = "1..8"\n')
    for call in _CALL.finditer(shown_code(ROOT / name)):
        if "VERB" in call["words"] or "[OPTIONS]" in call["words"]:
            continue
        words = shlex.split(call["words"].rstrip("`").rstrip(')"'), comments=True)
        words = words[: next((k for k, word in enumerate(words) if word in (">", ">>", "|")), None)]
        verb, *arguments = words
        assert verb in VERBS, call[0]
        if verb == "check" and arguments[0].startswith("--"):
            arguments.append("model.onnx")  # a pre-commit hook is given the files
        with click.Context(cli, info_name="onnx-symmem", **cli.context_settings) as root:
            try:
                VERBS[verb].load().make_context(verb, arguments, parent=root)
            except click.ClickException as error:
                pytest.fail(f"{call[0].strip()}: {error.format_message()}")


@pytest.mark.parametrize("name", PAGES)
def test_the_reference_is_up_to_date(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == PAGES[name](), "run `make docs`"


def test_every_page_is_in_the_site(tmp_path: Path) -> None:
    """With --strict a page that is left out, a link or an anchor that leads nowhere are errors.

    Not with --quiet, too: what is not said is not counted.
    """
    pytest.importorskip("mkdocs")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(tmp_path / "site")],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    built = list((tmp_path / "site").rglob("*.html"))
    assert len(built) >= len([n for n in NAMES if n.startswith("docs/")])
    for page in built:  # nothing is fetched from elsewhere when a page is opened
        outside = re.findall(
            r"<(?:script|link|img)[^>]+(?:src|href)=\"(?:https?:)?//[^\"]+", page.read_text()
        )
        assert outside == [], page


def test_yaml_on_the_pages_is_yaml() -> None:
    blocks = re.findall(r"^```yaml\n(.*?)^```", text_of(ROOT / "docs/pipelines.md"), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    action, hook = map(yaml.safe_load, blocks)
    assert any("onnx-symmem check" in step.get("run", "") for step in action["jobs"]["budget"]["steps"])
    assert hook["repos"][0]["hooks"][0]["entry"].startswith("onnx-symmem check")
