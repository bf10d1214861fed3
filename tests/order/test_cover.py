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


def test_one_much_above_counts_more_than_three_a_little():
    """By squares; by what is above alone, it would be the other one."""
    peaks = [[200, 200, 200, 100], [108, 108, 108, 130], [100, 100, 116, 130], [300, 300, 100, 300]]
    assert _cover(peaks, 2, 4) == (0, 1)


def test_of_sets_with_the_first_and_without_it_the_nearer_one_is_taken():
    """At usual shapes first, even where it is above elsewhere."""
    peaks = np.array([[104, 104, 100], [100, 120, 150], [120, 100, 150]], dtype=np.float64)
    assert cover(peaks, CoverLimits(2), 2, free=True) == (1, 2)


def test_too_many_sets_are_not_all_looked_at(monkeypatch):
    """Then the best one is added to those that there are, which here is not the best pair."""
    peaks = [[130, 130, 130, 130], [110, 110, 110, 110], [100, 100, 130, 130], [130, 130, 100, 100]]
    assert _cover(peaks, 3, 4) == (0, 2, 3)
    monkeypatch.setattr("onnx_symmem.order.cover._SETS", 1)
    assert 1 in _cover(peaks, 3, 4)


def test_the_first_is_kept_where_it_is_within_regret_and_left_out_where_it_is_not():
    # Two others are the best, the first is nearly as good as one of them.
    for above, picked in ((1.0015, (0, 2)), (1.01, (1, 2))):
        peaks = np.array([[1000 * above, 2000], [1000, 2000], [2000, 1000]])
        assert cover(peaks, CoverLimits(), free=True) == picked


def test_many_shapes_just_above_regret_are_no_better_than_one_that_is_more():
    # Beside the first either order does: one is good but at one shape, the other misses all by a little.
    one = np.full(10, 1000.0)
    one[0] = 1011.0
    peaks = np.array([[2000.0] * 10 + [1000], [*one, 2000], [1003.5] * 10 + [2000]])
    assert cover(peaks, CoverLimits(versions=2), free=True) == (0, 1)


def test_what_keeps_all_within_regret_comes_before_what_is_nearer_on_the_whole():
    # Two orders beside the first: one is a little above regret at one shape, the other nowhere.
    one = np.full((3, 21), 1000.0)
    one[0] = 1001.9
    one[0, 0] = 1050.0
    one[1, 0] = 1002.2
    one[2, 1:] = 1001.9
    for versions in (2, 3, 4):
        assert cover(one, CoverLimits(versions)) == (0, 2)


def test_regret_counts_at_shapes_that_are_not_usual_too():
    peaks = np.array([[1050, 1050, 1020], [1000, 1000, 1010], [1000, 1001.5, 1000], [1100, 1100, 1000]])
    assert cover(peaks, CoverLimits(2), usual=2) == (0, 2)
