"""Builders of small real models for tests, demos and benchmarks.

    decoder            transformer decoder with self and cross attention     batch, dec_seq, enc_seq
    unet               diffusion U-Net, skips, Resize to a computed size     batch, height, width
    randwire           randomly wired convolutional network                  batch, height, width
    mlp_train          training step of a residual perceptron                batch
    transformer_train  training step of a causal transformer                 batch, seq

All are written operator by operator with onnx-graphsurgeon the way exporters write them, with symbolic
dims and seeded weights below 20 MB; the same options give the same bytes. `models.build` holds the registry.
Benchmarks plan more: `nasnet`, `encoder_decoder`, `light_train` (training steps of networks that the onnx
package carries), `series_parallel` and `random_graph`.

DEMO is the model to show first, at DEMO_SHAPE: 1500 encoder states are 30 s of speech for Whisper. ONNX
Runtime's default order projects the encoder's keys of every layer before layer 0 runs and keeps them all,
though only one layer's are needed at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["DEMO", "DEMO_SHAPE"]

DEMO = "decoder"
DEMO_SHAPE: Mapping[str, int] = MappingProxyType({"batch": 4, "dec_seq": 64, "enc_seq": 1500})
