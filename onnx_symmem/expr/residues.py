"""Which moduli turn floor divisions into polynomials: S = m*k + r, one residue class per r."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd, lcm, prod

from onnx_symmem.expr.atom import FLOORDIV, SYMBOL, Atom
from onnx_symmem.expr.expression import Expr

__all__ = ["MAX_CLASSES", "class_count", "residue_moduli"]

MAX_CLASSES = 1024


def residue_moduli(
    atoms: Sequence[Atom], widths: Mapping[str, int | None], limit: int
) -> tuple[dict[str, int], frozenset[Atom]]:
    """(modulus per variable, the floor divisions that it makes exact), within `limit` classes.

    S = m*k + r makes (c*S + ...) // d a polynomial if d divides c*m; floor divisions that need the
    fewest classes come first, and one whose classes do not fit stays opaque.
    """
    needs = [(need, atom) for atom in atoms if (need := _need(atom, widths)) is not None]
    needs.sort(key=lambda item: (prod(item[0].values()), item[1].key))
    moduli: dict[str, int] = {}
    exact: set[Atom] = set()
    for need, atom in needs:
        joined = dict(moduli)
        for name, m in need.items():
            joined[name] = lcm(joined.get(name, 1), m)
        if class_count(joined, widths) <= limit:
            moduli = joined
            exact.add(atom)
    return {name: m for name, m in moduli.items() if m > 1}, frozenset(exact)


def class_count(moduli: Mapping[str, int], widths: Mapping[str, int | None]) -> int:
    """Residue classes that have a point: a variable in 0..width has at most width + 1."""
    return prod(m if (w := widths[name]) is None else min(m, w + 1) for name, m in moduli.items())


def _need(atom: Atom, widths: Mapping[str, int | None]) -> dict[str, int] | None:
    """Modulus per variable that makes a floor division a polynomial; None if nothing does."""
    need: dict[str, int] = {}

    def read(expr: Expr, modulus: int) -> bool:
        for mono, c in expr.terms:
            left = modulus // gcd(modulus, c)
            if left > 1 and not all(known(a, left) for a, _ in mono):
                return False
        return True

    def known(a: Atom, modulus: int) -> bool:
        if a.kind == SYMBOL:
            need[a.name] = lcm(need.get(a.name, 1), modulus)
            return a.name in widths
        if a.kind != FLOORDIV or (divisor := a.args[1].as_int()) is None:
            return False
        return read(a.args[0], modulus * divisor)

    # The inner floor divisions have to become polynomials too, whatever their factors are.
    def resolvable(a: Atom) -> bool:
        if a.kind == SYMBOL:
            return a.name in widths
        return known(a, 1) and all(resolvable(b) for b in a.args[0].atoms())

    return need if resolvable(atom) else None
