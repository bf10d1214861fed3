"""Gradients of image operators against central differences of the loss, computed by ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from models.builder import Builder
from models.image_gradients import ImageTape, Window
from models.light_train import build_light_train

CHANNELS = 8
SHAPE = {"batch": 3, "height": 13, "width": 10}


def _pool(strides, pads=(0, 0, 0, 0)):
    return Window((3, 3), strides, pads)


def _grouped(tape, x):
    weight = tape.input_weight("mid", (CHANNELS, CHANNELS // 4, 3, 2))
    return tape.conv("mid", x, weight, None, Window((3, 2), (2, 3), (1, 0, 0, 1)), 4, False)


def _strided(tape, x):
    weights = tape.input_weight("mid", (CHANNELS, CHANNELS, 2, 3)), tape.input_weight("shift", (CHANNELS,))
    return tape.conv("mid", x, *weights, Window((2, 3), (3, 2), (0, 1, 1, 2)), 1, False)


def _normalised(tape, x):
    scale, bias = tape.input_weight("scale", (CHANNELS,)), tape.input_weight("bias", (CHANNELS,))
    # Behind a mean over the whole image nothing is left of it: a square keeps it alive.
    y = tape.batch_norm("norm", x, scale, bias, 1e-3)
    return tape.max_pool(y, _pool((1, 1)))


def _shuffled(tape, x):
    y = tape.transpose(tape.regroup(x, (2, CHANNELS // 2), 2), [0, 2, 1, 3, 4])
    return tape.channel_scale(tape.regroup(y, (CHANNELS,), 3), tape.input_weight("scale", (CHANNELS,)))


def _joined(tape, x):
    y = tape.channel_shift(tape.relu(x), tape.input_weight("bias", (CHANNELS,)))
    return tape.add(tape.relu(tape.concat([y, x], [CHANNELS, CHANNELS])), tape.concat([x, x], [CHANNELS] * 2))


MIDDLES = {
    "convolution with strides": _strided,
    "grouped convolution": _grouped,
    "relu": lambda tape, x: tape.relu(x),
    "overlapping maxima": lambda tape, x: tape.max_pool(x, _pool((2, 2), (1, 1, 0, 1))),
    "means": lambda tape, x: tape.average_pool(tape.relu(x), _pool((2, 2))),
    "means with pads": lambda tape, x: tape.average_pool(tape.relu(x), _pool((2, 1), (1, 1, 1, 0))),
    "batch norm": _normalised,
    "local response": lambda tape, x: tape.local_response(x, 5, 0.7, 0.75, 1.5),
    "concat and sum": _joined,
    "shuffle": _shuffled,
}


def _network(middle) -> onnx.ModelProto:
    b = Builder("net")
    tape = ImageTape(b)
    image = b.input("image", ("batch", 3, "height", "width"))
    labels = b.input("labels", ("batch",), np.int64)
    first = tape.input_weight("first", (CHANNELS, 3, 3, 3))
    y = middle(tape, tape.conv("first", image, first, None, Window((3, 3)), 1, True))
    y = tape.flatten(tape.global_average(y))
    inner = 2 * CHANNELS if middle is _joined else CHANNELS
    y = tape.dense("last", y, tape.input_weight("last", (5, inner)), tape.input_weight("last_bias", (5,)))
    loss = tape.cross_entropy(y, labels)
    tape.backward()
    b.output(loss, "loss", ())
    for name, gradient in tape.weight_gradients().items():
        b.output(gradient, f"grad/{name}", tape.weights[name].shape)
    return b.export()


def _session(model: onnx.ModelProto) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _slope(session, feeds, ways, step):
    """The loss's slope along `ways`, by central differences."""
    up, down = (
        float(session.run(["loss"], {**feeds, **{n: feeds[n] + sign * step * w for n, w in ways.items()}})[0])
        for sign in (np.float32(1), np.float32(-1))
    )
    return (up - down) / (2 * step)


@pytest.mark.parametrize("name", MIDDLES)
def test_gradients_are_slopes_of_the_loss(name, draw_inputs):
    model = _network(MIDDLES[name])
    onnx.checker.check_model(model)
    feeds = draw_inputs(model.graph.input, SHAPE, {"labels": ("randint", 0, 5)})
    session = _session(model)
    _, *gradients = session.run(None, feeds)
    names = [output.name.removeprefix("grad/") for output in model.graph.output[1:]]
    assert len(names) >= 3
    for weight, gradient in zip(names, gradients, strict=True):
        assert gradient.shape == feeds[weight].shape
        # Along the gradient the slope is its length; any wrong component makes the two differ.
        length = float(np.linalg.norm(gradient))
        assert length > 1e-4, weight
        way = {weight: gradient / length}
        slope = _slope(session, feeds, way, np.float32(2e-3))
        assert slope == pytest.approx(length, rel=2e-2, abs=1e-3), weight


def test_gradient_is_right_at_every_rest_of_a_stride(draw_inputs):
    model = _network(_strided)
    session = _session(model)
    for height in range(9, 13):
        shape = {"batch": 2, "height": height, "width": height + 1}
        feeds = draw_inputs(model.graph.input, shape, {"labels": ("randint", 0, 5)}, seed=height)
        gradient = session.run(["grad/first"], feeds)[0]
        length = float(np.linalg.norm(gradient))
        slope = _slope(session, feeds, {"first": gradient / length}, np.float32(2e-3))
        assert slope == pytest.approx(length, rel=2e-2)


def test_published_network_as_a_whole(draw_inputs):
    model = build_light_train("squeezenet")
    onnx.checker.check_model(model)
    feeds = draw_inputs(
        model.graph.input, {"batch": 2, "height": 35, "width": 49}, {"labels": ("randint", 0, 9)}
    )
    for name, value in feeds.items():
        if name not in ("image", "labels") and value.ndim == 4:
            feeds[name] = value * np.float32(np.sqrt(2 / np.prod(value.shape[1:])))
    session = _session(model)
    names = [output.name for output in model.graph.output[1:]]
    gradients = dict(zip(names, session.run(names, feeds), strict=True))
    length = float(np.sqrt(sum(np.sum(g.astype(np.float64) ** 2) for g in gradients.values())))
    ways = {name.removeprefix("grad/"): g / np.float32(length) for name, g in gradients.items()}
    assert _slope(session, feeds, ways, np.float32(1e-3)) == pytest.approx(length, rel=2e-2)
