"""The data of the page, and the file it is put into; what a browser makes of it is in tests/browser."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest

from models.build import build
from onnx_symmem.expr.expression import Expr
from onnx_symmem.report.analysis import analyse
from onnx_symmem.report.html.data import page_data, subject_data
from onnx_symmem.report.html.formulas import FormulaTable
from onnx_symmem.report.html.page import MODULES, joined_script, render_page
from tests.cli.small import free_model, odd_model, plain_model

ROOT = Path(__file__).parents[2]


def embedded(html: str) -> dict[str, Any]:
    """The data inside a page."""
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    assert match
    found: dict[str, Any] = json.loads(match[1])
    return found


@pytest.mark.parametrize("model", [plain_model(), odd_model(), build("unet"), build("transformer_train")])
def test_spans_add_up_to_the_rows_of_the_profile(model: onnx.ModelProto) -> None:
    analysis = analyse(model)
    data = subject_data(analysis)
    spans, tensors, profile = data["spans"], data["tensors"], analysis.profile
    (shape, *_) = analysis.settled()
    sizes = {}
    for slot in profile.slots:
        sizes[slot.name] = 0 if slot.bytes is None else slot.bytes.evaluate(shape)
    rows = [0] * len(profile.moments)
    for tensor, start, end in zip(spans["tensor"], spans["from"], spans["to"], strict=True):
        for row in range(start, end):
            rows[row] += sizes[tensors["name"][tensor]]
    assert rows == [int(v) for v in profile.in_use.evaluate([shape])[:, 0]]
    assert len(spans["from"]) <= len(profile.slots)


def test_every_distinct_expression_is_written_once() -> None:
    table = FormulaTable()
    a, b = Expr.symbol("a"), Expr.symbol("b")
    first = table.add(4 * a * b + (a + 3) // 8)
    assert table.add((a + 3) // 8 + 4 * b * a) == first
    code = table.to_json()
    assert code["symbols"] == ["a", "b"]
    assert len(code["exprs"]) == 3  # with numerator and denominator
    assert sorted(map(tuple, code["monomials"])) == sorted({tuple(m) for m in code["monomials"]})


def test_what_is_tied_and_what_data_decides() -> None:
    domain = subject_data(analyse(odd_model()))["domain"]
    assert [entry["name"] for entry in domain["free"]] == ["batch", "seq"]
    assert domain["free"][1]["hi"] == 16
    assert [name for name, _ in domain["tied"]] == ["length"]
    (data,) = domain["data"]
    assert (data["name"], data["tensor"], data["axis"], len(data["bounds"])) == ("u0", "hits", 1, 1)
    unlimited = subject_data(analyse(free_model()))["domain"]["data"]
    assert {entry["name"]: len(entry["bounds"]) for entry in unlimited} == {"u0": 0, "u1": 1}


def test_the_file_holds_everything_and_escapes_names() -> None:
    model = plain_model()
    model.graph.node[3].name = "</script><script>alert(1)</script>"
    html = render_page(analyse(model), analyse(plain_model(), other=True))
    assert html.count("<script") == 2
    assert html.count("</script>") == 2
    assert not re.search(r"""(?:src|href)=["'](?!#|data:)""", html)
    assert "http://www.w3.org/2000/svg" in html
    assert set(re.findall(r"https?://[^\s\"'<]+", html)) == {"http://www.w3.org/2000/svg"}
    data = embedded(html)
    assert data["model"]["rows"]["name"][3] == "</script><script>alert(1)</script>"
    assert data == json.loads(json.dumps(page_data(analyse(model), analyse(plain_model(), other=True))))


def test_modules_import_from_those_before_them_only() -> None:
    folder = ROOT / "onnx_symmem" / "report" / "html" / "js"
    assert {path.stem for path in folder.iterdir()} == set(MODULES)
    exported: dict[str, str] = {}
    for k, name in enumerate(MODULES):
        source = (folder / f"{name}.js").read_text()
        imports = re.findall(r'^import \{([^}]*)\} from "\./(\w+)\.js";$', source, re.MULTILINE)
        assert source.count("import ") == len(imports)
        for names, module in imports:
            assert module in MODULES[:k]
            for word in re.findall(r"\w+", names):
                assert exported[word] == module
                assert len(re.findall(rf"\b{word}\b", source)) > 1, f"{name}.js: {word} is not used"
        for words in re.findall(r"^export (?:const|function|class) (\w+|\[[^\]]*\])", source, re.MULTILINE):
            for word in re.findall(r"\w+", words):
                assert word not in exported
                exported[word] = name
    script = joined_script()
    assert "import {" not in script
    assert "export " not in script


def test_five_thousand_nodes_with_long_names_stay_under_a_megabyte_and_a_half() -> None:
    model = build("transformer_train", width=8, features=8, classes=8, layers=46, heads=2)
    for node in model.graph.node:
        prefix = "model/decoder/transformer/"
        node.name = prefix + node.name
        node.output[:] = [o if o.startswith(("loss", "grad")) else prefix + o for o in node.output]
    made = {o.removeprefix("model/decoder/transformer/"): o for n in model.graph.node for o in n.output}
    for node in model.graph.node:
        node.input[:] = [made.get(i, i) for i in node.input]
    assert len(model.graph.node) > 5000
    few = {"batch": (1, 8), "seq": (64, 64)}  # what the domain is plays no part in the size
    assert len(render_page(analyse(model, few)).encode()) < 1_500_000


def test_hash_seeds_change_nothing(tmp_path: Path) -> None:
    onnx.save(odd_model(), tmp_path / "odd.onnx")
    onnx.save(plain_model(), tmp_path / "plain.onnx")
    code = (
        "import sys; from onnx_symmem.cli.main import main;"
        "argv = ['report', 'odd.onnx', '--against', 'plain.onnx', '-o', 'page.html', '-o', 'page.md'];"
        "sys.exit(main(argv))"
    )
    results = []
    for seed in ("0", "4711"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr
        results.append([(tmp_path / name).read_bytes() for name in ("page.html", "page.md")])
    assert results[0] == results[1]
