"""Verdicts against brute force, the tiers that reach them, and their certificates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnx_symmem.errors import DomainError, ExpressionError
from onnx_symmem.expr import prover, region
from onnx_symmem.expr.certificate import check
from onnx_symmem.expr.decide import Verdict, _row_of, _verdicts, compare, compare_rows, relations
from onnx_symmem.expr.domain import Domain, SymbolRange
from onnx_symmem.expr.expression import Expr
from onnx_symmem.expr.matrix import PolyMatrix
from onnx_symmem.expr.tally import Kind, Tally
from onnx_symmem.expr.text import parse
from tests.expr.strategies import domains, expressions, legal_points, polynomials

EXPERTS = Domain(
    {n: SymbolRange(0) for n in "abc"}, {}, tuple(map(parse, ("2*t - a - b - c", "t - a", "t - b", "t - c")))
)
FREE = Domain()


def agrees(a: Expr, b: Expr, domain: Domain, verdict: Verdict, others: Sequence[Expr] = ()) -> None:
    """Fail unless the verdict is right at every legal point of a small box and its proof re-checks.

    Points at which a size that is divided by is zero, in `others` too, count as no shapes.
    """
    signs = set()
    for shape in legal_points(domain, 6):
        try:
            difference = b.evaluate(shape) - a.evaluate(shape)
            _ = [other.evaluate(shape) for other in others]
        except ExpressionError:  # a divisor is zero there
            continue
        signs.add((difference > 0) - (difference < 0))
    if verdict.kind is Kind.LE:
        assert -1 not in signs
    elif verdict.kind is Kind.GE:
        assert 1 not in signs
    elif verdict.kind is Kind.EQ:
        assert signs <= {0}
    elif verdict.kind is Kind.INCOMPARABLE:
        less, more = verdict.witnesses
        assert domain.contains(less)
        assert domain.contains(more)
        assert (b - a).evaluate(less) > 0
        assert (b - a).evaluate(more) < 0
    assert len(verdict.certificates) == {Kind.LE: 1, Kind.GE: 1, Kind.EQ: 2}.get(verdict.kind, 0)
    assert all(check(certificate) for certificate in verdict.certificates)


def _digits(large: int) -> str:
    return f"{large.bit_length()} bits"


@settings(max_examples=150, deadline=None)
@given(polynomials(), polynomials(), domains(facts=False))
def test_polynomials_of_mixed_signs(a: Expr, b: Expr, domain: Domain) -> None:
    agrees(a, b, domain, compare(a, b, domain))


@settings(max_examples=120, deadline=None)
@given(polynomials(), polynomials(), domains(facts=False, bounded=True))
def test_small_boxes_are_decided(a: Expr, b: Expr, domain: Domain) -> None:
    verdict = compare(a, b, domain)
    agrees(a, b, domain, verdict)
    assert verdict.kind is not Kind.UNKNOWN


@settings(max_examples=120, deadline=None)
@given(expressions(floors_only=True), expressions(floors_only=True), domains())
def test_floor_divisions(a: Expr, b: Expr, domain: Domain) -> None:
    agrees(a, b, domain, compare(a, b, domain))


@settings(max_examples=120, deadline=None)
@given(expressions(), expressions(), domains())
def test_every_kind_of_atom_and_fact(a: Expr, b: Expr, domain: Domain) -> None:
    agrees(a, b, domain, compare(a, b, domain))


@settings(max_examples=60, deadline=None)
@given(polynomials(3), st.integers(0, 40), domains(facts=False, bounded=False))
def test_squares_are_not_negative(root: Expr, gap: int, domain: Domain) -> None:
    verdict = compare(0, root * root + gap, domain)
    assert verdict.kind in (Kind.LE, Kind.EQ, Kind.UNKNOWN)
    agrees(Expr.const(0), root * root + gap, domain, verdict)


@pytest.mark.parametrize(
    ("a", "b", "domain", "kind", "tier"),
    [
        ("a + b", "b + a", FREE, Kind.EQ, "equal"),
        ("a*b", "2*a*b", FREE, Kind.LE, "shift"),
        ("-5*a", "-10", FREE, Kind.INCOMPARABLE, "samples"),
        ("-10*a", "-5*a", FREE, Kind.LE, "shift"),
        ("3*a**2 + 1", "a**3 + 4", FREE, Kind.INCOMPARABLE, "samples"),
        ("2*a*b", "a**2 + b**2", FREE, Kind.LE, "sectors"),
        ("2*a*b", "a**2 + b**2", Domain({"b": SymbolRange(64)}), Kind.LE, "sectors"),
        ("a*b*c", "a**3 + b**3 + c**3", FREE, Kind.LE, "sectors"),
        ("0", "b*(a**2 - 10*a + 26)", FREE, Kind.LE, "boxes"),
        ("a + b + c", "2*t", EXPERTS, Kind.LE, "shared"),
        ("3*a + 3*b", "6*t - 3*c", EXPERTS, Kind.LE, "shared"),
        ("3*a + b + c", "4*t", EXPERTS, Kind.LE, "shared"),
        ("0", "a**2 - 11*a + 29", FREE, Kind.INCOMPARABLE, "samples"),
        ("x*y", "x**2 + y**2", Domain({n: SymbolRange(1, 6000) for n in "xy"}), Kind.LE, "boxes"),
        ("x*y", "35", Domain({"x": SymbolRange(1, 5), "y": SymbolRange(1, 7)}), Kind.LE, "shift"),
        (
            "5*x*y",
            "x**2*y + 6*y",
            Domain({"x": SymbolRange(1, 5), "y": SymbolRange(1, 7)}),
            Kind.LE,
            "points",
        ),
        ("4096*(S//2)", "2000*S", FREE, Kind.INCOMPARABLE, "samples"),
        ("2000*S", "4096*(S//2)", Domain({"S": SymbolRange(64)}), Kind.LE, "linked"),
        ("64*S", "2048*((S + 31)//32)", FREE, Kind.LE, "linked"),
        ("S//2 + (S + 1)//2", "S", FREE, Kind.EQ, "residues"),
        ("2*(S//2)", "S", Domain({"S": SymbolRange(2, None, 2)}), Kind.EQ, "shift"),
        ("max(a, b) + min(a, b)", "a + b", FREE, Kind.EQ, "linked"),
        ("a*b", "max(a, b)**2", FREE, Kind.LE, "linked"),
        ("max(a//2, 3)", "a + 2", FREE, Kind.LE, "linked"),
        ("2*floor_f32(H, 0.3)", "H", FREE, Kind.LE, "linked"),
        ("H*W", "1024*((H + 31)//32)*((W + 31)//32)", FREE, Kind.LE, "linked"),
    ],
)
def test_tiers(a: str, b: str, domain: Domain, kind: Kind, tier: str) -> None:
    verdict = compare(parse(a), parse(b), domain)
    assert (verdict.kind, verdict.tier) == (kind, tier)
    assert all(check(certificate) for certificate in verdict.certificates)


def test_the_paper_example() -> None:
    """A reshape says S0 = 12*S1: 4096*S0 = 49152*S1 bytes are more than 10996*S1 at every shape."""
    domain = Domain().with_equality("S0", parse("12*S1"))
    broadcast, dot = parse("4096*S0"), parse("10996*S1")
    assert domain.solved(broadcast) == parse("49152*S1")
    verdict = compare(broadcast, dot, domain)
    assert verdict.kind is Kind.GE
    assert verdict.certificate is not None
    assert check(verdict.certificate)
    assert compare(broadcast, dot, FREE).kind is Kind.INCOMPARABLE


def test_facts_decide() -> None:
    cache = Domain({"past": SymbolRange(0)}).with_inequality(parse("total - past"))
    assert compare(parse("past*B"), parse("total*B"), cache).kind is Kind.LE
    assert compare(parse("past**2"), parse("total*past"), cache).kind is Kind.LE
    assert compare(parse("(past + 7)//8"), parse("(total + 7)//8"), cache).kind is Kind.LE
    assert compare(parse("past*B"), parse("total*B"), FREE).kind is Kind.INCOMPARABLE
    nonzero = Domain({"u": SymbolRange(0)}).with_inequality(parse("H*W - u"))
    assert compare(parse("u**2"), parse("H*W*u"), nonzero).kind is Kind.LE
    assert compare(parse("2*u"), parse("H*W + 7"), nonzero).kind is Kind.INCOMPARABLE


SCALED = "floor_f32(w, 1/max(w, h), 320)"


@pytest.mark.parametrize(
    ("low", "high", "tier"),
    [
        ("7", f"7*{SCALED}", "shift"),
        ("7", f"7*(({SCALED} + 31)//32)", "shift"),
        ("u", f"min(v, 50)*(({SCALED} + 31)//32)", "linked"),  # together with another fact
    ],
)
def test_what_a_fact_tells_of_a_scaled_size_is_known_of_what_it_is_in(low: str, high: str, tier: str) -> None:
    untold = Domain().with_inequality(parse("min(v, 50) - u"))
    domain = untold.with_inequality(parse(f"{SCALED} - 1"))
    a, b = parse(low), parse(high)
    found = compare(a, b, domain)
    assert (found.kind, found.tier) == (Kind.LE, tier)
    (certificate,) = found.certificates
    assert check(certificate)
    assert not check(replace(certificate, domain=untold))
    assert b.evaluate({"w": 1, "h": 1_000, "u": 1, "v": 1}) == 0  # that shape is not legal


def test_beyond_1024_classes_answers_stay_right() -> None:
    a, b = parse("a//37 + b//41 + c//43"), parse("a + b + c")
    assert compare(a, b, FREE).kind is Kind.LE
    assert compare(37 * 41 * 43 * a, 37 * b, FREE).kind in (Kind.UNKNOWN, Kind.INCOMPARABLE)


@settings(max_examples=40, deadline=None)
@given(st.lists(expressions(max_terms=2), min_size=2, max_size=4), domains())
def test_many_rows_at_once_agree_with_brute_force(exprs: list[Expr], domain: Domain) -> None:
    pairs = [(i, j) for i in range(len(exprs)) for j in range(i)]
    verdicts = compare_rows(PolyMatrix.from_exprs(exprs), pairs, domain)
    for (i, j), verdict in zip(pairs, verdicts, strict=True):
        agrees(exprs[i], exprs[j], domain, verdict, exprs)


def test_a_shallow_comparison_leaves_out_the_search() -> None:
    assert compare(parse("2*a*b"), parse("a**2 + b**2"), FREE, deep=False).kind is Kind.UNKNOWN
    assert compare_rows(PolyMatrix.from_exprs([]), [], FREE) == []


def test_tallies_add_up() -> None:
    one = Tally.of([(Kind.LE, "shift"), (Kind.LE, "shift"), (Kind.EQ, "equal")])
    both = one + Tally.of([(Kind.LE, "residues")])
    assert both.total == 4
    assert both.as_dict() == {"EQ": {"equal": 1}, "LE": {"residues": 1, "shift": 2}}
    assert both.by_kind() == {"EQ": 1, "LE": 3}
    assert both.by_tier() == {"equal": 1, "residues": 1, "shift": 2}


def test_what_took_the_prover_is_kept_with_the_domain() -> None:
    a, b, domain = parse("2*a*b"), parse("a**2 + b**2"), Domain()
    shallow, deep = compare(a, b, domain, deep=False), compare(a, b, domain)
    assert (shallow.kind, deep.kind, deep.tier) == (Kind.UNKNOWN, Kind.LE, "sectors")
    assert compare(a, b, domain) is deep
    assert compare(a, b, domain, deep=False) is shallow
    assert compare(b, a, domain).kind is Kind.GE
    narrow = compare(a, b, Domain({"a": SymbolRange(1, 3), "b": SymbolRange(1, 3)}))
    assert (narrow.kind, narrow.tier) == (Kind.LE, "points")
    for verdict in (deep, compare(b, a, domain)):
        (found,) = verdict.certificates
        assert check(found)
        assert (found.low, found.high) == (a, b)


def generally(a: Expr, b: Expr, domain: Domain) -> Verdict:
    """The verdict without the screen."""
    prover, row = _row_of(a, b, domain)
    return _verdicts(prover, row.reshape(1, -1), [lambda: (a, b)], True)[0]


@settings(max_examples=250, deadline=None)
@given(expressions(floors_only=True) | polynomials(), expressions(floors_only=True), domains())
def test_the_screen_answers_as_the_prover_does(a: Expr, b: Expr, domain: Domain) -> None:
    quick, slow = compare(a, b, domain), generally(a, b, domain)
    assert (quick.kind, quick.tier) == (slow.kind, slow.tier)
    assert all(check(certificate) for certificate in quick.certificates)


def test_tables_of_the_screen_that_are_made_again_answer_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"{k}*B*((S + {k})//{d}) + {d}*B*(S//{k})" for k in (2, 3, 5) for d in (4, 6, 7)]
    pairs = [(parse(a), parse(b)) for a in texts for b in [*texts, "4*S*B", "B*S*S + 9"]]
    first = [compare(a, b, Domain()) for a, b in pairs]
    monkeypatch.setattr(region, "_KEPT_NUMBERS", 1)
    small, domain = [], Domain()
    for a, b in pairs:
        small.append(compare(a, b, domain))
    assert [(v.kind, v.tier) for v in small] == [(v.kind, v.tier) for v in first]
    assert {"linked", "residues"} <= {v.tier for v in first}


def test_the_screen_does_not_depend_on_what_was_asked_before() -> None:
    texts = ("64*S*B", "2048*B*((S + 31)//32)", "3*B*(S//2) + 5", "4*B*S", "B*B*S", "4*((S + 1)//2)*B")
    exprs = [parse(text) for text in texts]
    used = Domain({"B": SymbolRange(1, 64)})
    first = [compare(a, b, used) for a in exprs for b in exprs]
    fresh = [compare(a, b, Domain({"B": SymbolRange(1, 64)})) for a in exprs for b in reversed(exprs)]
    n = len(exprs)
    fresh = [fresh[i * n + (n - 1 - j)] for i in range(n) for j in range(n)]
    assert [(v.kind, v.tier, v.witnesses) for v in first] == [(v.kind, v.tier, v.witnesses) for v in fresh]


@settings(max_examples=60, deadline=None)
@given(st.integers(-9000, 9000), st.integers(-9000, 9000), st.integers(-40_000, 40_000), st.integers(1, 40))
def test_a_floor_against_its_operand_at_every_size(c: int, d: int, gap: int, low: int) -> None:
    """S0 = floor(S1/2), which no ratio expresses: the verdict is the truth at every S1 up to 4096."""
    domain = Domain({"S1": SymbolRange(low, 4096), "S0": SymbolRange(0)}).with_equality("S0", parse("S1//2"))
    a, b = c * Expr.symbol("S0"), d * Expr.symbol("S1") + gap
    signs = {(x > y) - (x < y) for s in range(low, 4097) for x, y in [(d * s + gap, c * (s // 2))]}
    kinds = {(0,): Kind.EQ, (1,): Kind.LE, (0, 1): Kind.LE, (-1,): Kind.GE, (-1, 0): Kind.GE}
    verdict = compare(a, b, domain)
    assert verdict.kind is kinds.get(tuple(sorted(signs)), Kind.INCOMPARABLE)
    assert all(check(certificate) for certificate in verdict.certificates)


TIES = [("a*b", "2*c"), ("a*a", "b*c"), ("a//2", "b//3"), ("(a + b)%4", "0"), ("3*a + 2*b", "c + 5")]


@settings(max_examples=80, deadline=None)
@given(
    expressions(max_terms=2),
    expressions(floors_only=True, max_terms=2),
    st.sampled_from(TIES),
    domains(facts=False),
)
def test_ties_of_products_and_floors(a: Expr, b: Expr, tie: tuple[str, str], domain: Domain) -> None:
    try:
        tied = domain.with_equal(parse(tie[0]), parse(tie[1]))
    except DomainError:  # the ranges leave nothing
        return
    agrees(a, b, tied, compare(a, b, tied))


@pytest.mark.parametrize("large", [(1 << 62) - 1, 1 << 63, 10**40, 10**310], ids=_digits)
def test_numbers_beyond_int64(large: int) -> None:
    a, b = parse("a*b"), parse("(a + 1)//2*b")
    assert compare(large * a, (large + 1) * a, FREE).kind is Kind.LE
    assert compare(large * b, large * a, FREE).kind is Kind.LE
    assert compare(-large * a, large * b, FREE).kind is Kind.LE
    verdict = compare(large * a, 3 * a * a + large * large, FREE)
    assert verdict.kind in (Kind.INCOMPARABLE, Kind.UNKNOWN)
    agrees(large * a, 3 * a * a + large * large, FREE, verdict)
    matrix = PolyMatrix.from_exprs([large * a, large * b, a])
    found = compare_rows(matrix, [(0, 1), (0, 2), (2, 0)], FREE)
    assert [v.kind for v in found] == [Kind.GE, Kind.GE, Kind.LE]


@pytest.mark.parametrize("large", [1 << 62, 1 << 63, 1 << 64, 10**40, 10**310], ids=_digits)
def test_ranges_beyond_int64_and_float64(large: int) -> None:
    domain = Domain({"a": SymbolRange(3, large), "b": SymbolRange(1, large, 8)})
    claims = [("a//2*4", "2*a"), ("(a + b)//3", "a + b"), ("2*a", "a*a"), ("a*b*b", "(a*b)**2 + b")]
    for low, high in claims:
        verdict = compare(parse(low), parse(high), domain)
        assert verdict.kind is Kind.LE, low
        assert verdict.certificate is not None
        assert check(verdict.certificate)
    for left, right in ((parse("a"), parse("b")), (parse("a*b"), Expr.const(large))):
        verdict = compare(left, right, domain)
        assert verdict.kind is Kind.INCOMPARABLE
        less, more = verdict.witnesses
        assert domain.contains(less)
        assert domain.contains(more)
        assert left.evaluate(less) < right.evaluate(less)
        assert left.evaluate(more) > right.evaluate(more)
    rows = PolyMatrix.from_exprs([parse("a*b - b"), parse("b - a*b"), parse("a - b"), parse(f"a - {large}")])
    found = relations(rows.rows, rows.basis, domain).listed()
    assert [kind for kind, _ in found] == [Kind.LE, Kind.GE, Kind.INCOMPARABLE, Kind.GE]


def test_where_no_shape_is_legal_anything_holds() -> None:
    nowhere = Domain({"a": SymbolRange(2, 8, 2)}).with_inequality(parse("a%2 - 1"))
    verdict = compare(parse("5*a"), parse("a"), nowhere)
    assert verdict.kind in (Kind.LE, Kind.EQ, Kind.UNKNOWN)
    assert all(check(certificate) for certificate in verdict.certificates)
    assert nowhere.samples(8) == ()


def test_a_divisor_of_one_row_takes_no_point_from_others() -> None:
    domain = Domain({n: SymbolRange(0, 3) for n in "ab"})
    rows = [parse("0"), parse("1"), parse("b"), parse("a // b")]
    pairs = [(i, j) for i in range(len(rows)) for j in range(i)]
    verdicts = dict(zip(pairs, compare_rows(PolyMatrix.from_exprs(rows), pairs, domain), strict=True))
    assert all(check(c) for verdict in verdicts.values() for c in verdict.certificates)
    # At b = 0 nothing is divided by here.
    assert verdicts[2, 1].kind is Kind.INCOMPARABLE
    assert verdicts[1, 0].kind is Kind.GE


def test_rows_are_compared_where_another_exists_nowhere() -> None:
    ranges = {"a": SymbolRange(0), "b": SymbolRange(0), "c": SymbolRange(0, 0)}
    domain = Domain(ranges, equalities={"c": parse("3*a")}, inequalities=(parse("a - b"),))
    rows = [parse("0"), parse("1"), parse("a // b")]
    pairs = [(i, j) for i in range(len(rows)) for j in range(i)]
    for (i, j), verdict in zip(pairs, compare_rows(PolyMatrix.from_exprs(rows), pairs, domain), strict=True):
        agrees(rows[i], rows[j], domain, verdict, rows)


def test_a_search_of_boxes_ends_at_its_coefficients(monkeypatch: pytest.MonkeyPatch) -> None:
    low, high = parse("0"), parse("b*(a**2 - 10*a + 26)")
    assert compare(low, high, Domain()).tier == "boxes"
    monkeypatch.setattr(prover, "_ROOT_COEFFICIENTS", -prover._BOX_COEFFICIENTS)
    assert compare(low, high, Domain()).kind is Kind.UNKNOWN
