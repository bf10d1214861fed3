"""The result of shape inference: an expression per dim, and what had to be assumed or stayed unknown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from onnx_symmem.expr.domain import Domain
from onnx_symmem.expr.expression import Expr
from onnx_symmem.graph.view import GraphView, ModelView
from onnx_symmem.shapes.values import PartialValue

__all__ = [
    "OTHER_RANK",
    "Assumption",
    "Dims",
    "GraphShapes",
    "Limit",
    "ModelShapes",
    "Relation",
    "UnknownDim",
]

Dims = tuple[Expr, ...]

OTHER_RANK = "the file declares another rank"


@dataclass(frozen=True, slots=True)
class UnknownDim:
    """A dim that no rule could express: `symbol` stands for it, at most `bound` where one is known.

    `axis` is -1 where not even the rank is known; `symbol` is then empty.
    """

    tensor: str
    axis: int
    op: str
    node: str
    reason: str
    symbol: str
    bound: Expr | None = None


@dataclass(frozen=True, slots=True)
class Relation:
    """A fact that an operator states about dims, e.g. equal element counts on both sides of a Reshape.

    `kind` says how to read the two sides: elements (the products of the dims are equal), sum (left is
    the sum of right), broadcast (left is the broadcast of right), or equal.
    """

    kind: str
    left: Dims
    right: Dims
    node: str

    @property
    def text(self) -> str:
        """The relation as one line, e.g. `[batch, seq, 4, 16] = [4*batch, seq, 16] elements`."""
        if self.kind == "elements":
            return f"[{', '.join(map(str, self.left))}] = [{', '.join(map(str, self.right))}] elements"
        join = {"sum": " + ", "broadcast": ", "}.get(self.kind, " = ")
        right = join.join(f"({d})" if join == " + " and len(d.terms) > 1 else str(d) for d in self.right)
        left = ", ".join(map(str, self.left))
        return f"{left} = broadcast({right})" if self.kind == "broadcast" else f"{left} = {right}"


@dataclass(frozen=True, slots=True)
class Assumption:
    """What the model needs in order to run, or what its file claims, beyond what inference proved.

    `kind` is equal (the sides are equal in every run), equal_or_one (equal, or one of them is 1, which
    broadcasts), nonempty (`left` is at least 1), declared (the file says `right` of a dim inferred as `left`;
    not used), adopted (the file's dim is used, as nothing could be inferred) or default (an initializer that
    is also an input keeps its value); in the last two `left` and `right` are the same and `reason` says it
    all. What no shape meets is a contradiction of the model: never (the node cannot run) or contradicted (the
    file says `right` of a dim that is `left`).
    """

    left: Expr
    right: Expr
    node: str
    reason: str
    kind: str = "equal"

    @property
    def text(self) -> str:
        """The assumption as one line."""
        if self.kind in ("adopted", "default"):
            return self.reason
        if self.kind == "nonempty":
            return f"{self.left} >= 1"
        if self.kind == "never":
            return f"needs {self.left} == {self.right}, which holds at no shape"
        if self.kind == "contradicted":
            if self.reason == OTHER_RANK:
                return f"declared with rank {self.right}, inferred rank {self.left}; the inferred one is used"
            return f"declared {self.right}, inferred {self.left}: never the same; the inferred size is used"
        return f"{self.left} == {self.right}" + (" (or 1)" if self.kind == "equal_or_one" else "")


@dataclass(frozen=True, slots=True)
class Limit:
    """A bound on the shapes that the model accepts, found in its operators: `expr` >= 0 in every run.

    Where the bound concerns one symbol alone, `symbol` and `lo`, `hi` or `divisor` say so.
    """

    expr: Expr
    node: str
    reason: str
    symbol: str = ""
    lo: int | None = None
    hi: int | None = None
    divisor: int = 1

    @property
    def text(self) -> str:
        """The limit as one line, e.g. `T <= 512`."""
        if self.divisor != 1:
            return f"{self.symbol} % {self.divisor} == 0"
        if self.symbol and self.hi is not None:
            return f"{self.symbol} <= {self.hi}"
        if self.symbol and self.lo is not None:
            return f"{self.symbol} >= {self.lo}"
        return f"{self.expr} >= 0"


@dataclass(frozen=True)
class GraphShapes:
    """Shapes of one graph; every tuple is indexed like `view.values`.

    `dims` holds None where the rank is unknown (and for sequences); `elem_types` are TensorProto data
    types, 0 where unknown. `values` are the small tensors whose contents inference followed.
    """

    view: GraphView
    dims: tuple[Dims | None, ...]
    elem_types: tuple[int, ...]
    values: Mapping[int, PartialValue]
    subgraphs: Mapping[tuple[int, str], GraphShapes]

    def of(self, name: str) -> Dims | None:
        """Dims of the value called `name`; KeyError where there is none."""
        return self.dims[self.view.index[name]]

    def walk(self) -> Iterator[GraphShapes]:
        """This graph and all subgraphs below it, outer before inner."""
        yield self
        for sub in self.subgraphs.values():
            yield from sub.walk()


@dataclass(frozen=True)
class ModelShapes:
    """Shapes of a whole model over `domain`: the given domain narrowed to shapes the model accepts."""

    view: ModelView
    domain: Domain
    graph: GraphShapes
    unknowns: tuple[UnknownDim, ...]
    relations: tuple[Relation, ...]
    assumptions: tuple[Assumption, ...]
    limits: tuple[Limit, ...]
    input_symbols: tuple[str, ...]
