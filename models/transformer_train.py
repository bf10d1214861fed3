"""Training step of a causal transformer over feature vectors: loss and gradients as outputs.

Pre-norm blocks of causal self attention and a GELU feed-forward of four times the width, a classifier per
time step, mean cross entropy. Rows (batch * seq, width) are viewed as (batch, seq, heads, head) to attend.
"""

from __future__ import annotations

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from models.builder import Builder, Tensor
from models.gradients import Tape
from models.mlp_train import export_gradients

__all__ = ["build_transformer_train"]


def build_transformer_train(
    features: int = 64, width: int = 128, layers: int = 3, heads: int = 4, classes: int = 100, seed: int = 0
) -> onnx.ModelProto:
    """Inputs x (batch, seq, features) and labels (batch, seq); outputs loss, and grad/NAME per weight."""
    b = Builder("transformer_train", seed)
    tape = Tape(b)
    x = b.input("x", ("batch", "seq", features))
    labels = b.input("labels", ("batch", "seq"), np.int64)
    block = _Block(b, tape, b.dim(x, 0), b.dim(x, 1), width, heads)
    rows = b.op("Reshape", x, b.ints(-1, features))
    hidden = tape.linear("stem", rows, features, width, first=True)
    for layer in range(layers):
        hidden = block.attention(f"layers.{layer}/attn", hidden)
        y = tape.layer_norm(f"layers.{layer}/norm", hidden, width)
        y = tape.gelu(tape.linear(f"layers.{layer}/fc1", y, width, 4 * width))
        hidden = tape.add(hidden, tape.linear(f"layers.{layer}/fc2", y, 4 * width, width))
    hidden = tape.layer_norm("norm", hidden, width)
    logits = tape.linear("classifier", hidden, width, classes)
    export_gradients(b, tape, tape.cross_entropy(logits, b.op("Reshape", labels, b.ints(-1))))
    return b.export()


class _Block:
    """Causal self attention with its residual connection."""

    def __init__(
        self, b: Builder, tape: Tape, batch: gs.Variable, seq: gs.Variable, width: int, heads: int
    ) -> None:
        self.b = b
        self.tape = tape
        self.width = width
        self.head = width // heads
        self.split = b.shape(batch, seq, heads, self.head)
        self.rows = b.ints(-1, width)
        least = np.array([np.finfo(np.float32).min], dtype=np.float32)
        full = b.op("ConstantOfShape", b.shape(seq, seq), value=gs.Constant("value", least))
        self.mask = b.op("Trilu", full, b.const(1, np.int64), upper=1)

    def attention(self, name: str, hidden: Tensor) -> gs.Variable:
        """hidden + projection of softmax(query @ key + mask) @ value."""
        tape, width = self.tape, self.width
        normal = tape.layer_norm(f"{name}/norm", hidden, width)
        query = self._heads(tape.scale(tape.linear(f"{name}/q", normal, width, width), self.head**-0.5))
        key = tape.transpose(self._heads(tape.linear(f"{name}/k", normal, width, width)), (0, 1, 3, 2))
        value = self._heads(tape.linear(f"{name}/v", normal, width, width))
        weights = tape.softmax(tape.shift(tape.matmul(query, key), self.mask))
        y = tape.transpose(tape.matmul(weights, value), (0, 2, 1, 3))
        y = tape.linear(f"{name}/out", tape.reshape(y, self.rows, self.split), width, width)
        return tape.add(hidden, y)

    def _heads(self, rows: Tensor) -> gs.Variable:
        return self.tape.transpose(self.tape.reshape(rows, self.split, self.rows), (0, 2, 1, 3))
