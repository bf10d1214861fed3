"""The one property of a processor that a file can depend on: how many channels its convolutions take at once.

At level `all` ONNX Runtime lays convolutions out in blocks of 8 or 16 channels, as the processor has vectors,
and stores their weights so. A processor with other blocks reads such a file without complaint and computes
other numbers. So a file with blocks says in its metadata for which it was made.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnx_symmem.errors import UnsupportedModel
from onnx_symmem.graph.load import graphs_of

__all__ = ["PROCESSOR", "blocks_here", "has_blocks", "mark_blocks", "need_blocks"]

PROCESSOR = "onnx_symmem.processor"
"""Key of the model's metadata that says for which blocks of channels it was made."""

_NCHWC = "com.microsoft.nchwc"
_CHANNELS = 4  # fewer than a block: padded to one


def has_blocks(proto: onnx.ModelProto) -> bool:
    """Whether a model has operators on blocks of channels."""
    return any(node.domain == _NCHWC for graph in graphs_of(proto.graph) for node in graph.node)


def mark_blocks(proto: onnx.ModelProto) -> None:
    """Say in the metadata of a model that was made here for which blocks it is; nothing where it has none."""
    kept = [entry for entry in proto.metadata_props if entry.key != PROCESSOR]
    del proto.metadata_props[:]
    proto.metadata_props.extend(kept)
    if has_blocks(proto):
        proto.metadata_props.add(key=PROCESSOR, value=_said(blocks_here()))


def need_blocks(metadata: Mapping[str, str], label: str) -> None:
    """Raise UnsupportedModel where a model was made for a processor with other blocks than this one."""
    said = metadata.get(PROCESSOR)
    if said is not None and said != _said(blocks_here()):
        raise UnsupportedModel(
            f"{label}: made for processors with {said}, this one has {_said(blocks_here())}; optimize the "
            "original model here"
        )


def _said(block: int) -> str:
    return f"blocks of {block} channels" if block else "no blocks of channels"


@cache
def blocks_here() -> int:
    """Channels per block on this processor, seen from a small convolution; 0 where there are no blocks."""
    import onnxruntime as ort

    weights = numpy_helper.from_array(np.ones((_CHANNELS, 1, 1, 1), np.float32), "w")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 4, 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, _CHANNELS, 4, 4])
    graph = helper.make_graph([helper.make_node("Conv", ["x", "w"], ["y"])], "probe", [x], [y], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    with tempfile.TemporaryDirectory(prefix="onnx-symmem-") as folder:
        options.optimized_model_filepath = str(Path(folder, "probe.onnx"))
        ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        saved = onnx.load(options.optimized_model_filepath)
    if not has_blocks(saved):
        return 0
    return max(tensor.dims[0] for tensor in saved.graph.initializer if len(tensor.dims) == 4)
