"""Random expressions and domains over the symbols a, b, c, and all legal points of a small box."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from hypothesis import strategies as st

from onnx_symmem.errors import DomainError
from onnx_symmem.expr.domain import Domain, SymbolRange
from onnx_symmem.expr.expression import Expr, maximum, minimum, scaled_floor

NAMES = ("a", "b", "c")
SYMBOLS = st.sampled_from([Expr.symbol(name) for name in NAMES])
SMALL = st.integers(-6, 6)


def polynomials(max_terms: int = 4) -> st.SearchStrategy[Expr]:
    """Integer polynomials of mixed signs, degree at most 3."""
    term = st.builds(
        lambda c, factors: c * _product(factors), SMALL, st.lists(SYMBOLS, min_size=0, max_size=3)
    )
    return st.lists(term, min_size=1, max_size=max_terms).map(lambda terms: sum(terms, Expr.const(0)))


def _product(factors: list[Expr]) -> Expr:
    result = Expr.const(1)
    for factor in factors:
        result = result * factor
    return result


def _affine() -> st.SearchStrategy[Expr]:
    return st.builds(lambda s, k, c: k * s + c, SYMBOLS, st.integers(1, 3), st.integers(-3, 8))


def atoms(floors_only: bool = False) -> st.SearchStrategy[Expr]:
    """Symbols, floor divisions (nested, of sums, by symbols), max, min, and float32 floors."""
    divisor = st.integers(2, 4)
    floor = st.builds(lambda e, d: e // d, _affine(), divisor)
    nested = st.builds(lambda e, k, d: (k * e + 1) // d, floor, st.integers(1, 3), divisor)
    two = st.builds(lambda e, f, d: (e + f) // d, _affine(), _affine(), divisor)
    if floors_only:
        return st.one_of(SYMBOLS, floor, nested, two)
    extremum = st.builds(
        lambda f, x, y: f(x, y), st.sampled_from([maximum, minimum]), _affine(), floor | _affine()
    )
    return st.one_of(
        SYMBOLS,
        floor,
        nested,
        two,
        extremum,
        st.builds(lambda e, s: e // s, _affine(), SYMBOLS),
        st.builds(lambda e, d: e // d, extremum, divisor),
        st.builds(scaled_floor, SYMBOLS, st.sampled_from([0.3, 1.5, 0.7])),
        st.builds(
            lambda x, q, c: scaled_floor(x, c, (1, q)), SYMBOLS, SYMBOLS | extremum, st.sampled_from([5, 20])
        ),
        st.builds(lambda x, p, q: scaled_floor(x, (p, q)), SYMBOLS, SYMBOLS | _affine(), SYMBOLS),
    )


def expressions(floors_only: bool = False, max_terms: int = 3) -> st.SearchStrategy[Expr]:
    """Polynomials over `atoms`, of mixed signs, degree at most 2."""
    factor = atoms(floors_only)
    term = st.builds(lambda c, fs: c * _product(fs), SMALL, st.lists(factor, min_size=0, max_size=2))
    return st.lists(term, min_size=1, max_size=max_terms).map(lambda terms: sum(terms, Expr.const(0)))


@st.composite
def domains(draw: st.DrawFn, facts: bool = True, bounded: bool | None = None) -> Domain:
    """Domains with ranges, divisors, at most one equality and one inequality; never empty by ranges."""
    ranges = {}
    for name in NAMES:
        lo = draw(st.integers(0, 4))
        limited = draw(st.booleans()) if bounded is None else bounded
        hi = lo + draw(st.integers(0, 9)) if limited else None
        divisor = draw(st.sampled_from([1, 1, 1, 2, 4]))
        if hi is not None and hi // divisor * divisor < lo:
            divisor = 1
        ranges[name] = SymbolRange(lo, hi, divisor)
    domain = Domain(ranges)
    if not facts:
        return domain
    try:
        if draw(st.integers(0, 3)) == 0:
            domain = domain.with_equal(Expr.symbol("c"), draw(st.sampled_from(_RELATED)))
        if draw(st.integers(0, 2)) == 0:
            domain = domain.with_inequality(draw(st.sampled_from(_FACTS)))
    except DomainError:
        pass
    return domain


_A, _B, _C = (Expr.symbol(name) for name in NAMES)
_RELATED = [3 * _A, _A + _B, _A * _B, (_A + 1) // 2, 2 * _B - 1]
_FACTS = [_A - _B, _B - _A - 1, _A * _B - _C, _C - _A, 7 - _A - _B, (_A + 1) // 2 - _B, _B * 2 - _A]


def legal_points(domain: Domain, span: int = 10) -> Iterator[dict[str, int]]:
    """Every legal shape whose free sizes are within `span` of their lower ends."""
    free = [name for name in NAMES if name not in domain.equalities]
    axes = []
    for name in free:
        r = domain.range_of(name)
        end = r.lo + span * r.divisor if r.hi is None else r.hi
        axes.append(range(r.lo, end + 1, r.divisor))
    for point in product(*axes):
        shape = domain.completed(dict(zip(free, point, strict=True)))
        if domain.contains(shape):
            yield shape
