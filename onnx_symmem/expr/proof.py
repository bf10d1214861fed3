"""Proofs that a polynomial is >= 0 on a region, as data.

A proof is a tree. A node holds a polynomial that has to be >= 0 on a region: the variables are
integers in 0..width (width None is unbounded; reals may also be fractions), and the facts are >= 0
there. A step rewrites the polynomial for regions that together cover the node's; a leaf is a vector
of numbers >= 0 that are the polynomial's coefficients in a basis of functions >= 0: powers of an
unbounded variable, Bernstein polynomials of a bounded one (Farouki 2012, section 3). A variable
keeps its name when it is replaced by an expression of itself. certificate.py says what makes each
node right.
"""

from __future__ import annotations

from dataclasses import dataclass

from onnx_symmem.expr.atom import Atom

__all__ = [
    "Between",
    "Cases",
    "Empty",
    "Free",
    "Leaf",
    "Linked",
    "Lower",
    "Points",
    "Powers",
    "Proof",
    "Residues",
    "Rounded",
    "Sectors",
    "Spend",
    "Split",
    "Tighten",
    "Widen",
]

Powers = tuple[tuple[str, int], ...]  # ((variable, power >= 1), ...), sorted


@dataclass(frozen=True, slots=True)
class Leaf:
    """Coefficients >= 0 (zeros left out, common factor removed).

    Variables with a degree are in the Bernstein basis, in this order; the rest in powers.
    """

    degrees: Powers
    vector: tuple[tuple[Powers, int], ...]


@dataclass(frozen=True, slots=True)
class Points:
    """All values >= 0, one for every legal point of a finite region in lexicographic order."""

    values: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Empty:
    """No point is legal: a fact is negative everywhere."""

    fact: int


@dataclass(frozen=True, slots=True)
class Cases:
    """One child per operand of a max or min: where the atom is that operand."""

    atom: Atom
    children: tuple[Proof, ...]


@dataclass(frozen=True, slots=True)
class Lower:
    """fact = x - e: x becomes e + x."""

    fact: int
    name: str
    child: Proof


@dataclass(frozen=True, slots=True)
class Between:
    """fact = e - x: x becomes x * e with a real x in 0..1."""

    fact: int
    name: str
    child: Proof


@dataclass(frozen=True, slots=True)
class Tighten:
    """fact = c*x + k: the range of x shrinks."""

    fact: int
    name: str
    child: Proof


@dataclass(frozen=True, slots=True)
class Widen:
    """x becomes x - by: a larger region, where more variables start at the same size."""

    name: str
    by: int
    child: Proof


@dataclass(frozen=True, slots=True)
class Linked:
    """p // d becomes (p - s)/d with s in 0..d-1."""

    atom: Atom
    name: str
    child: Proof


@dataclass(frozen=True, slots=True)
class Rounded:
    """floor_f32(x, scale) becomes a real between the two lines that float32 rounding allows."""

    atom: Atom
    names: tuple[str, str]
    child: Proof


@dataclass(frozen=True, slots=True)
class Free:
    """An atom becomes a variable of its own: low + x, high - x, or x - name' if it has no bound."""

    atom: Atom
    name: str
    low: int | None
    high: int | None
    child: Proof


@dataclass(frozen=True, slots=True)
class Residues:
    """x becomes modulus*x + j, one child per j; None where no such x is in range."""

    name: str
    modulus: int
    children: tuple[Proof | None, ...]


@dataclass(frozen=True, slots=True)
class Sectors:
    """One child per order of the variables, itertools.permutations: each exceeds the one before."""

    names: tuple[str, ...]
    children: tuple[Proof, ...]


@dataclass(frozen=True, slots=True)
class Spend:
    """The polynomial p becomes times*p less multiples of facts: what is >= 0 even then is >= 0."""

    times: int
    spent: tuple[tuple[int, int], ...]  # (fact, how often)
    child: Proof


@dataclass(frozen=True, slots=True)
class Split:
    """x < at below, x >= at above."""

    name: str
    at: int
    below: Proof
    above: Proof


Proof = (
    Leaf
    | Points
    | Empty
    | Cases
    | Lower
    | Between
    | Tighten
    | Widen
    | Linked
    | Rounded
    | Free
    | Residues
    | Sectors
    | Spend
    | Split
)
