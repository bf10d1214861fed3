"""Training step of a published network: forward, loss and all gradients, from the `light` models of onnx.

The onnx package carries nine convolutional networks without their weights. Each becomes a graph over `batch`,
and over `height` and `width` where nothing but a mean over the whole image fixes them: that mean is then
written as GlobalAveragePool. Dropout is left out, the final Softmax becomes a cross entropy with labels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.backend.test
import onnx_graphsurgeon as gs
from onnx import helper

from models.builder import Builder
from models.image_gradients import ImageTape, Window

__all__ = ["LIGHT_MODELS", "build_light_train", "is_fixed"]

LIGHT_MODELS = (
    "squeezenet", "shufflenet", "resnet50", "inception_v1", "inception_v2", "densenet121", "bvlc_alexnet",
    "vgg19", "zfnet512",
)  # fmt: skip
_FIXED = frozenset({"bvlc_alexnet", "vgg19", "zfnet512"})  # dense layers over all places of the image
_SIDE = 224


def is_fixed(name: str) -> bool:
    """Whether the height and width of the images are fixed."""
    return name in _FIXED


def build_light_train(name: str) -> onnx.ModelProto:
    """Inputs image (batch, 3, height, width), labels (batch) and the weights; outputs loss and gradients."""
    return _Reader(_load(name), name).build()


def _load(name: str) -> onnx.ModelProto:
    folder = Path(onnx.backend.test.__file__).parent / "data" / "light"
    return onnx.shape_inference.infer_shapes(onnx.load(folder / f"light_{name}.onnx"))


class _Reader:
    """Plays the nodes of a model on a tape."""

    def __init__(self, model: onnx.ModelProto, name: str) -> None:
        self.graph = model.graph
        self.b = Builder(f"{name}_train")
        self.tape = ImageTape(self.b)
        self.fixed = is_fixed(name)
        self.values: dict[str, gs.Variable] = {}
        self.dims = {
            v.name: tuple(d.dim_value for d in v.type.tensor_type.shape.dim)
            for v in (*self.graph.value_info, *self.graph.input, *self.graph.output)
        }
        # Small weights are initializers, large ones are made by ConstantOfShape of an initializer.
        self.targets = {t.name: onnx.numpy_helper.to_array(t) for t in self.graph.initializer}
        self.makers = {node.output[0]: node for node in self.graph.node}

    def build(self) -> onnx.ModelProto:
        """The whole training step."""
        sides: tuple[int | str, ...] = (_SIDE, _SIDE) if self.fixed else ("height", "width")
        known = self.targets.keys()
        (data,) = (i.name for i in self.graph.input if i.name not in known)
        self.values[data] = self.b.input("image", ("batch", 3, *sides))
        labels = self.b.input("labels", ("batch",), np.int64)
        for node in self.graph.node:
            if node.op_type != "ConstantOfShape":
                self._play(node, first=node.input[0] == data)
        logits = self.values[self.graph.output[0].name]
        if len(self.dims[self.graph.output[0].name]) > 2:
            logits = self.tape.flatten(logits)
        loss = self.tape.cross_entropy(logits, labels)
        self.tape.backward()
        self.b.output(loss, "loss", ())
        for name, gradient in self.tape.weight_gradients().items():
            self.b.output(gradient, f"grad/{name}", self.tape.weights[name].shape)
        return self.b.export()

    def _weight(self, name: str) -> gs.Variable:
        if name in self.values:
            return self.values[name]
        made = self.makers.get(name)
        shape = self.targets[name].shape if made is None else self.targets[made.input[0]]
        return self.tape.input_weight(name, [int(d) for d in shape])

    def _play(self, node: onnx.NodeProto, first: bool) -> None:
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        if node.op_type == "Unsqueeze":  # of a scale or a shift per channel
            self.values[node.output[0]] = self._weight(node.input[0])
            return
        play: Callable[..., gs.Variable] = getattr(self, f"_{node.op_type.lower()}")
        self.values[node.output[0]] = play(node, attributes, first)

    def _window(self, attributes: Mapping[str, Any]) -> Window:
        kernel = attributes["kernel_shape"]
        strides = attributes.get("strides", [1, 1])
        return Window(tuple(kernel), tuple(strides), tuple(attributes.get("pads", [0] * 4)))

    # ------------------------------------------------------------------ one method per operator

    def _conv(self, node: onnx.NodeProto, attributes: Mapping[str, Any], first: bool) -> gs.Variable:
        x = self.values[node.input[0]]
        weights = [self._weight(name) for name in node.input[1:]]
        bias = weights[1] if len(weights) > 1 else None
        window, group = self._window(attributes), attributes.get("group", 1)
        return self.tape.conv(node.output[0], x, weights[0], bias, window, group, first)

    def _batchnormalization(
        self, node: onnx.NodeProto, attributes: Mapping[str, Any], _: bool
    ) -> gs.Variable:
        x = self.values[node.input[0]]
        scale, bias = self._weight(node.input[1]), self._weight(node.input[2])
        return self.tape.batch_norm(node.output[0], x, scale, bias, attributes.get("epsilon", 1e-5))

    def _relu(self, node: onnx.NodeProto, *_: Any) -> gs.Variable:
        return self.tape.relu(self.values[node.input[0]])

    def _maxpool(self, node: onnx.NodeProto, attributes: Mapping[str, Any], _: bool) -> gs.Variable:
        return self.tape.max_pool(self.values[node.input[0]], self._window(attributes))

    def _averagepool(self, node: onnx.NodeProto, attributes: Mapping[str, Any], _: bool) -> gs.Variable:
        x = self.values[node.input[0]]
        if not self.fixed and self.dims[node.output[0]][2:] == (1, 1):
            return self.tape.global_average(x)
        return self.tape.average_pool(x, self._window(attributes))

    def _globalaveragepool(self, node: onnx.NodeProto, *_: Any) -> gs.Variable:
        return self.tape.global_average(self.values[node.input[0]])

    def _lrn(self, node: onnx.NodeProto, attributes: Mapping[str, Any], _: bool) -> gs.Variable:
        x = self.values[node.input[0]]
        alpha, beta = attributes.get("alpha", 1e-4), attributes.get("beta", 0.75)
        return self.tape.local_response(x, attributes["size"], alpha, beta, attributes.get("bias", 1.0))

    def _concat(self, node: onnx.NodeProto, *_: Any) -> gs.Variable:
        return self.tape.concat([self.values[n] for n in node.input], [self.dims[n][1] for n in node.input])

    def _gemm(self, node: onnx.NodeProto, *_: Any) -> gs.Variable:
        weight, bias = self._weight(node.input[1]), self._weight(node.input[2])
        return self.tape.dense(node.output[0], self.values[node.input[0]], weight, bias)

    def _mul(self, node: onnx.NodeProto, *_: Any) -> gs.Variable:
        return self.tape.channel_scale(*(self.values[name] for name in node.input))

    def _add(self, node: onnx.NodeProto, *_: Any) -> gs.Variable:
        return self.tape.channel_shift(*(self.values[name] for name in node.input))

    def _sum(self, node: onnx.NodeProto, *_: Any) -> gs.Variable:
        return self.tape.add(*(self.values[name] for name in node.input))

    def _reshape(self, node: onnx.NodeProto, *_: Any) -> gs.Variable:
        before, after = self.dims[node.input[0]], self.dims[node.output[0]]
        if node.input[0] not in self.values:  # a weight
            return self.tape.input_weight(node.output[0], after)
        x = self.values[node.input[0]]
        if len(after) == 2:
            return self.tape.flatten(x) if len(before) > 2 else x
        return self.tape.regroup(x, after[1:-2], len(before) - 2)

    def _transpose(self, node: onnx.NodeProto, attributes: Mapping[str, Any], _: bool) -> gs.Variable:
        return self.tape.transpose(self.values[node.input[0]], attributes["perm"])

    def _dropout(self, node: onnx.NodeProto, *_: Any) -> gs.Variable:
        return self.values[node.input[0]]

    def _softmax(self, node: onnx.NodeProto, *_: Any) -> gs.Variable:
        return self.values[node.input[0]]
