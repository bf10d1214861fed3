"""Builders of the graphs that benchmarks plan: they run, are the same each time, all dims are inferred."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from models.encoder_decoder import build_encoder_decoder
from models.light_train import LIGHT_MODELS, build_light_train, is_fixed
from models.nasnet import build_nasnet
from models.random_graph import build_random_graph
from models.series_parallel import build_series_parallel
from onnx_symmem.api import infer_shapes

SIZES = {
    "a": 2,
    "b": 3,
    "c": 4,
    "n": 3,
    "m": 5,
    "batch": 2,
    "enc_seq": 7,
    "dec_seq": 3,
    "height": 33,
    "width": 22,
}
BUILDERS = {
    "nasnet": lambda: build_nasnet(width=8, cells=1, stages=2),
    "encoder_decoder": lambda: build_encoder_decoder(layers=2, width=16, cache_first=False),
    "encoder_decoder_cached": lambda: build_encoder_decoder(layers=2, width=16),
    **{f"series_parallel_{s}": lambda s=s: build_series_parallel(60, s) for s in range(4)},
    **{f"random_{s}": lambda s=s: build_random_graph(30, s) for s in range(6)},
}


@pytest.mark.parametrize("name", BUILDERS)
def test_runs_as_inferred(name, draw_inputs):
    model = BUILDERS[name]()
    assert model == BUILDERS[name]()
    onnx.checker.check_model(model)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    results = session.run(None, draw_inputs(model.graph.input, SIZES))
    assert all(np.isfinite(r).all() for r in results)
    shapes = infer_shapes(model)
    at = shapes.domain.completed({s: SIZES[s] for s in shapes.input_symbols})
    for index, result in zip(shapes.graph.view.outputs, results, strict=True):
        assert tuple(d.evaluate(at) for d in shapes.graph.dims[index]) == result.shape


def test_cache_first_is_another_file_order_only():
    late, early = build_encoder_decoder(cache_first=False), build_encoder_decoder(cache_first=True)
    assert sorted(n.name for n in late.graph.node) == sorted(n.name for n in early.graph.node)
    assert [n.name for n in late.graph.node] != [n.name for n in early.graph.node]


def test_sizes_of_a_series_parallel_graph_mix_symbols():
    shapes = infer_shapes(build_series_parallel(120, 0))
    kinds = {
        frozenset(s for d in dims for s in d.symbols()) for dims in shapes.graph.dims if dims is not None
    }
    assert len(kinds) >= 4


@pytest.mark.parametrize("name", LIGHT_MODELS)
def test_training_step_has_a_gradient_per_weight_and_only_input_symbols(name):
    model = build_light_train(name)
    onnx.checker.check_model(model)
    weights = [i.name for i in model.graph.input][2:]
    assert [o.name for o in model.graph.output] == ["loss", *(f"grad/{w}" for w in weights)]
    shapes = infer_shapes(model, {} if is_fixed(name) else {"height": 64, "width": 96})
    assert all(dims is not None for dims in shapes.graph.dims)
    for weight, output in zip(weights, shapes.graph.view.outputs[1:], strict=True):
        (index,) = (i for i in shapes.graph.view.inputs if shapes.graph.view.values[i].name == weight)
        known = shapes.graph.dims[output]
        # Sides of kernels are what is cut out: numbers wherever the sizes of images are.
        assert [str(d) for d in known] == [str(d) for d in shapes.graph.dims[index]], weight
