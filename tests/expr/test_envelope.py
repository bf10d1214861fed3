"""Envelopes and the order of two maxima, against brute force; certificates of what was left out."""

from __future__ import annotations

import subprocess
import sys
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnx_symmem.errors import ExpressionError
from onnx_symmem.expr.certificate import check
from onnx_symmem.expr.domain import Domain, SymbolRange
from onnx_symmem.expr.envelope import envelope, plan_le
from onnx_symmem.expr.expression import ZERO, Expr
from onnx_symmem.expr.matrix import PolyMatrix
from onnx_symmem.expr.mixture import (
    game_values,
    game_weights,
    games_weights,
    integer_weights,
    pair_interval,
    shared_weights,
    simplest_between,
    whole_weights,
)
from onnx_symmem.expr.text import parse
from tests.expr.strategies import domains, expressions, legal_points, polynomials

FREE = Domain()


def most(exprs: list[Expr], shape: dict[str, int]) -> int | None:
    try:
        return max(expr.evaluate(shape) for expr in exprs)
    except ExpressionError:  # a divisor is zero there
        return None


def points(domain: Domain) -> list[dict[str, int]]:
    return list(islice(legal_points(domain, 4), 200))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(polynomials() | expressions(floors_only=True, max_terms=2), min_size=1, max_size=6), domains()
)
def test_members_have_the_same_maximum(exprs: list[Expr], domain: Domain) -> None:
    found = envelope(exprs, domain)
    for shape in points(domain):
        assert most(exprs, shape) == most(list(found.members), shape)
    assert [domain.solved(exprs[row]) for row in found.member_rows] == list(found.members)
    assert sorted(found.member_rows) == list(found.member_rows)
    assert all(check(certificate) for certificate in found.certificates())


@settings(max_examples=60, deadline=None)
@given(
    st.lists(polynomials(3) | expressions(max_terms=2), min_size=1, max_size=3),
    st.lists(polynomials(3) | expressions(max_terms=2), min_size=1, max_size=3),
    domains(),
)
def test_order_of_two_maxima(p: list[Expr], q: list[Expr], domain: Domain) -> None:
    found = plan_le(p, q, domain)
    if found.proved:
        assert found.witness is None
        assert found.check()
        for shape in points(domain):
            low, high = most(p, shape), most(q, shape)
            assert low is None or high is None or low <= high
    if found.witness is not None:
        assert domain.contains(found.witness)
        assert (most(p, found.witness) or 0) > (most(q, found.witness) or 0)


def test_a_middle_row_needs_a_convex_combination() -> None:
    rows = [parse("10*a"), parse("10*b"), parse("4*a + 4*b"), parse("3*a + 7*b"), parse("9*a")]
    found = envelope(rows, FREE)
    assert found.member_rows == (0, 1)
    assert found.certified == 3
    assert {drop.members for drop in found.drops} >= {(0,)}
    assert all(check(certificate) for certificate in found.certificates())
    assert found.at({"a": 3, "b": 5}) == 50


def test_three_corners_dominate_the_middle() -> None:
    rows = [parse("9*a"), parse("9*b"), parse("9*c"), parse("3*a + 3*b + 3*c"), parse("2*a + 4*b + 3*c")]
    found = envelope(rows, FREE)
    assert found.member_rows == (0, 1, 2)
    assert all(check(certificate) for certificate in found.certificates())


def test_rows_without_a_certificate_stay() -> None:
    # The second is never above the first at any size, but by less than any single method shows.
    rows = [parse("a//b"), parse("(a - 1)//b")]
    assert len(envelope(rows, FREE).members) <= 2


def test_equal_rows_and_eliminated_symbols() -> None:
    domain = Domain().with_equality("S0", parse("12*S1"))
    found = envelope([parse("S1"), parse("S0"), parse("12*S1"), parse("S0 - 1")], domain)
    assert found.members == (parse("12*S1"),)
    assert found.member_rows == (1,)
    with pytest.raises(ValueError, match="one expression or more"):
        envelope([], FREE)


def test_small_domains_are_decided_point_by_point() -> None:
    domain = Domain({"x": SymbolRange(1, 9), "y": SymbolRange(1, 9)})
    p, q = [parse("x*y")], [parse("x*x"), parse("y*y")]
    assert envelope(p + q, domain).members == tuple(q)
    found = plan_le(p, q, domain)
    assert found.proved
    assert found.check()
    assert not plan_le(q, p, domain).proved


def test_order_that_changes_with_the_size_is_proved_in_parts() -> None:
    domain = Domain({"a": SymbolRange(1, 5000), "b": SymbolRange(1, 5000)})
    p, q = [parse("8000*a + a*b")], [parse("8001*a + 2*a*b - 10"), parse("9000*a")]
    found = plan_le(p, q, domain)
    assert found.proved
    assert found.check()
    assert found.certificates
    refuted = plan_le(q, p, domain)
    assert not refuted.proved
    assert refuted.witness is not None


def test_equal_plans_need_no_proof() -> None:
    p = [parse("a*b"), parse("a + b")]
    found = plan_le(p, p, FREE)
    assert found.proved
    assert found.check()
    assert found.tally.as_dict() == {"LE": {"equal": 2}}


def test_thousands_of_steps_reduce_to_a_few() -> None:
    rng = np.random.default_rng(0)
    n, h, w = (Expr.symbol(name) for name in "NHW")
    sizes = [n * ((h - 1) // 2**k + 1) * ((w - 1) // 2**k + 1) * 2 ** (8 - k) for k in range(4)]
    total, live, steps = ZERO, [], []
    for _ in range(1500):
        live.append(sizes[int(rng.integers(4))] * int(rng.integers(1, 64)))
        total = total + live[-1]
        steps.append(total)
        if len(live) > 6:
            total = total - live.pop(int(rng.integers(len(live))))
    found = envelope(PolyMatrix.from_exprs(steps), FREE)
    assert len(found.members) < 12
    shapes = FREE.samples(40, 5, ("N", "H", "W"))
    values = PolyMatrix.from_exprs(steps).evaluate(shapes).max(axis=0)
    assert [found.at(shape) for shape in shapes] == values.tolist()
    assert check(next(iter(found.certificates())))


@pytest.mark.parametrize("hash_seed", ["0", "7"])
def test_results_do_not_depend_on_hash_seeds(hash_seed: str) -> None:
    code = (
        "from onnx_symmem.expr.text import parse; from onnx_symmem.expr.domain import Domain;"
        "from onnx_symmem.expr.envelope import envelope, plan_le;"
        "from onnx_symmem.expr.decide import compare;"
        "d = Domain().with_inequality(parse('H*W - u')); e = [parse(t) for t in"
        " ('4*u*N + H', '3*N*((H + 1)//2)*W', 'max(N*H*W*4, u)', '5*(H//2)*(W//2)*N + 7*W')];"
        "f = envelope(e, d); print(f.member_rows, [c.proof for c in f.certificates()], f.tally,"
        " plan_le(e[:2], e[2:], d).witness, compare(e[0], e[1], d), d.samples(9))"
    )
    outputs = [
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        ).stdout
        for seed in ("3", hash_seed)
    ]
    assert outputs[0] == outputs[1]


def test_pair_intervals_and_weights() -> None:
    first, second = (
        np.array([[3.0, -1.0], [1.0, 1.0], [-1.0, -1.0]]),
        np.array([[-1.0, 3.0], [-5.0, 0.0], [-1.0, 2.0]]),
    )
    low, high, possible = pair_interval(first, second)
    assert possible.tolist() == [True, True, False]
    assert (low[0], high[0]) == (0.25, 0.75)
    assert simplest_between(0.25, 0.75) * 2 == 1
    assert integer_weights([1 / 3, 2 / 3]) == (1, 2)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.lists(st.integers(-9, 9), min_size=4, max_size=4), min_size=1, max_size=4))
def test_game_weights_find_a_combination_where_a_grid_finds_one(payoffs: list[list[int]]) -> None:
    table = np.array(payoffs, dtype=np.float64)
    weights = game_weights(table)
    if weights is not None:
        assert weights.sum() == pytest.approx(1)
        assert (weights @ (table / np.maximum(np.abs(table).max(axis=0), 1e-300))).min() >= -1e-6
        return
    rng = np.random.default_rng(0)
    mixes = rng.dirichlet(np.ones(len(table)), 200)
    assert not ((mixes @ table) >= 1e-6).all(axis=1).any()


def test_many_games_are_those_one_by_one() -> None:
    payoffs = np.random.default_rng(2).integers(-9, 9, (40, 3, 5)).astype(np.float64)
    together = games_weights(payoffs)
    for weights, game in zip(together, payoffs, strict=True):
        alone = game_weights(game)
        assert np.isnan(weights).all() if alone is None else np.allclose(alone, weights)
    assert games_weights(payoffs[:0]).shape == (0, 3)
    assert whole_weights(np.array([[0.25, 0.75], [np.nan, np.nan]]), 8).tolist() == [[2, 6], [0, 0]]


def test_values_of_games_are_what_the_best_mix_is_sure_of() -> None:
    known = np.array([[[1.0, -1.0], [-1.0, 1.0]], [[0.5, -0.5], [0.25, -1.0]], [[1.0, 0.5], [1.0, 1.0]]])
    assert game_values(known) == pytest.approx([0.0, -0.5, 1.0])
    games = np.random.default_rng(3).uniform(-1, 1, (30, 2, 7))
    shares = np.linspace(0, 1, 4001)
    grid = (shares[:, None, None] * games[:, 0] + (1 - shares)[:, None, None] * games[:, 1]).min(axis=2)
    assert game_values(games) == pytest.approx(grid.max(axis=0), abs=1e-3)
    assert game_values(games[:, :, :0]).tolist() == [-np.inf] * 30


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), max_size=12))
def test_every_interval_gets_a_weight_inside(ends: list[tuple[float, float]]) -> None:
    low = np.array([min(pair) for pair in ends])
    high = np.array([max(pair) for pair in ends])
    shared = shared_weights(low, high)
    assert sorted(i for _, met in shared for i in met.tolist()) == list(range(len(ends)))
    for weight, met in shared:
        for i in met:
            assert low[i] - 1e-6 <= weight <= high[i] + 1e-6
            assert 0 <= weight <= 1


def test_rows_on_a_segment_and_in_a_triangle() -> None:
    """As many layers make them: no single row is above another, most lie between the first and the last."""
    a, b, c = (Expr.symbol(name) for name in "abc")
    n = 400
    rows = [k * a + (n - k) * b for k in range(n + 1)]
    rows += [k * a + j * b + (n - k - j) * c for k in range(0, n, 20) for j in range(0, n - k, 20)]
    found = envelope(rows, FREE)
    assert set(found.members) == {n * a, n * b, n * c}
    assert len(found.drops) == len(found.matrix) - 3
    assert found.tally.as_dict()["LE"]["equal"] >= n - 1
    assert all(check(certificate) for certificate in found.certificates())


@pytest.mark.parametrize("large", [1 << 40, 1 << 62, 10**30])
def test_envelopes_of_huge_rows(large: int) -> None:
    rows = [
        parse("10*a") * large,
        parse("10*b") * large,
        parse("4*a + 4*b") * large,
        parse("a + 9*b") * large - 1,
    ]
    found = envelope(rows, FREE)
    assert found.member_rows == (0, 1)
    assert all(check(certificate) for certificate in found.certificates())
    order = plan_le(rows[2:], rows[:2], FREE)
    assert order.proved
    assert order.check()


def test_rows_beyond_float64_may_stay_but_none_is_lost() -> None:
    large = 10**310
    rows = [parse("10*a") * large, parse("10*b") * large, parse("a + 9*b") * large - 1, parse("a")]
    found = envelope(rows, FREE)
    assert {0, 1} <= set(found.member_rows) <= {0, 1, 2}
    assert all(check(certificate) for certificate in found.certificates())
    assert not plan_le(rows[:1], rows[1:], FREE).proved
    assert plan_le(rows[3:], rows[:1], FREE).check()


def test_rows_below_a_neighbour_are_left_out_first_and_no_row_because_of_itself() -> None:
    # Up, down, and round about: sums of the same sizes in another order.
    walk = ["0", "a", "a + b", "a*b + a + b", "a*b + b", "a*b + b + c", "b + c", "c", "c + 7*a"]
    found = envelope([parse(text) for text in walk], Domain())
    assert [str(m) for m in found.members] == ["a*b + a + b", "a*b + b + c", "7*a + c"]
    singles = {(d.low, d.members) for d in found.drops if len(d.members) == 1}
    assert {(0, (1,)), (1, (2,)), (2, (3,)), (4, (3,)), (6, (5,)), (7, (6,))} <= singles
    # Different rows that are equal at every shape: one of them stays.
    equal = [parse("max(a, b) + c"), parse("a + max(b - a, 0) + c"), parse("max(a, b) + c")]
    assert len(envelope(equal, Domain()).members) >= 1


def test_what_is_met_again_on_a_domain_is_the_same() -> None:
    rows = [parse(text) for text in ("a*b", "3*a + 5*b", "2*a + 2*b", "a*b - 1 + a", "9")]
    domain = Domain()
    first = envelope(rows, domain)
    for again in (envelope(rows, domain), envelope(rows, Domain())):
        assert (again.members, again.member_rows) == (first.members, first.member_rows)
        assert again.drops == first.drops
    turned = envelope(rows[::-1], domain)
    assert set(turned.members) == set(first.members)
    assert turned.member_rows != first.member_rows
