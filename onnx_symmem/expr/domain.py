"""The set of legal shapes: ranges, divisibility, equalities and inequalities of symbols.

Equalities are kept solved: each eliminated symbol is an expression of free symbols only, so applying
them is one substitution and cannot loop. What an eliminated symbol's own range says about the free
ones becomes an inequality. A symbol that is not named ranges over 1, 2, 3, ...; nothing is guessed
to be equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import gcd
from types import MappingProxyType
from typing import Any

from onnx_symmem.errors import DomainError
from onnx_symmem.expr.atom import FLOORDIV, MAX, MIN, SYMBOL, Atom
from onnx_symmem.expr.equations import Equations, primitive
from onnx_symmem.expr.expression import ZERO, Expr, maximum, minimum, rebuild
from onnx_symmem.expr.interval import Interval, Intervals, told_of
from onnx_symmem.expr.ranges import ANY_SIZE, SymbolRange

__all__ = ["Domain", "SymbolRange"]


@dataclass(frozen=True, slots=True, eq=False)
class Domain:
    """An immutable set of shapes {symbol: size}; equal and hashed by content.

    `ranges` are as declared, eliminated symbols included; `equalities` map eliminated symbols to
    expressions of free ones; every one of `inequalities` is >= 0 at legal shapes.
    """

    ranges: Mapping[str, SymbolRange] = field(default_factory=dict)
    equalities: Mapping[str, Expr] = field(default_factory=dict)
    inequalities: tuple[Expr, ...] = ()
    _free: dict[str, SymbolRange] = field(init=False, repr=False)
    _known: tuple[Expr, ...] = field(init=False, repr=False)
    _intervals: Intervals = field(init=False, repr=False)
    _memo: dict[Any, Any] = field(init=False, repr=False)
    _hash: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        solver = Equations(dict(self.ranges), list(self.inequalities))
        for name in sorted(self.equalities):
            solver.equate(Expr.symbol(name), self.equalities[name], name)
        equalities = {name: solver.solved[name] for name in sorted(solver.solved)}
        ranges = {name: solver.ranges[name] for name in sorted(solver.ranges)}
        known = list(inequalities := solver.settled_inequalities())
        for name, expr in equalities.items():
            declared = ranges.get(name, ANY_SIZE)
            known.append(expr - declared.lo)
            if declared.hi is not None:
                known.append(declared.hi - expr)
            if declared.divisor > 1:
                known.append(-(expr % declared.divisor))
        free = {name: r for name, r in ranges.items() if name not in equalities}
        self._set(MappingProxyType(ranges), MappingProxyType(equalities), inequalities, free, tuple(known))
        self._propagate(self._known)

    def _set(
        self,
        ranges: Mapping[str, SymbolRange],
        equalities: Mapping[str, Expr],
        inequalities: tuple[Expr, ...],
        free: dict[str, SymbolRange],
        known: tuple[Expr, ...],
    ) -> None:
        put = object.__setattr__
        put(self, "ranges", ranges)
        put(self, "equalities", equalities)
        put(self, "inequalities", inequalities)
        put(self, "_free", free)
        put(self, "_known", known)
        put(self, "_intervals", Intervals(self._free_interval, told_of(known)))
        put(self, "_memo", {})
        put(self, "_hash", hash((tuple(ranges.items()), tuple(equalities.items()), inequalities)))

    def _propagate(self, new: tuple[Expr, ...]) -> None:
        """Move the ends of ranges as the facts demand, until nothing moves or the steps run out."""
        pending = dict.fromkeys(new)
        for _ in range(8 * len(self._known) + 64):
            if not pending:
                break
            fact = next(iter(pending))
            del pending[fact]
            high = self._intervals.of(fact)[1]
            if high is not None and high < 0:
                raise DomainError(f"no shape is legal: {fact} >= 0 never holds")
            moved = self._tighten(fact)
            if moved:
                object.__setattr__(self, "_intervals", Intervals(self._free_interval, self._intervals.told))
                pending.update(dict.fromkeys(f for f in self._known if f is not fact and f.symbols() & moved))

    def _tighten(self, fact: Expr) -> set[str]:
        """Move the range of every symbol x that a fact c*x + rest >= 0 limits; the names that moved."""
        moved: set[str] = set()
        for mono, c in fact.terms:
            if len(mono) != 1 or mono[0][1] != 1 or mono[0][0].kind != SYMBOL:
                continue
            name = mono[0][0].name
            rest = fact - c * Expr.symbol(name)
            if name in rest.symbols() or (most := self._intervals.of(rest)[1]) is None:
                continue
            old = self._free.get(name, ANY_SIZE)
            try:
                new = old.meet(-(most // c), None) if c > 0 else old.meet(None, most // -c)
            except DomainError as error:
                raise DomainError(f"no shape is legal: {name} in {old} and {fact} >= 0") from error
            if new != old:
                self._free[name] = new
                moved.add(name)
        return moved

    def _free_interval(self, name: str) -> Interval:
        found = self._free.get(name, ANY_SIZE)
        return found.lo, found.hi

    # -- identity ----------------------------------------------------------------------------------
    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Domain)
            and self._hash == other._hash
            and self.ranges == other.ranges
            and self.equalities == other.equalities
            and self.inequalities == other.inequalities
        )

    def __reduce__(self) -> tuple[object, ...]:
        return Domain, (dict(self.ranges), dict(self.equalities), self.inequalities)

    # -- smaller domains ---------------------------------------------------------------------------
    def with_ranges(self, ranges: Mapping[str, SymbolRange]) -> Domain:
        """The domain with the ranges of the named symbols replaced."""
        return Domain({**self.ranges, **ranges}, self.equalities, self.inequalities)

    def with_equality(self, name: str, expr: Expr | int) -> Domain:
        """The domain where the symbol `name` equals `expr`; the symbol is eliminated if it can be."""
        return self._with(Expr.symbol(name), Expr.lift(expr), name)

    def with_equal(self, left: Expr | int, right: Expr | int) -> Domain:
        """The domain where both sides are equal; solved for a symbol where one can be eliminated."""
        return self._with(Expr.lift(left), Expr.lift(right), None)

    def _with(self, left: Expr, right: Expr, prefer: str | None) -> Domain:
        solver = Equations(dict(self.ranges), list(self.inequalities), dict(self.equalities))
        solver.equate(left, right, prefer)
        return Domain(solver.ranges, solver.solved, tuple(solver.inequalities))

    def with_inequality(self, expr: Expr | int) -> Domain:
        """The domain where also `expr >= 0`."""
        new = primitive(self.solved(expr))
        value = new.as_int()
        if value is not None and value < 0:
            raise DomainError(f"no shape is legal: {expr} >= 0 never holds")
        if value is not None or new in self.inequalities:
            return self
        # Built from this one: models have hundreds of such facts, added one by one.
        result: Domain = object.__new__(Domain)
        inequalities = tuple(sorted((*self.inequalities, new), key=Expr.sort_key))
        result._set(self.ranges, self.equalities, inequalities, dict(self._free), (*self._known, new))
        result._propagate((new,))
        return result

    # -- symbols and facts -------------------------------------------------------------------------
    def range_of(self, name: str) -> SymbolRange:
        """The range of a symbol, as far as all facts about it are understood."""
        expr = self.equalities.get(name)
        if expr is None:
            return self._free.get(name, ANY_SIZE)
        return self.ranges.get(name, ANY_SIZE).meet(*self._intervals.of(expr))

    def symbols(self) -> tuple[str, ...]:
        """All symbols that the domain says something about, sorted."""
        names = {*self.ranges, *self.equalities, *self._free}
        for expr in (*self.equalities.values(), *self.inequalities):
            names |= expr.symbols()
        return tuple(sorted(names))

    def facts(self) -> tuple[Expr, ...]:
        """Expressions of free symbols that are >= 0 at legal shapes and not implied by the ranges."""
        memo = self.memo("facts")
        if not memo:
            # What is told of an atom holds by its own fact, which must not vanish in its light.
            told = {fact for fact in self._known if told_of([fact])}
            simple = sorted({f if f in told else self.simplify(f) for f in self._known}, key=Expr.sort_key)
            ranges = Intervals(self._free_interval)
            lows = [ranges.of(fact)[0] for fact in simple]
            memo[0] = tuple(f for f, low in zip(simple, lows, strict=True) if low is None or low < 0)
        found: tuple[Expr, ...] = memo[0]
        return found

    def solved(self, expr: Expr | int) -> Expr:
        """The expression with eliminated symbols replaced."""
        return Expr.lift(expr).substitute(self.equalities)

    def memo(self, what: str) -> dict[Any, Any]:
        """Answers about this domain that live as long as it does."""
        found: dict[Any, Any] = self._memo.setdefault(what, {})
        return found

    # -- quick answers about expressions -----------------------------------------------------------
    def bounds(self, expr: Expr | int) -> Interval:
        """An interval (low, high) with every value of `expr`; None is no bound. See interval.py."""
        return self._intervals.of(self.solved(expr))

    def nonneg(self, expr: Expr | int) -> bool:
        """True only if `expr >= 0` at every legal shape; False is `no quick proof`."""
        expr = self.solved(expr)
        low = self._intervals.of(expr)[0]
        if low is not None and low >= 0:
            return True
        for fact in self._known:
            if not fact.symbols() & expr.symbols():
                continue
            low = self._intervals.of(expr - fact)[0]
            if low is not None and low >= 0:
                return True
            ratio = expr.exact_quotient(fact)
            if ratio is not None and (low := self._intervals.of(ratio)[0]) is not None and low >= 0:
                return True
        return False

    def simplify(self, expr: Expr | int) -> Expr:
        """An equal expression, where max, min and floor divisions are resolved as far as they are decided."""
        expr = self.solved(expr)
        if all(atom.kind == SYMBOL for mono, _ in expr.terms for atom, _ in mono):
            return expr
        memo: dict[Expr, Expr] = self.memo("simplify")
        found = memo.get(expr)
        if found is None:
            found = self._whole_multiples(expr.map_atoms(self._simplified_atom))
            memo[expr] = memo[found] = found
        return found

    def _simplified_atom(self, atom: Atom) -> Expr:
        if atom.kind == SYMBOL:
            return Expr.of(atom)
        args = tuple(self.simplify(a) for a in atom.args)
        if atom.kind in (MAX, MIN):
            kept = self._undominated(args, 1 if atom.kind == MAX else -1)
            return maximum(*kept) if atom.kind == MAX else minimum(*kept)
        expr = rebuild(atom, args)
        if atom.kind == FLOORDIV and (divisor := args[1].as_int()) is not None and expr.as_atom() is not None:
            expr = self._divided(args[0], divisor)
        low, high = self._intervals.of(expr)
        return Expr.const(low) if low is not None and low == high else expr

    def _undominated(self, operands: tuple[Expr, ...], sign: int) -> list[Expr]:
        kept: list[Expr] = []
        for operand in operands:
            if any(self.nonneg((k - operand) * sign) for k in kept):
                continue
            kept = [k for k in kept if not self.nonneg((operand - k) * sign)]
            kept.append(operand)
        return kept

    def _divided(self, top: Expr, divisor: int) -> Expr:
        """top // divisor, where terms that divisibility makes multiples of the divisor are divided alone."""
        whole, rest = ZERO, ZERO
        for mono, c in top.terms:
            need = divisor // gcd(divisor, c)
            for atom, power in mono:
                if atom.kind == SYMBOL and self.range_of(atom.name).divisor % need == 0:
                    others = tuple((a, p) for a, p in mono if a != atom)
                    others_expr = Expr({others: c * need // divisor}) * Expr.of(atom) ** (power - 1)
                    whole = whole + others_expr * (Expr.of(atom) // need)
                    break
            else:
                rest = rest + Expr({mono: c})
        return whole + rest // divisor

    def _whole_multiples(self, expr: Expr) -> Expr:
        """d * (s // d) is s where the symbol s is a multiple of d."""
        if all(atom.kind != FLOORDIV for atom in expr.atoms()):
            return expr
        total = ZERO
        for mono, c in expr.terms:
            term, left = Expr.const(1), c
            for atom, power in mono:
                divisor = self._divides_symbol(atom)
                for _ in range(power):
                    if divisor and left % divisor == 0:
                        left //= divisor
                        term = term * atom.args[0]
                    else:
                        term = term * Expr.of(atom)
            total = total + term * left
        return total

    def _divides_symbol(self, atom: Atom) -> int:
        if atom.kind == FLOORDIV and (divisor := atom.args[1].as_int()) is not None:
            top = atom.args[0].as_atom()
            if top is not None and top.kind == SYMBOL and self.range_of(top.name).divisor % divisor == 0:
                return divisor
        return 0

    # -- shapes ------------------------------------------------------------------------------------
    def completed(self, shape: Mapping[str, int]) -> dict[str, int]:
        """The shape with the eliminated symbols whose free symbols it gives."""
        given = shape.keys()
        extra = {
            n: e.evaluate(shape)
            for n, e in self.equalities.items()
            if n not in given and e.symbols() <= given
        }
        return {**shape, **extra}

    def contains(self, shape: Mapping[str, int]) -> bool:
        """Whether the shape breaks no fact about the symbols it gives."""
        return self._breach(shape) is None

    def check(self, shape: Mapping[str, int]) -> None:
        """Raise DomainError naming the symbol and the fact that a shape breaks."""
        breach = self._breach(shape)
        if breach is not None:
            raise DomainError(breach)

    def _breach(self, shape: Mapping[str, int]) -> str | None:
        for name in sorted(shape):
            allowed = self.ranges.get(name, ANY_SIZE)
            if shape[name] not in allowed:
                return f"{name} = {shape[name]}: expected a size in {allowed}"
        shape = self.completed(shape)
        for name, expr in self.equalities.items():
            if name in shape and expr.symbols() <= shape.keys():
                wanted = expr.evaluate(shape)
                if shape[name] != wanted:
                    return f"{name} = {shape[name]}: expected {wanted}, since {name} = {expr}"
                if wanted not in self.ranges.get(name, ANY_SIZE):
                    return f"{name} = {expr} = {wanted}: expected a size in {self.ranges.get(name, ANY_SIZE)}"
        for fact in self.inequalities:
            if fact.symbols() <= shape.keys() and fact.evaluate(shape) < 0:
                return f"{fact} = {fact.evaluate(shape)}: expected 0 or more"
        return None

    def samples(self, k: int = 64, seed: int = 0, symbols: Iterable[str] = ()) -> tuple[dict[str, int], ...]:
        """Up to `k` legal shapes over the domain's symbols and `symbols`; see samples.py."""
        from onnx_symmem.expr.samples import draw

        memo, names = self.memo("samples"), tuple(sorted({*symbols}.difference(self.symbols())))
        key = k, seed, names  # symbols of the domain have sizes in any case
        if key not in memo:
            memo[key] = draw(self, k, seed, names)
        found: tuple[dict[str, int], ...] = memo[key]
        return found
