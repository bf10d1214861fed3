"""Randomly wired convolutional network: stages wired as Watts-Strogatz small worlds.

After Xie et al. 2019 (arXiv 1904.01569), batch normalisation folded into the convolutions as exporters do.
A wiring edge points from the lower to the higher number. Nodes without an inner predecessor read the
stage's input with stride 2; the stage's output is the mean of the nodes that no other node reads.
"""

from __future__ import annotations

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from models.builder import Builder, Tensor
from models.layers import conv

__all__ = ["build_randwire", "small_world"]

REWIRED = 0.75
RELU_GAIN = 2**0.5


def build_randwire(
    width: int = 32, nodes: int = 32, stages: int = 3, classes: int = 100, seed: int = 0
) -> onnx.ModelProto:
    """Input image (batch, 3, height, width); output logits (batch, classes).

    Stage k has width * 2**k channels.
    """
    b = Builder("randwire", seed)
    rng = np.random.default_rng(seed)
    image = b.input("image", ("batch", 3, "height", "width"))
    x = b.op("Relu", conv(b, "stem", image, 3, width, stride=2))
    current = width
    for stage in range(stages):
        outputs = width << stage
        with b.scope(f"stages.{stage}"):
            x = _stage(b, x, current, outputs, small_world(nodes, 4, REWIRED, rng), rng)
        current = outputs
    x = b.op("Relu", conv(b, "head", b.op("Relu", x), current, 4 * current, kernel=1, gain=RELU_GAIN))
    x = b.op("Flatten", b.op("GlobalAveragePool", x), axis=1)
    weight, bias = (
        b.weight("classifier/weight", (classes, 4 * current), 0.05),
        b.weight("classifier/bias", (classes,), 0.02),
    )
    b.output(b.op("Gemm", x, weight, bias, transB=1), "logits", ("batch", classes))
    return b.export()


def small_world(
    nodes: int, neighbours: int, rewired: float, rng: np.random.Generator
) -> tuple[tuple[int, ...], ...]:
    """Watts-Strogatz graph, made acyclic: the sorted predecessors of every node.

    A ring where each node is joined to its `neighbours` nearest; going round once per distance, each edge's
    far end is moved, with probability `rewired`, to a node drawn among those not yet joined to its near end.
    """
    joined: list[set[int]] = [set() for _ in range(nodes)]
    for distance in range(1, neighbours // 2 + 1):
        for node in range(nodes):
            other = (node + distance) % nodes
            joined[node].add(other)
            joined[other].add(node)
    for distance in range(1, neighbours // 2 + 1):
        for node in range(nodes):
            other = (node + distance) % nodes
            free = [k for k in range(nodes) if k != node and k not in joined[node]]
            if rng.random() >= rewired or not free or other not in joined[node]:
                continue
            joined[node].discard(other)
            joined[other].discard(node)
            target = free[int(rng.integers(len(free)))]
            joined[node].add(target)
            joined[target].add(node)
    return tuple(tuple(sorted(k for k in joined[node] if k < node)) for node in range(nodes))


def _stage(
    b: Builder,
    x: Tensor,
    inputs: int,
    outputs: int,
    wiring: tuple[tuple[int, ...], ...],
    rng: np.random.Generator,
) -> gs.Variable:
    made: list[gs.Variable] = []
    for node, predecessors in enumerate(wiring):
        with b.scope(f"nodes.{node}"):
            if predecessors:
                # The sigmoid of a learnt scalar per edge is a constant by the time of export.
                gates = 1 / (1 + np.exp(-rng.standard_normal(len(predecessors))))
                scaled = [
                    b.op("Mul", made[p], b.const(gate)) for p, gate in zip(predecessors, gates, strict=True)
                ]
                total = scaled[0]
                for term in scaled[1:]:
                    total = b.op("Add", total, term)
                level = float(np.linalg.norm(gates))
                made.append(_separable(b, total, outputs, outputs, stride=1, level=level))
            else:
                made.append(_separable(b, x, inputs, outputs, stride=2, level=1.0))
    read = {p for predecessors in wiring for p in predecessors}
    leaves = [made[k] for k in range(len(wiring)) if k not in read]
    return b.op("Mean", *leaves) if len(leaves) > 1 else leaves[0]


def _separable(b: Builder, x: Tensor, inputs: int, outputs: int, stride: int, level: float) -> gs.Variable:
    """Relu, depthwise 3 x 3, pointwise 1 x 1; `level` is the deviation of x, divided out as folding does."""
    y = b.op("Relu", x)
    y = conv(b, "depthwise", y, inputs, inputs, stride=stride, group=inputs, bias=False, gain=RELU_GAIN)
    return conv(b, "pointwise", y, inputs, outputs, kernel=1, gain=1 / level)
