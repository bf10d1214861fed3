"""Ifs of a model whose conditions the shapes of its inputs decide: which branch runs, and what it takes.

Rows of a profile are exact for the branch that is taken. Where that is known of every If of the main graph,
and nothing else is a bound, so is what is said of a shape.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from onnx_symmem.graph.load import LoadedModel
from onnx_symmem.memory.profile import BOUND, EXACT, UNKNOWN, MemoryProfile
from onnx_symmem.run.shape_program import ShapeProgram, shape_program
from onnx_symmem.shapes.table import ModelShapes

__all__ = ["DecidedIfs", "decided_ifs"]

_BRANCHES = ("then_branch", "else_branch")


@dataclass(frozen=True)
class DecidedIfs:
    """The `nodes` of the main graph that are such Ifs, in order; `program` computes their conditions."""

    shapes: ModelShapes
    nodes: tuple[int, ...]
    program: ShapeProgram | None

    def taken(self, shape: Mapping[str, int]) -> tuple[str, ...]:
        """The branch of each that runs at a shape."""
        if self.program is None:
            return ()
        flags = self.program.at(self.shapes.domain.completed(shape))
        return tuple(_BRANCHES[not flag.item()] for flag in flags)

    def ways(self) -> tuple[tuple[str, ...], ...]:
        """All that may be taken."""
        if self.program is not None and not self.program.symbols:
            return (self.taken({}),)
        return tuple(product(_BRANCHES, repeat=len(self.nodes)))

    def rows(self, found: MemoryProfile, taken: Sequence[str]) -> tuple[int, ...]:
        """Rows of the model's profile that a run goes through."""
        branch = dict(zip(self.nodes, taken, strict=True))
        return tuple(
            k
            for k, moment in enumerate(found.moments)
            if not moment.path or branch.get(moment.node, moment.path[0][0]) == moment.path[0][0]
        )

    def label(self, found: MemoryProfile, rows: Iterable[int]) -> str:
        """How these rows are to be read."""
        if found.not_counted:
            return UNKNOWN
        return BOUND if any(_is_bound(found, k, self.nodes) for k in rows) else EXACT


def _is_bound(found: MemoryProfile, row: int, decided: Collection[int]) -> bool:
    moment = found.moments[row]
    return moment.bound or len(moment.path) > (moment.node in decided)


def decided_ifs(model: LoadedModel, shapes: ModelShapes, most: int | None = None) -> DecidedIfs:
    """The Ifs of a model's main graph that shapes decide, the first `most` of them."""
    told = {*shapes.input_symbols, *shapes.domain.equalities}
    found: dict[int, str] = {}
    for node in shapes.graph.view.nodes:
        if node.op != "If" or node.domain or (most is not None and len(found) >= most):
            continue
        condition = shapes.graph.view.values[node.inputs[0]].name
        program = shape_program(model, shapes, [condition])
        # What data decides may come out smaller, and the other branch be taken then.
        if program is not None and program.symbols <= told:
            found[node.index] = condition
    program = shape_program(model, shapes, list(found.values())) if found else None
    return DecidedIfs(shapes, tuple(found) if program is not None else (), program)
