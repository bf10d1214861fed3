from onnx_symmem.order.limits import SearchLimits, limits_for


def test_usual_graphs_keep_the_limits_they_were_given():
    assert limits_for(SearchLimits(), 1_000) == (SearchLimits(), None)


def test_what_is_tried_grows_with_the_graph_up_to_a_size():
    usual = SearchLimits()
    twice, _ = limits_for(usual, 2_000)
    assert twice.window.pairs == 2 * usual.window.pairs
    assert twice.window.splits == 2 * usual.window.splits
    assert twice.bound.work == 2 * usual.bound.work
    assert limits_for(usual, 10)[0] == usual
    assert limits_for(usual, 4_001)[0].window.work < limits_for(usual, 4_000)[0].window.work


def test_large_graphs_are_told_that_less_is_tried():
    sizes = (5_000, 10_000, 50_000, 100_000, 1_000_000)
    found = [limits_for(SearchLimits(), nodes) for nodes in sizes]
    for (limits, notice), nodes in zip(found, sizes, strict=True):
        assert f"{nodes:,}" in notice
        assert limits.shapes >= 1
        assert limits.exact >= 1
        assert limits.proofs >= 1
    windows = [limits.window.windows for limits, _ in found]
    assert windows == sorted(windows, reverse=True)


def test_limits_are_never_raised():
    few = SearchLimits(shapes=1, improved=0, exact=1, proofs=1, rounds=0)
    lowered, _ = limits_for(few, 20_000)
    assert (lowered.shapes, lowered.improved, lowered.exact, lowered.proofs, lowered.rounds) == (
        1,
        0,
        1,
        1,
        0,
    )
