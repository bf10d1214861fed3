"""Session settings as data: what they say, and that they can be read back."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from onnx_symmem.errors import UsageError
from onnx_symmem.run.deployment import read_settings, settings_document, settings_of
from onnx_symmem.run.session import SessionSettings, kept, shipped


def test_settings_document_tells_what_only_python_can_set():
    document = json.loads(json.dumps(settings_document(kept("cuda"))))
    assert document["only_from_python"]["options"] == ["execution_order", "enable_mem_reuse"]
    assert document["session_options"]["enable_mem_pattern"] == {"value": False, "c_api": "DisableMemPattern"}
    assert document["provider_options"]["arena_extend_strategy"] == "kSameAsRequested"
    assert document["triton"]["optimization.graph.level"] == 2
    assert "cpu_arena" not in document
    assert settings_document(kept())["cpu_arena"]["arena_extend_strategy"] == 1
    assert "optimization.graph.level" not in settings_document(shipped())["triton"]


@pytest.mark.parametrize(
    "settings",
    [
        kept(),
        kept("cuda"),
        shipped(),
        shipped("cuda"),
        replace(kept(), execution_order="default", optimization="basic", intra_op_threads=3),
        replace(kept("cuda"), device=2, mem_reuse=True),
        replace(kept(), config=(("session.disable_prepacking", "1"),)),
    ],
)
def test_what_is_written_is_read_back(settings: SessionSettings) -> None:
    assert settings_of(json.loads(json.dumps(settings_document(settings)))) == settings


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "expected format"),
        ({"provider": "TensorrtExecutionProvider"}, "provider = 'TensorrtExecutionProvider'"),
        ({"session_options": {}}, "'graph_optimization_level' has no value"),
        ({"session_options": 3}, "'session_options' is no object"),
    ],
)
def test_a_wrong_document_is_a_one_line_error(
    change: dict[str, object], message: str, tmp_path: Path
) -> None:
    file = tmp_path / "m.onnx.session.json"
    file.write_text(json.dumps({**settings_document(kept()), **change}))
    with pytest.raises(UsageError, match=message) as caught:
        read_settings(file)
    assert "\n" not in str(caught.value)
    assert str(file) in str(caught.value)


def test_a_file_that_is_no_json(tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(UsageError, match=r"broken\.json: not JSON"):
        read_settings(tmp_path / "broken.json")
    with pytest.raises(UsageError, match=r"none\.json: cannot be read"):
        read_settings(tmp_path / "none.json")
