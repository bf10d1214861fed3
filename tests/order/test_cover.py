import numpy as np

from onnx_symmem.order.cover import CoverLimits, cover


def _cover(peaks, versions: int, usual: int, **limits) -> tuple[int, ...]:
    return cover(np.array(peaks, dtype=np.float64), CoverLimits(versions, **limits), usual)


def test_cover_takes_as_few_as_it_can():
    peaks = [[100, 100, 100, 100], [80, 99.9, 120, 100], [120, 100, 80, 100], [79.9, 100, 100, 100]]
    # Of two that are near enough at the first shape the one that is lower at another.
    assert _cover(peaks, 4, 4) == (0, 2, 3)
    peaks[1][1] = 90
    assert _cover(peaks, 4, 4) == (0, 1, 2)
    assert len(_cover(peaks, 2, 4)) == 2
    assert _cover(peaks[:1], 4, 4) == (0,)
    assert _cover([[100, 100], [99.1, 100.5]], 4, 2, regret=0.01) == (0,)
    # More than one percent of regret, but not two of gain, if that is asked for.
    assert _cover([[100, 100], [98.5, 100]], 4, 2, gain=0.02) == (0,)
    assert _cover([[100, 100], [98.5, 100]], 4, 2) == (0, 1)
    # Much, but only at a shape that is not usual.
    assert _cover([[100, 100], [100, 97]], 4, 1) == (0,)
    assert _cover([[100, 100], [100, 97]], 4, 2) == (0, 1)


def test_cover_looks_at_sets_not_at_one_order_after_the_other():
    """The best single addition is no part of the best pair."""
    peaks = [[130, 130, 130, 130], [110, 110, 110, 110], [100, 100, 130, 130], [130, 130, 100, 100]]
    assert _cover(peaks, 2, 4) == (0, 1)
    assert _cover(peaks, 3, 4) == (0, 2, 3)


def test_cover_is_near_at_usual_shapes_first():
    peaks = [[120, 150], [100, 120], [110, 100]]
    assert _cover(peaks, 2, 1) == (0, 1)
    assert _cover(peaks, 2, 2) == (0, 2)


def test_a_little_at_many_shapes_counts_less_than_much_at_one():
    often, once = [100, 100, 100, 103, 100], [101, 101, 101, 100, 101]
    peaks = [[110, 110, 110, 110, 100], often, once]
    assert _cover(peaks, 2, 5) == (0, 2)
    # Where regret allows it, nothing of it counts.
    assert _cover([peaks[0], often, [100.1, 100.1, 100.1, 100, 101]], 2, 4) == (0, 2)


def test_the_first_is_left_out_where_it_need_not_be_there():
    peaks = np.array([[110, 110], [100, 120], [120, 100]], dtype=np.float64)
    assert cover(peaks, CoverLimits(2)) == (0, 1)
    assert cover(peaks, CoverLimits(2), free=True) == (1, 2)
    assert cover(peaks, CoverLimits(3)) == (0, 1, 2)
