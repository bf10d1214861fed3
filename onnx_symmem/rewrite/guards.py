"""Nodes that decide, from the shapes of the inputs, which version of a model runs.

A version's peak is the maximum of a few expressions. Their values are computed all at once on the host: the
shapes of the inputs are joined into one vector, monomials are products of its gathered entries, and the
expressions one int64 matrix times the monomials. Floor divisions, maxima, minima and float32 floors are
computed level by level in the same way and join the vector.

A guard decides only inside the shapes that were planned: ranges, divisors, equal dims and inequalities are
further rows, which must not be negative. Nothing may overflow: the sizes of all monomials are added up in
double precision beside the integers, and above 2**62 the shape counts as outside. Outside the safest version
runs: the last under the policy `fits`, the first under `least`. What is decided inside: `choice`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from onnx_symmem.errors import UnsupportedModel
from onnx_symmem.expr.atom import FLOORDIV, MAX, MIN, SCALED_FLOOR, SYMBOL, Atom, Monomial
from onnx_symmem.expr.expression import ONE, Expr
from onnx_symmem.rewrite.choice import FITS, LEAST, LIMIT, Guard

__all__ = ["GuardNodes", "guard_nodes"]

_OLDEST_OPSET = 9  # MatMul and comparisons of int64
_LARGEST = float(1 << 62)  # every sum of products stays below; exact in double precision


@dataclass(frozen=True)
class GuardNodes:
    """A guard as part of a graph.

    `conditions` names one boolean per version but the last: the first that is true says which version runs.
    `zeros` maps ranks to vectors of so many zeros that nobody can know before the run.
    """

    nodes: tuple[NodeProto, ...]
    initializers: tuple[TensorProto, ...]
    infos: tuple[ValueInfoProto, ...]
    conditions: tuple[str, ...]
    zeros: Mapping[int, str]


def guard_nodes(guard: Guard, opset: int, taken: Iterable[str] = (), ranks: Iterable[int] = ()) -> GuardNodes:
    """The nodes of a guard for an opset; `taken` are names in use, `ranks` those of `zeros` to make.

    Raises UnsupportedModel where an expression speaks of what no input's shape tells.
    """
    if opset < _OLDEST_OPSET:
        raise UnsupportedModel(
            f"versions are chosen with operators of opset {_OLDEST_OPSET}, and the model has opset {opset}"
        )
    if len(guard.versions) < 2:
        raise UnsupportedModel("a guard needs two versions or more to choose from")
    return _Writer(guard, opset, frozenset(taken)).write(sorted(set(ranks)))


@dataclass(frozen=True, slots=True)
class _Vector:
    """A vector in the graph: its name, and where in it each monomial variable stands; `one` holds 1."""

    name: str
    place: Mapping[Atom, int]
    one: int
    length: int


class _Writer:
    """Collects the nodes of one guard."""

    def __init__(self, guard: Guard, opset: int, taken: frozenset[str]) -> None:
        self.guard, self.opset = guard, opset
        self.prefix = "symmem/guard"
        while any(name.startswith(self.prefix) for name in taken):
            self.prefix += "_"
        self.nodes: list[NodeProto] = []
        self.initializers: dict[str, TensorProto] = {}
        self.infos: list[ValueInfoProto] = []
        self.sizes: list[str] = []  # one number per stage that must not be too large
        self.magnitudes: dict[str, str] = {}
        self.made: dict[str, str] = {}

    def write(self, ranks: Sequence[int]) -> GuardNodes:
        rows, peaks = self._rows()
        vector = self._with_atoms(self._symbols(rows, peaks), [*rows, *(e for p in peaks for e in p)])
        inside = self._inside(vector, rows)
        count = max(map(len, peaks))
        padded = [[p[min(k, len(p) - 1)] for k in range(count)] for p in peaks]
        values = self._values(vector, [e for p in padded for e in p], (len(padded), count), "bytes")
        found = self._reduce("ReduceMax", values, "peaks", len(padded))
        inside = self._and(inside, self._sizes_fit())
        within = self._at_most(found, self._reach(found), "within", len(padded))
        if self.guard.policy == FITS:
            chosen = self._op("And", [within, inside], "chosen", TensorProto.BOOL, len(padded))
        else:
            outside = self._op("Not", [inside], "outside", TensorProto.BOOL, 1)
            chosen = self._op("Or", [within, outside], "chosen", TensorProto.BOOL, len(padded))
        conditions = [chosen]
        if len(padded) > 1:
            conditions = [
                self._op("Gather", [chosen, self._ints([k])], f"runs_{k}", TensorProto.BOOL, 1)
                for k in range(len(self.guard.versions) - 1)
            ]
        zeros = self._zeros(vector, ranks)
        return GuardNodes(
            tuple(self.nodes), tuple(self.initializers.values()), tuple(self.infos), tuple(conditions), zeros
        )

    # -- what is computed ------------------------------------------------------------------------------
    def _reach(self, peaks: str) -> str:
        """What the version that runs may take: a single number, or a vector of one."""
        if len(self.guard.compared) < len(self.guard.versions):
            return LIMIT
        least = self._reduce("ReduceMin", peaks, "least", 1, keep=True)
        if self.guard.policy == LEAST:
            return least
        # Max knows no int64 before opset 12.
        short = self._op("Greater", [least, LIMIT], "none_fits", TensorProto.BOOL, 1)
        return self._op("Where", [short, least, LIMIT], "reach", TensorProto.INT64, 1)

    def _rows(self) -> tuple[list[Expr], list[tuple[Expr, ...]]]:
        """Expressions that must not be negative, and the peaks that are compared."""
        domain = self.guard.domain
        told = self.guard.told
        rows: list[Expr] = []
        for name in sorted(told):
            allowed = domain.range_of(name)
            symbol = Expr.symbol(name)
            if allowed.lo > 0:
                rows.append(symbol - allowed.lo)
            if allowed.hi is not None:
                rows.append(allowed.hi - symbol)
            if allowed.divisor > 1:
                rows.append(-(symbol % allowed.divisor))
        # What is said of sizes that only data tells holds by itself.
        rows += [fact for fact in domain.facts() if fact.symbols() <= told]
        peaks = [tuple(domain.solved(e) for e in self.guard.versions[k]) for k in self.guard.compared]
        for expr in (e for p in peaks for e in p):
            strange = sorted(expr.symbols() - told)
            if strange:
                raise UnsupportedModel(
                    f"a peak depends on {strange[0]!r}, which the shape of no input tells: {expr}"
                )
        return rows, peaks

    def _symbols(self, rows: list[Expr], peaks: Sequence[Sequence[Expr]]) -> _Vector:
        """The shapes of the inputs joined; each symbol is where it first stands alone.

        Adds to `rows` that all other dims are what they should be.
        """
        place: dict[Atom, int] = {}
        others: list[tuple[Expr, Atom, int]] = []
        parts: list[str] = []
        length = 0
        for name, dims in self.guard.inputs:
            shape = f"shape_{len(parts)}"
            parts.append(self._op("Shape", [name], shape, TensorProto.INT64, len(dims)))
            for at, given in enumerate(dims, start=length):
                dim = self.guard.domain.solved(given)
                atom = dim.as_atom()
                if atom is not None and atom.kind == SYMBOL and atom not in place:
                    place[atom] = at
                elif not dim.is_const:
                    # A variable of its own, which has to be what the others say.
                    others.append((dim, Atom(SYMBOL, f"\0{name}:{at - length}"), at))
            length += len(dims)
        for dim, own, at in others:
            place[own] = at
            rows += [dim - Expr.of(own), Expr.of(own) - dim]
        needed = {s for e in (*rows, *(e for p in peaks for e in p)) for s in e.symbols()}
        missing = sorted(s for s in needed if Atom(SYMBOL, s) not in place)
        if missing:
            raise UnsupportedModel(f"the size {missing[0]!r} is no dim of an input by itself")
        joined = self._op("Concat", [*parts, self._ints([1])], "sizes", TensorProto.INT64, length + 1, axis=0)
        return _Vector(joined, place, length, length + 1)

    def _with_atoms(self, vector: _Vector, exprs: Sequence[Expr]) -> _Vector:
        """The vector with the values of everything that is no symbol, operands before what they are in."""
        while True:
            waiting = _innermost(exprs, vector.place)
            if not waiting:
                return vector
            scaled = [ONE] if any(atom.kind == SCALED_FLOOR for atom in waiting) else []
            operands = list(dict.fromkeys([*(arg for atom in waiting for arg in atom.args), *scaled]))
            at = {expr: k for k, expr in enumerate(operands)}
            values = self._values(vector, operands, (len(operands),), "operands")
            parts, place, length = [vector.name], dict(vector.place), vector.length
            whole = {FLOORDIV: self._floordiv, MAX: self._extremes, MIN: self._extremes}
            for kind, compute in {**whole, SCALED_FLOOR: self._scaled}.items():
                atoms = [atom for atom in waiting if atom.kind == kind]
                if atoms:
                    parts.append(compute(values, atoms, at))
                    place.update({atom: length + k for k, atom in enumerate(atoms)})
                    length += len(atoms)
            joined = self._op("Concat", parts, "sizes", TensorProto.INT64, length, axis=0)
            vector = _Vector(joined, place, vector.one, length)

    def _floordiv(self, values: str, atoms: Sequence[Atom], at: Mapping[Expr, int]) -> str:
        """Quotients rounded down; a divisor below 1 counts as 1, its shape is none that was planned."""
        count = len(atoms)
        top = self._picked(values, [at[a.args[0]] for a in atoms], "numerators")
        bottom = self._picked(values, [at[a.args[1]] for a in atoms], "divisors")
        if any(a.args[1].as_int() is None for a in atoms):
            small = self._op("Less", [bottom, self._ints([1])], "no_divisor", TensorProto.BOOL, count)
            bottom = self._op("Where", [small, self._ints([1]), bottom], "divisors", TensorProto.INT64, count)
        # Div rounds towards zero: one less where the remainder is negative.
        cut = self._op("Div", [top, bottom], "cut", TensorProto.INT64, count)
        back = self._op("Mul", [cut, bottom], "multiple", TensorProto.INT64, count)
        beyond = self._op("Greater", [back, top], "beyond", TensorProto.BOOL, count)
        one = self._op("Cast", [beyond], "one_less", TensorProto.INT64, count, to=TensorProto.INT64)
        return self._op("Sub", [cut, one], "quotients", TensorProto.INT64, count)

    def _extremes(self, values: str, atoms: Sequence[Atom], at: Mapping[Expr, int]) -> str:
        most = max(len(a.args) for a in atoms)
        table = [[at[a.args[min(k, len(a.args) - 1)]] for k in range(most)] for a in atoms]
        picked = self._picked(values, table, "choices")
        return self._reduce(
            "ReduceMax" if atoms[0].kind == MAX else "ReduceMin", picked, "extremes", len(atoms)
        )

    def _scaled(self, values: str, atoms: Sequence[Atom], at: Mapping[Expr, int]) -> str:
        """Floors of products in float32, the last factors first; a factor that is missing is 1."""
        count, kind = len(atoms), TensorProto.FLOAT
        product = ""
        for k in reversed(range(max(len(a.factors) for a in atoms))):
            factors = [a.factors[k] if k < len(a.factors) else (ONE, ONE) for a in atoms]
            singles = []
            for parts in zip(*factors, strict=True):
                picked = self._picked(values, [at[e] for e in parts], "to_scale")
                singles.append(self._op("Cast", [picked], "single", kind, count, to=kind))
            factor = self._op("Div", singles, "factors", kind, count)
            product = self._op("Mul", [factor, product], "scaled", kind, count) if product else factor
        floor = self._op("Floor", [product], "floor", kind, count)
        return self._op("Cast", [floor], "scaled_sizes", TensorProto.INT64, count, to=TensorProto.INT64)

    def _values(self, vector: _Vector, exprs: Sequence[Expr], dims: tuple[int, ...], what: str) -> str:
        """Values of expressions whose variables are in the vector, as a tensor of these dims."""
        basis: dict[Monomial, int] = {}
        for expr in exprs:
            for mono, _ in expr.terms:
                basis.setdefault(mono, len(basis))
        basis = basis or {(): 0}
        table = np.zeros((len(exprs), len(basis)), dtype=object)
        for k, expr in enumerate(exprs):
            for mono, c in expr.terms:
                table[k, basis[mono]] = c
        largest = abs(table).max(axis=0)
        if any(c >= 1 << 62 for c in largest):
            raise UnsupportedModel("a peak has coefficients beyond 2**62 bytes")
        columns = [[vector.place[a] for a, power in mono for _ in range(power)] for mono in basis]
        degree = max(1, *map(len, columns))
        factors = [[c[d] if d < len(c) else vector.one for c in columns] for d in range(degree)]
        count = len(basis)
        products = self._products(vector.name, factors, TensorProto.INT64)
        sizes = self._products(self._magnitudes(vector), factors, TensorProto.DOUBLE)
        weights = self._constant(np.maximum(largest.astype(np.float64), 1.0).reshape(1, count))
        self.sizes.append(self._op("MatMul", [weights, sizes], "largest", TensorProto.DOUBLE, 1))
        matrix = self._constant(table.astype(np.int64).reshape(*dims, count))
        return self._op("MatMul", [matrix, products], what, TensorProto.INT64, *dims)

    def _magnitudes(self, vector: _Vector) -> str:
        if vector.name not in self.magnitudes:
            double, dims = TensorProto.DOUBLE, vector.length
            floats = self._op("Cast", [vector.name], "double", double, dims, to=double)
            self.magnitudes[vector.name] = self._op("Abs", [floats], "magnitudes", double, dims)
        return self.magnitudes[vector.name]

    def _products(self, vector: str, factors: Sequence[Sequence[int]], kind: int) -> str:
        """Products of entries of the vector, element by element of the lists of places."""
        result = self._picked(vector, factors[0], "factors", kind)
        for column in factors[1:]:
            other = self._picked(vector, column, "factors", kind)
            result = self._op("Mul", [result, other], "monomials", kind, len(column))
        return result

    def _inside(self, vector: _Vector, rows: Sequence[Expr]) -> str | None:
        """Whether the shape is one that was planned; None where every shape is."""
        rows = list(dict.fromkeys(rows))
        if not rows:
            return None
        values = self._values(vector, rows, (len(rows),), "facts")
        least = self._reduce("ReduceMin", values, "least_fact", 1, keep=True)
        return self._at_most(self._ints([0]), least, "planned", 1)

    def _at_most(self, left: str, right: str, what: str, count: int) -> str:
        if self.opset >= 12:
            return self._op("LessOrEqual", [left, right], what, TensorProto.BOOL, count)
        above = self._op("Greater", [left, right], "above", TensorProto.BOOL, count)
        return self._op("Not", [above], what, TensorProto.BOOL, count)

    def _sizes_fit(self) -> str:
        """Whether nothing can have overflowed. What is no number is not below the limit either."""
        limit = self._constant(np.array([_LARGEST]))
        found = None
        for size in self.sizes:
            below = self._op("Less", [size, limit], "no_overflow", TensorProto.BOOL, 1)
            found = self._and(found, below)
        assert found is not None
        return found

    def _and(self, left: str | None, right: str) -> str:
        return right if left is None else self._op("And", [left, right], "inside", TensorProto.BOOL, 1)

    def _zeros(self, vector: _Vector, ranks: Sequence[int]) -> dict[int, str]:
        """Vectors of zeros: a size minus itself, which shape inference cannot know to be 0."""
        if not ranks:
            return {}
        symbol = next(at for atom, at in vector.place.items() if atom.kind == SYMBOL)
        size = self._picked(vector.name, [symbol], "some_size")
        zero = self._op("Sub", [size, size], "zero", TensorProto.INT64, 1)
        return {
            rank: self._picked(zero, [0] * rank, f"zeros_{rank}") if rank != 1 else zero for rank in ranks
        }

    # -- how it is written -------------------------------------------------------------------------------
    def _picked(
        self,
        vector: str,
        at: Sequence[int] | Sequence[Sequence[int]],
        what: str,
        kind: int = TensorProto.INT64,
    ) -> str:
        indices = np.array(at, np.int64)
        return self._op("Gather", [vector, self._constant(indices)], what, kind, *indices.shape)

    def _reduce(self, op: str, values: str, what: str, count: int, keep: bool = False) -> str:
        """Extremes along the last axis; with `keep` of a vector, as a vector of one."""
        axis = 0 if keep else 1
        inputs, attributes = [values], {"axes": [axis], "keepdims": int(keep)}
        if self.opset >= 18:
            inputs.append(self._ints([axis]))
            del attributes["axes"]
        return self._op(op, inputs, what, TensorProto.INT64, count, **attributes)

    def _ints(self, values: Iterable[int]) -> str:
        return self._constant(np.array(list(values), np.int64))

    def _constant(self, array: np.ndarray) -> str:
        """The name of an initializer with these contents; equal ones are one."""
        tensor = numpy_helper.from_array(np.ascontiguousarray(array))
        key = f"{tensor.data_type}{tuple(tensor.dims)}{tensor.raw_data.hex()}"
        if key not in self.initializers:
            tensor.name = f"{self.prefix}/constant_{len(self.initializers)}"
            self.initializers[key] = tensor
        return self.initializers[key].name

    def _op(self, op: str, inputs: Sequence[str], what: str, kind: int, *dims: int, **attributes: Any) -> str:
        """The name of what an operator makes; what is made already, which ONNX Runtime would merge, is."""
        key = f"{op} {list(inputs)} {sorted(attributes.items())}"
        if key in self.made:
            return self.made[key]
        name = self.made[key] = f"{self.prefix}/{len(self.nodes)}_{what}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=name, **attributes))
        self.infos.append(helper.make_tensor_value_info(name, kind, list(dims)))
        return name


def _innermost(exprs: Iterable[Expr], known: Mapping[Atom, int]) -> list[Atom]:
    """Atoms in the expressions that are not known, and whose operands' atoms all are; by key."""
    found: dict[Atom, None] = {}
    stack = [atom for expr in exprs for atom in expr.atoms()]
    seen: set[Atom] = set()
    while stack:
        atom = stack.pop()
        if atom in seen or atom in known:
            continue
        seen.add(atom)
        inner = [a for arg in atom.args for a in arg.atoms() if a not in known]
        if inner:
            stack.extend(inner)
        else:
            found[atom] = None
    return sorted(found, key=lambda atom: atom.key)
