"""Which version of a model of several runs at a shape, and what that one takes: exact, without a run.

Only the guard is run, on the sizes of the inputs in place of their shapes. The profile of the whole file has
rows for every branch; those of the version that runs, and of the nodes around it, are what a run takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import onnx

from onnx_symmem.errors import DomainError, UnsupportedModel
from onnx_symmem.expr.expression import Expr
from onnx_symmem.graph.load import LoadedModel
from onnx_symmem.memory.profile import BOUND, EXACT, UNKNOWN, MemoryProfile
from onnx_symmem.rewrite.choice import LIMIT
from onnx_symmem.rewrite.version_record import versions_of
from onnx_symmem.rewrite.versions import NO_LIMIT
from onnx_symmem.run.shape_program import ShapeProgram, shape_program
from onnx_symmem.shapes.table import ModelShapes

__all__ = ["Branches", "branches_of"]


@dataclass(frozen=True)
class Branches:
    """The versions of a model: `conditions` are the names whose first true one says which version runs.

    `about` is what the file's metadata says of each.
    """

    model: LoadedModel
    shapes: ModelShapes
    conditions: tuple[str, ...]
    about: Mapping[str, Any]

    @property
    def count(self) -> int:
        """How many versions there are."""
        return len(self.conditions) + 1

    def name(self, version: int) -> str:
        """What the file calls a version: the order it is, or its level."""
        said = self.about["versions"][version]
        return str(said.get("order", f"level {said.get('level', version)}"))

    @property
    def has_limit(self) -> bool:
        """Whether a memory limit decides, too."""
        return any(i.name == LIMIT for i in self.model.proto.graph.input)

    @property
    def limit(self) -> int | None:
        """The memory limit of the file; None where it sets none, or takes none."""
        said = self.about.get("limit", {}).get("default")
        return said if self.has_limit and said != NO_LIMIT else None

    def version_at(self, shape: Mapping[str, int], limit: int | None = None) -> int:
        """The version that runs at a shape, a size per dim of the inputs; `limit` None: the file's own."""
        known = self.shapes.domain.completed(shape)
        missing = sorted(self._guard.symbols - known.keys())
        if missing:
            raise DomainError(f"no size is given for {missing[0]!r}, which decides the version that runs")
        given = {LIMIT: np.array(limit, np.int64)} if limit is not None and self.has_limit else None
        flags = self._guard.at(known, given)
        return next((k for k, flag in enumerate(flags) if flag.item()), len(flags))

    @cached_property
    def _guard(self) -> ShapeProgram:
        """The guard alone."""
        program = shape_program(self.model, self.shapes, self.conditions, (LIMIT,))
        if program is None:
            raise UnsupportedModel(
                f"{self.model.label}: its guard does not decide by shapes; optimize it anew"
            )
        return program

    def rows(self, found: MemoryProfile, version: int) -> tuple[int, ...]:
        """Rows of the model's profile that a run of a version goes through."""
        return tuple(sorted((*self.guard_rows(found), *self.own_rows(found, version))))

    def guard_rows(self, found: MemoryProfile) -> tuple[int, ...]:
        """Rows of the nodes that decide, which every run goes through."""
        guarded = self._guarded(found)
        return tuple(k for k, moment in enumerate(found.moments) if moment.node not in guarded)

    def own_rows(self, found: MemoryProfile, version: int) -> tuple[int, ...]:
        """Rows that a run goes through from when a version starts."""
        nested = len(self.conditions)
        way = ("else_branch",) * version + ("then_branch",) * (version < nested)
        guarded = self._guarded(found)
        return tuple(
            k for k, moment in enumerate(found.moments) if moment.node in guarded and _is_on(moment.path, way)
        )

    def _guarded(self, found: MemoryProfile) -> frozenset[int]:
        """The nodes of the main graph whose branches are versions."""
        names = self.about["branches"]
        return frozenset(n.index for n in found.plan.view.nodes if n.name.startswith(names))

    def members(self, found: MemoryProfile, version: int) -> tuple[Expr, ...]:
        """Distinct expressions of these rows; their maximum is the peak of the version."""
        return tuple(dict.fromkeys(found.in_use.row(k) for k in self.rows(found, version)))

    def label(self, found: MemoryProfile, version: int) -> str:
        """How these rows are to be read: exact, bound (of control flow inside the version), or unknown."""
        if found.not_counted:
            return UNKNOWN
        guarded = self._guarded(found)
        depth = max(version + (version < len(self.conditions)), 1)
        inner = any(
            found.moments[k].bound
            or len(found.moments[k].path) > (depth if found.moments[k].node in guarded else 0)
            for k in self.rows(found, version)
        )
        return BOUND if inner else EXACT


def _is_on(path: Sequence[tuple[str, int]], way: Sequence[str]) -> bool:
    """Whether a place inside nested Ifs is passed on the way to a version's branch, or lies in it."""
    names = tuple(name for name, _ in path)
    return names[: len(way)] == tuple(way[: len(names)])


def branches_of(model: LoadedModel, shapes: ModelShapes) -> Branches | None:
    """The versions of a model that `optimize` wrote with several; None for other models."""
    about = versions_of(model.proto)
    if about is None:
        return None
    conditions = tuple(_conditions(model.proto.graph, about["branches"]))
    if not conditions:
        return None
    return Branches(model, shapes, conditions, about)


def _conditions(graph: onnx.GraphProto, prefix: str) -> Iterator[str]:
    for node in graph.node:
        if node.op_type == "If" and node.name.startswith(prefix):
            yield node.input[0]
            yield from _conditions(next(a.g for a in node.attribute if a.name == "else_branch"), prefix)
