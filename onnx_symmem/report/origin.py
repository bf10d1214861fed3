"""Where a dim comes from, one node back: places in a model, and those that a node takes a place from.

A place is a dim of a tensor, or a number that an integer tensor holds (a target shape, say). The words and
sources for one op are in origin_computing.py and origin_moving.py; what no rule covers is found by comparing
expressions: a dim of an input that is the same, else the dims and numbers of inputs in which its symbols
occur.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from onnx_symmem.expr.expression import Expr
from onnx_symmem.expr.scaled import factor_text
from onnx_symmem.graph.view import OUTER, Node
from onnx_symmem.shapes.table import Dims, GraphShapes, ModelShapes
from onnx_symmem.shapes.values import INTEGER_TYPES, Estimate, Item, Real, read_tensor

__all__ = ["Level", "Origin", "Place", "Site", "origin", "origin_rule"]


@dataclass(eq=False, slots=True)
class Level:
    """One graph of a model: its shapes, and for a subgraph the node that holds it and the graph around."""

    shapes: GraphShapes
    model: ModelShapes
    parent: Level | None = None
    node: Node | None = None
    where: str = ""
    _items: dict[int, tuple[Expr | None, ...] | None] = field(default_factory=dict)
    _children: dict[tuple[int, str], Level | None] = field(default_factory=dict)

    def child(self, node: Node, name: str) -> Level | None:
        """The subgraph `name` of a node, None where inference did not get into it."""
        key = node.index, name
        if key not in self._children:
            inner = self.shapes.subgraphs.get(key)
            where = f"{self.where} / {node.label()} / {name}" if self.where else f"{node.label()} / {name}"
            self._children[key] = None if inner is None else Level(inner, self.model, self, node, where)
        return self._children[key]

    def walk(self) -> Iterator[Level]:
        """This graph and all below it, outer before inner."""
        yield self
        for index, name in self.shapes.subgraphs:
            inner = self.child(self.shapes.view.nodes[index], name)
            if inner is not None:
                yield from inner.walk()

    def items(self, value: int) -> tuple[Expr | None, ...] | None:
        """The numbers that an integer tensor holds, as far as they are known; None: nothing is."""
        if value not in self._items:
            self._items[value] = self._read(value)
        return self._items[value]

    def _read(self, value: int) -> tuple[Expr | None, ...] | None:
        view = self.shapes.view
        found = self.shapes.values.get(value)
        tensor = view.initializers.get(value)
        if found is None and tensor is not None and tensor.data_type in INTEGER_TYPES:
            found = read_tensor(tensor, self.model.view.folder)
        if found is not None:
            # What later nodes need may have made dims simpler than the numbers that inference followed.
            simplify = self.model.domain.simplify
            return tuple(None if e is None else simplify(e) for e in found.exprs)
        if view.values[value].kind == OUTER and self.parent is not None and value in view.outer:
            return self.parent.items(view.outer[value])
        return None


@dataclass(frozen=True, slots=True)
class Place:
    """A dim of a tensor (`axis`), or a number that it holds (`item`, counted through); the other is None."""

    level: Level
    value: int
    axis: int | None = None
    item: int | None = None

    @property
    def expr(self) -> Expr | None:
        """What is there, None where it is not known."""
        found: Sequence[Expr | None] | None
        if self.axis is not None:
            found, at = self.level.shapes.dims[self.value], self.axis
        else:
            found, at = self.level.items(self.value), self.item or 0
        return found[at] if found is not None and at < len(found) else None

    @property
    def shown(self) -> str | None:
        """What is there in words, floats that sizes were made into included."""
        if self.expr is not None:
            return str(self.expr)
        held = None if self.axis is not None else self.level.shapes.values.get(self.value)
        return None if held is None else float_text(held.items[self.item or 0])

    @property
    def tensor(self) -> str:
        """The name of the tensor."""
        return self.level.shapes.view.values[self.value].name

    @property
    def text(self) -> str:
        """The place in words."""
        return (
            f"{self.tensor}[{self.axis}]" if self.axis is not None else f"{self.tensor} element {self.item}"
        )


def float_text(item: Item) -> str | None:
    """A float that comes from sizes, as the steps that made it; None for other items."""
    if isinstance(item, float):
        return f"{item:g}"
    if isinstance(item, Real):
        factors = [(item.num, Expr.const(item.den))]
        if item.scale != 1.0:
            top, bottom = map(Expr.const, item.scale.as_integer_ratio())
            factors.append((top, bottom))
        return " * ".join(factor_text(*factor) for factor in factors)
    if not isinstance(item, Estimate):
        return None
    options = [
        " * ".join(factor_text(*factor) for factor in option.factors or ((option.num, option.den),))
        for option in item.options
    ]
    joined = ", ".join(options)
    return f"{'max' if item.largest else 'min'}({joined})" if len(options) > 1 else joined


@dataclass(frozen=True, slots=True)
class Origin:
    """What a node does to give a place what is there, and the places it takes that from."""

    words: str
    sources: tuple[Place, ...] = ()


@dataclass(frozen=True, slots=True)
class Site:
    """An output of a node, the place in question on it, and the node's inputs by their position."""

    place: Place
    node: Node
    output: int

    @property
    def axis(self) -> int:
        """The axis in question, -1 where it is a number that is held."""
        return -1 if self.place.axis is None else self.place.axis

    @property
    def item(self) -> int:
        """Which number is in question."""
        return self.place.item or 0

    @property
    def expr(self) -> Expr | None:
        """What is at the place."""
        return self.place.expr

    @property
    def rank(self) -> int:
        """Number of dims of the output."""
        return len(self.place.level.shapes.dims[self.place.value] or ())

    def attr(self, name: str, default: Any = None) -> Any:
        """An attribute of the node."""
        return self.node.attributes.get(name, default)

    def has(self, k: int) -> bool:
        """Whether input k is there."""
        return k < len(self.node.inputs) and self.node.inputs[k] >= 0

    def inputs(self) -> Iterator[int]:
        """Positions of the inputs that are there."""
        return (k for k, value in enumerate(self.node.inputs) if value >= 0)

    def name(self, k: int) -> str:
        """Name of input k."""
        return self.place.level.shapes.view.values[self.node.inputs[k]].name

    def dims(self, k: int) -> Dims | None:
        """Dims of input k, None where they are not known or it is left out."""
        return self.place.level.shapes.dims[self.node.inputs[k]] if self.has(k) else None

    def items(self, k: int) -> tuple[Expr | None, ...] | None:
        """Numbers that input k holds."""
        return self.place.level.items(self.node.inputs[k]) if self.has(k) else None

    def ints(self, k: int) -> tuple[int, ...] | None:
        """The same where all are constants, else None."""
        found = self.items(k)
        numbers = [None if e is None else e.as_int() for e in found or ()]
        return None if found is None or None in numbers else tuple(n for n in numbers if n is not None)

    def dim(self, k: int, axis: int) -> Place:
        """A dim of input k."""
        return Place(self.place.level, self.node.inputs[k], axis)

    def number(self, k: int, item: int = 0) -> Place:
        """A number that input k holds."""
        return Place(self.place.level, self.node.inputs[k], None, item)

    def same(self, k: int, axis: int, words: str = "") -> Origin | None:
        """The origin of a dim that is that of an input, None where it is not."""
        dims = self.dims(k)
        if dims is None or not 0 <= axis < len(dims):
            return None
        return Origin(words or f"the size of {self.dim(k, axis).text}", (self.dim(k, axis),))


Rule = Callable[[Site], Origin | None]
_RULES: dict[str, Rule] = {}


def origin_rule(*ops: str) -> Callable[[Rule], Rule]:
    """Register the decorated function for ops; it gives None where it cannot tell."""

    def register(function: Rule) -> Rule:
        _RULES.update(dict.fromkeys(ops, function))
        return function

    return register


def origin(site: Site) -> Origin:
    """Where a node takes from what is at one place of its output."""
    rule = _RULES.get(site.node.op)
    found = rule(site) if rule is not None else None
    return found or _by_comparison(site)


def _by_comparison(site: Site) -> Origin:
    expr = site.expr
    if expr is None:
        return Origin("it is not known")
    if site.place.axis is not None:
        for k in site.inputs():
            dims = site.dims(k)
            if dims is not None and len(dims) == site.rank and dims[site.axis] == expr:
                return Origin(f"the size of {site.dim(k, site.axis).text}", (site.dim(k, site.axis),))
    if expr.is_const:
        return Origin(f"a number that {site.node.op} gives")
    places = list(_places(site))
    for place in places:
        if place.expr == expr:
            return Origin(f"what {place.text} is", (place,))
    missing, chosen = set(expr.symbols()), []
    for place in places:
        found = place.expr
        if found is not None and missing & found.symbols():
            missing -= found.symbols()
            chosen.append(place)
    named = ", ".join(place.text for place in chosen)
    return Origin(f"{site.node.op} computes it from {named}" if named else site.node.op, tuple(chosen))


def _places(site: Site) -> Iterator[Place]:
    """Dims of the inputs, then the numbers that they hold."""
    for k in site.inputs():
        for axis in range(len(site.dims(k) or ())):
            yield site.dim(k, axis)
    for k in site.inputs():
        yield from (site.number(k, item) for item in range(len(site.items(k) or ())))
