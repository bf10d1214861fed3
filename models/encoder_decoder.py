"""Transformer encoder and decoder in one graph: two sequences, sizes that mix their lengths.

After Vaswani et al. 2017 (arXiv 1706.03762), pre-norm. The decoder's cross attention reads the encoder's
result; with `cache_first` its keys and values are projected for all layers ahead of layer 0, as a traced
cache does.
"""

from __future__ import annotations

import onnx
import onnx_graphsurgeon as gs

from models.builder import Builder, Tensor
from models.layers import Projection, attend, gelu, layer_norm, linear, merge_heads, project_heads

__all__ = ["build_encoder_decoder"]


def build_encoder_decoder(
    layers: int = 4, width: int = 128, heads: int = 4, cache_first: bool = True, seed: int = 0
) -> onnx.ModelProto:
    """Inputs source (batch, enc_seq, width) and target (batch, dec_seq, width); output states."""
    b = Builder("encoder_decoder", seed)
    source = b.input("source", ("batch", "enc_seq", width))
    target = b.input("target", ("batch", "dec_seq", width))
    batch = b.dim(source, 0)
    projection = Projection(width, heads, width)

    def attention(
        name: str, x: Tensor, of: Tensor, cached: tuple[Tensor, Tensor] | None = None
    ) -> gs.Variable:
        with b.scope(name):
            query = project_heads(b, "q_proj", x, batch, projection, scale=True)
            key, value = cached or keys_values(of)
            return linear(
                b, "out_proj", merge_heads(b, attend(b, query, key, value), batch, width), width, width
            )

    def keys_values(of: Tensor) -> tuple[gs.Variable, gs.Variable]:
        key = project_heads(b, "k_proj", of, batch, projection, bias=False, transposed=True)
        return key, project_heads(b, "v_proj", of, batch, projection)

    def feed_forward(x: gs.Variable) -> gs.Variable:
        y = gelu(b, linear(b, "fc1", layer_norm(b, "norm3", x, width), width, 4 * width))
        return b.op("Add", x, linear(b, "fc2", y, 4 * width, width))

    x: Tensor = source
    for layer in range(layers):
        with b.scope(f"encoder/layers.{layer}"):
            normal = layer_norm(b, "norm1", x, width)
            x = feed_forward(b.op("Add", x, attention("self_attn", normal, normal)))
    states = layer_norm(b, "encoder/norm", x, width)
    cache: list[tuple[gs.Variable, gs.Variable]] = []
    if cache_first:
        for layer in range(layers):
            with b.scope(f"decoder/layers.{layer}/cross_attn"):
                cache.append(keys_values(states))
    y: Tensor = target
    for layer in range(layers):
        with b.scope(f"decoder/layers.{layer}"):
            normal = layer_norm(b, "norm1", y, width)
            y = b.op("Add", y, attention("self_attn", normal, normal))
            cached = cache[layer] if cache_first else None
            y = b.op("Add", y, attention("cross_attn", layer_norm(b, "norm2", y, width), states, cached))
            y = feed_forward(y)
    b.output(layer_norm(b, "decoder/norm", y, width), "states", ("batch", "dec_seq", width))
    return b.export()
