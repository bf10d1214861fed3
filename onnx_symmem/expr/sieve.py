"""The few tests that most rows fail, tried before all others.

A row is proved by many tests, and one that it fails is enough to give it up. Rows of one kind fail in the
same places: the tests that rows failed are collected, greedily, and tried in float64 on those that come
later. What is given up has a negative number for certain, whatever rounding did, so that verdicts do not
depend on which rows came before.
"""

from __future__ import annotations

import numpy as np

from onnx_symmem.expr.exact import FloatArray, IntArray, Table, absolute, any_in_row, rounding

__all__ = ["Sieve"]

_MOST = 64  # tests
_LEARNT = 8  # tests that are added at a time
_LOOKED_AT = 256  # rows that they are chosen by
_WORTH = 2  # rows of these that a test must tell
_LARGEST = 1 << 400  # of numbers, so that products stay within float64


class Sieve:
    """Tests that rows over one basis failed."""

    def __init__(self) -> None:
        self._tests: FloatArray | None = None

    def passed(self, rows: IntArray) -> IntArray:
        """Indices of the rows that fail none of the tests for certain."""
        if self._tests is None or (rows.dtype == object and absolute(rows) >= _LARGEST):
            return np.arange(len(rows))
        floats = rows.astype(np.float64)
        fails = floats @ self._tests < -rounding(floats, self._tests)
        return np.flatnonzero(~any_in_row(fails))

    def learn(self, failed: IntArray, tests: Table) -> None:
        """Add the tests that tell most rows, of rows that each fail some test of a table."""
        if len(failed) < _WORTH or max(tests.magnitudes, default=0) >= _LARGEST:
            return
        fails = np.asarray(tests.times(failed[:: -(-len(failed) // _LOOKED_AT)]) < 0, dtype=np.bool_)
        chosen: list[int] = []
        while len(chosen) < _LEARNT:
            told = fails.sum(axis=0)
            best = int(told.argmax())
            if told[best] < _WORTH:
                break
            chosen.append(best)
            fails = fails[~fails[:, best]]
        if not chosen:
            return
        known, new = self._tests, tests.selected(np.array(chosen)).floats
        if known is None or known.shape[1] + len(chosen) > _MOST:
            self._tests = new  # by what fails now
        else:
            self._tests = np.concatenate([known, new], axis=1)
