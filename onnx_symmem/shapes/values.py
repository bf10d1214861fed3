"""Contents of small tensors, followed exactly: integers as expressions, floats as constants or quotients.

Shape arithmetic in exported models runs over int64 tensors, and now and then detours over floats
(Cast, Mul by a scale, Floor, Cast back). An item of a followed tensor is

    Expr      an integer or boolean (0, 1)
    float     a floating-point constant
    Real      a float that comes from sizes: num / den rounded once, or num * scale rounded once
    Estimate  a float that comes from sizes by several roundings, of which some may be known
    Between   an integer between two sizes, what an Estimate rounds to
    None      unknown
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy as np
from onnx import TensorProto, numpy_helper
from onnx.helper import tensor_dtype_to_np_dtype

from onnx_symmem.expr.expression import Expr
from onnx_symmem.graph.load import external_entry, read_tensor_bytes

__all__ = [
    "FLOAT_TYPES",
    "INTEGER_TYPES",
    "MAX_CONSTANT",
    "MAX_FOLLOWED",
    "Between",
    "Estimate",
    "Item",
    "Option",
    "PartialValue",
    "Real",
    "follows",
    "read_tensor",
]  # fmt: skip

MAX_CONSTANT = 4096  # elements of a constant that are read
MAX_FOLLOWED = 256  # elements of a computed tensor that are followed

BOOL = TensorProto.BOOL
INTEGER_TYPES = frozenset(
    (
        TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64,
        TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64, BOOL,
    )
)  # fmt: skip
FLOAT_TYPES = frozenset((TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16))


@dataclass(frozen=True, slots=True)
class Real:
    """A float made of sizes: `num / den` correctly rounded, or fl32(num) * fl32(scale) rounded once."""

    num: Expr
    den: int = 1
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Option:
    """A float >= 0 that differs from num / den by few roundings.

    With `factors` it is their product in float32, as `scaled_floor` rounds it; without, the roundings are
    not known.
    """

    num: Expr
    den: Expr
    factors: tuple[tuple[Expr, Expr], ...] = ()


@dataclass(frozen=True, slots=True)
class Estimate:
    """The smallest (or `largest`) of some floats."""

    options: tuple[Option, ...]
    largest: bool = False


@dataclass(frozen=True, slots=True)
class Between:
    """An integer known only to lie between two sizes, both included."""

    lo: Expr
    hi: Expr


Item = Expr | Real | Estimate | Between | float | None


@dataclass(frozen=True, slots=True)
class PartialValue:
    """A small tensor: `items` in row-major order; None stands for an unknown element."""

    dims: tuple[int, ...]
    items: tuple[Item, ...]

    @property
    def exprs(self) -> tuple[Expr | None, ...]:
        """The items as integer expressions, None for the rest."""
        return tuple(i if isinstance(i, Expr) else None for i in self.items)

    def array(self) -> np.ndarray:
        """The items as an object array of the tensor's dims, to be moved around by numpy."""
        cells = np.empty(len(self.items), dtype=object)
        cells[:] = self.items
        return cells.reshape(self.dims)

    @staticmethod
    def of(array: np.ndarray) -> PartialValue:
        """The inverse of `array`."""
        return PartialValue(tuple(array.shape), tuple(array.reshape(-1)))

    @staticmethod
    def scalar(item: Item) -> PartialValue:
        """A tensor of rank 0."""
        return PartialValue((), (item,))

    @staticmethod
    def vector(items: tuple[Item, ...]) -> PartialValue:
        """A tensor of rank 1."""
        return PartialValue((len(items),), items)

    def map(self, function: Callable[[Item], Item]) -> PartialValue:
        """The tensor with `function` applied to each item."""
        return PartialValue(self.dims, tuple(map(function, self.items)))


def follows(elem_type: int) -> bool:
    """Whether tensors of this type are followed at all."""
    return elem_type in INTEGER_TYPES or elem_type in FLOAT_TYPES


def read_tensor(tensor: TensorProto, folder: str | None) -> PartialValue | None:
    """The contents of a constant, None where it is large, of another type, or not to be found."""
    if not follows(tensor.data_type) or prod(tensor.dims) > MAX_CONSTANT:
        return None
    dims = tuple(tensor.dims)
    if external_entry(tensor) is not None:
        raw = read_tensor_bytes(tensor, folder)
        if raw is None or not _has_size(raw, tensor):
            return None
        inline = TensorProto(data_type=tensor.data_type, dims=dims, raw_data=raw)
        array = numpy_helper.to_array(inline)
    else:
        try:
            array = numpy_helper.to_array(tensor)
        except (ValueError, TypeError):
            return None
    if tensor.data_type in FLOAT_TYPES:
        return PartialValue(dims, tuple(float(x) for x in array.reshape(-1)))
    return PartialValue(dims, tuple(Expr.const(int(x)) for x in array.reshape(-1)))


def _has_size(raw: bytes, tensor: TensorProto) -> bool:
    """Whether a side file gave as many bytes as the tensor has."""
    return len(raw) == prod(tensor.dims) * tensor_dtype_to_np_dtype(tensor.data_type).itemsize
