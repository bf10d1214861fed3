"""`--dim @FILE`: the same as on the command line, and one line for every mistake."""

from __future__ import annotations

from pathlib import Path

import pytest
from onnx_symmem.cli.dims import DimRange, parse_dims

from onnx_symmem.errors import InputError
from tests.cli.conftest import Command

EXPECTED = (
    DimRange("batch", 1, 64, 1),
    DimRange("seq", 1, 2048, 8),
    DimRange("past + seq", 1, None, 16),
    DimRange("heads", 8, 8, 1),
    DimRange("width", 64, 1024, 1),
)
TOML = """[dim]
batch = "1..64"
seq = " 1..2048%8 "
"past + seq" = "%16"
heads = 8
width = [64, 1024]
"""
YAML = """dim:
  batch: 1..64
  seq: 1..2048%8
  past + seq: "%16"
  heads: 8
  width: [64, 1024]
"""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("dims.toml", TOML),
        ("dims.yaml", YAML),
        ("dims.yml", YAML),
        ("pyproject.toml", TOML.replace("[dim]", "[tool.onnx-symmem.dim]")),
    ],
)
def test_a_file_says_what_texts_say(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    assert parse_dims([f"@{tmp_path / name}"]) == EXPECTED
    more = parse_dims(["batch%2", f"@{tmp_path / name}"])
    assert more[0] == DimRange("batch", 1, 64, 2)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("dims.toml", "[dim]\nbatch = 1.5\n", "dim 'batch' = 1.5: expected"),
        ("dims.toml", "[dim]\nbatch = true\n", "dim 'batch' = True: expected"),
        ("dims.toml", "[dim]\nbatch = '9..3'\n", "upside down"),
        ("dims.toml", "[dim]\nbatch = 'x'\n", "not understood"),
        ("dims.toml", "[dims]\nbatch = 1\n", "expected a table 'dim'"),
        ("dims.toml", "dim = 3\n", "expected a table 'dim'"),
        ("dims.toml", "[dim\n", "not TOML"),
        ("dims.yaml", "dim: [", "not YAML"),
        ("dims.yaml", "- 3\n", "expected a table 'dim'"),
        ("dims.json", "{}", "expected a .toml or .yaml file"),
        ("pyproject.toml", "[dim]\nbatch = 1\n", "expected a table 'tool.onnx-symmem.dim'"),
    ],
)
def test_a_mistake_in_a_file_is_one_line(name: str, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError) as caught:
        parse_dims([f"@{tmp_path / name}"])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.toml: cannot be read"):
        parse_dims([f"@{tmp_path / 'none.toml'}"])


def test_verbs_take_files(command: Command, folder: Path) -> None:
    (folder / "dims.toml").write_text("[dim]\nbatch = '1..4'\nseq = '1..32'\n")
    said = ("--dim", "batch=1..4", "--dim", "seq=1..32")
    argv = ("check", "plain.onnx", "--max-peak", "1MiB")
    assert command(*argv, "--dim", "@dims.toml") == command(*argv, *said)
    assert command(*argv, "--dim", "@dims.toml").code == 0
