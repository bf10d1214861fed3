"""The order of two maxima by parts: peaks of real plans, and proofs that do not survive a change."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from onnx_symmem.expr import partition
from onnx_symmem.expr.domain import Domain, SymbolRange
from onnx_symmem.expr.dominance import Dominance
from onnx_symmem.expr.envelope import plan_le
from onnx_symmem.expr.expression import Expr
from onnx_symmem.expr.parts import Halves, Part, dominances_of, parts_of
from onnx_symmem.expr.plan_order import PlanOrder
from onnx_symmem.expr.text import parse

DATA = Path(__file__).parent / "data"
PLANS = sorted(path.stem for path in DATA.glob("*.txt"))
P, Q = [parse("a*b + 90")], [parse("a*b + a + b - 9"), parse("5000")]


def read(name: str) -> tuple[list[Expr], list[Expr], Domain, bool]:
    """(members of the new plan, members of the old one, domain, whether the new one is never worse)."""
    ranges: dict[str, SymbolRange] = {}
    exprs: dict[str, list[Expr]] = {"low": [], "high": [], "fact": []}
    outcome = ""
    for line in (DATA / f"{name}.txt").read_text().splitlines():
        word, _, rest = line.partition(" ")
        if word == "range":
            symbol, lo, hi, divisor = rest.split()
            ranges[symbol] = SymbolRange(int(lo), None if hi == "-" else int(hi), int(divisor))
        elif word in exprs:
            exprs[word].append(parse(rest))
        elif word in ("proved", "refuted"):
            outcome = word
        else:
            assert word == "#", line
    assert outcome
    return exprs["low"], exprs["high"], Domain(ranges, {}, tuple(exprs["fact"])), outcome == "proved"


@pytest.mark.parametrize("name", PLANS)
def test_peaks_of_real_plans_are_settled(name: str) -> None:
    low, high, domain, holds = read(name)
    found = plan_le(low, high, domain)
    assert found.proved is holds
    if holds:
        assert len(list(parts_of(found.proof))) > 1
        assert found.check()
    else:
        assert found.witness is not None
        assert domain.contains(found.witness)
        lows, highs = ([e.evaluate(found.witness) for e in side] for side in (low, high))
        assert max(lows) > max(highs)


def test_a_constant_covers_the_small_sizes_of_unbounded_symbols() -> None:
    found = plan_le(P, Q, Domain())
    assert found.proved
    assert found.check()
    assert len(found.certificates) == len(list(dominances_of(found.proof))) > 1


def test_what_holds_before_a_cut_is_not_proved_again() -> None:
    found = plan_le([*P, parse("4000")], Q, Domain())
    assert found.check()
    assert isinstance(found.proof, Halves)
    constant = [found.matrix.row(d.low) for d in found.proof.dominances]
    assert constant == [parse("4000")]
    below = [found.matrix.row(d.low) for part in parts_of(found.proof) for d in part.dominances]
    assert parse("4000") not in below


def test_a_proof_with_a_piece_missing_or_moved_does_not_hold() -> None:
    found = plan_le(P, Q, Domain())
    proof = found.proof
    assert isinstance(proof, Halves)
    part = next(parts_of(proof))

    def with_part(at: Part | Halves, new: Part) -> Part | Halves:
        if isinstance(at, Part):
            return new if at is part else at
        return replace(at, below=with_part(at.below, new), above=with_part(at.above, new))

    for changed in (
        replace(proof, at=proof.at + 1),
        replace(proof, above=proof.below),
        with_part(proof, replace(part, dominances=())),
        with_part(proof, replace(part, domain=Domain())),
        with_part(proof, replace(part, dominances=(), by_points=True)),
        Part(Domain(), (), by_points=True),
        replace(part, domain=Domain()),
    ):
        assert not replace(found, proof=changed).check()


EXPERTS = Domain(
    {name: SymbolRange(0, None) for name in "abc"},
    {},
    tuple(map(parse, ("2*t - a - b - c", "t - a", "t - b", "t - c"))),
)


def test_what_is_shared_proves_what_no_bound_of_one_symbol_can() -> None:
    low, high = [parse("3*a + 3*b + 3*c"), parse("3*a + b + c + t")], [parse("6*t"), parse("5*t + a")]
    found = plan_le(low, high, EXPERTS)
    assert found.check()
    assert any(d.spent for _, d in dominances_of_all(found))
    apart = Domain(EXPERTS.ranges, {}, EXPERTS.inequalities[:3])
    assert plan_le(low, high, apart).witness is not None


def dominances_of_all(found: PlanOrder) -> list[tuple[Part | Halves, Dominance]]:
    assert found.proof is not None
    return [(part, d) for part in parts_of(found.proof) for d in part.dominances]


def test_only_facts_of_the_domain_may_be_spent() -> None:
    found = plan_le([parse("3*a + 3*b + 3*c")], [parse("6*t")], EXPERTS)
    whole = found.proof
    assert isinstance(whole, Part)
    (dominance,) = whole.dominances
    ((fact, times),) = [(f, n) for f, n in dominance.spent if len(f.symbols()) > 2]

    def holds(**changes: Any) -> bool:
        part = replace(whole, dominances=(replace(dominance, **changes),))
        return replace(found, proof=part).check()

    assert holds()
    assert holds(spent=())  # the prover finds out by itself
    assert not holds(spent=((fact, -times),))
    assert not holds(spent=((parse("5*t - 3*a - 3*b - 3*c"), times),))  # not known of the domain
    assert not holds(spent=((fact - 1, times),))
    # What is not known would prove what does not hold.
    wrong = plan_le([parse("3*a + 3*b + 3*c")], [parse("5*t")], EXPERTS)
    assert wrong.witness is not None
    made_up = Dominance(
        wrong.lows[0], wrong.highs, (1,), "shared", spent=((parse("5*t - 3*a - 3*b - 3*c"), 1),)
    )
    assert not replace(wrong, proof=Part(EXPERTS, (made_up,))).check()


def test_a_cut_leaves_legal_shapes_on_both_sides() -> None:
    domain = Domain({"a": SymbolRange(1, None), "b": SymbolRange(1, None, 8)}, {}, (parse("b - 7*a - 100"),))
    found = plan_le([parse("a*b + 900")], [parse("a*b + 2*a + b"), parse("100000")], domain)
    assert found.proved
    assert found.check()


def test_a_search_ends_when_its_work_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    found = plan_le(P, Q, Domain())
    assert found.proved
    assert not found.exhausted
    monkeypatch.setattr(partition, "_WORK", 100_000)
    short = plan_le(P, Q, Domain())
    assert not short.proved
    assert short.witness is None
    assert short.exhausted
    # What samples refute is no matter of work.
    refuted = plan_le([parse("a*b + 5001")], Q, Domain())
    assert refuted.witness is not None
    assert not refuted.exhausted
