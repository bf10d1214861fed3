"""Dominances by a few members, each with a certificate, where the table of all monomials does not do."""

from __future__ import annotations

import numpy as np
import pytest

from onnx_symmem.expr.certificate import check
from onnx_symmem.expr.domain import Domain, SymbolRange
from onnx_symmem.expr.dominance import solved_matrix
from onnx_symmem.expr.dominators import Dominators
from onnx_symmem.expr.envelope import plan_le
from onnx_symmem.expr.matrix import PolyMatrix
from onnx_symmem.expr.parts import Part
from onnx_symmem.expr.text import parse

ONE = np.zeros(1, dtype=np.intp)


def test_what_one_table_refutes_of_a_pair_another_may_prove() -> None:
    domain = Domain().with_inequality(parse("v - u"))
    matrix = solved_matrix([parse("u + w"), parse("2*v"), parse("2*w")], domain)
    (found,) = Dominators(matrix, domain).by_pair(ONE, (1, 2))
    assert (found.members, found.weights, found.tier) == ((1, 2), (1, 1), "linked")
    assert check(found.certificate(matrix, domain))


@pytest.fixture(scope="module")
def crowded() -> tuple[PolyMatrix, Domain]:
    """7*y + 7*z below a pair, beside so many bounded symbols that the end of z is in no table of them all."""
    names = [f"s{k}" for k in range(14)]
    domain = Domain({**dict.fromkeys(names, SymbolRange(0, 5)), "z": SymbolRange(0, 10)})
    rows = ["7*y + 7*z", " + ".join(names), "140", "14*y", "100", "200 + 7*y"]
    return solved_matrix([parse(row) for row in rows], domain), domain


def test_a_pair_is_proved_over_its_own_monomials(crowded: tuple[PolyMatrix, Domain]) -> None:
    matrix, domain = crowded
    search = Dominators(matrix, domain)
    assert search.by_pair(ONE, (2, 3)) == [] == search.by_many(ONE, (1, 2, 3))
    (found,), spent = search.by_few([0], (1, 2, 3), 1)
    assert (found.low, found.members, found.weights) == (0, (2, 3), (1, 1))
    assert found.alone
    assert spent > 1
    assert check(found.certificate(matrix, domain))
    assert search.by_few([0], (1, 2, 3), 0) == ([], 0)
    assert search.by_few([0], (1, 3, 4), 10**9)[0] == []  # 100 is not enough


def test_a_member_that_suffices_is_tried_alone(crowded: tuple[PolyMatrix, Domain]) -> None:
    matrix, domain = crowded
    search = Dominators(matrix, domain)
    assert search.by_one(ONE, 5) == []
    (found,), _ = search.by_few([0], (1, 2, 3, 5), 10**9)
    assert (found.members, found.weights, found.tier) == ((5,), (1,), "shift")
    assert check(found.certificate(matrix, domain))


def test_an_order_of_maxima_by_few_members_needs_no_cut(crowded: tuple[PolyMatrix, Domain]) -> None:
    matrix, domain = crowded
    found = plan_le([matrix.row(0)], [matrix.row(k) for k in (1, 2, 3)], domain)
    assert found.proved
    assert isinstance(found.proof, Part)
    assert [dominance.alone for dominance in found.proof.dominances] == [True]
    assert found.check()
    assert len(found.certificates) == 1
    assert check(found.certificates[0])
