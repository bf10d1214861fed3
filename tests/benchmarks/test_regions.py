"""What an If around a stretch of nodes keeps: worked out by hand."""

from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.regions import differing, peak_with_if
from onnx_symmem.remat.timeline import Lifetime, Timeline


@pytest.mark.parametrize(
    ("before", "after", "stretch"),
    [
        ([1, 2, 3, 4], [1, 3, 2, 4], (1, 3)),
        ([1, 2, 3, 4], [1, 2, 3, 2, 4], (3, 4)),  # a repeat of one node
        ([1, 2], [1, 2], (2, 2)),
        ([1, 2], [3, 4, 5], (0, 3)),
        ([1, 1, 1], [1, 1, 1, 1], (3, 4)),
    ],
)
def test_the_stretch_is_as_short_as_can_be(before, after, stretch):
    assert differing(before, after) == stretch


def test_what_dies_within_lives_to_the_end_of_the_branch():
    # 10 bytes are made at step 0 and read at step 2; 5 at step 1, read at 4; 7 at step 2, read at 3.
    lives = [
        Lifetime(0, 0, 0, (2,), False, False),
        Lifetime(1, 1, 1, (4,), False, False),
        Lifetime(2, 2, 2, (3,), False, False),
    ]
    live = np.array([[10], [15], [22], [12], [5]], dtype=np.float64)
    lived = Timeline(live, np.arange(5), tuple(lives))
    tables = SimpleNamespace(bytes=np.array([[10.0], [5.0], [7.0]]))
    assert peak_with_if(tables, lived, 2, 2) == 22  # no branch
    assert peak_with_if(tables, lived, 2, 4) == 22  # step 3 keeps the 10 bytes: 22 as well
    higher = np.array([[10], [15], [22], [15], [5]], dtype=np.float64)
    assert peak_with_if(tables, Timeline(higher, np.arange(5), tuple(lives)), 2, 4) == 25
    assert peak_with_if(tables, lived, 0, 5) == 22  # made within the branch: freed as planned
