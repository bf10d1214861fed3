"""The pass of Olive, where Olive is installed; elsewhere, that it says what is missing."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest

from tests.cli.small import plain_model

ROOT = Path(__file__).resolve().parents[2]


def run_config() -> dict[str, Any]:
    """The run configuration that docs/olive.md shows."""
    page = (ROOT / "docs" / "olive.md").read_text(encoding="utf-8")
    block = re.search(r"^```json\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert block is not None
    found: dict[str, Any] = json.loads(block[1])
    return found


def test_the_configuration_on_the_page_names_the_pass() -> None:
    assert run_config()["passes"]["plan"]["type"] == "OnnxSymmem"


@pytest.mark.skipif(importlib.util.find_spec("olive") is not None, reason="Olive is installed")
def test_without_olive_the_import_says_what_to_install() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import onnx_symmem.integrations.olive"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stderr.splitlines()[-1] == (
        "ImportError: onnx_symmem.integrations.olive needs Olive (No module named 'olive'): "
        "pip install 'onnx-symmem[olive]'"
    )


@pytest.fixture
def model(tmp_path: Path) -> Path:
    onnx.save(plain_model(), tmp_path / "plain.onnx")
    return tmp_path / "plain.onnx"


def passed(model: Path, out: Path, **options: Any) -> Any:
    pytest.importorskip("olive", reason="Olive is an extra")
    from olive.model import ONNXModelHandler
    from olive.passes.olive_pass import create_pass_from_dict

    from onnx_symmem.integrations.olive import OnnxSymmem

    step = create_pass_from_dict(OnnxSymmem, options, disable_search=True)
    return step.run(ONNXModelHandler(model_path=str(model)), str(out))


def test_the_pass_writes_a_planned_model(model: Path, tmp_path: Path) -> None:
    found = passed(model, tmp_path / "out", domain={"batch": [1, 64], "seq": [1, None]}, time_budget=1)
    from onnx_symmem.api import check, doctor

    assert check(found.model_path, 1 << 40, domain={"batch": (1, 64), "seq": (1, 100)}).holds
    assert doctor(found.model_path, {"batch": 4, "seq": 9}).problem == ""
    names = sorted(Path(file).name for file in found.model_attributes["additional_files"])
    assert names == ["plain.onnx.config.pbtxt", "plain.onnx.session.json"]
    assert found.inference_settings["session_options"]["graph_optimization_level"] == 0


def test_errors_are_those_of_the_package(model: Path, tmp_path: Path) -> None:
    pytest.importorskip("olive", reason="Olive is an extra")
    from onnx_symmem.errors import DomainError

    with pytest.raises(DomainError, match="dim 'depth' is not a dim"):
        passed(model, tmp_path / "out", domain={"depth": 3})


def test_a_workflow_runs_it(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workflows = pytest.importorskip("olive.workflows", reason="Olive is an extra")
    from onnx_symmem.integrations.olive import package_config

    monkeypatch.chdir(tmp_path)
    config = run_config()
    config["input_model"]["model_path"] = str(model)
    config["passes"]["plan"]["domain"] = {"batch": [1, 8]}
    config["cache_dir"] = str(tmp_path / "cache")
    workflows.run(config, package_config=package_config())
    written = list((tmp_path / "planned").rglob("*.onnx"))
    assert len(written) == 1
    keys = {entry.key for entry in onnx.load(written[0]).metadata_props}
    assert any(key.startswith("onnx_symmem") for key in keys)
