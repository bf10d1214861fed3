"""Samples of odd domains: legal, many, near what was wanted; the dependent symbol is the one that moves."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnx_symmem.errors import DomainError
from onnx_symmem.expr.decide import compare
from onnx_symmem.expr.domain import Domain, SymbolRange
from onnx_symmem.expr.samples import legal_near
from onnx_symmem.expr.tally import Kind
from onnx_symmem.expr.text import parse
from tests.expr.strategies import domains, legal_points


def domain_of(
    facts: tuple[str, ...] = (), ties: tuple[str, ...] = (), **ranges: tuple[int, int | None]
) -> Domain:
    """Facts are >= 0, ties are equations."""
    domain = Domain({name: SymbolRange(*ends) for name, ends in ranges.items()})
    for tie in ties:
        left, right = tie.split(" = ")
        domain = domain.with_equal(parse(left), parse(right))
    for fact in facts:
        domain = domain.with_inequality(parse(fact))
    return domain


@pytest.mark.parametrize(
    ("domain", "wanted", "expected"),
    [
        # The symbol alone on its side is determined by the others, whatever its name is.
        (domain_of(("total - past - seq",)), {"past": 9, "seq": 4, "total": 5}, {"total": 13}),
        (domain_of(("all - past - seq",)), {"all": 5, "past": 9, "seq": 4}, {"all": 13}),
        # It cannot exceed its range: the others give way.
        (domain_of(("all - past - seq",), all=(1, 10)), {"all": 5, "past": 9, "seq": 4}, {"past": 1}),
        (domain_of(("H*W - u",), u=(0, None)), {"H": 3, "W": 5, "u": 99}, {"u": 15}),
        (domain_of(("b - a", "c - b", "d - c")), {"a": 9, "b": 7, "c": 5, "d": 3}, {"b": 9, "c": 9, "d": 9}),
        (domain_of(("a - b", "b - c", "c - d")), {"a": 3, "b": 5, "c": 7, "d": 9}, {"d": 3, "c": 3, "b": 3}),
        (domain_of(("2*b - a", "a - b"), b=(1, 30)), {"a": 90, "b": 7}, {"a": 60, "b": 30}),
        # Ties of floor divisions: the nearest size that keeps them.
        (domain_of(ties=("2*(h//4) = h//2",)), {"h": 14}, {"h": 13}),
        (domain_of(ties=("h//2 = w//3",)), {"h": 11, "w": 40}, {"w": 17}),
        (domain_of(ties=("(h + w)%8 = 0",)), {"h": 3, "w": 17}, {"w": 13}),
    ],
)
def test_one_symbol_moves_as_far_as_it_must(
    domain: Domain, wanted: dict[str, int], expected: dict[str, int]
) -> None:
    shape = legal_near(domain, wanted)
    assert shape is not None
    assert domain.contains(shape)
    assert {**wanted, **expected} == {name: shape[name] for name in wanted}


def test_a_legal_shape_stays() -> None:
    domain = domain_of(("H*W - u", "total - past - seq"), u=(0, None), past=(0, None))
    shape = {"H": 3, "W": 4, "past": 0, "seq": 5, "total": 5, "u": 12}
    assert legal_near(domain, shape) == shape


def test_fixed_symbols_do_not_move() -> None:
    domain = domain_of(("total - past - seq",))
    wanted = {"past": 9, "seq": 4, "total": 5}
    assert legal_near(domain, wanted, fixed=("total",)) == {"past": 1, "seq": 4, "total": 5}
    assert legal_near(domain, wanted, fixed=("past", "seq", "total")) is None
    assert legal_near(domain_of(past=(0, 4)), {"past": 9}, fixed=("past",)) is None


@pytest.mark.parametrize(
    ("domain", "least"),
    [
        (domain_of(ties=("h//2 = w//3",)), 48),
        (domain_of(ties=("B*S = H*W",)), 48),
        (domain_of(ties=("B*S = N",), N=(6, 6000)), 48),
        (domain_of(ties=("h%7 = 2",), h=(30, 900)), 24),
        (domain_of(("all - past - seq", "512 - all"), past=(0, None)), 48),
        (domain_of(("max(a, b) - 2*c", "c - 5")), 48),
        (domain_of(("x*x - 50*x + 600", "50*x - x*x - 576"), x=(1, 10**6)), 2),
    ],
)
def test_odd_domains_have_many_samples(domain: Domain, least: int) -> None:
    samples = domain.samples(64)
    assert len(samples) >= least
    assert len({tuple(sorted(shape.items())) for shape in samples}) == len(samples)
    assert all(domain.contains(shape) for shape in samples)
    for name in domain.symbols():
        assert len({shape[name] for shape in samples}) > 1


@settings(max_examples=200, deadline=None)
@given(domains(), st.fixed_dictionaries({name: st.integers(0, 40) for name in "abc"}))
def test_found_shapes_are_legal_and_legal_shapes_stay(domain: Domain, wanted: dict[str, int]) -> None:
    shape = legal_near(domain, wanted)
    assert shape is None or domain.contains(shape)
    for point in list(legal_points(domain, 3))[:20]:
        assert legal_near(domain, point) == point
    assert all(domain.contains(sample) for sample in domain.samples(12))


def test_nothing_is_found_where_nothing_is_legal() -> None:
    try:
        domain = domain_of(ties=("(2*h)%4 = 1",))
    except DomainError:
        return
    assert legal_near(domain, {"h": 3}) is None
    assert domain.samples(8) == ()


def test_witnesses_are_completed_to_legal_shapes() -> None:
    """Sizes that the claim does not speak of are made legal, too."""
    domain = domain_of(("k - a - 3", "k*k - m", "m - 5*a"), ties=("p%4 = a%4",))
    verdict = compare(parse("60*a"), parse("a*a + 899"), domain)
    assert verdict.kind is Kind.INCOMPARABLE
    for witness in verdict.witnesses:
        assert {"a", "k", "m", "p"} <= witness.keys()
        assert domain.contains(witness)


def test_symbols_that_the_domain_knows_make_no_other_samples() -> None:
    domain = Domain({"a": SymbolRange(1, 9)}).with_inequality(parse("a*b - c"))
    found = domain.samples(40)
    assert domain.samples(40, 0, ("a",)) is found  # not drawn again
    assert domain.samples(40, 0, ("c", "b")) is found
    other = domain.samples(40, 0, ("b", "d"))
    assert {frozenset(shape) for shape in other} == {frozenset("abcd")}
    assert domain.samples(40, 0, ("d",)) is other


EXPERTS = domain_of(("2*t - a - b - c", "t - a", "t - b", "t - c"), a=(0, None), b=(0, None), c=(0, None))


def test_where_no_symbol_suffices_several_give_way() -> None:
    wanted = {"t": 5, "a": 100, "b": 100, "c": 100}
    assert legal_near(EXPERTS, wanted, fixed=("t",)) == {"t": 5, "a": 5, "b": 5, "c": 0}
    assert (
        legal_near(domain_of(("a + b - t",), a=(0, 3), b=(0, 3)), {"t": 7, "a": 0, "b": 0}, fixed=("t",))
        is None
    )


def test_what_is_shared_is_shared_in_many_ways() -> None:
    """Of a total that is a product, sizes drawn by themselves would be next to nothing."""
    facts = ("2*n*t - a - b - c", "n*t - a", "n*t - b", "n*t - c")
    domain = domain_of(facts, a=(0, None), b=(0, None), c=(0, None))
    large = [shape for shape in domain.samples(96) if shape["n"] * shape["t"] > 10_000]
    found = [tuple(shape[x] / (shape["n"] * shape["t"]) for x in "abc") for shape in large]
    assert any(sum(shares) > 1.95 for shares in found)
    assert any(max(shares) < 0.9 and sum(shares) > 1.5 for shares in found)
    assert any(max(shares) > 0.99 and min(shares) < 0.01 and sum(shares) > 1.3 for shares in found)
