"""The models of tests/data run on ONNX Runtime with the weights that the fixture writes."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort


def _session(path):
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def test_runs_at_every_shape(case_name, cases, filled_model, draw_inputs):
    path = filled_model(case_name)
    session = _session(path)
    inputs = onnx.load(path, load_external_data=False).graph.input
    for shape in cases[case_name].shapes:
        outputs = session.run(None, draw_inputs(inputs, shape, cases[case_name].fills))
        assert all(np.isfinite(value).all() for value in outputs)
        assert 1e-4 < float(np.std(outputs[0])) < 1e2


def test_outputs_depend_on_inputs(case_name, cases, filled_model, draw_inputs):
    path = filled_model(case_name)
    session = _session(path)
    inputs = onnx.load(path, load_external_data=False).graph.input
    case = cases[case_name]
    first, second = (
        session.run(None, draw_inputs(inputs, case.shapes[0], case.fills, seed))[0] for seed in (0, 1)
    )
    assert np.abs(first - second).max() > 1e-4 * np.abs(first).max()


def test_fills_once_per_session(filled_model):
    path = filled_model("whisper_decoder")
    assert filled_model("whisper_decoder") == path
    assert path.with_suffix(".weights").exists()


def test_kept_small(cases):
    assert sum(case.structure.stat().st_size for case in cases.values()) < 1_500_000
