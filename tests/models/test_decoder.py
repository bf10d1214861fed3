from __future__ import annotations

import numpy as np
import onnxruntime as ort
import pytest

from models.decoder import build_decoder


@pytest.fixture(scope="module")
def run(draw_inputs):
    def run(model, ids, states):
        session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        return session.run(None, {"decoder_ids": ids, "encoder_states": states})[0]

    return run


@pytest.fixture(scope="module")
def feeds():
    rng = np.random.default_rng(3)
    return rng.integers(0, 50, (2, 7)), rng.standard_normal((2, 11, 48)).astype(np.float32)


def test_cache_first_moves_projections_and_keeps_results(run, feeds):
    sizes = {"layers": 3, "width": 48, "heads": 4, "vocab": 50}
    per_layer, first = build_decoder(**sizes), build_decoder(**sizes, cache_first=True)
    assert [node.op_type for node in per_layer.graph.node] != [node.op_type for node in first.graph.node]
    assert len(per_layer.graph.node) == len(first.graph.node)
    np.testing.assert_array_equal(run(per_layer, *feeds), run(first, *feeds))


def test_a_token_sees_no_later_token(run, feeds):
    model = build_decoder(layers=2, width=48, heads=4, vocab=50)
    ids, states = feeds
    changed = ids.copy()
    changed[:, -1] = (changed[:, -1] + 1) % 50
    before, after = run(model, ids, states), run(model, changed, states)
    np.testing.assert_allclose(before[:, :-1], after[:, :-1], rtol=1e-5, atol=1e-6)
    assert not np.allclose(before[:, -1], after[:, -1])


def test_every_encoder_state_counts(run, feeds):
    model = build_decoder(layers=1, width=48, heads=4, vocab=50)
    ids, states = feeds
    assert not np.allclose(run(model, ids, states), run(model, ids, states[:, :-1]))
