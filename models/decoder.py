"""Transformer decoder with self and cross attention over an encoder's states.

Pre-norm layers after Vaswani et al. 2017 (arXiv 1706.03762) and Whisper (arXiv 2212.04356): learned
positions, keys projected without bias, GELU feed-forward of four times the width.

`cache_first` picks where the encoder's keys and values are projected. False is what tracing a decoder of
modules gives: in each layer, right before they are used. True is what tracing a decoder that first fills
its cross-attention cache gives: those of all layers ahead of layer 0. Either way the peak depends on the
order in which the projections run, for only one layer's keys and values are needed at a time.
"""

from __future__ import annotations

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from models.builder import Builder, Tensor
from models.layers import Projection, attend, gelu, layer_norm, linear, merge_heads, project_heads

__all__ = ["build_decoder"]

POSITIONS = 448


def build_decoder(
    layers: int = 6,
    width: int = 192,
    heads: int = 6,
    vocab: int = 2000,
    cache_first: bool = False,
    seed: int = 0,
) -> onnx.ModelProto:
    """Inputs decoder_ids (batch, dec_seq), encoder_states (batch, enc_seq, width); output logits."""
    b = Builder("decoder", seed)
    ids = b.input("decoder_ids", ("batch", "dec_seq"), np.int64)
    states = b.input("encoder_states", ("batch", "enc_seq", width))
    batch, length = b.dim(ids, 0), b.dim(ids, 1)
    projection = Projection(width, heads, width)

    def encoder_heads(layer: int) -> tuple[gs.Variable, gs.Variable]:
        """Keys and values of one layer's cross attention; they depend on the encoder's states alone."""
        with b.scope(f"decoder/layers.{layer}/encoder_attn"):
            key = project_heads(b, "k_proj", states, batch, projection, bias=False, transposed=True)
            return key, project_heads(b, "v_proj", states, batch, projection)

    x = _embed(b, ids, length, vocab, width)
    mask = _causal_mask(b, length)
    cache = [encoder_heads(k) for k in range(layers)] if cache_first else []
    for k in range(layers):
        with b.scope(f"decoder/layers.{k}"):
            normal = layer_norm(b, "self_attn_layer_norm", x, width)
            with b.scope("self_attn"):
                query = project_heads(b, "q_proj", normal, batch, projection, scale=True)
                key = project_heads(b, "k_proj", normal, batch, projection, bias=False, transposed=True)
                value = project_heads(b, "v_proj", normal, batch, projection)
                y = merge_heads(b, attend(b, query, key, value, mask), batch, width)
                x = b.op("Add", x, linear(b, "out_proj", y, width, width))

            normal = layer_norm(b, "encoder_attn_layer_norm", x, width)
            query = project_heads(b, "encoder_attn/q_proj", normal, batch, projection, scale=True)
        key, value = cache[k] if cache_first else encoder_heads(k)
        with b.scope(f"decoder/layers.{k}"):
            y = merge_heads(b, attend(b, query, key, value), batch, width)
            x = b.op("Add", x, linear(b, "encoder_attn/out_proj", y, width, width))

            normal = layer_norm(b, "final_layer_norm", x, width)
            y = gelu(b, linear(b, "fc1", normal, width, 4 * width))
            x = b.op("Add", x, linear(b, "fc2", y, 4 * width, width))
    x = layer_norm(b, "decoder/layer_norm", x, width)
    logits = linear(b, "proj_out", x, width, vocab, bias=False)
    b.output(logits, "logits", ("batch", "dec_seq", vocab))
    return b.export()


def _embed(b: Builder, ids: Tensor, length: gs.Variable, vocab: int, width: int) -> gs.Variable:
    """Token embeddings plus the first dec_seq rows of the learned positions."""
    with b.scope("decoder/embed"):
        tokens = b.op("Gather", b.weight("tokens", (vocab, width), 0.5), ids, axis=0)
        table = b.weight("positions", (POSITIONS, width), 0.1)
        rows = b.op("Slice", table, b.ints(0), length, b.ints(0), b.ints(1))
        return b.op("Add", tokens, rows)


def _causal_mask(b: Builder, length: gs.Variable) -> gs.Variable:
    """(dec_seq, dec_seq): the least float above the diagonal, 0 elsewhere."""
    with b.scope("decoder/mask"):
        least = np.array([np.finfo(np.float32).min], dtype=np.float32)
        full = b.op("ConstantOfShape", b.shape(length, length), value=gs.Constant("value", least))
        return b.op("Trilu", full, b.const(1, np.int64), upper=1)
