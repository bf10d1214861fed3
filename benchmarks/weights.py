"""The corpus of real models: which there are, shapes at which they run, and copies with weights.

A corpus folder holds NAME.onnx without weights, `fill_weights.py` that writes them, and `cases.json` with
shapes at which each model runs.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from onnx_symmem.errors import ModelFileError
from onnx_symmem.graph.load import check_external_data, load_model

__all__ = ["CORPUS", "FILLED", "is_complete", "prepare", "read_cases"]

CORPUS = Path("..", "shared", "corpus")
FILLED = Path("build", "corpus")


def read_cases(corpus: Path, only: Sequence[str] = ()) -> dict[str, Any]:
    """Entries of cases.json in its order, then models without an entry; `only` picks some by name."""
    entries = json.loads((corpus / "cases.json").read_text())
    models = sorted(path.stem for path in corpus.glob("*.onnx"))
    found = {name: entries[name] for name in entries if name in models}
    found |= {name: {"source": "", "cases": []} for name in models if name not in found}
    unknown = [name for name in only if name not in found]
    if unknown:
        raise ValueError(f"{corpus}: no model {unknown[0]}; it has {', '.join(found)}")
    return {name: found[name] for name in (only or found)}


def prepare(corpus: Path, filled: Path, names: Sequence[str]) -> None:
    """Copy models to `filled` and write their weights there, where that was not done before."""
    missing = []
    for name in names:
        source, copy = corpus / f"{name}.onnx", filled / f"{name}.onnx"
        if not copy.is_file() or copy.read_bytes() != source.read_bytes() or not is_complete(copy):
            missing.append(name)
    if missing:
        filled.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, str(corpus / "fill_weights.py"), str(filled), *missing]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def is_complete(path: Path) -> bool:
    """Whether all weights are there."""
    try:
        check_external_data(load_model(path))
    except ModelFileError:
        return False
    return True
