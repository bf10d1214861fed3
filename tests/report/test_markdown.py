"""The report as Markdown: golden documents, and tables that no name can break.

`SYMMEM_GOLDEN=write` writes the documents anew; look at the difference before committing it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import onnx
import pytest

from onnx_symmem.report.analysis import Analysis, analyse
from onnx_symmem.report.growth import growth
from onnx_symmem.report.markdown import markdown
from onnx_symmem.report.memory import report_of
from tests.cli.small import free_model, odd_model, plain_model

GOLDEN = Path(__file__).parents[1] / "golden"


def grown_model() -> onnx.ModelProto:
    """The plain model, with one node more on the wide branch."""
    model = plain_model()
    tanh = next(n for n in model.graph.node if n.name == "wide/tanh")
    tanh.output[0] = "early"
    at = list(model.graph.node).index(tanh)
    more = onnx.helper.make_node("Mul", ["early", "wide"], ["wide_active"], name="wide/gate")
    model.graph.node.insert(at + 1, more)
    return model


def named(tmp_path: Path, name: str, model: onnx.ModelProto, **options: object) -> Analysis:
    """An analysis of a model that has a file name."""
    onnx.save(model, tmp_path / name)
    return analyse(Path(name), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["plain", "odd", "grown"])
def test_the_document(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if name == "plain":
        text = markdown(
            report_of(named(tmp_path, "plain.onnx", plain_model(), domain={"batch": (1, 8), "seq": (1, 512)}))
        )
    elif name == "odd":
        text = markdown(report_of(named(tmp_path, "odd.onnx", odd_model(), at=[{"batch": 2, "seq": 3}])))
    else:
        one = named(
            tmp_path, "grown.onnx", grown_model(), at=[{"batch": 2, "seq": 3}, {"batch": 8, "seq": 512}]
        )
        text = markdown(report_of(one, growth(one, named(tmp_path, "plain.onnx", plain_model(), other=True))))
    golden = GOLDEN / f"report_{name}.md"
    if os.environ.get("SYMMEM_GOLDEN") == "write":
        golden.write_text(text)
    assert text == golden.read_text()


def test_no_name_breaks_a_table() -> None:
    model = plain_model()
    evil = "a|b`c <b>*x*_y_"
    for node in model.graph.node:
        node.output[:] = [evil if o == "wide_active" else o for o in node.output]
        node.input[:] = [evil if i == "wide_active" else i for i in node.input]
    model.graph.node[3].name = evil
    text = markdown(report_of(analyse(model)))
    cells = {}
    for line in text.splitlines():
        if line.startswith("|"):
            cells.setdefault(len(re.findall(r"(?<!\\)\|", line)), []).append(line)
    tables = [block for block in text.split("\n\n") if block.startswith("|")]
    assert tables
    for table in tables:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1, table
    assert "\\<b>" in text


def test_without_bytes_at_any_shape_the_formulas_are_there() -> None:
    text = markdown(report_of(analyse(free_model())))
    assert "`8*u0`" in text
    assert "no limit known" in text
    assert "## At shapes" not in text
