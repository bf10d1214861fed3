from __future__ import annotations

from collections import Counter

import onnxruntime as ort
import pytest

from models.unet import build_unet


@pytest.fixture(scope="module")
def model():
    return build_unet(width=16, blocks=1)


@pytest.mark.parametrize(("height", "width"), [(1, 1), (2, 9), (15, 16), (33, 6)])
def test_any_side_comes_back(model, height, width, draw_inputs):
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    shape = {"batch": 2, "height": height, "width": width}
    noise = session.run(None, draw_inputs(model.graph.input, shape, {"timestep": ("randint", 0, 1000)}))[0]
    assert noise.shape == (2, 4, height, width)


def test_levels_meet_their_skips():
    for levels in (2, 3, 4):
        ops = Counter(node.op_type for node in build_unet(width=16, levels=levels, blocks=1).graph.node)
        assert ops["Resize"] == levels - 1
