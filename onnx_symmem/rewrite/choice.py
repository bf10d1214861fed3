"""Which version of a model runs at a shape: the rule, as it is computed outside a graph.

Inside the domain that was planned both policies are one rule: the first version runs that takes no more
than a reach. Under `least` that is the least that any version takes at these shapes; under `fits` the limit,
or that where it is larger. So a version that does not fit never runs in place of one that takes less, and no
version in place of an earlier one that takes as little.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from onnx_symmem.expr.domain import Domain
from onnx_symmem.expr.expression import Expr

__all__ = ["FITS", "LEAST", "LIMIT", "Guard", "InputDims"]

FITS, LEAST = "fits", "least"
LIMIT = "symmem_memory_limit"
"""Name of the input that holds the memory limit in bytes."""

InputDims = tuple[str, tuple[Expr, ...]]
"""(name of a graph input, its dims)."""


@dataclass(frozen=True)
class Guard:
    """What is decided: which of `versions`, each a maximum of expressions in bytes, runs at a shape.

    `inputs` are the graph inputs with dims that are not constant; shapes outside `domain` are not planned.
    """

    inputs: tuple[InputDims, ...]
    domain: Domain
    versions: tuple[tuple[Expr, ...], ...]
    policy: str

    @property
    def told(self) -> frozenset[str]:
        """The symbols that the shapes of the inputs tell."""
        return frozenset(s for _, dims in self.inputs for d in dims for s in self.domain.solved(d).symbols())

    @property
    def compared(self) -> range:
        """The versions whose peaks are computed: all of them.

        Only where no input's shape tells the last one's under `fits` it is not, and runs where no other fits.
        """
        last = frozenset(s for e in self.versions[-1] for s in self.domain.solved(e).symbols())
        return range(len(self.versions) - (self.policy == FITS and not last <= self.told))

    @property
    def safest(self) -> int:
        """The version for shapes that were not planned."""
        return len(self.versions) - 1 if self.policy == FITS else 0

    def peak(self, version: int, shape: Mapping[str, int]) -> int:
        """Peak of a version at a shape of the domain, in bytes."""
        return max(e.evaluate(shape) for e in self.versions[version])

    def version_at(self, shape: Mapping[str, int], limit: int = 0) -> int:
        """The version that runs at a shape, given by the symbols of the inputs, under a limit in bytes."""
        known = {n: v for n, v in shape.items() if n not in self.domain.equalities}
        if not self.domain.contains(shape):
            return self.safest
        peaks = [self.peak(k, known) for k in self.compared]
        if len(peaks) < len(self.versions):
            return next((k for k, value in enumerate(peaks) if value <= limit), self.safest)
        reach = min(peaks) if self.policy == LEAST else max(limit, min(peaks))
        return next(k for k, value in enumerate(peaks) if value <= reach)
