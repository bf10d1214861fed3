"""The largest size that fits: against trying every size."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnx_symmem.errors import DomainError
from onnx_symmem.expr.domain import Domain, SymbolRange
from onnx_symmem.expr.text import parse
from onnx_symmem.memory.capacity import Demand, largest_size


def demand(*texts: str, domain: Domain | None = None) -> Demand:
    return Demand(tuple(map(parse, texts)), domain or Domain())


def test_a_budget_between_two_sizes() -> None:
    found = largest_size(demand("4*batch*seq*seq + 100", "1000*batch"), "batch", {"seq": 16}, 1_000_000)
    assert found.size == 976
    assert found.needed == 4 * 976 * 256 + 100 <= 1_000_000
    assert found.next_size == 977
    assert found.next_needed == 4 * 977 * 256 + 100 > 1_000_000
    assert found.shape == {"batch": 976, "seq": 16}


def test_the_budget_itself_fits() -> None:
    assert largest_size(demand("8*n"), "n", {}, 800).size == 100
    assert largest_size(demand("8*n"), "n", {}, 799).size == 99


def test_nothing_fits() -> None:
    found = largest_size(demand("8*n + 1000"), "n", {}, 900)
    assert found.size is None
    assert (found.needed, found.next_size, found.next_needed) == (1008, 1, 1008)


def test_the_domain_ends_first() -> None:
    found = largest_size(demand("8*n", domain=Domain({"n": SymbolRange(1, 10)})), "n", {}, 10_000)
    assert (found.size, found.next_size, found.unlimited) == (10, None, False)


def test_what_does_not_grow_is_unlimited() -> None:
    assert largest_size(demand("8*m"), "n", {"m": 3}, 100).unlimited
    assert largest_size(demand("8*min(n, 12) - n%2 + 1"), "n", {}, 100).unlimited


def test_divisors_and_facts_are_kept() -> None:
    domain = Domain({"n": SymbolRange(1, None, 8)})
    found = largest_size(demand("10*n", domain=domain), "n", {}, 275)
    assert (found.size, found.next_size) == (24, 32)
    domain = Domain().with_inequality(parse("2*m - n"))
    found = largest_size(demand("10*n", domain=domain), "n", {"m": 9}, 10_000)
    assert (found.size, found.next_size) == (18, None)


def test_a_dim_that_follows_from_another() -> None:
    domain = Domain().with_equality("total", parse("past + seq"))
    found = largest_size(demand("10*total*seq", domain=domain), "seq", {"past": 5}, 1000)
    assert found.size == 7  # 10*12*7 = 840, 10*13*8 = 1040
    assert found.shape["total"] == 12
    with pytest.raises(DomainError, match="total = seq \\+ 5|total = past"):
        largest_size(demand("10*total*seq", domain=domain), "total", {"past": 5}, 1000)


def test_an_open_dim_is_an_error() -> None:
    with pytest.raises(DomainError, match="dim 'seq' is open"):
        largest_size(demand("4*batch*seq"), "batch", {}, 100)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                "7*n",
                "3*n*n",
                "40*(n//8)",
                "9*(n%4)*n",
                "100 - n",
                "5*n - 4*((n - 1)//4)",
                "max(30, n)*3",
                "2*n%5",
            ]
        ),
        min_size=1,
        max_size=3,
    ),
    st.integers(0, 600),
    st.integers(0, 3),
    st.sampled_from([None, 37, 64]),
    st.sampled_from([1, 3]),
)
def test_as_by_trying_every_size(
    texts: list[str], budget: int, lo: int, hi: int | None, divisor: int
) -> None:
    need = demand(*texts, "2*n", domain=Domain({"n": SymbolRange(lo, hi, divisor)}))
    legal = [n for n in range(lo, (hi or 400) + 1) if n % divisor == 0]
    fitting = [n for n in legal if need.at({"n": n}) <= budget]
    found = largest_size(need, "n", {}, budget)
    assert found.size == (max(fitting) if fitting else None)
    if found.size is not None and found.next_size is not None:
        assert found.needed <= budget < (found.next_needed or 0)
