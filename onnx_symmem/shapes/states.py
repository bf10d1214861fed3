"""What is known of one value while its graph is inferred: a tensor, or a sequence of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onnx_symmem.expr.expression import Expr
from onnx_symmem.shapes.table import Dims
from onnx_symmem.shapes.values import PartialValue

__all__ = ["SequenceState", "State", "merge_dims"]


@dataclass(frozen=True, slots=True)
class State:
    """What is known of one value: a tensor, or a sequence (then `dims` is None)."""

    dims: Dims | None
    elem: int = 0
    value: PartialValue | None = None
    sequence: SequenceState | None = None


@dataclass(frozen=True, slots=True)
class SequenceState:
    """A sequence of tensors: `item` holds for every element; `items` lists them where all are known.

    A dim that differs between elements is None in `common`; `item.dims` is None where ranks differ. `cut` is
    (axis, size, part) where the elements are a tensor cut along an axis into parts of a constant size.
    """

    elem: int
    common: tuple[Expr | None, ...] | None
    length: Expr | None = None
    items: tuple[State, ...] | None = None
    cut: tuple[int, Expr, int] | None = None

    @staticmethod
    def of(items: Sequence[State], elem: int = 0) -> SequenceState:
        """The sequence of the given tensors."""
        common: tuple[Expr | None, ...] | None = items[0].dims if items else None
        for state in items[1:]:
            common = merge_dims(common, state.dims)
        kind = items[0].elem if items else elem
        return SequenceState(kind, common, Expr.const(len(items)), tuple(items))


def merge_dims(
    a: Sequence[Expr | None] | None, b: Sequence[Expr | None] | None
) -> tuple[Expr | None, ...] | None:
    """What holds for both tensors: equal dims stay, others become None."""
    if a is None or b is None or len(a) != len(b):
        return None
    return tuple(x if x == y else None for x, y in zip(a, b, strict=True))
