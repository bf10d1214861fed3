"""Real models of tests/data: nothing left open, every dim as ONNX Runtime makes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.real_shapes import compare_shapes, run_all_outputs
from onnx_symmem.graph.load import load_model
from onnx_symmem.shapes.engine import infer_shapes


def test_every_dim_of_every_node(
    case_name: str,
    cases: Mapping[str, Any],
    filled_model: Callable[[str], Path],
    draw_inputs: Callable[..., dict[str, np.ndarray]],
) -> None:
    loaded = load_model(filled_model(case_name))
    shapes = infer_shapes(loaded.view())
    assert not shapes.unknowns
    session = None
    for at in cases[case_name].shapes:
        shapes.domain.check(at)
        inputs = draw_inputs(loaded.proto.graph.input, at, cases[case_name].fills)
        real, session = run_all_outputs(loaded, inputs, session)
        assert not list(compare_shapes(shapes, real, at))
