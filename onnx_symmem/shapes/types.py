"""Element types of outputs, read off the operator schemas of the installed onnx.

A schema names a type constraint per input and output; an output shares the element type of the first
input with the same constraint, or has the one type its constraint allows. Types that an attribute
decides (Cast, ConstantOfShape, RandomNormal ...) are set by the op's rule.
"""

from __future__ import annotations

from functools import cache

import onnx.defs
from onnx import TensorProto

__all__ = ["ELEMENTS", "output_types"]

ELEMENTS: dict[str, int] = {
    "float": TensorProto.FLOAT, "double": TensorProto.DOUBLE, "float16": TensorProto.FLOAT16,
    "bfloat16": TensorProto.BFLOAT16, "int8": TensorProto.INT8, "int16": TensorProto.INT16,
    "int32": TensorProto.INT32, "int64": TensorProto.INT64, "uint8": TensorProto.UINT8,
    "uint16": TensorProto.UINT16, "uint32": TensorProto.UINT32, "uint64": TensorProto.UINT64,
    "bool": TensorProto.BOOL, "string": TensorProto.STRING, "complex64": TensorProto.COMPLEX64,
    "complex128": TensorProto.COMPLEX128,
}  # fmt: skip

FIXED, INPUT, UNDECIDED = 0, 1, 2


def _element(text: str) -> int:
    return ELEMENTS.get(text[7:-1], 0) if text.startswith("tensor(") else 0


@cache
def output_types(op: str, domain: str, version: int) -> tuple[tuple[int, int], ...]:
    """Per formal output: (FIXED, element type), (INPUT, index of the input it follows), or (UNDECIDED, 0).

    The last entry holds for all further outputs of a variadic op. Empty where onnx knows no such op.
    """
    try:
        schema = onnx.defs.get_schema(op, version, domain)
    except onnx.defs.SchemaError:
        return ()
    allowed = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    first: dict[str, int] = {}
    for k, formal in enumerate(schema.inputs):
        first.setdefault(formal.type_str, k)
    kinds = []
    for formal in schema.outputs:
        texts = allowed.get(formal.type_str, [formal.type_str])
        if formal.type_str in first and formal.type_str in allowed:
            kinds.append((INPUT, first[formal.type_str]))
        elif len(texts) == 1 and _element(texts[0]):
            kinds.append((FIXED, _element(texts[0])))
        else:
            kinds.append((UNDECIDED, 0))
    return tuple(kinds)
