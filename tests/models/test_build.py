from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import models
from models.build import MODELS, build, main

NAMES = list(MODELS)
ROOT = Path(models.__file__).parents[1]


@pytest.fixture(scope="module")
def built():
    made: dict[str, onnx.ModelProto] = {}

    def get(name: str) -> onnx.ModelProto:
        if name not in made:
            made[name] = build(name)
        return made[name]

    return get


def _session(model: onnx.ModelProto) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _fills(name: str) -> dict[str, tuple[str, int, int]]:
    return {key: ("randint", low, high) for key, (low, high) in MODELS[name].ranges.items()}


@pytest.mark.parametrize("name", NAMES)
def test_is_valid_and_small(name, built):
    model = built(name)
    onnx.checker.check_model(model, full_check=True)
    assert model.ByteSize() < 20e6
    assert len(model.graph.node) > 100


@pytest.mark.parametrize("name", NAMES)
def test_runs_at_every_shape_but_the_last(name, built, draw_inputs):
    model = built(name)
    session = _session(model)
    for shape in MODELS[name].shapes[:-1]:
        outputs = session.run(None, draw_inputs(model.graph.input, shape, _fills(name)))
        for value, declared in zip(outputs, model.graph.output, strict=True):
            assert np.isfinite(value).all()
            dims = [
                shape[d.dim_param] if d.dim_param else d.dim_value
                for d in declared.type.tensor_type.shape.dim
            ]
            assert list(value.shape) == dims


@pytest.mark.parametrize("name", NAMES)
def test_outputs_depend_on_inputs(name, built, draw_inputs):
    model = built(name)
    session = _session(model)
    shape = MODELS[name].shapes[1]
    first, second = (
        session.run(None, draw_inputs(model.graph.input, shape, _fills(name), seed))[0] for seed in (0, 1)
    )
    assert not np.allclose(first, second, rtol=1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_every_node_is_needed(name, built):
    graph = built(name).graph
    read = {tensor for node in graph.node for tensor in node.input} | {value.name for value in graph.output}
    for node in graph.node:
        assert read & set(node.output), node.name


@pytest.mark.parametrize("name", NAMES)
def test_same_bytes_whatever_the_hash_seed(name, built, tmp_path):
    path = tmp_path / "model.onnx"
    command = [sys.executable, "-m", "models.build", name, "-o", str(path)]
    env = {**os.environ, "PYTHONHASHSEED": "7"}
    subprocess.run(command, check=True, env=env, cwd=ROOT, capture_output=True)
    assert path.read_bytes() == built(name).SerializeToString(deterministic=True)


def test_seed_changes_weights_only(built):
    other = build("randwire", seed=0)
    assert other == built("randwire")
    first, second = build("decoder", layers=1), build("decoder", layers=1, seed=1)
    assert list(first.graph.node) == list(second.graph.node)
    assert list(first.graph.initializer) != list(second.graph.initializer)


def test_demo_is_registered(built):
    symbols = {
        d.dim_param for value in built(models.DEMO).graph.input for d in value.type.tensor_type.shape.dim
    } - {""}
    assert symbols == set(models.DEMO_SHAPE)
    assert dict(models.DEMO_SHAPE) == MODELS[models.DEMO].shapes[-1]


def test_command_takes_options(tmp_path, capsys):
    path = tmp_path / "new" / "decoder.onnx"
    assert main(["decoder", "layers=1", "-o", str(path), "vocab=100"]) == 0
    assert "symbols batch, dec_seq, enc_seq" in capsys.readouterr().out
    assert onnx.load(path).graph.output[0].type.tensor_type.shape.dim[2].dim_value == 100


@pytest.mark.parametrize("option", ["depth=3", "layers=x", "layers", "layers=-1"])
def test_command_refuses_unknown_options(option, tmp_path, capsys):
    with pytest.raises(SystemExit) as exit_info:
        main(["decoder", "-o", str(tmp_path / "m.onnx"), option])
    assert exit_info.value.code == 2
    assert option in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
