"""Gradients against central differences of the loss, for every weight, computed by ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper

from models.mlp_train import build_mlp_train
from models.transformer_train import build_transformer_train

TRAINING = [
    (
        build_mlp_train(features=12, width=16, layers=2, classes=5),
        {"batch": 9},
        ("randint", 0, 5),
    ),
    (
        build_transformer_train(features=6, width=16, layers=2, heads=2, classes=7),
        {"batch": 2, "seq": 5},
        ("randint", 0, 7),
    ),
]


@pytest.mark.parametrize(("model", "shape", "labels"), TRAINING, ids=["mlp", "transformer"])
def test_gradients_are_slopes_of_the_loss(model, shape, labels, draw_inputs):
    feeds = draw_inputs(model.graph.input, shape, {"labels": labels})
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    names = [output.name.removeprefix("grad/") for output in model.graph.output[1:]]
    assert len(names) > 10
    session = _with_weights_as_inputs(model, names)

    _, *gradients = session.run(None, feeds)
    for name, gradient in zip(names, gradients, strict=True):
        # Along the gradient the slope is its length; any wrong component makes the two differ.
        length = float(np.linalg.norm(gradient))
        way = gradient / max(length, 1e-12)
        step = np.float32(1e-2)
        up, down = (
            float(session.run(["loss"], {**feeds, name: weights[name] + sign * step * way})[0])
            for sign in (np.float32(1), np.float32(-1))
        )
        assert (up - down) / (2 * step) == pytest.approx(length, rel=1e-2, abs=1e-4), name


def _with_weights_as_inputs(model: onnx.ModelProto, names: list[str]) -> ort.InferenceSession:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for tensor in copy.graph.initializer:
        if tensor.name in names:
            copy.graph.input.append(
                onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            )
    options = ort.SessionOptions()
    options.log_severity_level = 3  # it warns about every weight that is an input
    return ort.InferenceSession(copy.SerializeToString(), options, providers=["CPUExecutionProvider"])
