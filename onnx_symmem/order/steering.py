"""Shapes at which searches are steered and results are shown: few, legal, spread over the domain.

Steering takes numbers, proofs take symbols (facts/ALGORITHMS, finding 5). The shapes are the low, middle and
high corner of the domain and, per symbol, that symbol high with the others low; an unbounded symbol's
high end is a usual large size. Once a plan is known, every expression of its peak asks for a shape at which
it is the largest: elsewhere the plan was never judged by it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import isqrt

import numpy as np

from onnx_symmem.expr.domain import Domain
from onnx_symmem.expr.expression import Expr
from onnx_symmem.expr.grid import evaluate
from onnx_symmem.expr.samples import legal_near
from onnx_symmem.expr.shares import competing

__all__ = ["further_shapes", "shapes_of_members", "steering_shapes", "usual_shapes"]

_HIGH = 512  # stands for `no upper limit`, unless the lower limit is near it
_OUT_OF_REACH = 1 << 20  # an upper limit from here on (of float32, say) is as good as none
_MOST = 8
_PROBES = 256  # shapes at which it is looked which expression is the largest
_LEAD = 1.002  # below this an expression is hardly above the others


def steering_shapes(domain: Domain, symbols: Sequence[str]) -> tuple[Mapping[str, int], ...]:
    """At most eight legal shapes over `symbols` and whatever the domain names, in a fixed order.

    Symbols that occur in the domain only (data-dependent sizes) sit at the highest value that is legal; those
    that share a total share it evenly, and at one shape the first ones have it all.
    """
    known = set(symbols)
    names = [n for n in (*symbols, *domain.symbols()) if n not in domain.equalities]
    names = list(dict.fromkeys(names))
    low, middle, high = {}, {}, {}
    for name in names:
        allowed = domain.range_of(name)
        top = allowed.hi
        if top is None or (top >= _OUT_OF_REACH and name in known):
            top = max(_HIGH, 8 * allowed.lo)
        if name in known:
            low[name], high[name] = allowed.lo, top
            middle[name] = max(allowed.lo, isqrt(max(allowed.lo, 1) * top))
        else:
            low[name] = middle[name] = high[name] = (1 << 40) if allowed.hi is None else allowed.hi
    wanted = [low, middle, high]
    wanted += [{**low, name: high[name]} for name in names if name in known and len(known) > 1]
    found: dict[tuple[tuple[str, int], ...], dict[str, int]] = {}
    legals = [_legal(domain, shape, known, evenly=True) for shape in wanted[:_MOST]]
    legals.append(_legal(domain, middle, known, evenly=False))
    for legal in legals[: _MOST + 1]:
        if legal is not None:
            found.setdefault(tuple(sorted(legal.items())), legal)
    if not found:
        found = {tuple(sorted(s.items())): s for s in domain.samples(_MOST, symbols=symbols)}
    first = list(dict.fromkeys((*symbols, *domain.symbols())))
    found = {key: dict(sorted(s.items(), key=lambda i: first.index(i[0]))) for key, s in found.items()}
    return tuple(found.values())


def _legal(
    domain: Domain, wanted: Mapping[str, int], inputs: Collection[str], evenly: bool
) -> dict[str, int] | None:
    """A legal shape near the wanted one: what is in the data gives way to the dims of the inputs."""
    data = [name for name in wanted if name not in inputs]
    first = legal_near(domain, {**wanted, **{name: domain.range_of(name).lo for name in data}})
    if first is None or not data:
        return first if first is not None else legal_near(domain, wanted)
    given = {name: first[name] for name in inputs if name in wanted}
    shares = _even_shares(domain, first, data) if evenly else {}
    return legal_near(domain, {**wanted, **given, **shares}, fixed=given) or first


def _even_shares(domain: Domain, least: Mapping[str, int], data: Sequence[str]) -> dict[str, int]:
    """Sizes of symbols that share a total, from a shape where they have as little as can be."""
    found: dict[str, int] = {}
    for fact in domain.facts():
        group = {n: c for n, c in competing(fact, least.keys()).items() if n in data and n not in found}
        if len(group) > 1:
            each, rest = divmod(fact.evaluate(least), len(group))
            for k, (name, c) in enumerate(group.items()):
                found[name] = least[name] + (each + (k < rest)) // c
    return found


def usual_shapes(
    domain: Domain, symbols: Sequence[str], count: int = 48, seed: int = 0
) -> tuple[Mapping[str, int], ...]:
    """The steering shapes, then others between the lowest and the highest of their sizes: at most `count`.

    Shapes as they are run, unlike the samples of proofs, which go far and to the edges.
    """
    steering = steering_shapes(domain, symbols)
    found = {tuple(sorted(shape.items())): shape for shape in steering}
    names = [n for n in symbols if n not in domain.equalities]
    low = {n: min(shape[n] for shape in steering) for n in names} if steering else {}
    high = {n: max(shape[n] for shape in steering) for n in low}
    rng = np.random.default_rng(seed)
    for _ in range(count if low else 0):
        sizes = {n: int(low[n] * ((high[n] + 1) / max(low[n], 1)) ** float(rng.random())) for n in low}
        legal = legal_near(domain, {**steering[-1], **sizes})
        if legal is not None and all(low[n] <= legal[n] <= high[n] for n in low):
            found.setdefault(tuple(sorted(legal.items())), legal)
    return tuple(found.values())[: max(count, len(steering))]


def further_shapes(
    domain: Domain, shapes: Sequence[Mapping[str, int]], most: int, seed: int
) -> list[Mapping[str, int]]:
    """At most so many shapes as they are run besides the given ones, with sizes for all symbols of those."""
    first = shapes[0] if shapes else {}
    names = [name for name in first if name not in domain.equalities]
    corners = len(steering_shapes(domain, names))
    found: list[Mapping[str, int]] = []
    for usual in usual_shapes(domain, names, corners + most, seed)[corners:]:
        shape = {name: usual[name] for name in first if name in usual}
        if shape.keys() == first.keys() and shape not in shapes:
            found.append(shape)
    return found


def shapes_of_members(
    members: Sequence[Expr], domain: Domain, shapes: Sequence[Mapping[str, int]], most: int
) -> tuple[Mapping[str, int], ...]:
    """Shapes at which members are the largest that are so at none of `shapes`: at most `most`.

    The one that is highest above the members that were the largest somewhere comes first.
    """
    names = list(dict.fromkeys(name for shape in shapes for name in shape if name not in domain.equalities))
    needed = frozenset().union(*(domain.solved(member).symbols() for member in members))
    if len(members) < 2 or not needed or not needed <= set(names):
        return ()
    probes = usual_shapes(domain, names, _PROBES)
    known, values = (
        np.asarray(evaluate([domain.solved(m) for m in members], at), dtype=np.float64)
        for at in (shapes, probes)
    )
    met = (known == known.max(axis=0)).any(axis=1)
    found: list[Mapping[str, int]] = []
    while len(found) < most:
        lead = values.max(axis=0) / np.maximum(values[met].max(axis=0), 1.0)
        at = int(lead.argmax())
        if lead[at] <= _LEAD:
            break
        found.append({name: probes[at][name] for name in shapes[0]})
        met |= values[:, at] == values[:, at].max()
    return tuple(found)
