"""Legal shapes to look at: corners, small integers, and sizes spread evenly over the magnitudes.

Samples refute and steer; they never prove. They come in a fixed order that depends on the domain,
the number and the seed only.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from onnx_symmem.expr.atom import SYMBOL
from onnx_symmem.expr.expression import Expr

if TYPE_CHECKING:
    from onnx_symmem.expr.domain import Domain

__all__ = ["draw", "legal_near"]

_FAR = (1 << 13, 1 << 20)  # stand-ins for `no upper limit`: a usual large size, and one out of reach
_TRIES = 24  # random attempts per wanted sample
_MAX_MISSES = 400  # attempts in a row that find nothing new


def draw(domain: Domain, k: int, seed: int, symbols: tuple[str, ...]) -> tuple[dict[str, int], ...]:
    """Up to `k` different legal shapes over the domain's symbols and `symbols`."""
    names = [n for n in sorted({*domain.symbols(), *symbols}) if n not in domain.equalities]
    found: dict[tuple[int, ...], dict[str, int]] = {}
    limits = _limits(domain, names)
    rng = np.random.default_rng(seed)

    def offer(wanted: dict[str, int]) -> None:
        legal = _legal(domain, wanted, limits)
        if legal is not None:
            found.setdefault(tuple(legal[n] for n in names), legal)

    for corner in _corners(domain, names, rng, max(2, k // 3)):
        offer(corner)
    for small in _small(domain, names, rng, max(2, k // 3)):
        offer(small)
    misses = 0
    for _ in range(k * _TRIES):
        if len(found) >= k or misses > _MAX_MISSES:
            break
        before = len(found)
        offer({name: _log_uniform(domain, name, rng) for name in names})
        misses = 0 if len(found) > before else misses + 1
    return tuple(list(found.values())[:k])


def legal_near(domain: Domain, wanted: Mapping[str, int]) -> dict[str, int] | None:
    """A legal shape near the wanted sizes of all free symbols, completed; None where none was found."""
    names = sorted(n for n in wanted if n not in domain.equalities)
    return _legal(domain, {n: wanted[n] for n in names}, _limits(domain, names))


def _ends(domain: Domain, name: str) -> tuple[int, ...]:
    allowed = domain.range_of(name)
    if allowed.hi is not None:
        return (allowed.lo, allowed.hi) if allowed.hi > allowed.lo else (allowed.lo,)
    step = allowed.divisor
    return (allowed.lo, *(allowed.lo + far // step * step for far in _FAR))


def _corners(domain: Domain, names: list[str], rng: np.random.Generator, count: int) -> list[dict[str, int]]:
    ends = [_ends(domain, name) for name in names]
    total = 1
    for choice in ends:
        total *= len(choice)
    if total <= count:
        return [dict(zip(names, corner, strict=True)) for corner in product(*ends)]
    corners = [{n: e[j if j == 0 else -1] for n, e in zip(names, ends, strict=True)} for j in (0, 1)]
    # One symbol at an end and the rest at the other, then corners at random.
    for name, choice in zip(names, ends, strict=True):
        corners += [{**corners[0], name: choice[-1]}, {**corners[1], name: choice[0]}]
    while len(corners) < count:
        corners.append({n: e[int(rng.integers(len(e)))] for n, e in zip(names, ends, strict=True)})
    return corners[: max(count, 2)]


def _small(domain: Domain, names: list[str], rng: np.random.Generator, count: int) -> list[dict[str, int]]:
    """Boxes of the smallest sizes: where crossings of polynomials hide that corners do not show."""
    if not names:
        return []
    side = max(2, int(count ** (1 / len(names)) + 1e-9))
    ranges = {name: domain.range_of(name) for name in names}
    if side ** len(names) <= count:
        steps = list(product(range(side), repeat=len(names)))
    else:
        steps = [tuple(int(j) for j in row) for row in rng.integers(0, 4, (count, len(names)))]
    return [
        {name: ranges[name].lo + j * ranges[name].divisor for name, j in zip(names, step, strict=True)}
        for step in steps
    ]


def _log_uniform(domain: Domain, name: str, rng: np.random.Generator) -> int:
    allowed = domain.range_of(name)
    step = allowed.divisor
    last = _FAR[0] // step if allowed.hi is None else (allowed.hi - allowed.lo) // step
    return allowed.lo + step * (int((last + 1) ** float(rng.random())) - 1)


def _limits(domain: Domain, names: list[str]) -> dict[str, list[tuple[int, Expr]]]:
    """For a symbol x: (sign, e) with sign * x >= e, from facts where x occurs once with factor +-1.

    Each fact limits its alphabetically last such symbol, and only by symbols set before it.
    """
    limits: dict[str, list[tuple[int, Expr]]] = {name: [] for name in names}
    for fact in domain.facts():
        for mono, c in fact.terms:
            if len(mono) == 1 and mono[0][1] == 1 and mono[0][0].kind == SYMBOL and abs(c) == 1:
                name, rest = mono[0][0].name, Expr({m: -k for m, k in fact.terms if m != mono})
                if name not in rest.symbols() and all(name > other for other in rest.symbols()):
                    limits[name].append((c, rest))
    return limits


def _legal(
    domain: Domain, wanted: dict[str, int], limits: dict[str, list[tuple[int, Expr]]]
) -> dict[str, int] | None:
    """The wanted shape, moved within the limits and completed; None if it is still not legal."""
    shape: dict[str, int] = {}
    for name, value in wanted.items():  # in alphabetical order, as the limits need it
        for sign, limit in limits[name]:
            bound = limit.evaluate(shape) * sign
            value = max(value, bound) if sign > 0 else min(value, bound)
        allowed = domain.range_of(name)
        value -= (value - allowed.lo) % allowed.divisor
        value = max(value, allowed.lo)
        shape[name] = value if allowed.hi is None else min(value, allowed.hi)
    shape = domain.completed(shape)
    # What `contains` would find out about free symbols holds by construction.
    given = shape.keys()
    for name in domain.equalities.keys() & domain.ranges.keys() & given:
        if shape[name] not in domain.ranges[name]:
            return None
    if any(shape[name] < 1 for name in domain.equalities.keys() & given - domain.ranges.keys()):
        return None
    facts = (fact for fact in domain.inequalities if fact.symbols() <= given)
    return None if any(fact.evaluate(shape) < 0 for fact in facts) else shape
