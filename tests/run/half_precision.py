"""A model of float32 as one of float16: ONNX Runtime's CPU computes most of it in float32, between Casts."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, numpy_helper

__all__ = ["halved"]


def halved(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy with float16 in place of float32 everywhere."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    for info in (*graph.input, *graph.output, *graph.value_info):
        if info.type.tensor_type.elem_type == TensorProto.FLOAT:
            info.type.tensor_type.elem_type = TensorProto.FLOAT16
    for tensor in graph.initializer:
        _halve(tensor)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.TENSOR:
                _halve(attribute.t)
            elif node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.FLOAT16
    return result


def _halve(tensor: TensorProto) -> None:
    if tensor.data_type == TensorProto.FLOAT:
        most = np.finfo(np.float16).max  # masks are made of the least number
        half = np.clip(numpy_helper.to_array(tensor), -most, most).astype(np.float16)
        tensor.CopyFrom(numpy_helper.from_array(half, tensor.name))
