"""Legal shapes to look at: corners, small integers, and sizes spread evenly over the magnitudes.

Samples refute and steer; they never prove. They come in a fixed order that depends on the domain,
the number and the seed only.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from onnx_symmem.expr.repair import Repair
from onnx_symmem.expr.shares import competing

if TYPE_CHECKING:
    from onnx_symmem.expr.domain import Domain

__all__ = ["draw", "legal_near"]

_FAR = (1 << 13, 1 << 20)  # stand-ins for `no upper limit`: a usual large size, and one out of reach
_FARTHEST = 1 << 1000  # what float64 has the range for
_TRIES = 24  # random attempts per wanted sample
_MAX_MISSES = 400  # attempts in a row that find nothing new


def draw(domain: Domain, k: int, seed: int, symbols: tuple[str, ...]) -> tuple[dict[str, int], ...]:
    """Up to `k` different legal shapes over the domain's symbols and `symbols`."""
    names = [n for n in sorted({*domain.symbols(), *symbols}) if n not in domain.equalities]
    found: dict[tuple[int, ...], dict[str, int]] = {}
    repair = Repair(domain, names)
    rng = np.random.default_rng(seed)

    def offer(wanted: dict[str, int]) -> None:
        legal = repair.legal(wanted)
        if legal is not None:
            found.setdefault(tuple(legal[n] for n in names), legal)

    for corner in _corners(domain, names, rng, max(2, k // 3)):
        offer(corner)
    for shared in _shared(domain, names, rng, max(2, k // 3)):
        offer(shared)
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


def legal_near(
    domain: Domain, wanted: Mapping[str, int], fixed: Collection[str] = ()
) -> dict[str, int] | None:
    """A legal shape near the wanted sizes of all free symbols, completed; None where none was found.

    The sizes of `fixed` symbols are as wanted.
    """
    names = sorted(n for n in wanted if n not in domain.equalities)
    shape = Repair(domain, names, fixed).legal({n: wanted[n] for n in names})
    return shape if shape is None or all(shape[n] == wanted[n] for n in fixed) else None


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


def _shared(domain: Domain, names: list[str], rng: np.random.Generator, count: int) -> list[dict[str, int]]:
    """Sizes that compete for what there is, as of experts for tokens, share it in many ways.

    In each, some of them have all of it, or part of it; the others have nothing.
    """
    groups = [group for fact in domain.facts() if len(group := competing(fact, names)) > 1]
    found: list[dict[str, int]] = []
    for k in range(count if groups else 0):
        sizes = {n: domain.range_of(n).lo if k % 4 == 0 else _log_uniform(domain, n, rng) for n in names}
        for group in groups:
            sizes.update(dict.fromkeys(group, 0))
        for fact in domain.facts():
            group = competing(fact, names)
            if len(group) < 2:
                continue
            whole = fact.evaluate(sizes)
            parts = rng.random(len(group)) ** 2 * (rng.random(len(group)) < rng.random())
            total = float(parts.sum()) * (1.0 if k % 2 else float(rng.random()) + 1.0)
            for (name, c), part in zip(group.items(), parts.tolist(), strict=True):
                sizes[name] = int(whole * (part / total)) // c if total else 0
        found.append(sizes)
    return found


def _log_uniform(domain: Domain, name: str, rng: np.random.Generator) -> int:
    allowed = domain.range_of(name)
    step = allowed.divisor
    last = _FAR[0] // step if allowed.hi is None else (allowed.hi - allowed.lo) // step
    part = float(rng.random())
    if last >= _FARTHEST:
        return allowed.lo + step * ((1 << int(last.bit_length() * part)) - 1)
    return allowed.lo + step * (int((last + 1) ** part) - 1)
