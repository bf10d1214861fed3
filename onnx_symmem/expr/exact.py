"""Exact integer arithmetic on numpy arrays: int64 where nothing can overflow, Python integers elsewhere.

Every function decides from the largest magnitudes of its operands. Matrix products run in float64
while all partial sums stay below 2**53, where float64 is exact, then in int64, then in float64 by
limbs of few bits that are joined as Python integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = [
    "BoolArray",
    "FloatArray",
    "IntArray",
    "Table",
    "absolute",
    "add",
    "any_in_row",
    "as_floats",
    "as_integers",
    "matmul",
    "multiply",
    "none_negative",
    "power",
    "rounding",
]

IntArray = npt.NDArray[Any]  # dtype int64 or object (Python integers)
BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]

_INT64 = 1 << 62  # one bit of slack
_FLOAT64 = 1 << 53
_RANGE = 1 << 1000  # of float64, with room for sums
_CACHED = 1 << 17  # numbers of a product that stay in the cache until they are looked at


def as_integers(values: Any) -> IntArray:
    """An int64 array where all values fit, else an object array of Python integers."""
    array = np.asarray(values, dtype=object)
    if absolute(array) < _INT64:
        return array.astype(np.int64)
    return array


def absolute(a: IntArray) -> int:
    """The largest magnitude, 0 if empty."""
    if a.size == 0:
        return 0
    return max(int(a.max()), -int(a.min()))


def add(a: IntArray, b: IntArray) -> IntArray:
    """a + b, elementwise with broadcasting."""
    if a.dtype == object or b.dtype == object or absolute(a) + absolute(b) >= _INT64:
        return _object(a) + _object(b)
    return a + b


def multiply(a: IntArray, b: IntArray) -> IntArray:
    """a * b, elementwise with broadcasting."""
    if a.dtype == object or b.dtype == object or absolute(a) * absolute(b) >= _INT64:
        return _object(a) * _object(b)
    return a * b


def power(a: IntArray, exponent: int) -> IntArray:
    """a ** exponent, elementwise; exponent >= 0."""
    result: IntArray = np.ones_like(a)
    for _ in range(exponent):
        result = multiply(result, a)
    return result


class Table:
    """A matrix that many rows are multiplied with; what the choice of arithmetic needs is kept."""

    def __init__(self, array: IntArray) -> None:
        self.array = array
        self._thinned: dict[int, Table] = {}

    @property
    def columns(self) -> int:
        """Number of columns."""
        return int(self.array.shape[1])

    @cached_property
    def magnitudes(self) -> list[int]:
        """Largest magnitude of every row."""
        return _column_magnitudes(self.array.T)

    @cached_property
    def floats(self) -> FloatArray:
        """The matrix in float64, as `as_floats` has it; exact where magnitudes are below 2**53."""
        return as_floats(self.array)

    def thinned(self, step: int) -> Table:
        """Every step-th column."""
        found = self._thinned.get(step)
        if found is None:
            found = self._thinned[step] = self.selected(np.arange(0, self.columns, step))
        return found

    def selected(self, columns: IntArray) -> Table:
        """Some columns."""
        return Table(np.ascontiguousarray(self.array[:, columns]))

    def times(self, rows: IntArray) -> IntArray:
        """rows @ array."""
        inner = self.array.shape[0]
        used = np.arange(inner)
        if len(rows) <= 4:
            used = np.flatnonzero(any_in_row(rows.T != 0))
            rows = rows[:, used]
        bound = self._bound(rows, used.tolist())
        some = len(used) < inner
        if bound < _FLOAT64:
            floats = self.floats[used] if some else self.floats
            return (rows.astype(np.float64) @ floats).astype(np.int64)
        array = self.array[used] if some else self.array
        if bound < _INT64:
            return rows.astype(np.int64) @ array.astype(np.int64)
        bits = (52 - inner.bit_length()) // 2
        total: IntArray = np.zeros((rows.shape[0], self.columns), dtype=object)
        right = _limbs(array, bits)
        for i, left in enumerate(_limbs(rows, bits)):
            for j, other in enumerate(right):
                total += (left @ other).astype(np.int64).astype(object) * (1 << bits * (i + j))
        return total

    def none_negative(self, rows: IntArray) -> BoolArray:
        """Which rows of rows @ array have no number below 0; what float64 leaves open is redone exactly."""
        bound = self._bound(rows, range(self.array.shape[0])) if len(rows) > 4 else _RANGE
        if bound >= _RANGE:
            return none_negative(self.times(rows))
        result = np.empty(len(rows), dtype=np.bool_)
        doubtful = np.zeros(len(rows), dtype=np.bool_)
        floats = rows.astype(np.float64)
        step = max(16, _CACHED // max(1, self.columns))
        for start in range(0, len(rows), step):
            some = slice(start, start + step)
            values = floats[some] @ self.floats
            if bound < _FLOAT64:
                result[some] = none_negative(values)
                continue
            error = rounding(floats[some], self.floats)
            result[some] = ~any_in_row(values < -error)
            doubtful[some] = any_in_row(values < error) & result[some]
        left = np.flatnonzero(doubtful)
        result[left] = none_negative(self.times(rows[left]))
        return result

    def fits_floats(self, rows: IntArray) -> bool:
        """Whether float64 has the range for rows @ array."""
        return self._bound(rows, range(self.array.shape[0])) < _RANGE

    def _bound(self, rows: IntArray, used: Sequence[int]) -> int:
        """What no number of the product of rows and the used rows of the array exceeds, nor either factor."""
        largest = (self.magnitudes[j] for j in used)
        return sum(max(m, 1) * max(n, 1) for m, n in zip(_column_magnitudes(rows), largest, strict=True))


def as_floats(a: IntArray) -> FloatArray:
    """The nearest float64; numbers beyond 2**1000 are cut off there, which keeps signs and what sums need."""
    if a.dtype == object and absolute(a) >= _RANGE:
        a = np.clip(a, -_RANGE, _RANGE)
    return a.astype(np.float64)


def rounding(rows: FloatArray, array: FloatArray) -> FloatArray:
    """How far rows @ array in float64 may be from the exact product of the integers that were rounded."""
    return np.abs(rows) @ np.abs(array) * ((len(array) + 8) * 2.0**-51)


def matmul(a: IntArray, b: IntArray) -> IntArray:
    """a @ b for two matrices."""
    return Table(b).times(a)


def none_negative(rows: IntArray) -> BoolArray:
    """Which rows of a matrix have no number below 0."""
    result: BoolArray = np.logical_and.reduce(np.asarray(rows >= 0, dtype=np.bool_), axis=1)
    return result


def any_in_row(flags: npt.ArrayLike) -> BoolArray:
    """Which rows of a matrix have a true, or non-zero, entry."""
    result: BoolArray = np.logical_or.reduce(np.asarray(flags, dtype=np.bool_), axis=1)
    return result


def _column_magnitudes(rows: IntArray) -> list[int]:
    if rows.size == 0:
        return [0] * rows.shape[1]
    tops, bottoms = rows.max(axis=0).tolist(), rows.min(axis=0).tolist()
    return [max(top, -bottom) for top, bottom in zip(tops, bottoms, strict=True)]


def _limbs(a: IntArray, bits: int) -> list[FloatArray]:
    """Float arrays l_i below 2**bits in magnitude with a == sum(l_i * 2**(bits*i))."""
    rest, limbs, mask = a.copy(), [], (1 << bits) - 1
    while absolute(rest) > mask:
        limbs.append((rest & mask).astype(np.float64))
        rest >>= bits
    limbs.append(rest.astype(np.float64))
    return limbs


def _object(a: IntArray) -> IntArray:
    return a if a.dtype == object else a.astype(object)
