"""Training step of a residual multi-layer perceptron: loss and gradients as outputs.

Blocks of LayerNormalization, linear, GELU, linear around a residual connection (the feed-forward half of a
transformer), a classifier on top, mean cross entropy as loss.
"""

from __future__ import annotations

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from models.builder import Builder
from models.gradients import Tape

__all__ = ["build_mlp_train", "export_gradients"]


def build_mlp_train(
    features: int = 256, width: int = 256, layers: int = 4, classes: int = 10, seed: int = 0
) -> onnx.ModelProto:
    """Inputs x (batch, features) and labels (batch); outputs loss, and grad/NAME per weight."""
    b = Builder("mlp_train", seed)
    tape = Tape(b)
    x = b.input("x", ("batch", features))
    labels = b.input("labels", ("batch",), np.int64)
    hidden = tape.linear("stem", x, features, width, first=True)
    for layer in range(layers):
        y = tape.layer_norm(f"layers.{layer}/norm", hidden, width)
        y = tape.gelu(tape.linear(f"layers.{layer}/fc1", y, width, 2 * width))
        hidden = tape.add(hidden, tape.linear(f"layers.{layer}/fc2", y, 2 * width, width))
    hidden = tape.layer_norm("norm", hidden, width)
    logits = tape.linear("classifier", hidden, width, classes)
    export_gradients(b, tape, tape.cross_entropy(logits, labels))
    return b.export()


def export_gradients(b: Builder, tape: Tape, loss: gs.Variable) -> None:
    """Run the tape backward; the loss and all gradients become outputs."""
    tape.backward()
    b.output(loss, "loss", ())
    for name, parameter in tape.parameters.items():
        b.output(tape.gradient(parameter), f"grad/{name}", parameter.shape)
